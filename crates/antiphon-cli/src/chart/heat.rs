//! Matrices as pictures.

use super::axis::{linear, short};
use super::canvas::{Align, Canvas, DENSITY, Image, fitted, widest};
use anyhow::{Result, ensure};
use plotters::style::RGBColor;

/// Matrices side by side.
#[derive(Clone, Debug, Default)]
pub struct HeatMaps {
    pub title: String,
    pub panels: Vec<HeatMap>,
    /// Panels side by side; 0 puts all in one row.
    pub columns: usize,
}

/// One matrix: red entries are positive, blue ones negative, white ones zero, grey ones not a number.
#[derive(Clone, Debug, Default)]
pub struct HeatMap {
    pub title: String,
    pub rows: usize,
    pub columns: usize,
    /// Row after row.
    pub values: Vec<f64>,
    /// What is shown of entries that share a pixel.
    pub keep: Keep,
    pub compress: Compress,
    /// Labels at the multiples of this, for instance the steps of an epoch; round numbers otherwise.
    pub period: Option<usize>,
}

/// Which entry is shown of those that share a pixel. The mean would hide what is thin.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Keep {
    /// The one of largest magnitude: thin lines of entries stay visible among zeros.
    #[default]
    Largest,
    /// The one of smallest magnitude: thin lines of zeros stay visible among entries.
    Smallest,
}

/// How magnitudes become colours. A few large entries would leave all others white otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Compress {
    /// In proportion.
    #[default]
    None,
    /// By the logarithm, over so many decades below the largest magnitude; all below is white.
    Log(f64),
}

/// ColorBrewer's RdBu from zero to the positive and to the negative end: safe with every kind of colour vision.
const RED: [[f64; 3]; 6] = [
    [255.0, 255.0, 255.0],
    [253.0, 219.0, 199.0],
    [244.0, 165.0, 130.0],
    [214.0, 96.0, 77.0],
    [178.0, 24.0, 43.0],
    [103.0, 0.0, 31.0],
];
const BLUE: [[f64; 3]; 6] = [
    [255.0, 255.0, 255.0],
    [209.0, 229.0, 240.0],
    [146.0, 197.0, 222.0],
    [67.0, 147.0, 195.0],
    [33.0, 102.0, 172.0],
    [5.0, 48.0, 97.0],
];
/// The index of white; colours go as far on both sides.
const ZERO: u8 = 127;
const NAN: u8 = 255;
/// The longer side of a matrix has about so many pixels of the PNG.
const SIDE: usize = 700;
const FRAME: RGBColor = RGBColor(110, 110, 110);
const TITLE: f64 = 16.0;
const TICK: f64 = 11.0;
const BAR: f64 = 12.0;
const EDGE: f64 = 14.0;

/// From magnitudes to colours, with the largest magnitude that is told apart.
struct Scale {
    compress: Compress,
    most: f64,
}

impl Scale {
    fn new(map: &HeatMap) -> Self {
        let sizes = map.values.iter().map(|value| value.abs()).filter(|size| size.is_finite());
        let largest = sizes.fold(0.0, f64::max);
        let most = if largest > 0.0 { largest } else { 1.0 };
        Self { compress: map.compress, most }
    }

    /// Between −1 and 1, and 0 only at zero or below what the logarithm shows.
    fn place(&self, value: f64) -> f64 {
        let size = value.abs() / self.most;
        let place = match self.compress {
            Compress::Log(decades) => (1.0 + size.log10() / decades).max(0.0),
            Compress::None => size,
        };
        place.min(1.0).copysign(value)
    }

    fn index(&self, value: f64) -> u8 {
        if value.is_nan() {
            return NAN;
        }
        (f64::from(ZERO) * (1.0 + self.place(value))).round() as u8
    }

    /// Labels of the colour bar, the most important ones first.
    fn ticks(&self) -> Vec<(f64, String)> {
        let Compress::Log(decades) = self.compress else {
            return [-1.0, 1.0, 0.0, -0.5, 0.5].map(|place| (place, short(place * self.most))).to_vec();
        };
        let bottom = self.most.log10() - decades;
        let top = (self.most.log10() + 1e-9).floor() as i32;
        let powers = (0..).map(|k| top - k).take_while(|&power| f64::from(power) > bottom);
        let values = powers.flat_map(|power| [1.0, -1.0].map(|sign| sign * 10f64.powi(power)));
        let around = (0.0, format!("±{}", short(10f64.powf(bottom))));
        [around].into_iter().chain(values.map(|value| (self.place(value), short(value)))).collect()
    }
}

