//! Line charts.

use super::axis::Axis;
use super::canvas::{Align, Canvas, Point, WHITE, fitted, text_width, widest};
use anyhow::{Result, ensure};
use plotters::style::RGBColor;

/// A line chart.
#[derive(Clone, Debug, Default)]
pub struct Lines {
    pub title: String,
    pub x_label: String,
    pub y_label: String,
    pub log_x: bool,
    pub log_y: bool,
    /// Where the x axis has labels, if these fit: the few places where points can be. Else it has round numbers.
    pub x_places: Vec<f64>,
    pub series: Vec<Series>,
}

/// One line. It breaks at points that cannot be shown: NaN, or zero on a logarithmic axis.
#[derive(Clone, Debug, Default)]
pub struct Series {
    pub name: String,
    pub points: Vec<(f64, f64)>,
    /// A solid line with marks, which suits few points and noisy lines; smooth lines look better without, and then
    /// differ by their dashes.
    pub marker: bool,
    /// Intervals: where they stand, their lower and their upper ends.
    pub bars: Vec<(f64, f64, f64)>,
    /// The name of another series, in whose colour this one is dashed. It is not in the legend.
    pub like: Option<String>,
}

/// Several line charts in one picture. They share one legend, and series of the same name look the same in all of them;
/// with more names than [`SHARED`], every chart has a legend of its own.
#[derive(Clone, Debug, Default)]
pub struct Grid {
    pub panels: Vec<Lines>,
    /// Panels side by side.
    pub columns: usize,
}

/// Names in one legend of several charts at most.
const SHARED: usize = 7;
/// Okabe and Ito's colours that are told apart with every kind of colour vision; yellow is too light for lines. Then grey and violet.
const COLORS: [RGBColor; 9] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(0, 0, 0),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
    RGBColor(130, 130, 130),
    RGBColor(102, 45, 145),
];
/// Lengths drawn and left out, in turns.
const DASHES: [&[f64]; 7] = [
    &[],
    &[8.0, 3.5],
    &[2.0, 3.0],
    &[10.0, 3.0, 2.0, 3.0],
    &[16.0, 4.0],
    &[10.0, 3.0, 2.0, 3.0, 2.0, 3.0],
    &[4.0, 6.0],
];
const GRID: RGBColor = RGBColor(222, 222, 222);
const FAINT: RGBColor = RGBColor(241, 241, 241);
const FRAME: RGBColor = RGBColor(110, 110, 110);

const TITLE: f64 = 15.0;
const LABEL: f64 = 13.0;
const TICK: f64 = 12.0;
/// The picture's edge, and between parts.
const EDGE: f64 = 12.0;
const SAMPLE: f64 = 34.0;
const LEGEND_ROW: f64 = 22.0;

