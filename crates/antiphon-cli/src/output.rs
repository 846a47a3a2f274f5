//! What all commands print alike.

use antiphon::mechanism::Mechanism;
use antiphon::sensitivity::{Kind, Sensitivity};
pub use antiphon::text::{bound, given, short_bound};
use serde::Serialize;
use std::io::{BufWriter, ErrorKind, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

/// Prints a line on standard output; ends quietly where nobody reads any more.
macro_rules! say {
    ($($text:tt)*) => { $crate::output::line(format_args!($($text)*)) };
}

/// Whether the one JSON object is out.
static PRINTED: AtomicBool = AtomicBool::new(false);

/// One JSON object on standard output. It may have millions of entries, and is not put together in memory first.
pub fn print_json(value: &impl Serialize) -> anyhow::Result<()> {
    let mut out = BufWriter::with_capacity(1 << 16, std::io::stdout().lock());
    match serde_json::to_writer_pretty(&mut out, value) {
        Err(error) if !error.is_io() => return Err(error.into()),
        written => {
            printed(written.map_err(Into::into).and_then(|()| writeln!(out)).and_then(|()| out.flush()))
        }
    }
    PRINTED.store(true, Ordering::Relaxed);
    Ok(())
}

/// Whether [`print_json`] was called.
pub fn printed_json() -> bool {
    PRINTED.load(Ordering::Relaxed)
}

/// The width of the terminal, where standard output is one; a pipe has no limit.
pub fn width() -> Option<usize> {
    let stdout = std::io::stdout();
    let size = stdout.is_terminal().then(|| terminal_size::terminal_size_of(&stdout))??;
    Some(usize::from(size.0.0))
}

/// The width of running text: that of the terminal, 100 at most.
pub fn text_width() -> usize {
    width().unwrap_or(100).clamp(20, 100)
}

/// What is claimed of a mechanism, with the names that all commands use.
pub fn figures_json(mechanism: &Mechanism, sensitivity: Option<&Sensitivity>) -> serde_json::Value {
    let (schema, claims) = (mechanism.schema(), mechanism.claims());
    let mut figures = serde_json::json!({
        "steps": schema.steps(),
        "schema": schema,
        "workload": mechanism.workload().describe(),
        "loss": claims.loss,
        "lower_bound": claims.lower_bound,
        "bound": mechanism.bound_class().name(),
        "gap": claims.lower_bound.map(|_| claims.gap()),
        "rmse": claims.rmse(schema.steps()),
        "sensitivity": claims.sensitivity,
        "kind": mechanism.noise().kind(),
    });
    if let Some(found) = sensitivity {
        figures["sensitivity_kind"] = serde_json::json!(found.kind());
        figures["sensitivity_lower"] = found.lower.into();
    }
    figures
}

/// The same for people.
pub fn print_figures(mechanism: &Mechanism, sensitivity: Option<&Sensitivity>) {
    let (schema, claims) = (mechanism.schema(), mechanism.claims());
    say!("  workload      {}", mechanism.workload().describe());
    say!("  participation {}", schema.describe());
    say!(
        "  loss          {}   (total squared error per coordinate at noise multiplier 1, clip norm 1)",
        figure(claims.loss)
    );
    say!("  rmse          {}   (per step)", figure(claims.rmse(schema.steps())));
    match claims.lower_bound {
        Some(lower_bound) => say!(
            "  gap           loss proven within {} of the best possible (lower bound {}, numerically certified)",
            percent(claims.gap()),
            figure(lower_bound)
        ),
        None => say!("  gap           not known: there is no lower bound for this run"),
    }
    let kind = match sensitivity {
        Some(found) if found.kind() == Kind::Exact => "exact".into(),
        Some(found) => format!("upper bound; at least {}", bound(found.lower, false)),
        None => "upper bound".into(),
    };
    say!("  sensitivity   {} ({kind}, vector contributions)", bound(claims.sensitivity, true));
}

/// How the user starts this program: a clone without an installation goes through cargo.
pub fn program() -> &'static str {
    if std::env::var_os("CARGO").is_some() { "cargo run --release --" } else { "antiphon" }
}

