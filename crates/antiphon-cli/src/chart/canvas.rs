//! One list of shapes, drawn twice: as SVG and as PNG. Lengths are in SVG pixels; the PNG has two pixels for each, for
//! dense screens and print.

use ab_glyph::{Font, FontRef, Glyph, PxScale, ScaleFont, point};
use anyhow::{Context, Result, anyhow};
use plotters::backend::{BitMapBackend, DrawingBackend, SVGBackend};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, FontTransform, IntoFont, RGBColor, ShapeStyle, TextStyle};

/// Pixels of the PNG per unit of length.
pub const DENSITY: usize = 2;
/// plotters knows whole coordinates only and does not smooth thick lines: it draws finer, and the PNG takes averages.
const FINE: usize = 4;
/// The machine may have no fonts at all. A part of DejaVu Sans; its licence is beside it.
const FONT: &[u8] = include_bytes!("../../assets/DejaVuSans-subset.ttf");

pub type Point = (f64, f64);

/// Where the point given for a text lies: it is always in the middle of its height.
#[derive(Clone, Copy, PartialEq)]
pub enum Align {
    Left,
    Center,
    Right,
    /// Centered, and read upwards.
    Upwards,
}

/// Pixels of the PNG, as indices into colours: a third of the size of full colours in the SVG.
pub struct Image {
    pub width: usize,
    pub height: usize,
    pub indices: Vec<u8>,
    pub palette: Vec<RGBColor>,
}

enum Shape {
    Line { points: Vec<Point>, color: RGBColor, width: f64 },
    Area { points: Vec<Point>, color: RGBColor },
    Text { text: String, at: Point, size: f64, align: Align },
    Image { at: Point, image: Image },
}

/// What is to be drawn, bottom first. Images come last.
pub struct Canvas {
    width: usize,
    height: usize,
    shapes: Vec<Shape>,
}

impl Canvas {
    pub fn new(width: f64, height: f64) -> Self {
        Self { width: width.ceil() as usize, height: height.ceil() as usize, shapes: Vec::new() }
    }

    pub fn line(&mut self, points: Vec<Point>, color: RGBColor, width: f64) {
        self.shapes.push(Shape::Line { points, color, width });
    }

    pub fn area(&mut self, points: Vec<Point>, color: RGBColor) {
        self.shapes.push(Shape::Area { points, color });
    }

    pub fn text(&mut self, text: &str, at: Point, size: f64, align: Align) {
        self.shapes.push(Shape::Text { text: text.into(), at, size, align });
    }

    pub fn image(&mut self, at: Point, image: Image) {
        self.shapes.push(Shape::Image { at, image });
    }

    /// The picture as SVG, in which images are embedded as PNG.
    pub fn svg(&self) -> Result<String> {
        let mut drawn = String::new();
        let (width, height) = (self.width * FINE, self.height * FINE);
        {
            let mut backend = SVGBackend::with_string(&mut drawn, (width as u32, height as u32));
            self.draw(&mut backend, false)?;
        }
        // Shown at the size that was meant, with corners that do not stick out of noisy lines.
        let size = format!("width=\"{}\" height=\"{}\" stroke-linejoin=\"round\"", self.width, self.height);
        let mut svg = drawn.replacen(&format!("width=\"{width}\" height=\"{height}\""), &size, 1);
        svg.truncate(svg.rfind("</svg>").context("plotters wrote no SVG")?);
        for shape in &self.shapes {
            let Shape::Image { at, image } = shape else { continue };
            let fine = |length: usize| length * FINE / DENSITY;
            svg += &format!(
                "<image x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" \
                 href=\"data:image/png;base64,{}\"/>\n",
                at.0 * FINE as f64,
                at.1 * FINE as f64,
                fine(image.width),
                fine(image.height),
                base64(&image.encode()?)
            );
        }
        Ok(svg + "</svg>\n")
    }

    /// The picture as a PNG file.
    pub fn png(&self) -> Result<Vec<u8>> {
        let (wide, high) = (self.width * FINE, self.height * FINE);
        let mut drawn = vec![255; wide * high * 3];
        self.draw(&mut BitMapBackend::with_buffer(&mut drawn, (wide as u32, high as u32)), true)?;
        let (width, height) = (self.width * DENSITY, self.height * DENSITY);
        let mut pixels = Pixels { width, height, rgb: average(&drawn, wide, FINE / DENSITY) };
        for shape in &self.shapes {
            match shape {
                Shape::Text { text, at, size, align } => pixels.text(text, *at, *size, *align)?,
                Shape::Image { at, image } => pixels.image(*at, image),
                _ => {}
            }
        }
        encode(width, height, png::ColorType::Rgb, &[], &pixels.rgb)
    }

