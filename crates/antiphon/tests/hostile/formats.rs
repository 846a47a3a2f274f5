//! Mutations of keys, events, participation logs, states of runs and matrices.

use super::bodies;
use super::testing::{Seeded, mutate_bytes, mutate_json};
use antiphon::accounting::{Bracket, Event, Params, delta};
use antiphon::families::{IDENTITY, TREE_ONLINE};
use antiphon::linalg::dense;
use antiphon::make::make;
use antiphon::mechanism::family::Run;
use antiphon::noise::{Cipher, Key};
use antiphon::npy;
use antiphon::run::{Budget, PrivateRun, Settings, State};
use antiphon::schema::Schema;
use antiphon::verify::verify;
use antiphon::workload::Workload;
use serde_json::Value;

/// How many mutations of each form.
const ROUNDS: usize = 12_000;

/// Changed texts of JSON: every other one as JSON, the others as bytes. How many of them the body accepts.
fn mutated(seeds: &[String], seed: u64, mut body: impl FnMut(&[u8]) -> bool) -> usize {
    let seeded = &mut Seeded(seed);
    let mut accepted = 0;
    for round in 0..ROUNDS {
        let text = &seeds[seeded.below(seeds.len())];
        let mut bytes = text.clone().into_bytes();
        if round % 2 == 0 {
            let mut values: Vec<Value> =
                text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            for _ in 0..=seeded.below(3) {
                let line = seeded.below(values.len());
                mutate_json(&mut values[line], seeded);
            }
            bytes = values.iter().map(|value| format!("{value}\n")).collect::<String>().into_bytes();
        } else {
            mutate_bytes(&mut bytes, seeded);
        }
        accepted += usize::from(body(&bytes));
    }
    accepted
}

fn texts(seeds: &[&str]) -> Vec<String> {
    seeds.iter().map(|text| text.to_string()).collect()
}

