//! What a run's ε means, and what it does not cover.

use crate::output::short_bound;
use antiphon_train::design::{Design, Privacy};
use antiphon_train::task::Task;
use antiphon_train::trainer::Settings;

/// The label of figures that hold for no run that was made.
pub const INVALID: &str = "not a valid guarantee";

/// What is said of keys that come from a seed.
const SEEDED: &str =
    "The key comes from a seed: none of this holds against anyone who knows or guesses the seed.";

/// The statement, one sentence or two per matter.
pub fn of(design: &Design, settings: &Settings, privacy: &Privacy, task: &Task, seeded: bool) -> Vec<String> {
    let examples = task.train.len();
    let Privacy { epsilon, delta, noise_multiplier, .. } = privacy;
    let figures = format!("ε = {} and δ = {delta:e}", short_bound(*epsilon, true));
    let mut sentences = Vec::new();
    let sampled = format!(
        "DP-SGD: independent noise with a noise multiplier of {}, in {} steps",
        short_bound(*noise_multiplier, false),
        design.steps
    );
    match (&design.mechanism, privacy.valid) {
        (Some(_), _) => {
            sentences.push(format!(
                "This run is (ε, δ)-differentially private with {figures}. Neighbouring data sets differ in one example, whose \
                 contributions are set to zero (zero-out)."
            ));
            sentences.push(format!(
                "It is one Gaussian mechanism ({}) with a noise multiplier of {} for a sensitivity of at most {} times the clip \
                 norm {}, over {} steps: {} epochs with the same batches in the same order. Every step was checked for it. Nothing is \
                 amplified by sampling or shuffling.",
                design.name,
                short_bound(*noise_multiplier, false),
                short_bound(design.sensitivity, true),
                settings.clip_norm,
                design.steps,
                settings.epochs
            ));
        }
        (None, true) => {
            sentences.push(format!(
                "This run is (ε, δ)-differentially private with {figures}. Neighbouring data sets differ in one example, which is \
                 in one of them and not in the other."
            ));
            sentences.push(format!(
                "{sampled} on Poisson samples, in which each of {examples} examples is with probability {}, by a fresh coin in \
                 every step.",
                short_bound(settings.batch_size as f64 / examples as f64, true)
            ));
        }
        (None, false) => sentences.push(format!(
            "{}: {figures} would hold for Poisson samples. {sampled} on shuffled batches has no such amplification.",
            INVALID.to_uppercase()
        )),
    }
    if seeded {
        sentences.push(SEEDED.into());
    }
    sentences.push(
        "The number of examples is taken as public: batches, steps and sampling rates depend on it.".into(),
    );
    let accuracy = if task.held_out { ", the accuracy on held-out examples" } else { "" };
    sentences.push(format!(
        "Not covered: hyper-parameters that were tuned on the private data, other runs on them, the training loss and clipped \
         part that are shown here{accuracy}, and attacks on floating-point noise."
    ));
    sentences
}