    /// What plotters draws: lines and areas, and the text of the SVG. Its text in bitmaps is not spaced well, so that of
    /// the PNG is set by [`Pixels::text`].
    fn draw<B: DrawingBackend>(&self, backend: &mut B, bitmap: bool) -> Result<()> {
        let fine =
            |point: &Point| ((point.0 * FINE as f64).round() as i32, (point.1 * FINE as f64).round() as i32);
        let drawn = |result: Result<(), _>| result.map_err(|error| anyhow!("cannot draw: {error}"));
        drawn(backend.draw_rect(
            (0, 0),
            fine(&(self.width as f64, self.height as f64)),
            &WHITE.filled(),
            true,
        ))?;
        for shape in &self.shapes {
            match shape {
                Shape::Line { points, color, width } => {
                    let width = (width * FINE as f64).round() as u32;
                    let style = ShapeStyle { color: color.to_rgba(), filled: true, stroke_width: width };
                    let points: Vec<_> = points.iter().map(fine).collect();
                    if !bitmap {
                        drawn(backend.draw_path(points, &style))?;
                        continue;
                    }
                    // Sharp corners of long thick lines come out broken; pieces with round joints do not.
                    for piece in points.windows(2).filter(|piece| piece[0] != piece[1]) {
                        drawn(backend.draw_path(piece.iter().copied(), &style))?;
                    }
                    for &joint in points.iter().skip(1).take(points.len().saturating_sub(2)) {
                        drawn(backend.draw_circle(joint, width / 2, &style, true))?;
                    }
                }
                Shape::Area { points, color } => {
                    drawn(backend.fill_polygon(points.iter().map(fine), &color.filled()))?;
                }
                Shape::Text { text, at, size, align } if !bitmap => {
                    // plotters takes the height of a line for the size of a font.
                    let font = ("sans-serif", size * FINE as f64 * 1.24).into_font();
                    let (side, turn) = match align {
                        Align::Left => (HPos::Left, FontTransform::None),
                        Align::Center => (HPos::Center, FontTransform::None),
                        Align::Right => (HPos::Right, FontTransform::None),
                        Align::Upwards => (HPos::Center, FontTransform::Rotate270),
                    };
                    let style =
                        TextStyle::from(font.transform(turn)).color(&INK).pos(Pos::new(side, VPos::Center));
                    drawn(backend.draw_text(text, &style, fine(at)))?;
                }
                _ => {}
            }
        }
        drawn(backend.present())
    }
}

pub const WHITE: RGBColor = RGBColor(255, 255, 255);
/// The colour of all text.
pub const INK: RGBColor = RGBColor(34, 34, 34);

/// How wide a text is, in the font of the PNG; most fonts that a browser would take are narrower.
pub fn text_width(text: &str, size: f64) -> Result<f64> {
    Ok(set(&FontRef::try_from_slice(FONT)?, text, size).1)
}

/// The size at which a text is no wider than `room`, at most `size`.
pub fn fitted(text: &str, size: f64, room: f64) -> Result<f64> {
    Ok(size * (room / text_width(text, size)?.max(1.0)).min(1.0))
}

/// The width of the widest of some texts.
pub fn widest(texts: impl IntoIterator<Item = String>, size: f64) -> Result<f64> {
    texts.into_iter().try_fold(0.0, |widest: f64, text| Ok(widest.max(text_width(&text, size)?)))
}

/// The glyphs of a text that starts at the origin, and its width.
fn set(font: &FontRef, text: &str, size: f64) -> (Vec<Glyph>, f64) {
    let em = f64::from(font.units_per_em().unwrap_or(1.0));
    let scale = PxScale::from((size * f64::from(font.height_unscaled()) / em) as f32);
    let mut pen = 0.0;
    let glyphs = text.chars().map(|letter| {
        let glyph = font.glyph_id(letter).with_scale_and_position(scale, point(pen, 0.0));
        pen += font.as_scaled(scale).h_advance(glyph.id);
        glyph
    });
    (glyphs.collect(), f64::from(pen))
}

struct Pixels {
    width: usize,
    height: usize,
    rgb: Vec<u8>,
}

