//! What the ε of a run that is made means.

use super::{Statement, relation};
use crate::accounting::Adjacency;
use crate::noise::Origin;
use crate::run::{PrivateRun, Sampled};
use crate::schema::Schema;
use crate::text::{counted, plural, short_bound};
use crate::verify::Verified;

/// The label of figures that do not hold for the run that was made.
pub const INVALID: &str = "not a valid guarantee";

/// What is said of keys that come from a seed.
pub const SEEDED: &str = "The key comes from a seed: whoever knows or guesses the seed can compute the noise, and the statement does not \
                      hold against them.";

/// What is said of a run that goes on from a saved state, unless the program makes the same bits again.
pub const CONTINUED: &str = "The run was continued from a saved state. Steps after that state that had been made before got the same noise again: if \
                         their sums were not the same to the last bit, nothing that followed from the first ones may be published.";

/// A warning where δ is so large that (0, δ)-differential privacy allows to publish a random unit. Not for what is no δ.
pub fn large_delta(delta: f64, units: usize, name: &str) -> Option<String> {
    let limit = 1.0 / units as f64;
    // Rounded toward the warning: δ = 1/N is meant to be found however it was rounded.
    let large = delta >= limit * (1.0 - 1e-9) && delta < 1.0;
    large.then(|| {
        format!(
            "δ = {delta:e} is not below 1/N = {limit:.1e} for the N = {units} {name}{} of this run. Such a δ allows \
             a mechanism that publishes one {name} at random",
            plural(units)
        )
    })
}

impl PrivateRun {
    /// What ε means, what it does not cover, and what the run cannot see: that contributions were clipped.
    pub fn statement(&self) -> Statement {
        let name =
            self.mechanism().map_or("independent noise", |mechanism| mechanism.mechanism().noise().kind());
        let unit = self.unit().name();
        let statement = self.statement_named(name).with(format!(
            "Not checked: that the contribution of each {unit} to a step was clipped to the clip norm {} as a whole, and that the sums have no \
             contributions but those of the {unit}s that were admitted.",
            self.clip_norm()
        ));
        match self.restored() {
            true => statement.with(CONTINUED),
            false => statement,
        }
    }

    /// What ε means with the name that the program has for the mechanism, for a program that clips what it adds up.
    pub fn statement_named(&self, mechanism: &str) -> Statement {
        let name = self.unit().name();
        let mut sentences = match (self.mechanism(), self.sampling()) {
            (Some(verified), _) => self.of_mechanism(verified, mechanism),
            (None, Some(sampled)) => self.of_samples(sampled),
            (None, None) => Vec::new(),
        };
        let large = |units| large_delta(self.privacy().delta(), units, &format!("training {name}"));
        if let Some(warning) = self.units().and_then(large) {
            sentences.push(format!("WARNING: {warning}."));
        }
        match self.origin() {
            Origin::Seed => sentences.push(SEEDED.into()),
            Origin::Bytes => sentences.push(
                "The key was given by the program that made the run: the statement does not hold against anyone else who has it."
                    .into(),
            ),
            Origin::OperatingSystem | Origin::File => {}
        }
        sentences.push(format!(
            "The number of training {name}s is treated as public: batches, steps and sampling rates depend on it."
        ));
        Statement::new(sentences, "other runs on the same data")
    }

    fn figures(&self) -> String {
        let privacy = self.privacy();
        format!("ε = {} and δ = {:e}", short_bound(privacy.epsilon(), true), privacy.delta())
    }

    fn of_mechanism(&self, verified: &Verified, mechanism: &str) -> Vec<String> {
        let multiplier = short_bound(self.privacy().noise_multiplier().value(), false);
        let mut sentences = vec![format!(
            "This run is (ε, δ)-differentially private with {}. {}",
            self.figures(),
            self.neighbours(false)
        )];
        sentences.push(format!(
            "The whole run is one Gaussian mechanism ({mechanism}) with a noise multiplier of {multiplier} and a sensitivity of at most {} \
             times the clip norm {}, over {}. A step that does not follow this order is refused. No amplification by sampling or shuffling \
             is used.",
            short_bound(verified.sensitivity(), true),
            self.clip_norm(),
            participation(verified.schema(), self.unit().name()),
        ));
        sentences
    }

    fn of_samples(&self, sampled: &Sampled) -> Vec<String> {
        let multiplier = short_bound(self.privacy().noise_multiplier().value(), false);
        let steps = counted(sampled.steps, "step");
        if !sampled.poisson {
            return vec![format!(
                "{}: {} would hold if the batches were Poisson samples. This run used shuffled batches: DP-SGD with a noise \
                 multiplier of {multiplier} in {steps}, without the amplification that these figures assume.",
                INVALID.to_uppercase(),
                self.figures()
            )];
        }
        vec![
            format!(
                "This run is (ε, δ)-differentially private with {}. {}",
                self.figures(),
                self.neighbours(true)
            ),
            format!(
                "DP-SGD: independent noise with a noise multiplier of {multiplier} in {steps}. In every step each of the {} \
                 training {}s is in the batch with probability at most {}, independently (Poisson sampling). Who was in which \
                 step must stay as secret as the key.",
                self.units().unwrap_or(0),
                self.unit().name(),
                short_bound(sampled.sampling_rate, true)
            ),
        ]
    }

    /// Shorter than [`relation`] where nothing has to be explained.
    fn neighbours(&self, sampled: bool) -> String {
        let name = self.unit().name();
        match (self.privacy().adjacency(), sampled) {
            (Adjacency::ZeroOut, false) => format!(
                "Neighbouring data sets differ in one {name}, whose contributions are set to zero (zero-out)."
            ),
            (Adjacency::ZeroOut, true) => format!(
                "Neighbouring data sets differ in one {name}, which is in one of them and not in the other."
            ),
            (adjacency, _) => relation(self.unit(), adjacency, sampled),
        }
    }
}

/// Who takes part when: "480 steps: 20 epochs with the same batches in the same order".
fn participation(schema: &Schema, unit: &str) -> String {
    match schema {
        Schema::FixedOrder { steps, steps_per_epoch, max_participations }
            if steps.is_multiple_of(*steps_per_epoch) && schema.residues().is_some() =>
        {
            let (steps, epochs) = (counted(*steps, "step"), counted(*max_participations, "epoch"));
            format!("{steps}: {epochs} with the same batches in the same order")
        }
        other => other.describe_for(unit),
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
            assert_eq!(large_delta(delta, examples, "example").is_some(), large, "{delta} {examples}");
        }
        let text = large_delta(1e-3, 1440, "training example").unwrap();
        assert!(
            text.starts_with("δ = 1e-3 is not below 1/N = 6.9e-4 for the N = 1440 training examples"),
            "{text}"
        );
    }
}