/// 0 where all checks passed, 1 where one failed.
pub fn answer(yes: bool) -> ExitCode {
    ExitCode::from(u8::from(!yes))
}

/// A word as a shell wants it.
pub fn quoted(word: &std::ffi::OsStr) -> String {
    let word = word.to_string_lossy();
    let plain = |c: char| c.is_alphanumeric() || "-_./:=,".contains(c);
    if word.chars().all(plain) { word.into_owned() } else { format!("'{}'", word.replace('\'', "'\\''")) }
}

/// See `say!`.
pub fn line(text: std::fmt::Arguments<'_>) {
    printed(writeln!(std::io::stdout(), "{text}"));
}

/// Ends the program where standard output takes no more.
fn printed(written: std::io::Result<()>) {
    match written {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::BrokenPipe => {
            std::process::exit(141); // as a shell reports a broken pipe
        }
        Err(error) => {
            eprintln!("antiphon: standard output: {error}");
            std::process::exit(crate::failure::REFUSED.into());
        }
    }
}

/// A figure with thousands separated, to about seven significant digits.
pub fn figure(x: f64) -> String {
    if !x.is_finite() || x == 0.0 || !(1e-3..1e12).contains(&x.abs()) {
        return format!("{x:.6e}");
    }
    let decimals = (6 - x.abs().log10().floor() as i32).clamp(0, 9) as usize;
    let text = format!("{x:.decimals$}");
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let mut grouped = String::new();
    for (i, digit) in whole.chars().enumerate() {
        if i > 0 && (whole.len() - i) % 3 == 0 && !grouped.ends_with('-') {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    if fraction.is_empty() { grouped } else { format!("{grouped}.{fraction}") }
}

/// Text in lines of at most so many characters, broken at spaces.
pub fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.into()),
        }
    }
    lines
}

/// Bytes for people.
pub fn size(bytes: u64) -> String {
    let units = ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let power = bytes.max(1).ilog2() / 10;
    match power {
        0 => antiphon::text::counted(bytes as usize, "byte"),
        _ => format!("{:.1} {}", bytes as f64 / (1u64 << (10 * power)) as f64, units[power as usize]),
    }
}

/// A gap as a percentage with two significant digits, rounded up.
pub fn percent(gap: f64) -> String {
    let percent = (gap * 100.0).max(0.0);
    if percent == 0.0 {
        return "0%".into();
    }
    if percent.is_nan() || percent >= 1e6 {
        return format!("{percent:.1e}%");
    }
    let exponent = percent.log10().floor() as i32;
    let unit = 10f64.powi(exponent - 1);
    let up = (percent / unit).ceil() * unit;
    if exponent < -6 {
        format!("{up:.1e}%")
    } else {
        let decimals = (1 - exponent).clamp(0, 9) as usize;
        format!("{up:.decimals$}%")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_grouped_and_percentages_round_up() {
        assert_eq!(figure(653308.3726), "653,308.4");
        assert_eq!(figure(18.0735), "18.07350");
        assert_eq!(figure(-1234567.8), "-1,234,568");
        assert_eq!(figure(1e-9), "1.000000e-9");
        assert_eq!(wrapped("one two  three", 7), ["one two", "three"]);
        assert_eq!(wrapped("ε ≤ 17 indivisible", 6), ["ε ≤ 17", "indivisible"]);
        assert_eq!(
            (size(1), size(1023), size(1536)),
            ("1 byte".into(), "1023 bytes".into(), "1.5 KiB".into())
        );
        assert_eq!((size(3 << 30), size(u64::MAX)), ("3.0 GiB".into(), "16.0 EiB".into()));
        assert_eq!(percent(6.61e-4), "0.067%");
        assert_eq!(percent(f64::INFINITY), "inf%");
        assert_eq!(percent(0.0), "0%");
        assert_eq!(percent(0.5), "50%");
        assert_eq!(percent(1.02e-9), "1.1e-7%");
    }
}
