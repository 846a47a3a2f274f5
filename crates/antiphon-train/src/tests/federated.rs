//! Users: whole runs, what a client can do to a sum, and what it cannot.

use crate::batches::Batches;
use crate::data::text::{TextName, TextOptions, load_text};
use crate::description::Description;
use crate::design::Design;
use crate::federated::{Answer, Federated, client};
use crate::job;
use crate::kind::Kind;
use crate::network::Initial;
use crate::order::Order;
use crate::secrets::Secrets;
use crate::settings::Settings;
use crate::task::{Task, Turn};
use crate::trainer::{State, Trainer};
use antiphon::clip::Clip;
use antiphon::noise::{Cipher, Key};
use antiphon::run::{Budget, Privacy, Unit};
use std::io::Write;

/// Sixty users who write sentences of a few words; user 7 writes nothing, user 8 one line, user 9 a line of a million words.
fn text() -> tempfile::NamedTempFile {
    let mut file = tempfile::Builder::new().suffix(".jsonl").tempfile().unwrap();
    let words = ["a", "cat", "sat", "on", "the", "mat", "and", "saw", "dogs", "run", "."];
    for user in 0..60 {
        for line in 0..5 {
            let text = match (user, line) {
                (7, _) => String::new(),
                (8, 1..) => continue,
                (9, 0) => "cat ".repeat(1_000_000),
                _ => (0..3 + (user + line) % 9)
                    .map(|i| words[(i * (1 + user % 2) + line) % 11])
                    .collect::<Vec<_>>()
                    .join(" "),
            };
            writeln!(file, "{}", serde_json::json!({ "user": format!("u{user:02}"), "text": text })).unwrap();
        }
    }
    file.flush().unwrap();
    file
}

fn task(change: impl Fn(&mut client::Settings)) -> Federated {
    let file = text();
    let name = TextName::File(file.path().into());
    let options = TextOptions::usual(&name, None);
    let data = load_text(&name, "unused".as_ref(), &options).unwrap();
    let mut client = client::Settings { batch_size: 4, most_tokens: 16, ..client::Settings::usual(1.0) };
    change(&mut client);
    Federated::new(data, 6, 3, client, false).unwrap()
}

struct Run {
    task: Federated,
    design: Design,
    settings: Settings,
    privacy: Privacy,
}

impl Run {
    fn new(mechanism: &str, order: Order, change: impl Fn(&mut client::Settings)) -> Run {
        let task = task(change);
        let settings =
            Settings { epochs: 3, batch_size: 6, order, ..Settings::federated(task.units(), 1.0, None) };
        let kind: Kind = mechanism.parse().unwrap();
        let design = job::design(kind, None, &task, &settings, &|_| true).unwrap();
        let privacy = design.privacy(Budget::Target { epsilon: 8.0, delta: 1e-3 }).unwrap();
        Run { task, design, settings, privacy }
    }

    fn trainer(&self, seed: u64) -> Trainer<'_> {
        let description = Description::new(&self.task, &self.design, &self.settings, &self.privacy).unwrap();
        let secrets = Secrets::from_seed(seed, &description.id());
        Trainer::new(&self.task, &self.design, &self.settings, &self.privacy, secrets, 1 << 20).unwrap()
    }

    fn whole(&self, seed: u64) -> State {
        let mut trainer = self.trainer(seed);
        while !trainer.finished() {
            trainer.step().unwrap();
        }
        trainer.state().clone()
    }
}

const RESTED: Order = Order::Rested { min_separation: 4, max_participations: 4 };

#[test]
fn a_seed_fixes_a_run_for_any_number_of_threads_and_through_a_stop() {
    for (mechanism, order) in [("optimal", Order::Fixed), ("dp-sgd", Order::Fixed), ("single-epoch", RESTED)]
    {
        let run = Run::new(mechanism, order, |client| client.silent = 0.2);
        let on = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| run.whole(1))
        };
        let (one, three) = (on(1), on(3));
        assert_eq!(one, three, "{mechanism}");
        assert_ne!(run.whole(2), one);
        assert_eq!(one.epochs.len(), 3);
        assert_eq!(one.zeroed.len(), one.step);
        let mut trainer = run.trainer(1);
        (0..5).for_each(|_| assert!(trainer.step().is_ok()));
        let saved = trainer.saved();
        let mut again = run.trainer(1);
        again.resume(saved).unwrap();
        while !again.finished() {
            again.step().unwrap();
        }
        assert_eq!(*again.state(), one, "{mechanism}");
    }
}

