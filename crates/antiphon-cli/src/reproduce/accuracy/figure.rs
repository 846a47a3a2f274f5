//! `--figure`: accuracy against ε, from the runs that are kept and from no others. Nothing is trained.

use super::super::kept::{Kept, Record};
use super::super::{Pictures, say_files};
use super::{CEILINGS, DELTA, UNCLIPPED, label, level};
use crate::chart::{Lines, Picture, Series};
use crate::compare::table;
use crate::output::{answer, print_json};
use antiphon::error::{Error, Result};
use antiphon::statement::INVALID;
use antiphon_train::data::Name;
use antiphon_train::settings::Settings;
use antiphon_train::summary::{INTERVALS, Summary};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::process::ExitCode;

/// What the paper's figure says.
#[derive(Deserialize)]
struct Paper {
    dataset: String,
    epsilon: Vec<f64>,
    curves: Vec<Curve>,
    /// Neither noise nor clipping.
    without_privacy: f64,
}

#[derive(Deserialize)]
struct Curve {
    mechanism: String,
    accuracy: Vec<f64>,
}

impl Paper {
    fn read() -> anyhow::Result<Paper> {
        Ok(serde_json::from_str(include_str!("../../../../../repro/accuracy.json"))?)
    }

    /// The curve of a mechanism, if this is its data set.
    fn curve(&self, name: Name, mechanism: &str) -> Option<Vec<(f64, f64)>> {
        let curve = self.curves.iter().find(|curve| curve.mechanism == mechanism)?;
        (self.dataset == name.as_str())
            .then(|| self.epsilon.iter().copied().zip(curve.accuracy.iter().copied()).collect())
    }

    /// The accuracy of a mechanism at an ε, or of training without privacy.
    fn at(&self, name: Name, mechanism: &str, epsilon: Option<f64>) -> Option<f64> {
        let Some(epsilon) = epsilon else {
            let same = self.dataset == name.as_str() && mechanism == CEILINGS[1];
            return same.then_some(self.without_privacy);
        };
        let curve = self.curve(name, mechanism)?;
        curve.into_iter().find(|point| point.0 == epsilon).map(|point| point.1)
    }
}

/// What the settings of a point were chosen by.
#[derive(Clone, Copy, PartialEq, Serialize, Debug)]
#[serde(rename_all = "kebab-case")]
enum Chosen {
    /// There was one.
    Given,
    /// Accuracy on training examples that were held out.
    HeldOut,
    /// The same, but among those that are trained on all examples: another one was better, and is not trained yet.
    HeldOutOfTrained,
    /// Accuracy on the test images, which is too good: somewhat less is to be expected of new images. Settings with fewer runs than others
    /// are not considered.
    Test,
}

/// A mechanism at an ε.
#[derive(Serialize)]
struct Point {
    mechanism: String,
    /// None without noise.
    target_epsilon: Option<f64>,
    valid: bool,
    #[serde(flatten)]
    accuracy: Summary,
    runs: usize,
    settings: Settings,
    /// Settings that were tried.
    tried: usize,
    /// Learning rates among them where all else is as in `settings`, from the least on.
    rates_tried: Vec<f64>,
    chosen: Chosen,
    /// Read off the paper's figure, in percent.
    paper: Option<f64>,
}

impl Point {
    /// Whether the rates that were tried end at this one, so that a rate beyond may be better.
    fn at_the_end(&self) -> bool {
        let rate = Some(&self.settings.learning_rate);
        self.rates_tried.first() == rate || self.rates_tried.last() == rate
    }
}

/// Reads the runs of a folder, prints and draws; only those at some ε, if these are named.
pub fn run(name: Name, epsilons: &[f64], pictures: &Pictures, json: bool) -> anyhow::Result<ExitCode> {
    let Some(folder) = &pictures.output else {
        let allowed = "given with --figure: the folder that has the runs, in which the figure is drawn";
        return Err(Error::argument("--output", allowed, "nothing").into());
    };
    let figure = format!("{}-epsilon", name.as_str());
    let file = folder.join(format!("{}.jsonl", name.as_str()));
    if !file.exists() {
        return Err(Error::argument(
            "--output",
            format!("a folder with {}.jsonl", name.as_str()),
            folder.display(),
        )
        .into());
    }
    pictures.check(&[&figure])?;
    let paper = Paper::read()?;
    let points = points(name, &at(epsilons, Kept::read(&file)?)?, &paper)?;
    let files = pictures.draw(&figure, &Picture::Lines(picture(name, &points, &paper)))?;
    match json {
        true => print_json(
            &serde_json::json!({ "ok": true, "dataset": name.as_str(), "points": points, "files": files }),
        )?,
        false => print(name, &points, &files),
    }
    Ok(answer(true))
}