/// Draws charts of `plot` pixels each.
pub fn draw(panels: &[Lines], columns: usize, plot: Point) -> Result<Canvas> {
    ensure!(!panels.is_empty() && columns > 0, "a picture needs a panel and a column");
    let axes = panels.iter().map(|panel| axes(panel, plot)).collect::<Vec<_>>();
    let labels = axes.iter().flat_map(|(_, y)| &y.ticks).map(|tick| tick.1.clone());
    let any = |filled: fn(&Lines) -> bool, room: f64| if panels.iter().any(filled) { room } else { 0.0 };
    let left = widest(labels, TICK)? + 8.0 + any(|panel| !panel.y_label.is_empty(), 22.0);
    let top = any(|panel| !panel.title.is_empty(), 28.0);
    let below = 24.0 + any(|panel| !panel.x_label.is_empty(), 20.0);
    // The last label of an axis is as wide to the right as to the left.
    let right = 20.0;
    let columns = columns.min(panels.len());
    let shared = names(panels);
    let alone = panels.len() > 1 && shared.len() > SHARED;
    let own: Vec<Legend> = match alone {
        true => panels
            .iter()
            .map(|panel| legend(names(std::slice::from_ref(panel)), plot.0))
            .collect::<Result<_>>()?,
        false => Vec::new(),
    };
    let room = own.iter().map(|legend| legend.rows.len()).max().unwrap_or(0) as f64 * LEGEND_ROW;
    let cell = (left + plot.0 + right, top + plot.1 + below + room + EDGE);
    let width = 2.0 * EDGE + cell.0 * columns as f64;
    let common = legend(if alone { Vec::new() } else { shared }, width - 2.0 * EDGE)?;
    let charts = EDGE + cell.1 * panels.len().div_ceil(columns) as f64;
    let mut canvas = Canvas::new(width, charts + common.rows.len() as f64 * LEGEND_ROW + EDGE / 2.0);
    for (k, (panel, axes)) in panels.iter().zip(&axes).enumerate() {
        let legend = own.get(k).unwrap_or(&common);
        let look = |series: &Series| {
            let wanted = series.like.as_ref().unwrap_or(&series.name);
            legend.names.iter().position(|(name, _)| name == wanted).unwrap_or(0)
        };
        let corner =
            (EDGE + cell.0 * (k % columns) as f64 + left, EDGE + cell.1 * (k / columns) as f64 + top);
        let middle = (corner.0 + plot.0 / 2.0, corner.1 + plot.1 / 2.0);
        let title = fitted(&panel.title, TITLE, plot.0)?;
        canvas.text(&panel.title, (middle.0, corner.1 - 16.0), title, Align::Center);
        let label = fitted(&panel.x_label, LABEL, plot.0)?;
        canvas.text(&panel.x_label, (middle.0, corner.1 + plot.1 + 34.0), label, Align::Center);
        let label = fitted(&panel.y_label, LABEL, plot.1)?;
        canvas.text(&panel.y_label, (corner.0 - left + 8.0, middle.1), label, Align::Upwards);
        frame(&mut canvas, axes, corner, plot);
        for series in &panel.series {
            for line in visible(&series.points, axes, corner, plot) {
                match series.like {
                    Some(_) => dashed(&mut canvas, &line, look(series), DASHES[1]),
                    None => stroke(&mut canvas, &line, look(series), series.marker),
                }
            }
            for &(x, low, high) in &series.bars {
                for line in visible(&[(x, low), (x, high)], axes, corner, plot) {
                    bar(&mut canvas, &line, look(series));
                }
            }
        }
        // Above all lines.
        for series in panel.series.iter().filter(|series| series.marker) {
            for line in visible(&series.points, axes, corner, plot) {
                marks(&mut canvas, &line, look(series));
            }
        }
    }
    for (k, legend) in own.iter().enumerate() {
        let x = EDGE + cell.0 * (k % columns) as f64 + left;
        let y = EDGE + cell.1 * (k / columns) as f64 + top + plot.1 + below;
        legend.draw(&mut canvas, (x, y));
    }
    common.draw(&mut canvas, (EDGE, charts));
    Ok(canvas)
}

/// The names that a legend explains, and where they stand in it.
struct Legend<'a> {
    /// The names of series, each once, and whether it has marks. The place of a name is its look.
    names: Vec<(&'a str, bool)>,
    /// Rows of looks and where they begin.
    rows: Vec<Vec<(usize, f64)>>,
}

impl Legend<'_> {
    fn draw(&self, canvas: &mut Canvas, corner: Point) {
        for (row, entries) in self.rows.iter().enumerate() {
            let y = corner.1 + (row as f64 + 0.5) * LEGEND_ROW - 4.0;
            for &(look, x) in entries {
                let (name, marker) = self.names[look];
                let x = x + corner.0;
                stroke(canvas, &[(x, y), (x + SAMPLE, y)], look, marker);
                if marker {
                    marks(canvas, &[(x + SAMPLE / 2.0, y)], look);
                }
                canvas.text(name, (x + SAMPLE + 7.0, y), LABEL, Align::Left);
            }
        }
    }
}