fn sum_of(task: &Federated, users: &[usize], seed: u64) -> Vec<f64> {
    let mut sum = vec![1.0; task.parameters()];
    let key = Key::from_seed(seed, Cipher::ChaCha20);
    let parameters = task.initial(Initial::Uniform, &Key::from_seed(3, Cipher::ChaCha20));
    task.clipped_sum(Turn { step: 2, key: &key }, &parameters, users, 0.25, &mut sum).unwrap();
    sum
}

/// At fixed parameters, a user moves the sum by exactly the contribution that it makes alone, whoever else is there.
#[test]
fn a_user_moves_the_sum_by_its_own_contribution_to_the_bit() {
    let task = task(|_| {});
    let everybody: Vec<usize> = (0..task.units()).collect();
    let all = sum_of(&task, &everybody, 1);
    for user in 0..task.units() {
        let others: Vec<usize> = everybody.iter().copied().filter(|other| *other != user).collect();
        let (alone, without) = (sum_of(&task, &[user], 1), sum_of(&task, &others, 1));
        assert!(alone.iter().zip(&without).zip(&all).all(|((a, w), sum)| a + w == *sum), "{user}");
        let norm = alone.iter().map(|x| x * x).sum::<f64>().sqrt();
        assert!(norm <= 0.25 && (norm > 0.0 || task.train.tokens(user) == 0), "{user}: {norm}");
    }
}

/// A forged update of any size: nothing, or a contribution of the clipping norm.
#[test]
fn a_huge_update_is_zeroed_or_clipped() {
    let d = 100;
    let clip = Clip::new(0.5, d).unwrap();
    let mut honest = vec![0.0; d];
    client::add(clip, 50.0, &vec![0.01; d], &mut honest);
    for (update, zeroed) in [
        (vec![5e5f32; d], true),
        (vec![f32::MAX; d], true),
        (vec![f32::INFINITY; d], true),
        ([vec![0.1; 99], vec![f32::NAN]].concat(), true),
        ([vec![0.1; 99], vec![50.01]].concat(), true),
        ([vec![0.1; 99], vec![-50.01]].concat(), true),
        (vec![-50.0; d], false),
        (vec![1e-3; d], false),
    ] {
        let mut sum = honest.clone();
        let fate = client::add(clip, 50.0, &update, &mut sum);
        assert_eq!(fate.zeroed, zeroed, "{update:?}");
        let mut alone = vec![0.0; d];
        client::add(clip, 50.0, &update, &mut alone);
        assert!(sum.iter().zip(&honest).zip(&alone).all(|((sum, h), a)| *sum == h + a));
        let norm = alone.iter().map(|x| x * x).sum::<f64>().sqrt();
        assert!(norm <= 0.5 && (norm == 0.0) == zeroed, "{norm}");
    }
}

/// One client that sends a million times the clipping norm, beside honest ones, in every round: the sum moves by nothing, or by its clipped
/// contribution where the threshold lets it pass.
#[test]
fn an_injected_update_moves_the_sum_by_nothing_or_by_its_clipped_contribution() {
    for (zero_threshold, zeroed) in [(100.0, 1), (1e9, 0)] {
        let task = task(|client| client.zero_threshold = zero_threshold);
        let (d, users) = (task.parameters(), [0, 1, 2, 3, 4]);
        let updates: Vec<Vec<f32>> = (0..5).map(|user| vec![1e-3 * (user + 1) as f32; d]).collect();
        let sum_of = |users: &[usize], forged: bool| {
            let mut sum = vec![0.0; d];
            let totals = task.collect(d, users, 1.0, &mut sum, |_, user| match user {
                2 if forged => Answer::Sent(vec![-1e6 / (d as f32).sqrt(); d]),
                user => Answer::Sent(updates[user].clone()),
            });
            (sum, totals.unwrap().zeroed)
        };
        for _round in 0..3 {
            let ((all, counted), (honest, _)) = (sum_of(&users, true), sum_of(&[0, 1, 3, 4], true));
            let (forged, _) = sum_of(&[2], true);
            assert_eq!(counted, zeroed);
            assert!(all.iter().zip(&honest).zip(&forged).all(|((all, h), f)| *all == h + f));
            let norm = forged.iter().map(|x| x * x).sum::<f64>().sqrt();
            assert!(if zeroed == 1 { norm == 0.0 } else { norm <= 1.0 && norm > 0.999 }, "{norm}");
        }
    }
}