/// The runs at these ε and those without any; all, if none is named.
fn at(epsilons: &[f64], mut records: Vec<Record>) -> Result<Vec<Record>> {
    let mut kept: Vec<f64> = records.iter().filter_map(|record| record.target_epsilon).collect();
    kept.sort_by(f64::total_cmp);
    kept.dedup();
    if let Some(epsilon) = epsilons.iter().find(|epsilon| !kept.contains(epsilon)) {
        let kept: Vec<String> = kept.iter().map(f64::to_string).collect();
        return Err(Error::argument(
            "--epsilon",
            format!("of those that have runs: {}", kept.join(", ")),
            epsilon,
        ));
    }
    if !epsilons.is_empty() {
        records.retain(|record| record.target_epsilon.is_none_or(|epsilon| epsilons.contains(&epsilon)));
    }
    Ok(records)
}

/// Whether a run differs from the protocol in nothing but what is tried: rate, momentum and initial weights. Those with `--epochs` do not count.
fn in_protocol(name: Name, record: &Record) -> bool {
    let Settings { learning_rate, momentum, initial, .. } = record.settings;
    let clip_norm =
        if record.mechanism == CEILINGS[1] { UNCLIPPED } else { Settings::usual(name, None).clip_norm };
    record.settings == Settings { learning_rate, momentum, initial, clip_norm, ..Settings::usual(name, None) }
}

/// One point for each mechanism and ε, in the order of the runs and by ε.
fn points(name: Name, records: &[Record], paper: &Paper) -> Result<Vec<Point>> {
    let mut found: Vec<Point> = Vec::new();
    let records: Vec<&Record> = records.iter().filter(|record| in_protocol(name, record)).collect();
    let tested = || records.iter().filter(|record| !record.held_out);
    let mut mechanisms: Vec<&str> = Vec::new();
    tested().for_each(|record| {
        if !mechanisms.contains(&record.mechanism.as_str()) {
            mechanisms.push(&record.mechanism);
        }
    });
    for mechanism in mechanisms {
        let mut epsilons: Vec<Option<f64>> = tested()
            .filter(|record| record.mechanism == mechanism)
            .map(|record| record.target_epsilon)
            .collect();
        epsilons.sort_by(|a, b| a.partial_cmp(b).expect("numbers, as JSON has no others"));
        epsilons.dedup();
        for epsilon in epsilons {
            let here = |record: &&Record| record.mechanism == mechanism && record.target_epsilon == epsilon;
            let of: Vec<&Record> = records.iter().copied().filter(here).collect();
            found.extend(point(name, &of, epsilon, paper));
        }
    }
    if found.iter().all(|point| point.target_epsilon.is_none()) {
        let allowed = "a folder with finished runs that have an ε, made without --epochs";
        return Err(Error::argument("--output", allowed, "a file of runs without any"));
    }
    Ok(found)
}

