//! A private run as its callers meet it: what it adds, what it refuses, and how it goes on.

// Lists of one range are meant as such, and so is a range that ends before it begins.
#![allow(clippy::single_range_in_vec_init, clippy::reversed_empty_ranges)]

use antiphon::accounting::{Adjacency, NoiseMultiplier};
use antiphon::families;
use antiphon::make;
use antiphon::mechanism::Structured;
use antiphon::noise::{Cipher, Key, Origin, Rows, Stddev, key_file};
use antiphon::optimize::{Params, optimize};
use antiphon::run::audit::audit;
use antiphon::run::log::{Limits, Reader, Writer};
use antiphon::run::{Budget, PrivateRun, Sampled, Settings, State, Unit};
use antiphon::schema::Schema;
use antiphon::verify::{Verified, verify};
use antiphon::workload::Workload;

#[path = "../examples/private_run.rs"]
mod example;

#[test]
fn the_example_runs() {
    example::main().unwrap();
}

const TARGET: Budget = Budget::Target { epsilon: 4.0, delta: 1e-5 };

fn mechanism() -> Verified {
    let schema = Schema::epochs(3, 4).unwrap();
    let optimized = optimize(&schema, &Workload::prefix_sum(12), &Params::default(), &|_| true).unwrap();
    verify(optimized.mechanism).unwrap()
}

fn tree() -> Verified {
    let (schema, workload) = (Schema::epochs(3, 4).unwrap(), Workload::prefix_sum(12));
    let tree = Structured::formula(families::TREE_ONLINE, 1);
    verify(make::structured(tree, &schema, &workload, 1e-3, &|_| true).unwrap()).unwrap()
}

fn comb() -> Verified {
    let (schema, workload) = (Schema::epochs(3, 4).unwrap(), Workload::prefix_sum(12));
    let run = antiphon::mechanism::family::Run::new(&schema, &workload, &|_| true);
    verify(make::make(families::COMB_BLT, &run).unwrap()).unwrap()
}

fn settings() -> Settings {
    Settings::new(TARGET, 1.5, 8, 1000)
}

fn key(seed: u64) -> Key {
    Key::from_seed(seed, Cipher::Aes256Ctr)
}

/// Two units per step, in the same order in every epoch.
fn batch(step: usize) -> [usize; 2] {
    [2 * (step % 4), 2 * (step % 4) + 1]
}

fn take(run: &mut PrivateRun) -> Vec<f64> {
    let step = run.step();
    run.admit(step, &batch(step)).unwrap();
    let mut sum = vec![0.25f64; run.coordinates()];
    run.privatize(&mut sum).unwrap();
    sum
}

fn whole(run: &mut PrivateRun) -> Vec<Vec<f64>> {
    (run.step()..run.steps()).map(|_| take(run)).collect()
}

#[test]
fn it_adds_the_rows_of_the_mechanism_with_the_stddev_that_privacy_needs() {
    for mechanism in [mechanism(), tree(), comb()] {
        let mut run = PrivateRun::new(mechanism.clone(), &settings(), key(1)).unwrap();
        let z = run.privacy().noise_multiplier();
        assert!((run.privacy().epsilon() / 4.0 - 1.0).abs() < 1e-6 && run.privacy().epsilon() <= 4.0);
        let exact = z.value() * 1.5 * mechanism.sensitivity();
        assert!(run.stddev() >= exact && run.stddev() < exact * (1.0 + 1e-14));
        let stddev = Stddev::of(&mechanism, z, 1.5).unwrap();
        let mut rows = Rows::of(&mechanism, &key(1), stddev, 0..1000, 1 << 20).unwrap();
        let mut row = vec![0.0f32; 1000];
        for step in 0..12 {
            rows.next_into(&mut row).unwrap();
            run.admit(step, &batch(step)).unwrap();
            // Three ways to the same noise.
            let expected: Vec<f64> = row.iter().map(|x| 0.25 + f64::from(*x)).collect();
            match step % 3 {
                0 => {
                    let mut sum = vec![0.25f64; 1000];
                    run.privatize(&mut sum).unwrap();
                    assert_eq!(sum, expected);
                }
                1 => {
                    let mut sum = vec![0.25f32; 1000];
                    run.privatize(&mut sum).unwrap();
                    assert!(sum.iter().zip(&row).all(|(sum, x)| *sum == 0.25 + x));
                }
                _ => {
                    let mut out = vec![0.0f32; 1000];
                    run.row_into(&mut out).unwrap();
                    assert_eq!(out, row);
                }
            }
        }
        assert_eq!(run.step(), 12);
    }
}

