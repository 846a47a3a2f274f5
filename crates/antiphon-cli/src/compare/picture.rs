//! `antiphon compare --picture`: what a smaller loss costs, in memory and in random numbers.

use crate::chart::{self, Grid, Lines, Picture, Series};
use crate::progress::Watch;
use antiphon::error::Result;
use antiphon::make::{checked_design, finish};
use antiphon::mechanism::family::Run;
use antiphon::mechanism::{Cost, Family};
use antiphon::plan::{Candidate, Comparison};
use antiphon::schema::Schema;
use antiphon::workload::Workload;
use std::path::{Path, PathBuf};

/// Families with buffers are drawn with one up to so many of them.
const MOST_BUFFERS: usize = 5;

/// A mechanism in the picture: its cost, and how far it is above the best possible, in percent.
type Place = (Cost, f64);

/// Refuses, before the work, pictures that cannot be written.
pub fn check(name: &Path, force: bool) -> Result<()> {
    ["svg", "png"].iter().try_for_each(|ending| antiphon::atomic::check(&name.with_extension(ending), force))
}

/// Draws all mechanisms of a comparison, those with buffers with several numbers of them.
pub fn draw(
    name: &Path,
    force: bool,
    (schema, workload): (&Schema, &Workload),
    comparison: &Comparison,
    watch: &Watch,
) -> anyhow::Result<Vec<PathBuf>> {
    let Some(bound) = comparison.lower_bound else {
        anyhow::bail!("nothing can be drawn: no lower bound is known, or optimal is left out");
    };
    let mut all: Vec<(String, Vec<Place>)> = Vec::new();
    for candidate in &comparison.candidates {
        let places = match candidate.buffers {
            Some(_) => by_buffers(candidate.family, schema, workload, bound, watch)?,
            None => own(candidate, bound).into_iter().collect(),
        };
        all.push((candidate.title(), places));
    }
    let panel = |title: String, x_label: &str, x: &dyn Fn(&Cost) -> f64| Lines {
        title,
        x_label: x_label.into(),
        y_label: "loss above the best possible, %".into(),
        log_x: true,
        log_y: true,
        x_places: Vec::new(),
        series: all
            .iter()
            .map(|(name, places)| Series {
                name: name.clone(),
                points: places.iter().map(|(cost, over)| (x(cost), *over)).collect(),
                marker: true,
                ..Series::default()
            })
            .collect(),
    };
    let panels = vec![
        panel(schema.describe(), "rows of memory while training", &|cost| cost.stream_memory_rows as f64),
        panel(workload.describe(), "normals drawn for one number of noise", &|cost| {
            cost.stream_gaussians_per_step
        }),
    ];
    let folder = name.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let stem = name.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    Ok(chart::write(folder, &stem, &Picture::Grid(Grid { panels, columns: 2 }), force)?.to_vec())
}

fn own(candidate: &Candidate, bound: f64) -> Option<Place> {
    Some((candidate.cost?, percent(candidate.loss, bound)))
}

fn by_buffers(
    family: Family,
    schema: &Schema,
    workload: &Workload,
    bound: f64,
    watch: &Watch,
) -> Result<Vec<Place>> {
    let observer = |progress: &_| watch.observe(progress);
    let mut places = Vec::new();
    for buffers in 1..=MOST_BUFFERS {
        let run = Run { buffers: Some(buffers), ..Run::new(schema, workload, &observer) };
        let made = finish(checked_design(family, &run)?, &run)?;
        let loss = made.mechanism.claims().loss;
        places.extend(made.cost.map(|cost| (cost, percent(loss, bound))));
    }
    Ok(places)
}

fn percent(loss: f64, bound: f64) -> f64 {
    100.0 * (loss / bound - 1.0)
}