#[test]
fn keys() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("key");
    let key = "00112233445566778899aabbccddeeff".repeat(2);
    let seeds = [
        format!(r#"{{"antiphon_key":1,"cipher":"chacha20","key":"{key}"}}"#),
        format!(r#"{{"antiphon_key":1,"cipher":"aes256-ctr","key":"{key}","uses":[]}}"#),
        format!(r#"{{"antiphon_key":1,"cipher":"aes256-ctr","key":"{key}","uses":[{{"kind":"train"}}]}}"#),
        format!(
            r#"{{"antiphon_key":1,"cipher":"chacha20","key":"{key}","uses":[{{"kind":"run","id":"ab","kept":3}}]}}"#
        ),
        format!(
            r#"{{"antiphon_key":1,"cipher":"chacha20","key":"{key}","uses":[{{"kind":"noise","noise_id":"ab","stddev":0.5,"params":9}}]}}"#
        ),
    ];
    let accepted = mutated(&seeds, 1, |bytes| bodies::key(bytes, &path));
    assert!((200..ROUNDS / 2).contains(&accepted), "{accepted}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left behind");
}

#[test]
fn events() {
    let seeds = texts(&[
        r#"{"kind":"gaussian","noise_multiplier":0.6}"#,
        r#"{"kind":"poisson-sampled","sampling_rate":0.01,"noise_multiplier":1.0}"#,
        r#"{"kind":"poisson-sampled","sampling_rate":1.0,"noise_multiplier":1.0}"#,
        r#"{"kind":"composed","events":[{"event":{"kind":"gaussian","noise_multiplier":2.0},"count":2052},{"event":{"kind":"poisson-sampled","sampling_rate":0.5,"noise_multiplier":1.5},"count":1}]}"#,
        r#"{"kind":"composed","events":[{"event":{"kind":"composed","events":[{"event":{"kind":"gaussian","noise_multiplier":3.0},"count":40000}]},"count":30000}]}"#,
    ]);
    let accepted = mutated(&seeds, 2, bodies::event);
    assert!((500..ROUNDS - 500).contains(&accepted), "{accepted}");
    // Compositions of compositions, as deep as a text of a megabyte can name them.
    let deep = |depth: usize| {
        let open = r#"{"kind":"composed","events":[{"count":1,"event":"#.repeat(depth);
        format!("{open}{}{}", r#"{"kind":"gaussian","noise_multiplier":1.0}"#, "}]}".repeat(depth))
    };
    assert!(bodies::event(deep(20).as_bytes()));
    for depth in [101, 1_000, 20_000] {
        assert!(!bodies::event(deep(depth).as_bytes()));
    }
}

/// Sampled events that pass the checks, each with a δ between its bounds or a reason why there is none.
#[test]
fn sampled_events() {
    let seeds = texts(&[
        r#"{"kind":"poisson-sampled","sampling_rate":0.01,"noise_multiplier":1.0}"#,
        r#"{"kind":"composed","events":[{"event":{"kind":"gaussian","noise_multiplier":20.0},"count":52},{"event":{"kind":"poisson-sampled","sampling_rate":0.5,"noise_multiplier":1.5},"count":100}]}"#,
    ]);
    let mut accounted = 0;
    mutated(&seeds, 8, |bytes| {
        let Ok(event) = serde_json::from_slice::<Event>(bytes) else { return false };
        if !matches!(event.as_gaussian(), Ok(None)) {
            return false;
        }
        accounted += 1;
        match delta(&event, 1.0, &Params { width: 1.0, interval: None }) {
            Ok(Bracket { lower, upper }) => {
                assert!(0.0 <= lower && lower <= upper && upper <= 1.0, "{lower} {upper} of {event:?}");
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
        true
    });
    assert!(accounted > 400, "{accounted}");
}

#[test]
fn logs() {
    let seeds = texts(&[
        "{\"step\":0,\"units\":[0,7,12]}\n{\"step\":3,\"units\":[]}\n{\"step\":11,\"units\":[49]}\n",
        "{\"step\":4,\"units\":[1,2,3,4,5,5]}\n",
    ]);
    let accepted = mutated(&seeds, 3, bodies::log);
    assert!((500..ROUNDS - 500).contains(&accepted), "{accepted}");
}

fn run(schema: &Schema) -> PrivateRun {
    let workload = Workload::prefix_sum(schema.steps());
    let family = if schema.is_listed() { TREE_ONLINE } else { IDENTITY };
    let made = make(family, &Run::new(schema, &workload, &|_| true)).unwrap();
    let settings = Settings::new(Budget::Target { epsilon: 4.0, delta: 1e-5 }, 1.0, 6, 10);
    PrivateRun::new(verify(made).unwrap(), &settings, Key::from_seed(1, Cipher::ChaCha20)).unwrap()
}

/// Any change to a state is refused: it is sealed with a secret that follows from the key.
#[test]
fn states() {
    let schemas = [
        Schema::epochs(3, 2).unwrap(),
        Schema::min_separation(6, 2, 2).unwrap(),
        Schema::reshuffled(3, 2).unwrap(),
        Schema::patterns(6, vec![vec![0, 2, 5], vec![1, 2, 3, 4]]).unwrap(),
    ];
    for (number, schema) in schemas.iter().enumerate() {
        let mut before = run(schema);
        for (step, units) in [(0, &[0, 1][..]), (1, &[2]), (2, &[0, 1])] {
            before.admit(step, units).unwrap();
            before.privatize(&mut [0.5; 10]).unwrap();
        }
        let kept: State = before.state();
        let text = serde_json::to_string(&kept).unwrap();
        // A run that refused a state has not begun.
        let mut again = run(schema);
        let accepted = mutated(&[text], 4 + number as u64, |bytes| {
            let Some(state) = bodies::state(bytes) else { return false };
            let same = state == kept;
            if !same {
                let message = again.restore(&state).expect_err("a state that was changed").to_string();
                assert!(!message.is_empty());
            }
            true
        });
        assert!((100..ROUNDS - 500).contains(&accepted), "{accepted}");
        again.restore(&kept).unwrap();
        assert_eq!(again.step(), 3);
    }
}

#[test]
fn matrices() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.npy");
    let matrix = dense::from_fn(3, 2, |i, j| i as f64 - 0.25 * j as f64);
    npy::write(&path, &matrix, false).unwrap();
    let plain = std::fs::read(&path).unwrap();
    let single = [npy::header_f32(3, 2), vec![0; 24]].concat();
    let (seeded, mut accepted) = (&mut Seeded(9), 0);
    for round in 0..ROUNDS {
        let mut bytes = if seeded.chance(0.5) { plain.clone() } else { single.clone() };
        if round % 2 == 0 {
            let (from, to) = [
                ("(3, 2)", "(2, 3)"),
                ("(3, 2)", "(6, 1)"),
                ("(3, 2)", "(6,)"),
                ("(3, 2)", "(3, 2,)"),
                ("(3, 2)", "(-3, -2)"),
                ("(3, 2)", "(+3, 2)"),
                ("(3, 2)", "()"),
                ("(3, 2)", "(9223372036854775808, 2)"),
                ("(3, 2)", "(4294967296, 4294967296)"),
                ("(3, 2)", "(18446744073709551615, 18446744073709551615)"),
                ("(3, 2)", "(0, 2)"),
                ("False", "True"),
                ("<f", ">f"),
                ("f8", "i8"),
                ("'", "\""),
                ("NUMPY\x01", "NUMPY\x02"),
            ][seeded.below(16)];
            bytes = replaced(&bytes, from, to);
        }
        if round % 3 != 0 {
            mutate_bytes(&mut bytes, seeded);
        }
        accepted += usize::from(bodies::npy(&bytes));
    }
    assert!((500..ROUNDS - 500).contains(&accepted), "{accepted}");
}

/// The same with another text, and a header as long as it then is.
fn replaced(bytes: &[u8], from: &str, to: &str) -> Vec<u8> {
    let latin: String = bytes.iter().map(|byte| char::from(*byte)).collect();
    let end = latin.find('\n').unwrap();
    let text = latin[..end].replace(from, to);
    let mut bytes: Vec<u8> = text.chars().chain(latin[end..].chars()).map(|c| c as u32 as u8).collect();
    if bytes[6] == 1 {
        let length = (text.chars().count() + 1 - 10) as u16;
        bytes[8..10].copy_from_slice(&length.to_le_bytes());
    }
    bytes
}