fn palette() -> Vec<RGBColor> {
    let mixed = |stops: &[[f64; 3]; 6], place: f64| {
        let left = ((place * 5.0) as usize).min(4);
        let share = place * 5.0 - left as f64;
        let [red, green, blue] =
            [0, 1, 2].map(|k| stops[left][k] * (1.0 - share) + stops[left + 1][k] * share);
        RGBColor(red.round() as u8, green.round() as u8, blue.round() as u8)
    };
    let scale = (0..=2 * ZERO).map(|index| {
        let place = (f64::from(index) / f64::from(ZERO)) - 1.0;
        mixed(if place < 0.0 { &BLUE } else { &RED }, place.abs())
    });
    scale.chain([RGBColor(160, 160, 160)]).collect()
}

/// The pixels of a matrix: each shows the same number of entries per side, or each entry has the same number of pixels.
fn raster(map: &HeatMap, scale: &Scale) -> Image {
    let longer = map.rows.max(map.columns);
    let (block, zoom) = (longer.div_ceil(SIDE), (SIDE / longer).max(1));
    let (width, height) = (map.columns.div_ceil(block) * zoom, map.rows.div_ceil(block) * zoom);
    // Pixels look at half of their neighbours' entries too, such that a thin line is two pixels wide: one alone is lost
    // as soon as the picture is shown smaller.
    let window = if block > 1 { 2 * block } else { 1 };
    let mut indices = Vec::with_capacity(width * height);
    for y in 0..height {
        for x in 0..width {
            let (row, column) = (y / zoom * block, x / zoom * block);
            let entries = (row..(row + window).min(map.rows)).flat_map(|row| {
                let end = (column + window).min(map.columns);
                &map.values[row * map.columns + column..row * map.columns + end]
            });
            let by_size = |a: &&f64, b: &&f64| a.abs().total_cmp(&b.abs());
            let kept = match map.keep {
                Keep::Largest => entries.max_by(by_size),
                Keep::Smallest => entries.min_by(by_size),
            };
            indices.push(scale.index(*kept.unwrap_or(&f64::NAN)));
        }
    }
    Image { width, height, indices, palette: palette() }
}

fn bar(height: usize) -> Image {
    let width = BAR as usize * DENSITY;
    let index =
        |y: usize| (2.0 * f64::from(ZERO) * (1.0 - y as f64 / (height - 1).max(1) as f64)).round() as u8;
    let indices = (0..height).flat_map(|y| vec![index(y); width]).collect();
    Image { width, height, indices, palette: palette() }
}

/// Draws matrices in rows.
pub fn draw(maps: &HeatMaps) -> Result<Canvas> {
    ensure!(!maps.panels.is_empty(), "a picture needs a matrix");
    for map in &maps.panels {
        let right = map.rows > 0 && map.columns > 0 && map.values.len() == map.rows * map.columns;
        ensure!(right, "{} values are no {}×{} matrix", map.values.len(), map.rows, map.columns);
    }
    let scales: Vec<Scale> = maps.panels.iter().map(Scale::new).collect();
    let images: Vec<Image> = maps.panels.iter().zip(&scales).map(|(map, scale)| raster(map, scale)).collect();
    let units = |pixels: usize| pixels as f64 / DENSITY as f64;
    let wide = units(images.iter().map(|image| image.width).max().unwrap_or(0));
    let high = units(images.iter().map(|image| image.height).max().unwrap_or(0));
    let labels = maps.panels.iter().flat_map(|map| marks(map.rows, map.period, high)).map(|mark| mark.1);
    let left = widest(labels, TICK)? + 8.0;
    let right = widest(scales.iter().flat_map(Scale::ticks).map(|tick| tick.1), TICK)? + BAR + 26.0;
    // All whole numbers, for images begin at whole pixels.
    let (left, right) = (left.ceil(), right.ceil());
    let cell = ((left + wide + right + EDGE).ceil(), (28.0 + high + 24.0 + EDGE).ceil());
    let columns = if maps.columns == 0 { maps.panels.len() } else { maps.columns.min(maps.panels.len()) };
    let top = EDGE + if maps.title.is_empty() { 0.0 } else { 28.0 };
    let width = EDGE + cell.0 * columns as f64;
    let mut canvas = Canvas::new(width, top + cell.1 * maps.panels.len().div_ceil(columns) as f64);
    let title = fitted(&maps.title, TITLE, width - 2.0 * EDGE)?;
    canvas.text(&maps.title, (width / 2.0, EDGE + 8.0), title, Align::Center);
    for (k, ((map, scale), image)) in maps.panels.iter().zip(&scales).zip(images).enumerate() {
        let (x, y) =
            (EDGE + left + cell.0 * (k % columns) as f64, top + 28.0 + cell.1 * (k / columns) as f64);
        let (width, height) = (units(image.width), units(image.height));
        let title = fitted(&map.title, TITLE - 1.0, cell.0)?;
        canvas.text(&map.title, (x + width / 2.0, y - 14.0), title, Align::Center);
        outline(&mut canvas, (x, y), (width, height));
        for (place, label) in marks(map.columns, map.period, width) {
            let at = x + place * width;
            canvas.line(vec![(at, y + height), (at, y + height + 4.0)], FRAME, 1.0);
            canvas.text(&label, (at, y + height + 12.0), TICK, Align::Center);
        }
        for (place, label) in marks(map.rows, map.period, height) {
            let at = y + place * height;
            canvas.line(vec![(x - 4.0, at), (x, at)], FRAME, 1.0);
            canvas.text(&label, (x - 7.0, at), TICK, Align::Right);
        }
        let beside = x + width + 18.0;
        outline(&mut canvas, (beside, y), (BAR, height));
        let mut used: Vec<f64> = Vec::new();
        for (place, label) in scale.ticks() {
            let at = y + (1.0 - place) / 2.0 * height;
            if used.iter().all(|other| (at - other).abs() > TICK + 4.0) {
                canvas.line(vec![(beside + BAR, at), (beside + BAR + 4.0, at)], FRAME, 1.0);
                canvas.text(&label, (beside + BAR + 7.0, at), TICK, Align::Left);
                used.push(at);
            }
        }
        canvas.image((beside, y), bar(image.height));
        canvas.image((x, y), image);
    }
    Ok(canvas)
}