/// Clients whose rate makes their updates explode: all of them are zeroed, round after round, and only noise moves the model.
#[test]
fn exploding_clients_are_counted_and_do_nothing() {
    let run = Run::new("identity", Order::Fixed, |client| client.learning_rate = 1e9);
    let state = run.whole(1);
    let (first, steps) = (run.trainer(1), state.step);
    assert_eq!(state.zeroed.len(), steps);
    // Users without text have nothing that could explode.
    let with_text = (0..run.task.units()).filter(|user| run.task.train.tokens(*user) > 0).count();
    assert_eq!(state.zeroed.iter().sum::<usize>(), 3 * with_text);
    assert_eq!(state.epochs.iter().map(|epoch| epoch.zeroed.unwrap()).sum::<usize>(), 3 * with_text);
    assert!(first.state().parameters != state.parameters);
}

/// Who does not answer contributes zero, and has used up the turn: the guard refuses it when it comes back too early.
#[test]
fn silence_is_a_turn() {
    let quiet = task(|client| client.silent = 0.999_999);
    let everybody: Vec<usize> = (0..quiet.units()).collect();
    assert!(sum_of(&quiet, &everybody, 1).iter().all(|x| *x == 0.0));
    let run = Run::new("identity", Order::Fixed, |client| client.silent = 0.999_999);
    let mut trainer = run.trainer(1);
    trainer.step().unwrap();
    let user = Batches::new(&run.settings, run.task.units(), Secrets::from_seed(1, "").order).step(0)[0];
    let text = trainer.run_mut().admit(1, &[user]).unwrap_err().to_string();
    assert!(text.contains(&format!("user {user}")), "{text}");
}

#[test]
fn statements_speak_of_users_and_of_what_is_not_covered() {
    let run = Run::new("optimal", Order::Fixed, |_| {});
    assert_eq!(run.task.unit(), Unit::User);
    let text = run.trainer(1).run().statement().to_string();
    assert!(text.contains("Neighbouring data sets differ in one user, whose contributions"), "{text}");
    let clipped = run.task.clipped(1.0);
    for words in [
        "A user is all text of one name in the data.",
        "was clipped to norm 1 as a whole; an update that was not finite or had an entry beyond ±100 counted as zero",
    ] {
        assert!(clipped.contains(words), "{clipped}");
    }
    assert!(run.task.shown().contains("the vocabulary (its words were counted in the training text)"));
}

/// Lines are drawn: users with more text than they may use in a round use other parts of it in other rounds.
#[test]
fn rounds_use_other_lines() {
    let task = task(|client| client.most_tokens = 8);
    let key = Key::from_seed(1, Cipher::ChaCha20);
    let parameters = task.initial(Initial::Uniform, &key);
    let at = |step| {
        let mut sum = vec![0.0; task.parameters()];
        task.clipped_sum(Turn { step, key: &key }, &parameters, &[0], 1.0, &mut sum).unwrap();
        sum
    };
    assert_eq!(at(0), at(0));
    assert!((1..6).any(|step| at(step) != at(0)));
    let refused = |users: &[usize]| {
        let mut sum = vec![0.0; task.parameters()];
        task.clipped_sum(Turn { step: 0, key: &key }, &parameters, users, 1.0, &mut sum)
            .unwrap_err()
            .to_string()
    };
    assert!(refused(&[1000]).contains("user must be below"));
}

#[test]
fn it_learns() {
    let run = Run::new("identity", Order::Fixed, |_| {});
    let description = Description::new(&run.task, &run.design, &run.settings, &run.privacy).unwrap();
    assert!(serde_json::to_string(&description).unwrap().contains("\"client\":{\"learning_rate\":1.0"));
    // Without noise worth the name.
    let privacy = run.design.privacy(Budget::Target { epsilon: 1e4, delta: 1e-3 }).unwrap();
    let run = Run { privacy, ..run };
    let start = run.task.score(&run.trainer(1).state().parameters).unwrap();
    let end = run.whole(1).epochs[2].test;
    assert!(end.loss < 0.8 * start.loss && end.accuracy > start.accuracy, "{start:?} {end:?}");
    assert!(end.accuracy_with_end.is_some() && end.accuracy_without_punctuation.is_some());
}