#[test]
fn shards_are_the_whole_in_any_ranges() {
    let whole = whole(&mut PrivateRun::new(mechanism(), &settings(), key(2)).unwrap());
    for ranges in
        [vec![0..1000], vec![0..300, 300..301, 301..1000], vec![700..1000, 5..9, 256..512], vec![3..3]]
    {
        let shard = Settings { ranges: Some(ranges.clone()), ..settings() };
        let mut run = PrivateRun::new(mechanism(), &shard, key(2)).unwrap();
        let places: Vec<usize> = ranges.iter().flat_map(|r| r.start as usize..r.end as usize).collect();
        assert_eq!(run.coordinates(), places.len());
        assert!(run.ranges().into_iter().flatten().map(|i| i as usize).eq(places.iter().copied()));
        for all in &whole {
            let expected: Vec<f64> = places.iter().map(|i| all[*i]).collect();
            assert_eq!(take(&mut run), expected, "{ranges:?}");
        }
    }
    for twice in [vec![0..10, 0..10], vec![5..9, 700..1000, 8..12]] {
        let shard = Settings { ranges: Some(twice), ..settings() };
        let text = PrivateRun::new(mechanism(), &shard, key(2)).err().unwrap().to_string();
        assert!(text.contains("ranges of coordinates must be without overlap"), "{text}");
    }
    for wrong in [vec![0..1001], vec![9..3], vec![1000..1002]] {
        let shard = Settings { ranges: Some(wrong), ..settings() };
        let text = PrivateRun::new(mechanism(), &shard, key(2)).err().unwrap().to_string();
        assert!(text.contains("a range of coordinates must be within 0..1000"), "{text}");
    }
}

#[test]
fn a_step_is_taken_once_in_order_by_those_who_may() {
    let mut run = PrivateRun::new(mechanism(), &settings(), key(3)).unwrap();
    let mut sum = vec![0.0f32; 1000];
    let refused = |result: antiphon::Result<()>| result.unwrap_err().to_string();
    assert!(refused(run.privatize(&mut sum)).contains("step 0 has no noise yet: admit"));
    assert!(refused(run.admit(1, &[0])).contains("step 1 is refused: step 0 is next"));
    assert!(refused(run.admit(12, &[0])).contains("the run has 12 steps"));
    assert!(refused(run.admit(0, &[8])).contains("there is no example 8"));
    assert!(refused(run.admit(0, &[1, 1])).contains("example 1 is in the batch twice"));
    run.admit(0, &[0, 1]).unwrap();
    assert!(refused(run.admit(0, &[2])).contains("admitted already"));
    let short = refused(run.privatize(&mut sum[..999]));
    assert_eq!(short, "the sum must be 1000 numbers long, got 999");
    run.privatize(&mut sum).unwrap();
    assert!(refused(run.privatize(&mut sum)).contains("step 1 has no noise yet"), "no row twice");
    assert!(refused(run.admit(0, &[0])).contains("step 0 was already taken"));
    assert!(refused(run.admit(1, &[0])).contains("example 0 would take part in a way"));
    // What was refused did not happen.
    for step in 1..12 {
        run.admit(step, &batch(step)).unwrap();
        run.privatize(&mut sum).unwrap();
    }
    assert!(refused(run.admit(12, &[0])).contains("the run has 12 steps"));
    assert!(refused(run.privatize(&mut sum)).contains("the run has 12 steps"));
}

#[test]
fn a_run_goes_on_from_its_state_bit_for_bit() {
    for mechanism in [mechanism(), tree()] {
        let new = || PrivateRun::new(mechanism.clone(), &settings(), key(4)).unwrap();
        let expected = whole(&mut new());
        for stop in [0, 1, 5, 12] {
            let mut first = new();
            (0..stop).for_each(|_| drop(take(&mut first)));
            if stop < 12 {
                first.admit(stop, &batch(stop)).unwrap(); // not a part of the state: it has no noise yet
            }
            let text = serde_json::to_string(&first.state()).unwrap();
            let state: State = serde_json::from_str(&text).unwrap();
            assert_eq!(state.step(), stop);
            let mut second = new();
            second.restore(&state).unwrap();
            assert_eq!(whole(&mut second), expected[stop..]);
            assert_eq!(second.state(), new_at_end(&mechanism), "who took part is remembered");
        }
    }
}

