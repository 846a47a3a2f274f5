//! Tables that fit the terminal.

use crate::output::{text_width, width, wrapped};

/// How narrow the first column, the names, may become before other columns are left out.
const NARROWEST: usize = 20;

/// Prints a table: the first column to the left, the others to the right. On a narrow terminal names are wrapped and
/// columns left out, the last one first, those without a header last.
pub fn table<const N: usize>(header: &[String; N], rows: &[[String; N]]) {
    table_without(header, rows, &[]);
}

/// The same, with the columns that are left out first.
pub fn table_without<const N: usize>(header: &[String; N], rows: &[[String; N]], first: &[usize]) {
    let (lines, hidden) = fitted(header, rows, first, width());
    lines.iter().for_each(|line| say!("{line}"));
    if !hidden.is_empty() {
        let note = format!("Left out on this narrow terminal: {}; --json has all.", hidden.join(", "));
        wrapped(&note, text_width()).iter().for_each(|line| say!("{line}"));
    }
}

/// The lines of a table within a width, and the headers of the columns that are not in them.
fn fitted<'a, const N: usize>(
    header: &'a [String; N],
    rows: &'a [[String; N]],
    first: &[usize],
    width: Option<usize>,
) -> (Vec<String>, Vec<&'a str>) {
    let widest = |i: usize| {
        let cells = rows.iter().chain([header]).map(|row| row[i].chars().count());
        cells.max().unwrap_or(0)
    };
    let widths: [usize; N] = std::array::from_fn(widest);
    let limit = width.unwrap_or(usize::MAX);
    let mut kept: Vec<usize> = (0..N).collect();
    let others = |kept: &[usize]| kept[1..].iter().map(|i| widths[*i] + 2).sum::<usize>();
    for place in order(header, first) {
        if kept.len() <= 2 || widths[0].min(NARROWEST) + others(&kept) <= limit {
            break;
        }
        kept.retain(|i| *i != place);
    }
    let names = widths[0].min(limit.saturating_sub(others(&kept)).max(1));
    let lines = std::iter::once(header).chain(rows).flat_map(|row| cells(row, &kept, names, &widths));
    let hidden = (0..N).filter(|i| !kept.contains(i)).map(|i| header[i].as_str()).collect();
    (lines.collect(), hidden)
}

/// In which order columns are left out.
fn order<const N: usize>(header: &[String; N], first: &[usize]) -> Vec<usize> {
    let rest = (1..N).rev().filter(|i| !first.contains(i));
    let (named, nameless): (Vec<usize>, Vec<usize>) = rest.partition(|i| !header[*i].is_empty());
    [first, &named, &nameless].concat()
}

/// The lines of one row: more than one where its name is wrapped.
fn cells<const N: usize>(
    row: &[String; N],
    kept: &[usize],
    names: usize,
    widths: &[usize; N],
) -> Vec<String> {
    let mut name = wrapped(&row[0], names).into_iter();
    let mut line = format!("{:<names$}", name.next().unwrap_or_default());
    for i in &kept[1..] {
        line.push_str(&format!("  {:>width$}", row[*i], width = widths[*i]));
    }
    std::iter::once(line).chain(name.map(|more| format!("  {more}"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> ([String; 4], [[String; 4]; 2]) {
        let header = ["mechanism", "loss", "memory", ""].map(String::from);
        let long = "binary tree with an optimal decoder";
        (
            header,
            [[long, "1.5e6", "500 rows", "ok"], ["fft", "2e6", "-", "DIFFERS"]].map(|r| r.map(String::from)),
        )
    }

    #[test]
    fn a_pipe_has_no_limit() {
        let (header, rows) = example();
        let (lines, hidden) = fitted(&header, &rows, &[], None);
        assert_eq!(lines.len(), 3);
        assert_eq!(lines[1], "binary tree with an optimal decoder  1.5e6  500 rows       ok");
        assert_eq!(lines[2], "fft                                    2e6         -  DIFFERS");
        assert!(hidden.is_empty());
    }

    #[test]
    fn every_width_is_kept() {
        let (header, rows) = example();
        for limit in 22..80 {
            let (lines, hidden) = fitted(&header, &rows, &[], Some(limit));
            let longest = lines.iter().map(|line| line.chars().count()).max().unwrap();
            assert!(longest <= limit, "{limit}: {lines:?}");
            // Names are wrapped before columns are left out.
            assert_eq!(hidden.is_empty(), limit >= 46, "{limit}: {lines:?}");
            assert!(lines.iter().any(|line| line.contains("binary tree")), "{limit}: {lines:?}");
        }
        // A verdict stays longer than a named column, and what is named first goes first.
        assert_eq!(fitted(&header, &rows, &[], Some(40)).1, ["memory"]);
        assert_eq!(fitted(&header, &rows, &[1], Some(40)).1, ["loss"]);
    }
}