fn axes(panel: &Lines, plot: Point) -> (Axis, Axis) {
    let ends = |series: &Series| -> Vec<Point> {
        series.bars.iter().flat_map(|&(x, low, high)| [(x, low), (x, high)]).collect()
    };
    let points =
        || panel.series.iter().flat_map(move |series| [series.points.clone(), ends(series)].concat());
    // A label that cannot be measured cannot be drawn either, which is said then.
    let width = |label: &str| text_width(label, TICK).unwrap_or(0.0);
    let apart = |places: &[(f64, &str)]| {
        places
            .windows(2)
            .all(|pair| (pair[1].0 - pair[0].0) * plot.0 > (width(pair[0].1) + width(pair[1].1)) / 2.0 + 14.0)
    };
    let mut x = Axis::new(points().map(|point| point.0), panel.log_x, 0.02, (plot.0 / 55.0) as usize, apart);
    x.label(&panel.x_places, apart);
    let high_enough =
        |places: &[(f64, &str)]| places.windows(2).all(|pair| (pair[1].0 - pair[0].0) * plot.1 > TICK + 6.0);
    let y =
        Axis::new(points().map(|point| point.1), panel.log_y, 0.05, (plot.1 / 40.0) as usize, high_enough);
    (x, y)
}

/// The names of all series, each once, and whether it has marks.
fn names(panels: &[Lines]) -> Vec<(&str, bool)> {
    let mut names: Vec<(&str, bool)> = Vec::new();
    for series in panels.iter().flat_map(|panel| &panel.series).filter(|series| series.like.is_none()) {
        if !names.iter().any(|(name, _)| *name == series.name) {
            names.push((&series.name, series.marker));
        }
    }
    names
}

/// Fills rows of a legend. A series without a name needs none.
fn legend(names: Vec<(&str, bool)>, width: f64) -> Result<Legend<'_>> {
    let mut rows: Vec<(Vec<(usize, f64)>, f64)> = Vec::new();
    for (look, (name, _)) in names.iter().enumerate().filter(|(_, (name, _))| !name.is_empty()) {
        let entry = SAMPLE + 7.0 + text_width(name, LABEL)? + 24.0;
        match rows.last_mut() {
            Some((row, end)) if *end + entry <= width => {
                row.push((look, *end));
                *end += entry;
            }
            _ => rows.push((vec![(look, 0.0)], entry)),
        }
    }
    // All rows begin where the widest does, such that entries stand below each other.
    let widest = rows.iter().fold(0.0, |widest: f64, (_, end)| widest.max(end - 24.0));
    let shift = ((width - widest) / 2.0).max(0.0);
    let moved =
        |(row, _): (Vec<(usize, f64)>, f64)| row.into_iter().map(|(look, x)| (look, x + shift)).collect();
    let rows = rows.into_iter().map(moved).collect();
    Ok(Legend { names, rows })
}

fn frame(canvas: &mut Canvas, (x, y): &(Axis, Axis), corner: Point, plot: Point) {
    let (right, bottom) = (corner.0 + plot.0, corner.1 + plot.1);
    let inside = |place: &f64| (-1e-9..=1.0 + 1e-9).contains(place);
    let across = |value: f64| x.place(value).filter(inside).map(|place| corner.0 + place * plot.0);
    let up = |value: f64| y.place(value).filter(inside).map(|place| bottom - place * plot.1);
    let minor = |axis: &Axis| axis.minor.iter().map(|&value| (value, FAINT)).collect::<Vec<_>>();
    let major = |axis: &Axis| axis.ticks.iter().map(|tick| (tick.0, GRID)).collect::<Vec<_>>();
    for (value, color) in [minor(x), major(x)].concat() {
        if let Some(at) = across(value) {
            canvas.line(vec![(at, corner.1), (at, bottom)], color, 1.0);
        }
    }
    for (value, color) in [minor(y), major(y)].concat() {
        if let Some(at) = up(value) {
            canvas.line(vec![(corner.0, at), (right, at)], color, 1.0);
        }
    }
    for (value, label) in &x.ticks {
        if let Some(at) = across(*value) {
            canvas.line(vec![(at, bottom), (at, bottom + 4.0)], FRAME, 1.0);
            canvas.text(label, (at, bottom + 14.0), TICK, Align::Center);
        }
    }
    for (value, label) in &y.ticks {
        if let Some(at) = up(*value) {
            canvas.line(vec![(corner.0 - 4.0, at), (corner.0, at)], FRAME, 1.0);
            canvas.text(label, (corner.0 - 8.0, at), TICK, Align::Right);
        }
    }
    canvas.line(vec![corner, (corner.0, bottom), (right, bottom)], FRAME, 1.0);
}

