//! Whole runs: the same for any number of threads, through kills, and bound to what they are.

use crate::batches::Batches;
use crate::checkpoint::{Folder, Outline};
use crate::classification::{Classification, Model};
use crate::data::{Name, load};
use crate::description::{Description, Figures};
use crate::design::Design;
use crate::network::Initial;
use crate::order::Order;
use crate::secrets::Secrets;
use crate::settings::Settings;
use crate::task::{Task, Turn};
use crate::trainer::{State, Trainer};
use antiphon::accounting::NoiseMultiplier;
use antiphon::linalg::Matrix;
use antiphon::noise::Rows;
use antiphon::run::{Budget, Privacy};
use antiphon::workload::Cooldown;
use sha2::{Digest, Sha256};

struct Run {
    task: Classification,
    design: Design,
    settings: Settings,
    privacy: Privacy,
}

impl Run {
    fn new(mechanism: &str, epsilon: f64) -> Run {
        Run::with(mechanism, Budget::Target { epsilon, delta: 1e-4 }, false)
    }

    fn with(mechanism: &str, budget: Budget, in_workload: bool) -> Run {
        Run::made(mechanism, budget, in_workload, Order::Fixed)
    }

    fn ordered(order: Order) -> Run {
        Run::made("single-epoch", Budget::Target { epsilon: 4.0, delta: 1e-4 }, false, order)
    }

    fn made(mechanism: &str, budget: Budget, in_workload: bool, order: Order) -> Run {
        let settings = Settings {
            epochs: 3,
            batch_size: 100,
            clip_norm: 1.0,
            learning_rate: 0.1,
            momentum: 0.9,
            cooldown: Some(Cooldown { fraction: 0.25, end: 0.05 }),
            in_workload,
            order,
            initial: Initial::Uniform,
        };
        let task = Classification::new(load(Name::Digits, "none".as_ref()).unwrap(), Model::Linear).unwrap();
        let per_epoch = settings.steps_per_epoch(task.train.len());
        assert_eq!(per_epoch, 15); // the last batch has 40
        let schema = settings.schema(task.train.len()).unwrap();
        let workload = settings.workload(45).unwrap();
        let rate = 100.0 / task.train.len() as f64;
        let design =
            Design::new(mechanism.parse().unwrap(), None, &schema, &workload, rate, &|_| true).unwrap();
        let privacy = design.privacy(budget).unwrap();
        Run { task, design, settings, privacy }
    }

    fn description(&self) -> Description {
        Description::new(&self.task, &self.design, &self.settings, &self.privacy).unwrap()
    }

    fn figures(&self) -> Figures {
        Figures::new(&self.privacy, self.design.valid())
    }

    fn stddev(&self) -> f64 {
        self.design.stddev(&self.privacy, 1.0).unwrap().value()
    }

    fn trainer(&self, secrets: Secrets) -> Trainer<'_> {
        Trainer::new(&self.task, &self.design, &self.settings, &self.privacy, secrets, 1 << 20).unwrap()
    }

    fn whole(&self, seed: u64) -> State {
        let mut trainer = self.trainer(Secrets::from_seed(seed, &self.description().id()));
        while !trainer.finished() {
            trainer.step().unwrap();
        }
        assert!(trainer.step().is_err(), "no noise beyond the last step");
        trainer.state().clone()
    }
}

fn bits(state: &State) -> Vec<u32> {
    state.parameters.iter().chain(&state.velocity).map(|x| x.to_bits()).collect()
}

#[test]
fn a_seed_fixes_a_run_for_any_number_of_threads() {
    for mechanism in ["optimal", "dp-sgd", "fft"] {
        let run = Run::new(mechanism, 4.0);
        let on = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| run.whole(1))
        };
        let (one, three) = (on(1), on(3));
        assert_eq!(bits(&one), bits(&three), "{mechanism}");
        assert_eq!(one, three);
        assert_ne!(bits(&run.whole(2)), bits(&one));
        assert_eq!((one.step, one.epochs.len()), (45, 3));
    }
}