impl Pixels {
    fn text(&mut self, text: &str, at: Point, size: f64, align: Align) -> Result<()> {
        let font = FontRef::try_from_slice(FONT)?;
        let size = size * DENSITY as f64;
        let (glyphs, width) = set(&font, text, size);
        let shift = match align {
            Align::Left => 0.0,
            Align::Center | Align::Upwards => -width / 2.0,
            Align::Right => -width,
        };
        // Half the height of an x below the middle, as in the SVG.
        let (right, down) = (shift.round() as i64, (size * 0.27).round() as i64);
        let origin = ((at.0 * DENSITY as f64).round() as i64, (at.1 * DENSITY as f64).round() as i64);
        for outline in glyphs.into_iter().filter_map(|glyph| font.outline_glyph(glyph)) {
            let corner = outline.px_bounds().min;
            outline.draw(|x, y, cover| {
                let x = right + corner.x as i64 + i64::from(x);
                let y = down + corner.y as i64 + i64::from(y);
                let (x, y) = if align == Align::Upwards { (y, -x) } else { (x, y) };
                self.blend((origin.0 + x, origin.1 + y), cover);
            });
        }
        Ok(())
    }

    fn blend(&mut self, (x, y): (i64, i64), cover: f32) {
        if x >= 0 && y >= 0 && (x as usize) < self.width && (y as usize) < self.height {
            let start = (y as usize * self.width + x as usize) * 3;
            for (old, new) in self.rgb[start..start + 3].iter_mut().zip([INK.0, INK.1, INK.2]) {
                *old = (f32::from(*old) + (f32::from(new) - f32::from(*old)) * cover.min(1.0)).round() as u8;
            }
        }
    }

    fn image(&mut self, at: Point, image: &Image) {
        let (left, top) = ((at.0 * DENSITY as f64) as usize, (at.1 * DENSITY as f64) as usize);
        for (row, indices) in image.indices.chunks(image.width).enumerate() {
            let start = ((top + row) * self.width + left) * 3;
            let line = &mut self.rgb[start..start + indices.len() * 3];
            for (pixel, &index) in line.chunks_mut(3).zip(indices) {
                let color = image.palette[usize::from(index)];
                pixel.copy_from_slice(&[color.0, color.1, color.2]);
            }
        }
    }
}

impl Image {
    fn encode(&self) -> Result<Vec<u8>> {
        let palette: Vec<u8> = self.palette.iter().flat_map(|color| [color.0, color.1, color.2]).collect();
        encode(self.width, self.height, png::ColorType::Indexed, &palette, &self.indices)
    }
}

fn encode(width: usize, height: usize, kind: png::ColorType, palette: &[u8], data: &[u8]) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, width as u32, height as u32);
    encoder.set_color(kind);
    encoder.set_compression(png::Compression::High);
    if !palette.is_empty() {
        encoder.set_palette(palette);
        encoder.set_filter(png::Filter::NoFilter);
    }
    let mut writer = encoder.write_header()?;
    writer.write_image_data(data)?;
    writer.finish()?;
    Ok(bytes)
}

/// Means over squares of `side` pixels.
fn average(rgb: &[u8], width: usize, side: usize) -> Vec<u8> {
    let mut small = Vec::with_capacity(rgb.len() / (side * side));
    for rows in rgb.chunks(width * 3 * side) {
        for x in 0..width / side {
            for channel in 0..3 {
                let at = |dy: usize, dx: usize| usize::from(rows[(dy * width + x * side + dx) * 3 + channel]);
                let sum: usize = (0..side * side).map(|k| at(k / side, k % side)).sum();
                small.push(((sum + side * side / 2) / (side * side)) as u8);
            }
        }
    }
    small
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let bits = (0..3).fold(0, |bits, k| bits << 8 | usize::from(*chunk.get(k).unwrap_or(&0)));
        for k in 0..4 {
            let letter = LETTERS[bits >> (18 - 6 * k) & 63];
            text.push(if k <= chunk.len() { char::from(letter) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_pads() {
        let encoded = ["", "f", "fo", "foo", "foob"].map(|text| base64(text.as_bytes()));
        assert_eq!(encoded, ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg=="]);
    }

    #[test]
    fn the_font_has_the_signs_of_the_papers() {
        let font = FontRef::try_from_slice(FONT).unwrap();
        let missing: String =
            "Az09é−⁻⁰¹²³⁹ᵀ×·√≤≥≈∞‖…εδρσµΣ₁".chars().filter(|&sign| font.glyph_id(sign).0 == 0).collect();
        assert_eq!(missing, "");
        assert!(text_width("mm", 12.0).unwrap() > 3.0 * text_width("i", 12.0).unwrap());
    }
}