/// The connected parts of a line on the canvas. Of many points in a column of pixels the first, lowest, highest and last
/// remain, which looks the same and keeps the SVG small.
fn visible(points: &[Point], (x, y): &(Axis, Axis), corner: Point, plot: Point) -> Vec<Vec<Point>> {
    let place =
        |&(a, b): &Point| Some((corner.0 + x.place(a)? * plot.0, corner.1 + (1.0 - y.place(b)?) * plot.1));
    let places: Vec<Option<Point>> = points.iter().map(place).collect();
    let parts = places.split(|place| place.is_none()).filter(|part| !part.is_empty());
    let column = |point: &Point| (point.0 * 2.0).floor();
    let thin = |part: &[Option<Point>]| {
        let part: Vec<Point> = part.iter().flatten().copied().collect();
        let mut kept = Vec::new();
        for same in part.chunk_by(|a, b| column(a) == column(b)) {
            let height = |&k: &usize, &l: &usize| same[k].1.total_cmp(&same[l].1);
            let (low, high) = ((0..same.len()).min_by(height), (0..same.len()).max_by(height));
            let mut chosen = vec![0, low.unwrap_or(0), high.unwrap_or(0), same.len() - 1];
            chosen.sort_unstable();
            chosen.dedup();
            kept.extend(chosen.into_iter().map(|k| same[k]));
        }
        kept
    };
    parts.map(thin).collect()
}

/// A line: solid if it has marks, else with the dashes of its look.
fn stroke(canvas: &mut Canvas, line: &[Point], look: usize, solid: bool) {
    dashed(canvas, line, look, if solid { &[] } else { DASHES[look % DASHES.len()] });
}

/// An interval: a line with short ends.
fn bar(canvas: &mut Canvas, line: &[Point], look: usize) {
    stroke(canvas, line, look, true);
    for &(x, y) in line {
        stroke(canvas, &[(x - 4.0, y), (x + 4.0, y)], look, true);
    }
}

fn dashed(canvas: &mut Canvas, line: &[Point], look: usize, pattern: &[f64]) {
    // Noise needs room to be seen as such.
    let width = if line.len() > 500 { 1.25 } else { 1.75 };
    for piece in dashes(line, pattern) {
        canvas.line(piece, COLORS[look % COLORS.len()], width);
    }
}

/// Cuts a line into dashes.
fn dashes(line: &[Point], pattern: &[f64]) -> Vec<Vec<Point>> {
    if pattern.is_empty() {
        return vec![line.to_vec()];
    }
    let (mut pieces, mut piece) = (Vec::new(), line[..1].to_vec());
    let (mut phase, mut left) = (0, pattern[0]);
    for pair in line.windows(2) {
        let (mut from, to) = (pair[0], pair[1]);
        loop {
            let length = (to.0 - from.0).hypot(to.1 - from.1);
            if length < left {
                left -= length;
                piece.push(to);
                break;
            }
            let share = left / length;
            from = (from.0 + share * (to.0 - from.0), from.1 + share * (to.1 - from.1));
            piece.push(from);
            if phase % 2 == 0 {
                pieces.push(std::mem::take(&mut piece));
            }
            phase = (phase + 1) % pattern.len();
            left = pattern[phase];
            piece = vec![from];
        }
    }
    if phase % 2 == 0 && piece.len() > 1 {
        pieces.push(piece);
    }
    pieces
}