/// Seeded runs are a promise: the parameters that `antiphon train` made at commit b8d0960 with these settings, as the SHA-256 of their
/// bytes. (Mechanisms that an optimizer or a Fourier transform makes have other last bits on other processors.)
#[test]
fn the_bits_of_seeded_runs_stay() {
    for (mechanism, expected) in [
        ("tree-online", "b6ad616a3808e16836a6d5f7ce079f7c0a59e7352c17ccffc38a1af4f210a5a0"),
        ("identity", "cb95cad8b0e29fc2aca2b243cc999f19639556ca8862d389f2287e7b453d28fd"),
    ] {
        let state = Run::new(mechanism, 4.0).whole(9);
        let bytes: Vec<u8> = state.parameters.iter().flat_map(|x| x.to_le_bytes()).collect();
        let found: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(found, expected, "{mechanism}");
    }
}

#[test]
fn it_learns_and_correlated_noise_helps() {
    let accuracy = |mechanism| {
        let run = Run::new(mechanism, 1.0);
        (0..4).map(|seed| run.whole(seed).epochs[2].test.accuracy).sum::<f64>() / 4.0
    };
    let (optimal, identity) = (accuracy("optimal"), accuracy("identity"));
    assert!(optimal > identity + 0.05 && optimal > 0.75, "{optimal} {identity}");
}

/// One step by hand: sum, noise, momentum, rate.
#[test]
fn a_step_is_what_the_formula_says() {
    let run = Run::new("identity", 1.0);
    let secrets = Secrets::from_seed(5, "a run");
    let mut trainer = run.trainer(Secrets::from_seed(5, "a run"));
    let (mut theta, mut v) = (trainer.state().parameters.clone(), vec![0.0f32; 650]);
    let rates = run.settings.rates(45).unwrap();
    let batches = Batches::new(&run.settings, 1440, secrets.order);
    for step in 0..45usize {
        let examples = batches.step(step);
        let mut sum = vec![0.0; 650];
        run.task
            .clipped_sum(Turn { step: 0, key: &secrets.start }, &theta, &examples, 1.0, &mut sum)
            .unwrap();
        let mut z = vec![0.0f32; 650];
        secrets.noise.fill_f32(step as u64, 0, &mut z);
        let stddev = run.stddev();
        for i in 0..650 {
            let noise = f64::from((stddev * f64::from(z[i])) as f32);
            v[i] = (0.9 * f64::from(v[i]) + (sum[i] + noise) / 100.0) as f32;
            theta[i] = (f64::from(theta[i]) - 0.1 * rates[step] * f64::from(v[i])) as f32;
        }
        trainer.step().unwrap();
        assert_eq!(trainer.state().parameters, theta, "{step}");
    }
}

/// Under so much noise that gradients do not count, the model moves as the workload says that the mechanism was made for: rates and
/// momentum of the loop are those of the matrix.
#[test]
fn a_mechanism_is_made_for_what_the_loop_does() {
    let budget = Budget::Noise { noise_multiplier: NoiseMultiplier::new(1e12).unwrap(), delta: 1e-4 };
    let run = Run::with("optimal", budget, true);
    let secrets = Secrets::from_seed(3, "a run");
    let stddev = run.stddev();
    let (mechanism, sigma) = (run.design.mechanism().unwrap(), run.design.stddev(&run.privacy, 1.0).unwrap());
    let mut rows = Rows::of(mechanism, &secrets.noise, sigma, 0..650, 1 << 20).unwrap();
    let mut noise = Matrix::zeros(45, 650);
    let mut row = vec![0.0; 650];
    for step in 0..45 {
        rows.next_into(&mut row).unwrap();
        (0..650).for_each(|i| noise[(step, i)] = f64::from(row[i]));
    }
    let moves = run.settings.workload(45).unwrap().apply(&noise);
    let mut trainer = run.trainer(secrets);
    for step in 0..45 {
        trainer.step().unwrap();
        for (i, theta) in trainer.state().parameters.iter().enumerate() {
            // In units of the noise of one step at the full rate.
            let (is, should) = (f64::from(*theta) / (0.1 / 100.0 * stddev), -moves[(step, i)] / stddev);
            assert!((is - should).abs() < 1e-4, "{step} {i}: {is} {should}");
        }
    }
}