fn outline(canvas: &mut Canvas, (x, y): (f64, f64), (width, height): (f64, f64)) {
    let (left, top, right, bottom) = (x - 0.5, y - 0.5, x + width + 0.5, y + height + 0.5);
    let corners = [(left, top), (right, top), (right, bottom), (left, bottom), (left, top)];
    canvas.line(corners.to_vec(), FRAME, 1.0);
}

/// The labels along a side of `count` entries and `length` pixels, and their places between 0 and 1.
fn marks(count: usize, period: Option<usize>, length: f64) -> Vec<(f64, String)> {
    let most = (length as usize / 40).clamp(1, 8);
    let all = match period.filter(|&period| period > 0) {
        Some(period) => {
            let every = period * (count / period).div_ceil(most).max(1);
            (0..=count).step_by(every).map(|k| (k as f64, k.to_string())).collect()
        }
        None => linear(0.0, count as f64, most.min(count + 1)),
    };
    all.into_iter().map(|(value, label)| (value / count as f64, label)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A matrix of ones with zeros on the diagonals whose offset is a multiple of `period`.
    fn holes(n: usize, period: usize, keep: Keep) -> HeatMap {
        let entry = |k: usize| if (k / n).abs_diff(k % n).is_multiple_of(period) { 0.0 } else { 1.0 };
        HeatMap { rows: n, columns: n, values: (0..n * n).map(entry).collect(), keep, ..HeatMap::default() }
    }

    #[test]
    fn thin_diagonals_survive() {
        let map = holes(2052, 342, Keep::Smallest);
        let image = raster(&map, &Scale::new(&map));
        assert_eq!((image.width, image.height), (684, 684));
        for y in 0..684 {
            assert_eq!(image.indices[y * 684 + (y + 114) % 684], ZERO);
            assert_eq!(image.indices[y * 684 + (y + 50) % 684], 2 * ZERO);
        }
        let map = holes(2052, 342, Keep::Largest);
        assert!(raster(&map, &Scale::new(&map)).indices.iter().all(|&index| index == 2 * ZERO));
    }

    #[test]
    fn signs_are_kept_and_zero_is_white() {
        let values = vec![-1e-3, 0.0, 1e-6, 1.0, f64::NAN, -50.0];
        let indices = |compress| {
            let map = HeatMap { rows: 2, columns: 3, values: values.clone(), compress, ..HeatMap::default() };
            let scale = Scale::new(&map);
            values.iter().map(|&value| scale.index(value)).collect::<Vec<_>>()
        };
        assert_eq!(indices(Compress::None), [127, 127, 127, 130, 255, 0]);
        let log = indices(Compress::Log(6.0));
        assert!(log[0] < 127 && log[1] == 127 && log[2] == 127 && log[3] > 200 && log[5] == 0, "{log:?}");
        assert_eq!(palette()[usize::from(ZERO)], RGBColor(255, 255, 255));
    }

    #[test]
    fn labels_of_a_side() {
        let labels =
            |count, period| marks(count, period, 350.0).into_iter().map(|mark| mark.1).collect::<Vec<_>>();
        assert_eq!(labels(2052, Some(342)), ["0", "342", "684", "1026", "1368", "1710", "2052"]);
        assert_eq!(labels(2052, None), ["0", "500", "1000", "1500", "2000"]);
        assert_eq!(labels(3, None), ["0", "1", "2", "3"]);
    }
}