/// The runs of a mechanism at an ε, with the settings that were best on held-out examples, or else on the test images.
fn point(name: Name, records: &[&Record], epsilon: Option<f64>, paper: &Paper) -> Option<Point> {
    // The first of every seed: another one has a mechanism with other bits, and the same initial model.
    let accuracies = |settings: &Settings, held_out: bool| {
        let mut of: Vec<(u64, f64)> = Vec::new();
        for record in records {
            let meant = record.settings == *settings && record.held_out == held_out;
            if meant && of.iter().all(|(seed, _)| *seed != record.seed) {
                of.push((record.seed, record.accuracy));
            }
        }
        of.into_iter().map(|(_, accuracy)| accuracy).collect::<Vec<f64>>()
    };
    let mean = |settings: &Settings, held_out: bool| {
        let of = accuracies(settings, held_out);
        (!of.is_empty()).then(|| Summary::of(&of))
    };
    let mut tried: Vec<Settings> = Vec::new();
    for record in records {
        if !tried.contains(&record.settings) {
            tried.push(record.settings);
        }
    }
    let best = |of: &[Settings], held_out: bool| {
        let accuracy = |settings: &Settings| mean(settings, held_out).map_or(f64::NEG_INFINITY, |of| of.mean);
        of.iter().copied().max_by(|a, b| accuracy(a).total_cmp(&accuracy(b)))
    };
    let (tested, untested): (Vec<Settings>, Vec<Settings>) =
        tried.iter().partition(|settings| mean(settings, false).is_some());
    let (settings, chosen) = if tried.len() == 1 {
        (*tested.first()?, Chosen::Given)
    } else if tested.iter().all(|settings| mean(settings, true).is_some()) {
        // Held-out examples decide where all settings that were tested have runs on them.
        let (of_all, of_tested) = (best(&tried, true)?, best(&tested, true)?);
        (of_tested, if untested.contains(&of_all) { Chosen::HeldOutOfTrained } else { Chosen::HeldOut })
    } else {
        // A mean over several seeds is not compared with a single run, which may be better by chance.
        let most = tested.iter().map(|settings| accuracies(settings, false).len()).max()?;
        let repeated: Vec<Settings> =
            tested.into_iter().filter(|settings| accuracies(settings, false).len() == most).collect();
        (best(&repeated, false)?, Chosen::Test)
    };
    let learning_rate = settings.learning_rate;
    let alike = tried.iter().filter(|other| Settings { learning_rate, ..**other } == settings);
    let mut rates_tried: Vec<f64> = alike.map(|other| other.learning_rate).collect();
    rates_tried.sort_by(f64::total_cmp);
    let runs = accuracies(&settings, false).len();
    let mechanism = records[0].mechanism.clone();
    Some(Point {
        target_epsilon: epsilon,
        valid: records[0].valid,
        accuracy: mean(&settings, false)?,
        runs,
        settings,
        tried: tried.len(),
        rates_tried,
        chosen,
        paper: paper.at(name, &mechanism, epsilon),
        mechanism,
    })
}

fn picture(name: Name, points: &[Point], paper: &Paper) -> Lines {
    let mut series: Vec<Series> = Vec::new();
    let mut dashed = Vec::new();
    for point in points {
        let label = label(&point.mechanism, point.target_epsilon, point.valid);
        let Some(epsilon) = point.target_epsilon else {
            let at = |percent: f64| level(percent, points.iter().filter_map(|point| point.target_epsilon));
            if let Some(paper) = point.paper {
                dashed.push(Series { points: at(paper), like: Some(label.clone()), ..Series::default() });
            }
            let points = at(100.0 * point.accuracy.mean);
            // Solid: dashes are the paper's.
            series.push(Series { name: label, points, marker: true, ..Series::default() });
            continue;
        };
        let at = (epsilon, 100.0 * point.accuracy.mean);
        let bar = point.accuracy.interval.map(|[low, high]| (at.0, 100.0 * low, 100.0 * high));
        match series.iter_mut().find(|series| series.name == label) {
            Some(series) => {
                series.points.push(at);
                series.bars.extend(bar);
            }
            None => {
                if let Some(curve) = paper.curve(name, &point.mechanism) {
                    dashed.push(Series { points: curve, like: Some(label.clone()), ..Series::default() });
                }
                series.push(Series {
                    name: label,
                    points: vec![at],
                    marker: true,
                    bars: bar.into_iter().collect(),
                    ..Series::default()
                });
            }
        }
    }
    let with_paper = if dashed.is_empty() { "" } else { "; dashed: the paper" };
    series.extend(dashed);
    let mut x_places: Vec<f64> = points.iter().filter_map(|point| point.target_epsilon).collect();
    x_places.sort_by(f64::total_cmp);
    x_places.dedup();
    Lines {
        title: format!("{name}, δ = {DELTA:e}{with_paper}"),
        x_label: "ε".into(),
        y_label: "test accuracy, %".into(),
        log_x: true,
        x_places,
        series,
        ..Lines::default()
    }
}