#[test]
fn a_run_goes_on_bit_for_bit_from_any_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let named =
        ["optimal", "tree", "dp-sgd", "comb-blt"].map(|mechanism| (mechanism, Run::new(mechanism, 4.0)));
    let ordered = [Order::Reshuffled, SEPARATED].map(|order| (order.name(), Run::ordered(order)));
    for (name, run) in named.into_iter().chain(ordered) {
        let whole = run.whole(9);
        let path = folder.path().join(name);
        let description = run.description();
        let (mut kept, secrets) = Folder::create(&path, &description, Some(9)).unwrap();
        let mut trainer = run.trainer(secrets);
        assert!(kept.load().unwrap().is_none());
        for stop in [1, 14, 15, 31] {
            while trainer.state().step < stop {
                trainer.step().unwrap();
            }
            kept.save(&trainer.saved(), 0.5).unwrap();
            trainer.step().unwrap(); // lost
            drop(kept);
            let (opened, secrets) = Folder::open(&path, &description, Some(9)).unwrap();
            (kept, trainer) = (opened, run.trainer(secrets));
            let (saved, seconds) = kept.load().unwrap().unwrap();
            assert_eq!((saved.model.step, seconds), (stop, 0.5));
            trainer.resume(saved).unwrap();
        }
        while !trainer.finished() {
            trainer.step().unwrap();
        }
        assert_eq!(*trainer.state(), whole, "{name}");
        assert_eq!(bits(trainer.state()), bits(&whole));
    }
}

const SEPARATED: Order = Order::MinSeparation { min_separation: 6, max_participations: 3 };

/// The initial weights are a part of what a run is, and uniform ones are written as before there were others.
#[test]
fn runs_from_other_weights_are_other_runs() {
    let folder = tempfile::tempdir().unwrap();
    let uniform = Run::new("identity", 4.0).description();
    assert!(!serde_json::to_string(&uniform).unwrap().contains("initial"));
    let mut normal = uniform.clone();
    normal.settings.initial = Initial::Normal;
    assert_ne!(normal.id(), uniform.id());
    for (name, first, second) in [("uniform", &uniform, &normal), ("normal", &normal, &uniform)] {
        let path = folder.path().join(name);
        drop(Folder::create(&path, first, Some(1)).unwrap());
        assert!(Folder::open(&path, first, Some(1)).is_ok());
        let text = Folder::open(&path, second, Some(1)).err().unwrap().to_string();
        let [was, is] = [first, second].map(|run| run.settings.initial.name());
        assert!(text.ends_with(&format!("as this one: initial was \"{was}\" and is \"{is}\"")), "{text}");
    }
}

/// The order is a part of what a run is, and fixed order is written as it was before there was another.
#[test]
fn runs_in_another_order_are_other_runs() {
    let folder = tempfile::tempdir().unwrap();
    let [fixed, reshuffled, separated] =
        [Order::Fixed, Order::Reshuffled, SEPARATED].map(|order| Run::ordered(order).description());
    for run in [&fixed, &Run::new("dp-sgd", 4.0).description()] {
        assert!(!serde_json::to_string(run).unwrap().contains("sampling"));
    }
    // Also where all else is the same.
    let mut other = fixed.clone();
    other.settings.order = Order::Reshuffled;
    assert_ne!(other.id(), fixed.id());
    let path = folder.path().join("run");
    drop(Folder::create(&path, &fixed, Some(1)).unwrap());
    let refused = |path: &std::path::Path, run: &Description| {
        Folder::open(path, run, Some(1)).err().unwrap().to_string()
    };
    let text = refused(&path, &other);
    assert!(text.ends_with("as this one: sampling was \"fixed\" and is \"reshuffled\""), "{text}");
    let path = folder.path().join("separated");
    drop(Folder::create(&path, &separated, Some(1)).unwrap());
    assert!(refused(&path, &reshuffled).contains("and is \"reshuffled\""));
    let mut other = separated.clone();
    other.settings.order = Order::MinSeparation { min_separation: 5, max_participations: 3 };
    assert!(refused(&path, &other).ends_with("min_separation was 6 and is 5"));
    Folder::open(&path, &separated, Some(1)).unwrap();
}

