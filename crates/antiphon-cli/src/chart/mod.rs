//! Pictures, each written as SVG for the screen and as PNG for everything else, from the same description.

mod axis;
mod canvas;
mod heat;
mod lines;

pub use heat::{Compress, HeatMap, HeatMaps, Keep};
pub use lines::{Grid, Lines, Series};

use std::io::Write;
use std::path::{Path, PathBuf};

/// What can be drawn.
#[derive(Clone, Debug)]
pub enum Picture {
    Lines(Lines),
    Grid(Grid),
    HeatMaps(HeatMaps),
}

/// Writes `name`.svg and `name`.png. Existing files are only replaced with `force`; if one exists, neither is written.
pub fn write(folder: &Path, name: &str, picture: &Picture, force: bool) -> anyhow::Result<[PathBuf; 2]> {
    let paths = ["svg", "png"].map(|ending| folder.join(format!("{name}.{ending}")));
    for path in &paths {
        antiphon::atomic::check(path, force)?;
    }
    let canvas = match picture {
        Picture::Lines(chart) => lines::draw(std::slice::from_ref(chart), 1, (600.0, 360.0))?,
        Picture::Grid(grid) => lines::draw(&grid.panels, grid.columns, (400.0, 250.0))?,
        Picture::HeatMaps(maps) => heat::draw(maps)?,
    };
    let contents = [canvas.svg()?.into_bytes(), canvas.png()?];
    for (path, content) in paths.iter().zip(&contents) {
        antiphon::atomic::write(path, force, |file| file.write_all(content))?;
    }
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn wave() -> Lines {
        let points = (0..50).map(|k| (f64::from(k), f64::from(k).sin())).collect();
        Lines {
            title: "A & B < C".into(),
            x_label: "step".into(),
            y_label: "loss".into(),
            series: vec![Series { name: "σ".into(), points, marker: true, ..Series::default() }],
            ..Lines::default()
        }
    }

    /// The size of a PNG of three bytes per pixel, and whether it has a pixel that is not white.
    fn measure(path: &Path) -> (u32, u32, bool) {
        let mut reader =
            png::Decoder::new(std::io::BufReader::new(fs::File::open(path).unwrap())).read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut pixels).unwrap();
        (info.width, info.height, pixels.iter().any(|&value| value < 200))
    }

    #[test]
    fn every_kind_is_written_twice_in_the_same_shape() {
        let folder = tempfile::tempdir().unwrap();
        let map =
            HeatMap { title: "X".into(), rows: 2, columns: 3, values: vec![1.0; 6], ..HeatMap::default() };
        let pictures = [
            Picture::Lines(wave()),
            Picture::Grid(Grid { panels: vec![wave(), wave(), wave()], columns: 2 }),
            Picture::HeatMaps(HeatMaps { title: "A".into(), panels: vec![map.clone(), map], columns: 0 }),
        ];
        for (k, picture) in pictures.iter().enumerate() {
            let [svg, png] = write(folder.path(), &format!("picture{k}"), picture, false).unwrap();
            let (width, height, drawn) = measure(&png);
            let text = fs::read_to_string(&svg).unwrap();
            let size = format!("<svg width=\"{}\" height=\"{}\"", width / 2, height / 2);
            assert!(
                drawn && text.starts_with(&size) && text.ends_with("</svg>\n"),
                "{size} {}",
                &text[..200]
            );
            assert_eq!(text.matches("<image").count(), if k == 2 { 4 } else { 0 });
            assert_eq!(text.contains("A &amp; B &lt; C"), k != 2);
            assert!(write(folder.path(), &format!("picture{k}"), picture, false).is_err());
            write(folder.path(), &format!("picture{k}"), picture, true).unwrap();
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 6);
    }

    #[test]
    fn nothing_is_written_beside_an_existing_file() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("wave.png"), "mine").unwrap();
        assert!(write(folder.path(), "wave", &Picture::Lines(wave()), false).is_err());
        assert!(!folder.path().join("wave.svg").exists());
    }

    #[test]
    fn odd_data_are_drawn_and_wrong_sizes_refused() {
        let folder = tempfile::tempdir().unwrap();
        let points = vec![(f64::NAN, 1.0), (0.0, 0.0), (1.0, f64::INFINITY), (-1.0, 1e300)];
        for (k, points) in [points, vec![], vec![(2.0, 2.0)]].into_iter().enumerate() {
            let series = vec![Series { name: "odd".into(), points, marker: k == 0, ..Series::default() }];
            let chart = Lines { series, log_x: k == 0, log_y: k < 2, ..Lines::default() };
            write(folder.path(), &format!("odd{k}"), &Picture::Lines(chart), false).unwrap();
        }
        let map = HeatMap { rows: 2, columns: 2, values: vec![0.0; 3], ..HeatMap::default() };
        let maps = HeatMaps { panels: vec![map], ..HeatMaps::default() };
        assert!(write(folder.path(), "wrong", &Picture::HeatMaps(maps), false).is_err());
    }
}