fn new_at_end(mechanism: &Verified) -> State {
    let mut run = PrivateRun::new(mechanism.clone(), &settings(), key(4)).unwrap();
    whole(&mut run);
    run.state()
}

/// Where nobody knows how many units there are, they are counted as they come, also through a restore and in the log.
#[test]
fn units_may_be_counted_as_they_come() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("who");
    let open = Settings { units: None, ..settings() };
    let mut first = PrivateRun::new(mechanism(), &open, key(4)).unwrap();
    first.log_to(&path).unwrap();
    (0..4).for_each(|_| drop(take(&mut first)));
    assert!(first.admit(4, &[900, 3]).unwrap_err().to_string().contains("example 3 would take part"));
    let state: State = serde_json::from_str(&serde_json::to_string(&first.state()).unwrap()).unwrap();
    drop(first);
    let mut second = PrivateRun::new(mechanism(), &open, key(4)).unwrap();
    second.restore(&state).unwrap();
    second.log_to(&path).unwrap();
    assert!(second.admit(4, &[3]).is_err());
    second.admit(4, &[0, 900]).unwrap();
    assert!(!second.statement().to_string().contains("1/N"));
}

/// After a restore the guard knows who took part before it.
#[test]
fn a_restored_run_refuses_what_the_first_one_would() {
    let mut first = PrivateRun::new(mechanism(), &settings(), key(4)).unwrap();
    (0..4).for_each(|_| drop(take(&mut first)));
    let mut second = PrivateRun::new(mechanism(), &settings(), key(4)).unwrap();
    second.restore(&first.state()).unwrap();
    assert!(second.admit(4, &[3]).unwrap_err().to_string().contains("its first step was 1"));
    second.admit(4, &[0, 1]).unwrap();
    assert!(second.restore(&first.state()).unwrap_err().to_string().contains("a run that has begun"));
}

#[test]
fn a_state_of_another_run_is_refused_by_what_differs() {
    let mut run = PrivateRun::new(mechanism(), &settings(), key(5)).unwrap();
    take(&mut run);
    let state = run.state();
    let refused = |mechanism: Verified, settings: Settings, seed: u64| {
        let mut other = PrivateRun::new(mechanism, &settings, key(seed)).unwrap();
        other.restore(&state).unwrap_err().to_string()
    };
    for (text, name) in [
        (refused(tree(), settings(), 5), "mechanism was"),
        (refused(mechanism(), Settings { clip_norm: 1.0, ..settings() }, 5), "clip_norm was 1.5 and is 1"),
        (
            refused(mechanism(), Settings { layout: "b".into(), ..settings() }, 5),
            "layout was \"\" and is \"b\"",
        ),
        (refused(mechanism(), Settings { params: 1001, ..settings() }, 5), "params was 1000 and is 1001"),
        (refused(mechanism(), Settings { units: Some(9), ..settings() }, 5), "units was 8 and is 9"),
        (refused(mechanism(), Settings { unit: Unit::User, ..settings() }, 5), "unit was \"example\""),
        (refused(mechanism(), Settings { adjacency: Adjacency::ReplaceOne, ..settings() }, 5), "stddev was"),
        (refused(mechanism(), settings(), 6), "key_fingerprint was"),
    ] {
        assert!(text.contains("belongs to another run") && text.contains(name), "{name}: {text}");
    }
    let weaker = Budget::Target { epsilon: 5.0, delta: 1e-5 };
    let text = refused(mechanism(), Settings { budget: weaker, ..settings() }, 5);
    assert!(text.contains("stddev was") && text.contains("noise was"), "{text}");
    // Numbers that no run can have.
    let text = serde_json::to_string(&state).unwrap();
    assert!(text.contains("\"seal\""));
    for (from, to) in
        [("\"step\":1", "\"step\":13"), ("\"first\":[1", "\"first\":[7"), ("\"first\":[1,", "\"first\":[")]
    {
        assert!(text.contains(from), "{text}");
        let forged: State = serde_json::from_str(&text.replace(from, to)).unwrap();
        let mut other = PrivateRun::new(mechanism(), &settings(), key(5)).unwrap();
        assert!(other.restore(&forged).is_err(), "{to}");
    }
    assert!(serde_json::from_str::<State>(&text.replace("\"step\"", "\"steps\"")).is_err());
}