/// A mechanism goes with every order that it protects, and with no other.
#[test]
fn a_mechanism_for_another_order_is_refused() {
    let runs = [Order::Fixed, Order::Reshuffled, SEPARATED].map(Run::ordered);
    let made = |design: &Run, settings: &Run| {
        let secrets = Secrets::from_seed(1, "");
        Trainer::new(&design.task, &design.design, &settings.settings, &design.privacy, secrets, 0)
            .map(|_| ())
            .map_err(|error| error.to_string())
    };
    for run in &runs {
        made(run, run).unwrap();
        made(run, &runs[0]).unwrap(); // fixed order is a special case of all
    }
    let text = made(&runs[0], &runs[1]).unwrap_err();
    assert_eq!(
        text,
        "mechanism must be made for what this run does: 3 epochs of 15 steps (45 steps), a new order in every epoch, \
         got 3 epochs of 15 steps (45 steps), same order in every epoch"
    );
    for (design, settings) in [(0, 2), (1, 2), (2, 1)] {
        let text = made(&runs[design], &runs[settings]).unwrap_err();
        assert!(text.starts_with("mechanism must be made for what this run does"), "{text}");
    }
    let text = made(&Run::new("dp-sgd", 4.0), &runs[1]).unwrap_err();
    assert!(text.contains("must be a matrix mechanism where the order is reshuffled, got dp-sgd"), "{text}");
}

/// What is stated is what was done.
#[test]
fn a_statement_says_in_which_order_the_examples_came() {
    for (order, words) in [
        (Order::Fixed, "with the same batches in the same order"),
        (Order::Reshuffled, "a new order in every epoch"),
        (SEPARATED, "an example returns after 6 steps at the earliest, at most 3 participations"),
    ] {
        let run = Run::ordered(order);
        let text = run.trainer(Secrets::from_seed(1, "")).run().statement().to_string();
        assert!(text.contains(words), "{text}");
    }
}

#[test]
fn a_folder_takes_one_run_and_its_key_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    let run = Run::new("identity", 4.0);
    let description = run.description();
    let refused = |result: antiphon::Result<(Folder, Secrets)>| result.err().unwrap().to_string();
    assert!(refused(Folder::open(&path, &description, None)).contains("there is no run to resume"));
    let (kept, secrets) = Folder::create(&path, &description, None).unwrap();
    assert!(refused(Folder::create(&path, &description, None)).contains("has a run already"));
    assert!(refused(Folder::open(&path, &description, None)).contains("in use by another process"));
    drop(kept);
    // Anything that differs is named.
    let mut other = description.clone();
    other.settings.learning_rate = 0.2;
    let text = refused(Folder::open(&path, &other, None));
    assert!(text.contains("learning_rate was 0.1 and is 0.2"), "{text}");
    assert!(refused(Folder::open(&path, &description, Some(1))).contains("seed was null and is 1"));
    let (kept, again) = Folder::open(&path, &description, None).unwrap();
    assert_eq!(again.noise.fingerprint(), secrets.noise.fingerprint());
    // A checkpoint of another noise, and a damaged one.
    let mut trainer = run.trainer(secrets);
    let (noise, mut saved) = (trainer.run().noise_id().to_string(), trainer.saved());
    let text = serde_json::to_string(&saved.run).unwrap().replace(&noise, "other");
    saved.run = serde_json::from_str(&text).unwrap();
    kept.save(&saved, 0.5).unwrap();
    let (found, _) = kept.load().unwrap().unwrap();
    let text = trainer.resume(found).unwrap_err().to_string();
    assert!(text.contains("belongs to another run") && text.contains("noise was \"other\""), "{text}");
    kept.save(&trainer.saved(), 0.5).unwrap();
    let file = path.join("checkpoint.safetensors");
    let mut bytes = std::fs::read(&file).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&file, &bytes).unwrap();
    assert!(kept.load().unwrap_err().to_string().contains("is damaged"));
    std::fs::write(&file, &bytes[..100]).unwrap();
    assert!(kept.load().unwrap_err().to_string().contains("is damaged"));
    // Nor is the key of another run taken for this one.
    let third = folder.path().join("third");
    let (other, _) = Folder::create(&third, &description, None).unwrap();
    // The same run with another key is another run: half of each would have two orders of the examples.
    kept.save(&trainer.saved(), 0.5).unwrap();
    std::fs::copy(&file, third.join("checkpoint.safetensors")).unwrap();
    let text = other.load().unwrap_err().to_string();
    assert!(text.contains("belongs to another run"), "{text}");
    std::fs::copy(third.join("key.json"), path.join("key.json")).unwrap();
    drop(kept);
    assert!(refused(Folder::open(&path, &description, None)).contains("the key of another run"));
    drop(other);
    let (kept, _) = Folder::open(&third, &description, None).unwrap();
    kept.finish().unwrap();
    drop(kept);
    assert!(refused(Folder::open(&third, &description, None)).contains("a run that is finished"));
}