/// Marks on a line, on every point if there is room.
fn marks(canvas: &mut Canvas, line: &[Point], look: usize) {
    const APART: f64 = 34.0;
    // Lines that run together have their marks at different places.
    let mut last = match line {
        [first, .., end] if line.len() as f64 * APART > (end.0 - first.0).abs() * 2.0 => {
            first.0 - APART + APART * (look % 5) as f64 / 5.0
        }
        _ => f64::NEG_INFINITY,
    };
    for &at in line {
        if (at.0 - last).abs() >= APART || line.len() < 12 {
            last = at.0;
            canvas.area(mark(at, look, 5.5), WHITE);
            canvas.area(mark(at, look, 4.2), COLORS[look % COLORS.len()]);
        }
    }
}

/// The outline of a mark: disc, square, triangle, diamond, cross, triangle on its head.
fn mark((x, y): Point, look: usize, radius: f64) -> Vec<Point> {
    let around = |corners: usize, turn: f64, radius: f64| -> Vec<Point> {
        let angle = |k: usize| (k as f64 / corners as f64 + turn) * std::f64::consts::TAU;
        (0..corners).map(|k| (x + radius * angle(k).sin(), y - radius * angle(k).cos())).collect()
    };
    match look % 6 {
        0 => around(24, 0.0, radius * 0.95),
        1 => around(4, 0.125, radius * 1.15),
        2 => around(3, 0.0, radius * 1.25),
        3 => around(4, 0.0, radius * 1.2),
        4 => {
            let (long, thin) = (radius, radius * 0.36);
            let arm =
                [(-thin, -long), (thin, -long), (thin, -thin), (long, -thin), (long, thin), (thin, thin)];
            let back =
                [(thin, long), (-thin, long), (-thin, thin), (-long, thin), (-long, -thin), (-thin, -thin)];
            arm.into_iter().chain(back).map(|(dx, dy)| (x + dx, y + dy)).collect()
        }
        _ => around(3, 0.5, radius * 1.25),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dashes_follow_the_line() {
        let line = [(0.0, 0.0), (3.0, 0.0), (3.0, 4.0)];
        let corner = vec![(2.5, 0.0), (3.0, 0.0), (3.0, 1.5)];
        assert_eq!(
            dashes(&line, &[2.0, 0.5]),
            [vec![(0.0, 0.0), (2.0, 0.0)], corner, vec![(3.0, 2.0), (3.0, 4.0)]]
        );
        assert_eq!(dashes(&line, &[]), vec![line.to_vec()]);
    }

    #[test]
    fn series_of_one_name_look_alike_and_breaks_are_kept() {
        let series =
            |name: &str, points| Series { name: name.into(), points, marker: false, ..Series::default() };
        let gap = series("b", vec![(0.0, 1.0), (1.0, 2.0), (2.0, f64::NAN), (3.0, 1.0), (4.0, 1.0)]);
        let one = Lines { series: vec![series("a", vec![]), gap.clone()], ..Lines::default() };
        let two = Lines { series: vec![gap.clone(), series("c", vec![])], ..Lines::default() };
        assert_eq!(names(&[one.clone(), two]), [("a", false), ("b", false), ("c", false)]);
        let plot = (100.0, 100.0);
        let parts = visible(&gap.points, &axes(&one, plot), (0.0, 0.0), plot);
        assert_eq!(parts.iter().map(Vec::len).collect::<Vec<_>>(), [2, 2]);
    }

    #[test]
    fn many_points_become_few_without_losing_the_extremes() {
        let wave = |k: u32| (f64::from(k), if k == 5000 { 9.0 } else { f64::from(k % 7) });
        let series = Series { points: (0..100_000).map(wave).collect(), ..Series::default() };
        let chart = Lines { series: vec![series.clone()], ..Lines::default() };
        let plot = (300.0, 200.0);
        let parts = visible(&series.points, &axes(&chart, plot), (0.0, 0.0), plot);
        assert!(parts[0].len() < 2500, "{}", parts[0].len());
        let top = parts[0].iter().fold(f64::MAX, |top, point| top.min(point.1));
        assert!(parts[0].iter().filter(|point| point.1 == top).count() == 1);
    }
}