#[test]
fn secrets_are_no_part_of_a_state() {
    let secret = [0xabu8; 32];
    let mut run =
        PrivateRun::new(mechanism(), &settings(), Key::from_bytes(secret, Cipher::ChaCha20)).unwrap();
    let sum = take(&mut run);
    let text = serde_json::to_string(&run.state()).unwrap();
    assert!(!text.contains("abab") && !text.contains("171,171"), "{text}");
    assert!(
        !text.contains(&format!("{}", sum[0])) && !text.contains(&format!("{}", sum[0] - 0.25)),
        "{text}"
    );
}

#[test]
fn a_key_file_serves_one_run_which_may_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("key.json");
    let fresh = Key::fresh(&path).unwrap();
    assert_eq!(fresh.origin(), Origin::File);
    assert!(Key::fresh(&path).is_err(), "a key is never replaced");
    let load = || Key::load(&path).unwrap();
    let uses = || -> serde_json::Value {
        let stored: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        stored["uses"].clone()
    };
    let mut run = PrivateRun::new(mechanism(), &settings(), fresh).unwrap();
    assert_eq!(uses(), serde_json::json!([]), "nothing was drawn yet");
    take(&mut run);
    assert_eq!(uses()[0]["kind"], "run");
    let state = run.state();
    // A second run, the same or another one.
    for settings in [settings(), Settings { clip_norm: 3.0, ..settings() }] {
        let mut second = PrivateRun::new(mechanism(), &settings, load()).unwrap();
        let text = second.admit(0, &batch(0)).unwrap_err().to_string();
        assert!(
            text.contains("is already used for the run") && text.contains("a key serves one run"),
            "{text}"
        );
        let mut sum = vec![0.0f32; 1000];
        assert!(second.privatize(&mut sum).is_err() && sum == vec![0.0; 1000]);
    }
    // The run itself, from its state.
    let mut again = PrivateRun::new(mechanism(), &settings(), load()).unwrap();
    again.restore(&state).unwrap();
    assert_eq!(take(&mut again), take(&mut run));
    // A part of the key is as much as the key.
    let [part] = load().split(["another purpose"]);
    let mut other = PrivateRun::new(mechanism(), &settings(), part).unwrap();
    assert!(other.admit(0, &batch(0)).is_err());
    // A state without a record: the key file was replaced by an older copy.
    let copy = folder.path().join("copy.json");
    let mut stored: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    stored.as_object_mut().unwrap().remove("uses");
    std::fs::write(&copy, stored.to_string()).unwrap();
    let mut lost = PrivateRun::new(mechanism(), &settings(), Key::load(&copy).unwrap()).unwrap();
    lost.restore(&state).unwrap();
    assert!(lost.admit(1, &batch(1)).unwrap_err().to_string().contains("has no record of the run"));
    // Nor does a key begin a run that may have been used before there were records.
    let mut old = PrivateRun::new(mechanism(), &settings(), Key::load(&copy).unwrap()).unwrap();
    assert!(old.admit(0, &batch(0)).unwrap_err().to_string().contains("it may have been used"));
    // Whichever way a key is read: its file is looked at, and must still be its own.
    let mut read = PrivateRun::new(mechanism(), &settings(), key_file::read(&path).unwrap()).unwrap();
    assert!(read.admit(0, &batch(0)).unwrap_err().to_string().contains("already used"));
    let swapped = folder.path().join("swapped.json");
    let mut run = PrivateRun::new(mechanism(), &settings(), Key::fresh(&swapped).unwrap()).unwrap();
    std::fs::remove_file(&swapped).unwrap();
    Key::fresh(&swapped).unwrap();
    assert!(
        run.admit(0, &batch(0)).unwrap_err().to_string().contains("is not the one that was read from it")
    );
    assert!(key_file::read_for_training(&path).is_err(), "it is not a training run's");
}