/// A kill between key.json and run.json: the folder takes a run, and its key is never the one that was there.
#[test]
fn a_key_without_a_run_is_replaced_and_never_used() {
    let folder = tempfile::tempdir().unwrap();
    let description = Run::new("identity", 4.0).description();
    let refused = |result: antiphon::Result<(Folder, Secrets)>| result.err().unwrap().to_string();
    let whole = folder.path().join("whole");
    let (kept, used) = Folder::create(&whole, &description, None).unwrap();
    assert!(!whole.join(".making").exists());
    drop(kept);
    let key = std::fs::read(whole.join("key.json")).unwrap();
    for (name, length) in [("all", key.len()), ("half", key.len() / 2), ("few", 7), ("none", 0)] {
        let path = folder.path().join(name);
        std::fs::create_dir(&path).unwrap();
        std::fs::write(path.join("key.json"), &key[..length]).unwrap();
        let (kept, secrets) = Folder::create(&path, &description, None).unwrap();
        assert_ne!(secrets.noise.fingerprint(), used.noise.fingerprint(), "{name}");
        drop(kept);
        let (_, again) = Folder::open(&path, &description, None).unwrap();
        assert_eq!(secrets.noise.fingerprint(), again.noise.fingerprint(), "{name}");
    }
    // What is not ours stays, and a checkpoint says that there was a run.
    let (foreign, lost) = (folder.path().join("foreign"), folder.path().join("lost"));
    std::fs::create_dir(&foreign).unwrap();
    std::fs::write(foreign.join("key.json"), "{\"type\": \"service_account\"}").unwrap();
    assert!(refused(Folder::create(&foreign, &description, None)).contains("is not a key of antiphon"));
    assert!(foreign.join("key.json").exists());
    std::fs::create_dir(&lost).unwrap();
    std::fs::write(lost.join("key.json"), &key).unwrap();
    std::fs::write(lost.join("checkpoint.safetensors"), "").unwrap();
    assert!(refused(Folder::create(&lost, &description, None)).contains("run.json is missing"));
    assert_eq!(std::fs::read(lost.join("key.json")).unwrap(), key);
}

/// Of two processes that begin a run in the same folder, one has it.
#[test]
fn a_folder_is_made_by_one_process() {
    let folder = tempfile::tempdir().unwrap();
    let description = Run::new("identity", 4.0).description();
    let making = std::fs::File::create(folder.path().join(".making")).unwrap();
    making.lock().unwrap();
    let text = Folder::create(folder.path(), &description, None).err().unwrap().to_string();
    assert!(text.contains("in use by another process"), "{text}");
    assert!(!folder.path().join("key.json").exists());
    drop(making);
    Folder::create(folder.path(), &description, None).unwrap();
}

/// Ids of runs, and the bits of seeded runs, are those of version 0.1, where two kinds had other names.
#[test]
fn renamed_mechanisms_keep_their_ids_and_their_noise() {
    let folder = tempfile::tempdir().unwrap();
    for (mechanism, former) in [("tree-online", "tree"), ("fft-optimal", "fft-optimal-decoder")] {
        let description = Run::new(mechanism, 4.0).description();
        assert!(description.mechanism.name.starts_with(mechanism));
        let mut stored = description.clone();
        stored.mechanism.name = stored.mechanism.name.replacen(mechanism, former, 1);
        // The hash of version 0.1: of all fields as they are.
        let text = serde_json::to_string(&stored).unwrap();
        let plain: String =
            Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(description.id(), plain);
        assert_eq!(stored.id(), plain);
        // A folder of version 0.1 can be resumed.
        let path = folder.path().join(mechanism);
        drop(Folder::create(&path, &stored, Some(1)).unwrap());
        Folder::open(&path, &description, Some(1)).unwrap();
    }
}