fn print(name: Name, points: &[Point], files: &[PathBuf]) {
    say!(
        "{name}, δ = {DELTA:e}; seeded runs that are kept: not private, whoever knows the seed can compute the noise"
    );
    let heads = [
        "  mechanism",
        "ε",
        "test accuracy",
        "the paper",
        "runs",
        "learning rate",
        "rates tried",
        "momentum",
        "initial weights",
        "settings tried",
    ];
    let cells = |point: &Point| {
        let tried = match point.chosen {
            Chosen::Test => format!("{} †", point.tried),
            Chosen::HeldOutOfTrained => format!("{} §", point.tried),
            _ => point.tried.to_string(),
        };
        [
            format!("  {}", point.mechanism),
            match point.target_epsilon {
                None => "none".into(),
                Some(epsilon) => format!("{epsilon}{}", if point.valid { "" } else { " *" }),
            },
            point.accuracy.in_hundredths("%"),
            point.paper.map_or(String::new(), |paper| format!("{paper:.1}%")),
            point.runs.to_string(),
            format!("{}{}", point.settings.learning_rate, if point.at_the_end() { " ‡" } else { "" }),
            point.rates_tried.iter().map(f64::to_string).collect::<Vec<_>>().join(", "),
            point.settings.momentum.to_string(),
            point.settings.initial.name().into(),
            tried,
        ]
    };
    table(&heads.map(String::from), &points.iter().map(cells).collect::<Vec<_>>());
    if points.iter().any(|point| !point.valid && point.target_epsilon.is_some()) {
        say!("  * {INVALID}");
    }
    if points.iter().any(|point| point.chosen == Chosen::Test) {
        say!(
            "  † The best of those with the most runs, on the test images: somewhat less is to be expected of new images. Elsewhere held-out examples decided, or there was one."
        );
    }
    if points.iter().any(|point| point.chosen == Chosen::HeldOutOfTrained) {
        say!(
            "  § Another one was better on held-out examples, and no run of it on all training examples is kept."
        );
    }
    if points.iter().any(Point::at_the_end) {
        say!("  ‡ The least or the greatest rate that was tried, or the only one: one beyond may be better.");
    }
    if points.iter().any(|point| point.accuracy.interval.is_some()) {
        say!("  Means with {INTERVALS}.");
    }
    if points.iter().any(|point| point.paper.is_some()) {
        say!("  The paper's figures are read off its picture, within half a point.");
    }
    say_files(files, name.as_str());
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run of the kept ones, changed.
    fn record(mechanism: &str, epsilon: f64, rate: f64, seed: u64, held_out: bool, accuracy: f64) -> Record {
        let line = include_str!("../../../../../repro/results/cifar10.jsonl").lines().next().unwrap();
        let record: Record = serde_json::from_str(line).unwrap();
        let settings = Settings { learning_rate: rate, ..record.settings };
        let mechanism = mechanism.into();
        Record { mechanism, target_epsilon: Some(epsilon), settings, seed, held_out, accuracy, ..record }
    }

    #[test]
    fn settings_are_chosen_on_held_out_examples_where_all_of_them_have_runs_there() {
        let paper = Paper::read().unwrap();
        let chosen = |records: &[Record]| {
            let points = points(Name::Cifar10, records, &paper).unwrap();
            let of = |point: &Point| (point.settings.learning_rate, point.chosen, point.tried, point.runs);
            points.iter().map(of).collect::<Vec<_>>()
        };
        // 0.2 is better on the test images, 0.1 on those that were held out.
        let tested =
            [record("optimal", 2.0, 0.1, 1, false, 0.50), record("optimal", 2.0, 0.2, 1, false, 0.60)];
        let held_out =
            [record("optimal", 2.0, 0.1, 1, true, 0.55), record("optimal", 2.0, 0.2, 1, true, 0.54)];
        assert_eq!(chosen(&tested), [(0.2, Chosen::Test, 2, 1)]);
        assert_eq!(chosen(&[&tested[..], &held_out[..1]].concat()), [(0.2, Chosen::Test, 2, 1)]);
        assert_eq!(chosen(&[&tested[..], &held_out[..]].concat()), [(0.1, Chosen::HeldOut, 2, 1)]);
        assert_eq!(chosen(&[&tested[..1], &held_out[..]].concat()), [(0.1, Chosen::HeldOut, 2, 1)]);
        assert_eq!(chosen(&tested[..1]), [(0.1, Chosen::Given, 1, 1)]);
        // The best on held-out examples has no other run yet; one that was tested has none on held-out examples.
        assert_eq!(chosen(&[&tested[1..], &held_out[..]].concat()), [(0.2, Chosen::HeldOutOfTrained, 2, 1)]);
        assert_eq!(chosen(&[&tested[1..], &held_out[..1]].concat()), [(0.2, Chosen::Test, 2, 1)]);
        // Seeds are averaged, and ε and mechanisms are kept apart.
        let more = [record("optimal", 2.0, 0.1, 2, false, 0.52), record("optimal", 1.0, 0.1, 1, false, 0.4)];
        let all = points(Name::Cifar10, &[&tested[..1], &more].concat(), &paper).unwrap();
        assert_eq!(
            all.iter().map(|point| (point.target_epsilon, point.runs)).collect::<Vec<_>>(),
            [(Some(1.0), 1), (Some(2.0), 2)]
        );
        assert!((all[1].accuracy.mean - 0.51).abs() < 1e-12 && all[1].accuracy.interval.is_some());
        assert_eq!((all[0].paper, all[1].paper), (None, Some(57.9)));
        let mut ceiling = Record { target_epsilon: None, ..record("unclipped", 1.0, 0.1, 1, false, 0.75) };
        ceiling.settings.clip_norm = UNCLIPPED;
        let all = points(Name::Cifar10, &[&tested[..1], &[ceiling]].concat(), &paper).unwrap();
        assert_eq!((all[1].target_epsilon, all[1].paper), (None, Some(77.5)));
        let of_paper = |series: &Series| series.like.is_some() && series.points.contains(&(2.0, 77.5));
        assert!(picture(Name::Cifar10, &all, &paper).series.iter().any(of_paper));
        assert!(points(Name::Cifar10, &held_out, &paper).is_err());
    }

    #[test]
    fn a_mean_is_not_compared_with_a_single_run() {
        let paper = Paper::read().unwrap();
        let of = |rate: f64, seed: u64, accuracy: f64| record("optimal", 2.0, rate, seed, false, accuracy);
        let records = [of(0.1, 1, 0.6496), of(0.1, 2, 0.6499), of(0.1, 3, 0.6489), of(0.2, 1, 0.6497)];
        let point = points(Name::Cifar10, &records, &paper).unwrap().remove(0);
        assert_eq!((point.settings.learning_rate, point.runs, point.chosen), (0.1, 3, Chosen::Test));
        let more = [of(0.2, 2, 0.66), of(0.2, 3, 0.66)];
        let point = points(Name::Cifar10, &[&records[..], &more].concat(), &paper).unwrap().remove(0);
        assert_eq!((point.settings.learning_rate, point.runs), (0.2, 3));
    }

    #[test]
    fn quick_runs_are_no_points() {
        let paper = Paper::read().unwrap();
        let whole = record("optimal", 2.0, 0.1, 1, false, 0.5);
        let mut quick = record("optimal", 2.0, 0.1, 1, false, 0.9);
        quick.settings.epochs = 1;
        let points = points(Name::Cifar10, &[quick, whole], &paper).unwrap();
        assert_eq!((points.len(), points[0].tried, points[0].accuracy.mean), (1, 1, 0.5));
    }

    #[test]
    fn some_epsilons_may_be_named() {
        let records =
            || vec![record("optimal", 2.0, 0.1, 1, false, 0.5), record("optimal", 8.0, 0.1, 1, false, 0.6)];
        assert_eq!(at(&[], records()).unwrap().len(), 2);
        let named = at(&[8.0], records()).unwrap();
        assert_eq!((named.len(), named[0].target_epsilon), (1, Some(8.0)));
        let refused = at(&[8.0, 3.0], records()).err().expect("no such runs").to_string();
        assert!(refused.contains("2, 8") && refused.contains('3'), "{refused}");
    }

    #[test]
    fn rates_that_end_at_the_best_one_are_marked() {
        let paper = Paper::read().unwrap();
        let of = |rates: &[(f64, f64)]| {
            let records: Vec<Record> = rates
                .iter()
                .map(|(rate, accuracy)| record("optimal", 2.0, *rate, 1, false, *accuracy))
                .collect();
            let point = points(Name::Cifar10, &records, &paper).unwrap().remove(0);
            (point.at_the_end(), point.rates_tried)
        };
        assert_eq!(of(&[(0.2, 0.5)]), (true, vec![0.2]));
        assert_eq!(of(&[(0.2, 0.5), (0.1, 0.6)]), (true, vec![0.1, 0.2]));
        assert_eq!(of(&[(0.2, 0.5), (0.1, 0.6), (0.05, 0.5)]), (false, vec![0.05, 0.1, 0.2]));
        // A rate with another momentum says nothing about the rates with this one.
        let mut records =
            [record("optimal", 2.0, 0.1, 1, false, 0.6), record("optimal", 2.0, 0.2, 1, false, 0.5)];
        records[1].settings.momentum = 0.5;
        let point = points(Name::Cifar10, &records, &paper).unwrap().remove(0);
        assert_eq!((point.at_the_end(), point.rates_tried, point.tried), (true, vec![0.1], 2));
    }

    #[test]
    fn a_seed_counts_once() {
        let paper = Paper::read().unwrap();
        let records = [
            record("optimal", 2.0, 0.1, 1, false, 0.50),
            record("optimal", 2.0, 0.1, 1, false, 0.90),
            record("optimal", 2.0, 0.1, 2, false, 0.52),
        ];
        let points = points(Name::Cifar10, &records, &paper).unwrap();
        assert_eq!((points.len(), points[0].runs), (1, 2));
        assert!((points[0].accuracy.mean - 0.51).abs() < 1e-12);
    }

    #[test]
    fn usual_settings_are_the_best_that_are_kept() {
        let paper = Paper::read().unwrap();
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../repro/results");
        let fashion = ["optimal", "comb-blt", "tree-online", "identity", "dp-sgd"];
        let cifar = ["optimal", "comb-blt", "fft-optimal", "dp-sgd"];
        for (name, epsilon, mechanisms) in
            [(Name::FashionMnist, 4.0, &fashion[..]), (Name::Cifar10, 10.0, &cifar)]
        {
            let records = Kept::read(&folder.join(format!("{}.jsonl", name.as_str()))).unwrap();
            let points = points(name, &records, &paper).unwrap();
            for mechanism in mechanisms {
                let best = points
                    .iter()
                    .find(|point| {
                        point.target_epsilon == Some(epsilon)
                            && point.mechanism.split(',').next() == Some(mechanism)
                    })
                    .unwrap();
                let usual = Settings::usual(name, Some(mechanism.parse().unwrap()));
                assert_eq!(best.settings, usual, "{mechanism} on {name}");
            }
        }
    }

    #[test]
    fn bars_are_drawn_for_several_runs() {
        let paper = Paper::read().unwrap();
        for runs in [1, 2, 4, 5] {
            let accuracy = |seed: u64| 0.5 + seed as f64 / 100.0;
            let records: Vec<Record> =
                (0..runs).map(|seed| record("optimal", 2.0, 0.1, seed, false, accuracy(seed))).collect();
            let points = points(Name::Cifar10, &records, &paper).unwrap();
            let bars = &picture(Name::Cifar10, &points, &paper).series[0].bars;
            match points[0].accuracy.interval {
                None => assert!(runs == 1 && bars.is_empty()),
                Some([low, high]) => assert_eq!(bars[..], [(2.0, 100.0 * low, 100.0 * high)]),
            }
        }
    }

    #[test]
    fn training_without_noise_is_a_level_line_that_says_that_it_is_not_private() {
        let paper = Paper::read().unwrap();
        let ceiling =
            Record { target_epsilon: None, valid: false, ..record("unnoised", 0.0, 0.1, 1, false, 0.7) };
        let records =
            [record("optimal", 2.0, 0.1, 1, false, 0.5), record("optimal", 8.0, 0.1, 1, false, 0.6), ceiling];
        let lines = picture(Name::Cifar10, &points(Name::Cifar10, &records, &paper).unwrap(), &paper);
        let level = lines.series.iter().find(|series| series.name == "unnoised (not private)").unwrap();
        assert_eq!(level.points, [(2.0, 70.0), (8.0, 70.0)]);
        let refused = points(Name::Cifar10, &records[2..], &paper).err().expect("no ε to draw it against");
        assert!(refused.to_string().contains("finished runs that have an ε"), "{refused}");
    }

    #[test]
    fn the_paper_stands_beside_ours_on_its_own_data_alone() {
        let paper = Paper::read().unwrap();
        assert!(paper.curves.iter().all(|curve| curve.accuracy.len() == paper.epsilon.len()));
        let lines = |name: Name| {
            let records = ["optimal", "identity"].map(|mechanism| {
                let settings = Settings::usual(name, None);
                Record { settings, ..record(mechanism, 2.0, 0.1, 1, false, 0.5) }
            });
            picture(name, &points(name, &records, &paper).unwrap(), &paper)
        };
        let (cifar, fashion) = (lines(Name::Cifar10), lines(Name::FashionMnist));
        let dashed = |lines: &Lines| lines.series.iter().filter(|series| series.like.is_some()).count();
        assert_eq!((dashed(&cifar), dashed(&fashion)), (1, 0));
        assert!(cifar.title.contains("dashed: the paper") && !fashion.title.contains("paper"));
    }
}