#[test]
fn the_log_says_who_took_part_and_the_audit_agrees_with_the_statement() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("who.jsonl");
    let mut run = PrivateRun::new(mechanism(), &settings(), key(8)).unwrap();
    run.log_to(&path).unwrap();
    (0..5).for_each(|_| drop(take(&mut run)));
    let state = run.state();
    (0..2).for_each(|_| drop(take(&mut run))); // lost, but logged
    drop(run);
    // Another process goes on: the log too, from where the state is. One of another run is refused and stays as it is.
    let mut run = PrivateRun::new(mechanism(), &settings(), key(8)).unwrap();
    run.restore(&state).unwrap();
    let whole_log = std::fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = whole_log.lines().collect();
    let other = folder.path().join("other.jsonl");
    for (text, reason) in [
        (whole_log.replace("[0,1]", "[0]"), "the participation log of another run"),
        (whole_log.replace("[0,1]", "[0,9]"), "there is no example 9"),
        (lines[..4].join("\n"), "the participation log of another run"),
        (whole_log.replace(&format!("{}\n", lines[2]), ""), "the participation log of another run"),
    ] {
        std::fs::write(&other, &text).unwrap();
        let message = run.log_to(&other).unwrap_err().to_string();
        assert!(message.contains(reason), "{reason}: {message}");
        assert_eq!(std::fs::read_to_string(&other).unwrap(), text);
    }
    run.log_to(&path).unwrap();
    whole(&mut run);
    let text = std::fs::read_to_string(&path).unwrap();
    let expected: String =
        (0..12).map(|t| format!("{{\"step\":{t},\"units\":[{},{}]}}\n", batch(t)[0], batch(t)[1])).collect();
    assert_eq!(text, expected);
    let lines = Reader::open(&path, Limits { steps: 12, units: Some(8) }).unwrap();
    let privacy = *run.privacy();
    let found =
        audit(&mechanism(), lines, privacy.noise_multiplier(), privacy.delta(), privacy.adjacency()).unwrap();
    assert!(found.ok() && found.epsilon_realised == found.epsilon_stated);
    assert!((found.epsilon_realised / privacy.epsilon() - 1.0).abs() < 1e-9);
    // A new run makes a new log, and a run that has a log takes no other state.
    let mut run = PrivateRun::new(mechanism(), &settings(), key(8)).unwrap();
    assert!(run.log_to(&path).unwrap_err().to_string().contains("never overwritten"));
    let mut full = Writer::create(&folder.path().join("full")).unwrap();
    full.append(0, &[]).unwrap();
    assert!(
        run.log_with(full).unwrap_err().to_string().contains("must be one of 0 steps"),
        "it is ahead of the run"
    );
    run.log_to(&folder.path().join("new")).unwrap();
    assert!(run.restore(&state).unwrap_err().to_string().contains("writes a log already"));
}