#[test]
fn what_cannot_be_resumed_is_refused_before_the_mechanism_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    let run = Run::new("tree", 4.0);
    let outline = Outline {
        task: &run.task,
        settings: &run.settings,
        mechanism: "tree-online",
        privacy: run.figures(),
        seed: None,
    };
    let message = |outline: &Outline<'_>| Folder::check_resumable(&path, outline).unwrap_err().to_string();
    assert!(message(&outline).contains("there is no run to resume"));
    let (kept, _) = Folder::create(&path, &run.description(), None).unwrap();
    assert!(message(&outline).contains("in use by another process"));
    drop(kept);
    Folder::check_resumable(&path, &outline).unwrap();
    Folder::check_resumable(&path, &Outline { mechanism: "tree", ..outline }).unwrap();
    let text = message(&Outline { mechanism: "optimal", ..outline });
    assert!(text.contains("mechanism was [\"tree-online") && text.contains("and is [\"optimal"), "{text}");
    let text = message(&Outline { mechanism: "tree-online, 7 stamps", ..outline });
    assert!(text.contains("7 stamps"), "{text}");
    let settings = Settings { momentum: 0.5, ..run.settings };
    assert!(message(&Outline { settings: &settings, ..outline }).contains("momentum was 0.9 and is 0.5"));
    assert!(message(&Outline { seed: Some(3), ..outline }).contains("seed was null and is 3"));
    let privacy = Run::new("tree", 3.0).figures();
    let text = message(&Outline { privacy, ..outline });
    assert!(text.contains("epsilon was") && text.contains("noise_multiplier was"), "{text}");
    std::fs::remove_file(path.join("key.json")).unwrap();
    assert!(message(&outline).contains("a run that is finished"));
}

/// A privacy that was accounted for one event does not go with the noise of another.
#[test]
fn a_privacy_of_another_event_is_refused() {
    let [matrix, sampled, shuffled] =
        ["identity", "dp-sgd", "dp-sgd-shuffled"].map(|kind| Run::new(kind, 4.0));
    let made = |run: &Run, other: &Run| {
        let secrets = Secrets::from_seed(1, "");
        Trainer::new(&run.task, &run.design, &run.settings, &other.privacy, secrets, 0).map(|_| ())
    };
    for (run, other) in [(&matrix, &sampled), (&sampled, &matrix), (&shuffled, &matrix)] {
        assert!(made(run, other).unwrap_err().to_string().contains("privacy must be accounted for"));
    }
    // The figures of shuffled batches are those of samples, and never a guarantee.
    assert_eq!(shuffled.privacy, sampled.privacy);
    assert!(!shuffled.design.valid() && !shuffled.figures().valid && sampled.figures().valid);
    let trainer = shuffled.trainer(Secrets::from_seed(1, ""));
    assert!(
        !trainer.run().valid() && trainer.run().statement().to_string().starts_with("NOT A VALID GUARANTEE")
    );
}

/// 102 instead of 100 examples make as many steps, but a larger rate than the one that was accounted for.
#[test]
fn a_larger_sampling_rate_than_the_accounted_one_is_refused() {
    let run = Run::new("dp-sgd", 4.0);
    let settings = Settings { batch_size: 102, ..run.settings };
    let secrets = Secrets::from_seed(1, "");
    let result = Trainer::new(&run.task, &run.design, &settings, &run.privacy, secrets, 0);
    assert!(result.err().unwrap().to_string().contains("sampling rate"));
}

#[test]
fn wrong_settings_are_named() {
    let run = Run::new("identity", 4.0);
    let message = |change: &dyn Fn(&mut Settings)| {
        let secrets = Secrets::from_seed(1, "");
        let mut settings = run.settings;
        change(&mut settings);
        Trainer::new(&run.task, &run.design, &settings, &run.privacy, secrets, 0).err().unwrap().to_string()
    };
    assert_eq!(message(&|s| s.batch_size = 0), "batch_size must be in 1..=1440, got 0");
    assert_eq!(message(&|s| s.learning_rate = -1.0), "learning_rate must be positive and finite, got -1");
    assert_eq!(message(&|s| s.momentum = 1.0), "momentum must be in [0, 1), got 1");
    assert_eq!(message(&|s| s.epochs = 0), "epochs must be at least 1, got 0");
    assert_eq!(message(&|s| s.clip_norm = f64::NAN), "clip_norm must be in [1e-30, 1e30], got NaN");
    let text = message(&|s| s.epochs = 4);
    assert_eq!(text, "mechanism must be made for 60 steps (4 epochs of 15), got 45 steps");
}

#[test]
fn a_run_that_diverges_is_an_error() {
    let mut run = Run::new("identity", 1.0);
    run.settings.learning_rate = 1e38;
    let mut trainer = run.trainer(Secrets::from_seed(1, &run.description().id()));
    let error = std::iter::repeat_with(|| trainer.step()).take(45).find_map(Result::err);
    let message = error.expect("no model can be trained like this").to_string();
    assert!(message.contains("the training diverged") && message.contains("of 45"), "{message}");
}
