//! Runs that are killed at any moment, and continued: they end in the same bits, with the same log.

mod common;

use common::{antiphon, folder, json, parameters, started};
use std::path::Path;
use std::time::{Duration, Instant};

/// A file of users for federated training.
fn write_users(path: &Path) {
    let words = ["red", "green", "blue", "sky", "sea", "sun", "and", "the", "."];
    let lines = (0..120).flat_map(|user| (0..4).map(move |line| (user, line))).map(|(user, line)| {
        let text: Vec<&str> =
            (0..4 + (user + line) % 5).map(|i| words[(i * (1 + user % 3) + line) % 9]).collect();
        serde_json::json!({ "user": user, "text": text.join(" ") }).to_string() + "\n"
    });
    std::fs::write(path, lines.collect::<String>()).unwrap();
}

/// The rounds of an epoch: how many users train, the split decides.
fn rounds(here: &Path) -> usize {
    let line = format!("train {USERS} --epochs 1 --mechanism identity --seed 1 --json");
    json(here, &line, 0)["runs"][0]["steps"].as_u64().unwrap() as usize
}

/// The step of a run's checkpoint; 0 if there is none.
fn step_kept(here: &Path, folder: &str) -> u64 {
    let Ok(bytes) = std::fs::read(here.join(folder).join("checkpoint.safetensors")) else { return 0 };
    let (_, header) = safetensors::SafeTensors::read_metadata(&bytes).unwrap();
    let run: serde_json::Value =
        serde_json::from_str(&header.metadata().as_ref().unwrap()["private_run"]).unwrap();
    run["step"].as_u64().unwrap()
}

/// Kills a run at seeded moments, each time with another number of threads, until it is through; says how often that was between its
/// first step and its last one. The same command is given again every time, with --resume once there is a run, and never with --force. The
/// moments are parts of the time that the whole run takes on this machine.
fn kill_until_done(here: &Path, line: &str, folder: &str, seed: u64, whole: Duration, steps: usize) -> usize {
    let (mut kills, mut state) = (0, seed);
    for attempt in 0..500 {
        let run = here.join(folder).join("run.json").exists();
        // A run without a key is finished: it was killed after that, before it ended.
        if run && !line.contains("--seed") && !here.join(folder).join("key.json").exists() {
            return kills;
        }
        let resume = if run { " --resume" } else { "" };
        let threads = 1 + attempt % 3;
        let line = format!(
            "{line} --checkpoints {folder} --checkpoint-every 1 --log {folder}.jsonl --participation-log {folder}.who \
             --threads {threads}{resume}"
        );
        let mut child = started(here, &line);
        // While the mechanism is made, in the middle of steps and of writes; later each time, so that it ends.
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let part = (state >> 33) as f64 / (1u64 << 31) as f64;
        std::thread::sleep(whole.mul_f64(part * (1.0 + 0.25 * attempt as f64)));
        let early = child.try_wait().unwrap();
        child.kill().unwrap();
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(early.is_none_or(|status| status.success()), "{line}: {said}");
        if output.status.success() {
            return kills;
        }
        kills += usize::from((1..steps as u64).contains(&step_kept(here, folder)));
    }
    panic!("the run never ends");
}

/// The epochs in a log, whatever a kill cut off.
fn logged(here: &Path, folder: &str) -> Vec<u64> {
    let text = std::fs::read_to_string(here.join(format!("{folder}.jsonl"))).unwrap();
    let lines = text.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    lines.map(|line| line["epoch"].as_u64().unwrap()).collect()
}

/// Who took part, as it is logged; the steps are all there, once and in order.
fn participants(here: &Path, folder: &str, steps: usize) -> String {
    let text = std::fs::read_to_string(here.join(format!("{folder}.who"))).unwrap();
    let step =
        |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap()["step"].as_u64().unwrap();
    assert_eq!(text.lines().map(step).collect::<Vec<_>>(), (0..steps as u64).collect::<Vec<_>>(), "{folder}");
    text
}

/// Images: 1,440 examples in 15 steps per epoch. Users: 120 of them, of whom about 96 train, in rounds of 7.
const EXAMPLES: &str = "--batch-size 100";
const USERS: &str = "--federated --dataset users.jsonl --clients-per-round 7 --width 5 --context 2 --client-tokens 12 --silent 0.1";

fn kills_lose_nothing(epochs: usize, least: usize) {
    let folder = folder();
    let here = folder.path();
    write_users(&here.join("users.jsonl"));
    let all: Vec<u64> = (1..=epochs as u64).collect();
    let runs = [
        ("optimal", EXAMPLES, "--mechanism optimal --seed 4"),
        ("dp-sgd", EXAMPLES, "--mechanism dp-sgd --seed 4"),
        ("comb-blt", EXAMPLES, "--mechanism comb-blt --seed 4"),
        ("identity", EXAMPLES, "--mechanism identity"),
        ("reshuffled", EXAMPLES, "--sampling reshuffled --seed 4"),
        ("min-separation", EXAMPLES, "--sampling min-separation --seed 4"),
        ("users", USERS, "--mechanism optimal --seed 4"),
        ("rested-users", USERS, "--sampling min-separation --seed 4"),
        ("sampled-users", USERS, "--mechanism dp-sgd --seed 4"),
    ];
    for (i, (name, of, flags)) in runs.into_iter().enumerate() {
        let line = format!("train --epochs {epochs} {of} {flags}");
        let steps = epochs * if of == USERS { rounds(here) } else { 15 };
        let whole = format!("{name}-whole");
        let begin = Instant::now();
        antiphon(here, &format!("{line} --checkpoints {whole} --participation-log {whole}.who")).success();
        let time = begin.elapsed();
        let (mut kills, mut turn) = (0, 0);
        while kills < least {
            assert!(turn < 100, "{name}: {kills} kills, the run is over before they come");
            let killed = format!("{name}-killed-{turn}");
            kills += kill_until_done(here, &line, &killed, 7 + i as u64 + 10 * turn, time, steps);
            turn += 1;
            let who = participants(here, &killed, steps);
            if flags.contains("--seed") {
                assert!(parameters(here, &killed) == parameters(here, &whole), "{name}, {kills} kills");
                assert_eq!(who, participants(here, &whole, steps), "{name}, {kills} kills");
            }
            assert_eq!(logged(here, &killed), all, "{name}, {kills} kills");
            let secrets =
                std::fs::read_dir(here.join(&killed)).unwrap().map(|entry| entry.unwrap().file_name());
            let mut secrets = secrets.filter(|name| name.to_string_lossy().contains("buffers"));
            assert_eq!(secrets.next(), None, "{name}: buffers are removed at the end");
        }
        println!("{name}: {kills} kills");
    }
}

#[test]
fn a_kill_loses_nothing() {
    kills_lose_nothing(6, 2);
}

#[test]
#[ignore = "at least forty kills over hundreds of checkpoints, for a release build"]
fn many_kills_lose_nothing() {
    kills_lose_nothing(40, 20);
}