#[test]
fn dp_sgd_is_a_run_that_draws_its_samples() {
    let sampled = Sampled { steps: 40, sampling_rate: 0.25, poisson: true };
    let settings = Settings { units: Some(200), ..settings() };
    let new = |seed| {
        let [noise, sampling] = key(seed).split(["noise", "sampling"]);
        PrivateRun::sampled(sampled, &settings, noise, sampling).unwrap()
    };
    let mut run = new(1);
    let mut sizes = Vec::new();
    for step in 0..40 {
        let sample = run.sample().unwrap();
        let mut wrong = sample.clone();
        wrong.pop();
        let text = run.admit(step, &wrong).unwrap_err().to_string();
        assert!(text.contains("are not the Poisson sample that the run drew"), "{text}");
        run.admit(step, &sample).unwrap();
        let mut sum = vec![0.0f64; 1000];
        run.privatize(&mut sum).unwrap();
        let deviation = (sum.iter().map(|x| x * x).sum::<f64>() / 1000.0).sqrt();
        assert!((deviation / run.stddev() - 1.0).abs() < 0.15, "{deviation}");
        sizes.push(sample.len());
    }
    assert!(run.sample().is_none() && sizes.iter().any(|size| *size != sizes[0]));
    let z = run.privacy().noise_multiplier().value();
    assert!((run.stddev() / (1.5 * z) - 1.0).abs() < 1e-14);
    // From a state, and not from that of another key.
    let mut half = new(1);
    (0..7).for_each(|step| {
        half.admit(step, &half.sample().unwrap()).unwrap();
        half.row_into(&mut vec![0.0; 1000]).unwrap();
    });
    let mut again = new(1);
    again.restore(&half.state()).unwrap();
    assert_eq!(again.sample(), half.sample());
    let text = new(2).restore(&half.state()).unwrap_err().to_string();
    assert!(text.contains("sampling_fingerprint was"), "{text}");
    let statement = run.statement().to_string();
    assert!(
        statement.contains("Poisson sampling") && statement.contains("as secret as the key"),
        "{statement}"
    );
    // What only looks like it.
    let shuffled = Sampled { poisson: false, ..sampled };
    let [noise, sampling] = key(3).split(["noise", "sampling"]);
    let mut run = PrivateRun::sampled(shuffled, &settings, noise, sampling).unwrap();
    run.admit(0, &[5, 6]).unwrap();
    assert!(!run.valid() && run.statement().to_string().starts_with("NOT A VALID GUARANTEE"));
    // Keys from two places: what is said about one would not hold for the other.
    let fresh = || Key::from_os(Cipher::fastest()).unwrap();
    assert!(PrivateRun::sampled(sampled, &settings, fresh(), key(1)).is_err());
    PrivateRun::sampled(sampled, &settings, fresh(), fresh()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("key");
    Key::fresh(&path).unwrap();
    let [part, _] = Key::load(&path).unwrap().split(["a", "b"]);
    assert!(PrivateRun::sampled(sampled, &settings, fresh(), part).is_err());
    let [a, b] = Key::load(&path).unwrap().split(["a", "b"]);
    let mut run = PrivateRun::sampled(sampled, &settings, a, b).unwrap();
    run.admit(0, &run.sample().unwrap()).unwrap();
    let [a, b] = Key::load(&path).unwrap().split(["c", "d"]);
    let mut run = PrivateRun::sampled(sampled, &settings, a, b).unwrap();
    assert!(run.admit(0, &run.sample().unwrap()).is_err(), "a key serves one run");
    // A sample is drawn from a number of units.
    let [a, b] = key(1).split(["a", "b"]);
    let nobody_knows = Settings { units: None, ..settings.clone() };
    assert!(
        PrivateRun::sampled(sampled, &nobody_knows, a, b)
            .err()
            .unwrap()
            .to_string()
            .contains("units must be given")
    );
    // One key for both purposes, and rates that are none.
    assert!(PrivateRun::sampled(sampled, &settings, key(1), key(1)).is_err());
    for rate in [0.0, 1.5, f64::NAN] {
        let [noise, sampling] = key(1).split(["noise", "sampling"]);
        let wrong = Sampled { sampling_rate: rate, ..sampled };
        let text = PrivateRun::sampled(wrong, &settings, noise, sampling).err().unwrap().to_string();
        assert!(text.contains("sampling_rate must be in (0, 1]"), "{text}");
    }
}

#[test]
fn replace_one_takes_twice_the_noise_and_says_so() {
    let one = Settings { adjacency: Adjacency::ReplaceOne, ..settings() };
    let [zero_out, replace_one] =
        [settings(), one.clone()].map(|settings| PrivateRun::new(mechanism(), &settings, key(7)).unwrap());
    let [z, twice] = [&zero_out, &replace_one].map(|run| run.privacy().noise_multiplier().value());
    assert_eq!(twice, 2.0 * z);
    assert!((replace_one.stddev() / zero_out.stddev() - 2.0).abs() < 1e-14);
    assert!(replace_one.privacy().epsilon() <= 4.0);
    assert!(replace_one.statement().to_string().contains("half of it was used for this figure"));
    // The same noise under both: ε is larger under replace-one.
    let noise = Budget::Noise { noise_multiplier: NoiseMultiplier::new(1.0).unwrap(), delta: 1e-5 };
    let [zero_out, replace_one] = [Adjacency::ZeroOut, Adjacency::ReplaceOne].map(|adjacency| {
        let settings = Settings { adjacency, budget: noise, ..settings() };
        PrivateRun::new(mechanism(), &settings, key(7)).unwrap()
    });
    assert_eq!(zero_out.stddev(), replace_one.stddev());
    assert!(replace_one.privacy().epsilon() > 1.5 * zero_out.privacy().epsilon());
    let [a, b] = key(1).split(["a", "b"]);
    let sampled = Sampled { steps: 4, sampling_rate: 0.5, poisson: true };
    let text = PrivateRun::sampled(sampled, &one, a, b).err().unwrap().to_string();
    assert!(text.contains("replace-one is not accounted for with Poisson sampling"), "{text}");
}

#[test]
fn a_statement_says_what_the_run_is() {
    let users = Settings { unit: Unit::User, ..settings() };
    let text = PrivateRun::new(mechanism(), &users, key(1)).unwrap().statement().to_string();
    for part in [
        "ε = 4.00000",
        "one user",
        "12 steps: 3 epochs with the same batches",
        "clip norm 1.5",
        "comes from a seed",
        "Not checked: that the contribution of each user to a step was clipped to the clip norm 1.5",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let fresh = Key::from_os(Cipher::fastest()).unwrap();
    let text = PrivateRun::new(mechanism(), &settings(), fresh).unwrap().statement().to_string();
    assert!(!text.contains("seed") && text.contains("one example"), "{text}");
}

#[test]
#[should_panic(expected = "every purpose of a key must be named once")]
fn a_key_is_not_split_into_two_that_are_the_same() {
    key(1).split(["noise", "noise"]);
}

/// Seeded noise is a promise. The numbers are those of `antiphon noise --epsilon 4 --delta 1e-5 --clip-norm 1.5 --seed 11 --params 1000`
/// for this mechanism, at commit b8d0960, before there was such an object.
#[test]
fn the_bits_of_a_seeded_run_stay() {
    let mut run = PrivateRun::new(tree(), &settings(), key(11)).unwrap();
    let rows = whole(&mut run);
    let bits = |step: usize, i: usize| ((rows[step][i] - 0.25) as f32).to_bits();
    assert_eq!(run.stddev(), 7.777605127380556);
    assert_eq!([bits(0, 0), bits(5, 500), bits(11, 999)], [0xc00003c1, 0xc10fe179, 0x41f04c77]);
}

/// With buffers that are as old as the state, older, newer, missing or of another run: the noise is the same, only its cost is not.
#[test]
fn buffers_change_what_it_costs_to_go_on_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let shards = Settings { ranges: Some(vec![5..9, 256..712]), ..settings() };
    for (mechanism, kept) in [(comb(), true), (tree(), true), (mechanism(), false)] {
        let new = |seed| PrivateRun::new(mechanism.clone(), &shards, key(seed)).unwrap();
        let expected = whole(&mut new(1));
        let mut run = new(1);
        assert_eq!(run.keeps_buffers(), kept);
        let mut states = Vec::new();
        for step in 0..12 {
            run.save_buffers(&path(&format!("{step}"))).unwrap();
            states.push(run.state());
            take(&mut run);
        }
        // Nothing of the buffers is in a state: those with the same steps are the same whether there was noise or not.
        let text = serde_json::to_string(&states[7]).unwrap();
        assert!(!text.contains("buffers") && text.len() < 2_000, "{text}");
        for (state, buffers) in [(7, 7), (7, 5), (7, 0), (5, 7), (0, 0), (11, 10)] {
            let mut run = new(1);
            run.restore(&states[state]).unwrap();
            let again = run.restore_buffers(&path(&format!("{buffers}"))).unwrap();
            let most = if buffers <= state { state - buffers } else { state };
            assert!(again <= if kept { most } else { 0 }, "{state} {buffers}: {again}");
            assert_eq!(whole(&mut run), expected[state..], "{state} {buffers}");
        }
        let mut run = new(1);
        run.restore(&states[7]).unwrap();
        let cost = if kept { 7 } else { 0 };
        assert_eq!(run.restore_buffers(&path("none")).unwrap(), cost);
        new(2).save_buffers(&path("other")).unwrap();
        let message = run.restore_buffers(&path("other")).unwrap_err().to_string();
        assert!(message.contains("of another run"), "{message}");
        assert_eq!(whole(&mut run), expected[7..], "it goes on without them");
    }
}

#[test]
fn noise_that_is_made_ahead_is_the_same_and_gives_nothing_away() {
    for mechanism in [mechanism(), tree(), comb()] {
        let expected = whole(&mut PrivateRun::new(mechanism.clone(), &settings(), key(7)).unwrap());
        let mut run = PrivateRun::new(mechanism.clone(), &settings(), key(7)).unwrap();
        run.prepare().unwrap(); // a run that has not begun: nothing is drawn before its key file knows of it
        for (step, expected) in expected.iter().enumerate() {
            assert_eq!(&take(&mut run), expected);
            let before = run.state();
            run.prepare().unwrap();
            run.prepare().unwrap();
            assert_eq!((run.step(), run.state()), (step + 1, before), "no step is taken");
            if step < 11 {
                let text = run.privatize(&mut vec![0.0f32; 1000]).unwrap_err().to_string();
                assert!(text.contains("admit those who take part"), "{text}");
            }
        }
        assert!(run.admit(12, &batch(12)).is_err());
    }
}

#[test]
fn a_device_makes_the_same_rows_from_the_key_and_a_recurrence() {
    let blt = {
        let (schema, workload) = (Schema::epochs(3, 4).unwrap(), Workload::prefix_sum(12));
        let run = antiphon::mechanism::family::Run::new(&schema, &workload, &|_| true);
        verify(make::make(families::BLT, &run).unwrap()).unwrap()
    };
    let identity = {
        let (schema, workload) = (Schema::epochs(3, 4).unwrap(), Workload::prefix_sum(12));
        let stamped = Structured::formula(families::IDENTITY, 1);
        verify(make::structured(stamped, &schema, &workload, 1e-3, &|_| true).unwrap()).unwrap()
    };
    for mechanism in [comb(), blt, identity] {
        let mut host = PrivateRun::new(mechanism.clone(), &settings(), key(8)).unwrap();
        let mut run = PrivateRun::new(mechanism, &settings(), key(8)).unwrap();
        assert!(run.made_elsewhere().unwrap_err().to_string().contains("admit those who take part"));
        let mut buffers: Vec<Vec<f64>> = Vec::new();
        for step in 0..12 {
            host.admit(step, &batch(step)).unwrap();
            let mut expected = vec![0.0f32; 1000];
            host.row_into(&mut expected).unwrap();
            run.admit(step, &batch(step)).unwrap();
            let found = run.made_elsewhere().unwrap();
            assert_eq!((run.step(), &found), (step + 1, &run.recurrence(step).unwrap()));
            // What the documentation of a recurrence says, column by column.
            let rows: Vec<Vec<f32>> = found
                .inputs
                .iter()
                .map(|(input, _)| {
                    let mut z = vec![0.0f32; 1000];
                    run.noise_key().fill_f32(*input, 0, &mut z);
                    z
                })
                .collect();
            if found.first {
                buffers = vec![vec![0.0; 1000]; found.buffers.len()];
            }
            for (column, expected) in expected.iter().enumerate() {
                let weighted = found.inputs.iter().zip(&rows).map(|((_, w), z)| w * f64::from(z[column]));
                let mixed = weighted.fold(0.0, |sum, x| sum + x);
                let mut row = mixed;
                for ((taken, kept), buffer) in found.buffers.iter().zip(&mut buffers) {
                    row -= taken * buffer[column];
                    buffer[column] = kept * buffer[column] + mixed;
                }
                assert_eq!(((found.scale * row) as f32).to_bits(), expected.to_bits(), "{step} {column}");
            }
        }
        assert_eq!(run.state(), host.state());
        assert!(run.made_elsewhere().unwrap_err().to_string().contains("the run has 12 steps"));
        assert!(run.recurrence(12).is_err());
    }
    let mut dense = PrivateRun::new(mechanism(), &settings(), key(8)).unwrap();
    dense.admit(0, &batch(0)).unwrap();
    let text = dense.made_elsewhere().unwrap_err().to_string();
    assert!(text.contains("comb-blt, blt and identity") && dense.step() == 0, "{text}");
}

#[test]
fn two_processes_that_go_on_with_one_run_are_found_when_a_state_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("key");
    let open = || PrivateRun::new(mechanism(), &settings(), Key::load(&path).unwrap()).unwrap();
    let mut stalled = PrivateRun::new(mechanism(), &settings(), Key::fresh(&path).unwrap()).unwrap();
    take(&mut stalled);
    stalled.state_is_kept().unwrap();
    let state = stalled.state();
    // Another process takes its place, and is ahead.
    let mut other = open();
    other.restore(&state).unwrap();
    (0..3).for_each(|_| drop(take(&mut other)));
    other.state_is_kept().unwrap();
    assert!(stalled.check_latest().is_err() && other.check_latest().is_ok() && open().check_latest().is_ok());
    take(&mut stalled);
    let text = stalled.state_is_kept().unwrap_err().to_string();
    assert!(
        text.contains("a state after 4 steps of this run was kept") && text.contains("after 2 steps"),
        "{text}"
    );
    // Who goes back on purpose has said so.
    let mut repeated = open();
    repeated.restore_repeating(&state).unwrap();
    take(&mut repeated);
    repeated.check_latest().unwrap();
    repeated.state_is_kept().unwrap();
    assert!(open().restore(&repeated.state()).is_err());
}

#[test]
fn the_bits_of_a_key_make_the_same_key() {
    for cipher in Cipher::ALL {
        let key = Key::from_seed(3, cipher);
        let again = Key::from_bytes(*key.secret(), cipher);
        assert_eq!((again.fingerprint(), again.origin()), (key.fingerprint(), Origin::Bytes));
        assert_eq!(again.with_origin(Origin::File).origin(), Origin::File);
        assert_eq!(key.with_origin(Origin::File).origin(), Origin::Seed);
    }
}
