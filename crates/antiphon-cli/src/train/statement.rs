//! What a run's ε means, and what it does not cover.

use crate::compare::plural;
use crate::output::short_bound;
use antiphon_train::design::{Design, Privacy};
use antiphon_train::task::Task;
use antiphon_train::trainer::Settings;

/// The label of figures that do not hold for the run that was made.
pub const INVALID: &str = "not a valid guarantee";

/// What is said of keys that come from a seed.
const SEEDED: &str = "The key comes from a seed: whoever knows or guesses the seed can compute the noise, and the statement does not \
                      hold against them.";

/// A warning where δ is so large that (0, δ)-differential privacy allows to publish a random training example. Not for what is no δ.
pub fn large_delta(delta: f64, examples: usize) -> Option<String> {
    let limit = 1.0 / examples as f64;
    // Rounded toward the warning: δ = 1/N is meant to be found however it was rounded.
    let large = delta >= limit * (1.0 - 1e-9) && delta < 1.0;
    large.then(|| {
        format!(
            "δ = {delta:e} is not below 1/N = {limit:.1e} for the N = {examples} training example{} of this run. Such a δ allows \
             a mechanism that publishes one training example at random",
            plural(examples)
        )
    })
}

/// The statement, one sentence or two per matter.
pub fn of(design: &Design, settings: &Settings, privacy: &Privacy, task: &Task, seeded: bool) -> Vec<String> {
    let mut sentences = guarantee(design, settings, privacy, task.train.len());
    if let Some(warning) = large_delta(privacy.delta(), task.train.len()) {
        sentences.push(format!("WARNING: {warning}."));
    }
    if seeded {
        sentences.push(SEEDED.into());
    }
    sentences.push(
        "The number of training examples is treated as public: batches, steps and sampling rates depend on it."
            .into(),
    );
    let accuracy = if task.held_out { ", the accuracy on held-out training examples" } else { "" };
    sentences.push(format!(
        "Not covered: hyper-parameters that were tuned on the private data, other runs on the same data, the training loss and the \
         fraction of clipped gradients that are shown here{accuracy}, and attacks on floating-point noise."
    ));
    sentences
}

/// ε and δ, and what they rest on.
fn guarantee(design: &Design, settings: &Settings, privacy: &Privacy, examples: usize) -> Vec<String> {
    let figures = format!("ε = {} and δ = {:e}", short_bound(privacy.epsilon(), true), privacy.delta());
    let multiplier = short_bound(privacy.noise_multiplier(), false);
    let (steps, epochs) = (design.steps(), settings.epochs);
    let steps = format!("{steps} step{}", plural(steps));
    let private = |neighbours: &str| {
        format!(
            "This run is (ε, δ)-differentially private with {figures}. Neighbouring data sets differ in one example, {neighbours}."
        )
    };
    match (design.mechanism(), privacy.valid()) {
        (Some(_), _) => vec![
            private("whose contributions are set to zero (zero-out)"),
            format!(
                "The whole run is one Gaussian mechanism ({}) with a noise multiplier of {multiplier} and a sensitivity of at most {} \
                 times the clip norm {}, over {steps}: {epochs} epoch{} with the same batches in the same order. Every step was \
                 checked to follow this order. No amplification by sampling or shuffling is used.",
                design.name(),
                short_bound(design.sensitivity(), true),
                settings.clip_norm,
                plural(epochs)
            ),
        ],
        (None, true) => vec![
            private("which is in one of them and not in the other"),
            format!(
                "DP-SGD: independent noise with a noise multiplier of {multiplier} in {steps}. In every step each of the {examples} \
                 training examples is in the batch with probability at most {}, independently (Poisson sampling).",
                short_bound(settings.batch_size as f64 / examples as f64, true)
            ),
        ],
        (None, false) => vec![format!(
            "{}: {figures} would hold if the batches were Poisson samples. This run used shuffled batches: DP-SGD with a noise \
             multiplier of {multiplier} in {steps}, without the amplification that these figures assume.",
            INVALID.to_uppercase()
        )],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delta_from_one_over_n_on_is_warned_about() {
        for (delta, examples, large) in [
            (1e-3, 1440, true),
            (1.0 / 1440.0, 1440, true),
            (0.999 / 1440.0, 1440, false),
            (1e-5, 50_000, false),
            (2e-5, 50_000, true),
            // 1/3 in decimal digits, rounded down.
            (0.333333333333, 3, true),
            (f64::NAN, 10, false),
            (2.0, 10, false),
        ] {
            assert_eq!(large_delta(delta, examples).is_some(), large, "{delta} {examples}");
        }
        let text = large_delta(1e-3, 1440).unwrap();
        assert!(
            text.starts_with("δ = 1e-3 is not below 1/N = 6.9e-4 for the N = 1440 training examples"),
            "{text}"
        );
    }
}
