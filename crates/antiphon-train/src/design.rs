//! Which noise a run gets, and how it is accounted for.

use antiphon::accounting::calibrate::{self, Run};
use antiphon::accounting::{self, Params as Accounting};
use antiphon::mechanism::{self, Family, Mechanism, Noise, Structured};
use antiphon::optimize::{self, Params, Progress};
use antiphon::schema::Schema;
use antiphon::workload::Workload;
use antiphon::{Error, Result, make, verify};

/// Numbers of stamps among which the best is sought: those of the paper's sweep.
pub const STAMPS: [usize; 5] = [1, 2, 5, 10, 20];
/// How close to the optimum the mechanisms are made, or measured.
const GAP: f64 = 1e-3;

/// The kinds of noise, as the command line names them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The optimal matrix mechanism for the run.
    Optimal,
    /// A mechanism from a formula.
    Family(Family),
    /// DP-SGD: independent noise, Poisson samples, amplification by sampling.
    DpSgd,
    /// What is often called DP-SGD: shuffled batches, accounted for as if they were Poisson samples. Not a valid guarantee.
    ShuffledDpSgd,
}

/// Names and what they mean; the first name of a kind is the one that is shown.
const KINDS: [(&str, Kind); 11] = [
    ("optimal", Kind::Optimal),
    ("tree", Kind::Family(Family::TreeOnline)),
    ("tree-online", Kind::Family(Family::TreeOnline)),
    ("tree-optimal", Kind::Family(Family::TreeOptimal)),
    ("fft", Kind::Family(Family::Fft)),
    ("fft-optimal-decoder", Kind::Family(Family::FftOptimal)),
    ("fft-optimal", Kind::Family(Family::FftOptimal)),
    ("identity", Kind::Family(Family::Identity)),
    ("dp-sgd", Kind::DpSgd),
    ("dp-sgd-shuffled", Kind::ShuffledDpSgd),
    ("independent", Kind::Family(Family::Identity)),
];

impl Kind {
    /// All names, for messages.
    pub const NAMES: &str =
        "optimal, tree, tree-optimal, fft, fft-optimal-decoder, identity, dp-sgd, dp-sgd-shuffled";

    /// The name.
    pub fn name(self) -> &'static str {
        KINDS.iter().find(|(_, kind)| *kind == self).map_or("", |(name, _)| name)
    }
}

impl std::str::FromStr for Kind {
    type Err = Error;

    fn from_str(name: &str) -> Result<Kind> {
        KINDS.iter().find(|(known, _)| *known == name).map(|(_, kind)| *kind).ok_or_else(|| {
            Error::argument("mechanism", format!("{}, or a mechanism file that exists", Kind::NAMES), name)
        })
    }
}

/// A kind of noise for one run, ready to be accounted for.
#[derive(Debug, Clone)]
pub struct Design {
    /// For people and files: `tree, 8 stamps`.
    pub name: String,
    /// The mechanism; none for DP-SGD.
    pub mechanism: Option<Mechanism>,
    /// n.
    pub steps: usize,
    /// What a standard deviation is relative to: an upper bound that was derived here, for contributions of norm one.
    pub sensitivity: f64,
    /// The event that is accounted for.
    pub run: Run,
    /// Whether batches are Poisson samples; otherwise they come in a fixed order.
    pub poisson: bool,
    /// Whether ε holds for what the run does.
    pub valid: bool,
}

/// What a run costs.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Privacy {
    /// An upper bound.
    pub epsilon: f64,
    /// δ.
    pub delta: f64,
    /// Noise standard deviation over sensitivity.
    pub noise_multiplier: f64,
    /// Whether ε holds for what the run does.
    pub valid: bool,
}

/// How much privacy, or how much noise.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Budget {
    /// The least noise for this ε.
    Epsilon(f64),
    /// This noise.
    NoiseMultiplier(f64),
}

impl Design {
    /// The design of a kind for a schema. `workload` is what the mechanism is made for; `stamps` of mechanisms from a formula,
    /// or the best of [`STAMPS`]; `rate` is the sampling rate of DP-SGD.
    pub fn new(
        kind: Kind,
        stamps: Option<usize>,
        schema: &Schema,
        workload: &Workload,
        rate: f64,
        observe: &dyn Fn(&Progress) -> bool,
    ) -> Result<Design> {
        if stamps.is_some() && !matches!(kind, Kind::Family(_)) {
            let allowed = "left out for optimal and DP-SGD, which are not stamped";
            return Err(Error::argument("stamps", allowed, stamps.unwrap_or(0)));
        }
        match kind {
            Kind::Optimal => {
                let params = Params { gap: GAP, ..Params::default() };
                let mechanism = optimize::optimize(schema, workload, &params, observe)?.mechanism;
                Design::of(kind.name().into(), mechanism)
            }
            Kind::Family(family) => {
                let stamps = match stamps {
                    Some(stamps) => stamps,
                    None if family == Family::Identity => 1,
                    None => best_stamps(family, schema, workload)?,
                };
                let structured = Structured { family, stamps };
                let mechanism = make::structured(structured, schema, workload, GAP, observe)?;
                let name = match stamps {
                    1 => kind.name().into(),
                    stamps => format!("{}, {stamps} stamps", kind.name()),
                };
                Design::of(name, mechanism)
            }
            Kind::DpSgd | Kind::ShuffledDpSgd => Ok(Design {
                name: kind.name().into(),
                mechanism: None,
                steps: schema.steps(),
                sensitivity: 1.0,
                run: Run::Sampled { sampling_rate: rate, steps: schema.steps() as u64 },
                poisson: kind == Kind::DpSgd,
                valid: kind == Kind::DpSgd,
            }),
        }
    }

    /// The design of a mechanism, for instance from a file. It is verified: no claim is believed.
    pub fn of(name: String, mechanism: Mechanism) -> Result<Design> {
        let report = verify::mechanism(&mechanism)?;
        if let Some(failed) = report.checks.iter().find(|check| !check.passed) {
            return Err(Error::Numerical(format!(
                "the mechanism {name} does not hold what it claims ({}: {})",
                failed.name, failed.detail
            )));
        }
        Ok(Design {
            name,
            steps: mechanism.schema.steps(),
            sensitivity: report.sensitivity.upper,
            mechanism: Some(mechanism),
            run: Run::Matrix,
            poisson: false,
            valid: true,
        })
    }

    /// What is drawn from.
    pub fn noise(&self) -> Noise {
        match &self.mechanism {
            Some(mechanism) => mechanism.noise.clone(),
            None => Noise::Structured(Structured { family: Family::Identity, stamps: 1 }),
        }
    }

    /// The noise for a budget, or the privacy of a noise.
    pub fn privacy(&self, budget: Budget, delta: f64) -> Result<Privacy> {
        let params = Accounting::default();
        let (noise_multiplier, epsilon) = match budget {
            Budget::Epsilon(epsilon) => {
                let found = calibrate::noise_multiplier(self.run, epsilon, delta, &params)?;
                (found.noise_multiplier, found.epsilon.upper)
            }
            Budget::NoiseMultiplier(multiplier) => {
                (multiplier, accounting::epsilon(&self.run.event(multiplier), delta, &params)?.upper)
            }
        };
        Ok(Privacy { epsilon, delta, noise_multiplier, valid: self.valid })
    }

    /// The standard deviation of Z: noise multiplier times clip norm times sensitivity, rounded up.
    pub fn stddev(&self, privacy: &Privacy, clip_norm: f64) -> f64 {
        privacy.noise_multiplier * clip_norm * self.sensitivity * (1.0 + 1e-15)
    }
}

/// Of [`STAMPS`], the number with the smallest loss.
fn best_stamps(family: Family, schema: &Schema, workload: &Workload) -> Result<usize> {
    let mut best = (f64::INFINITY, 1);
    for stamps in STAMPS.into_iter().filter(|stamps| *stamps <= schema.steps()) {
        let factorization = Structured { family, stamps }.factorization(schema.steps())?;
        let loss = mechanism::evaluate(&factorization, schema, workload)?.loss();
        if loss < best.0 {
            best = (loss, stamps);
        }
    }
    Ok(best.1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use antiphon::accounting::gaussian;

    fn design(kind: Kind, stamps: Option<usize>) -> Result<Design> {
        let schema = Schema::epochs(4, 10).unwrap();
        let workload = Workload::prefix_sum(40);
        Design::new(kind, stamps, &schema, &workload, 0.1, &|_| true)
    }

    #[test]
    fn matrix_mechanisms_are_one_gaussian_and_dp_sgd_is_sampled() {
        let z = gaussian::noise_multiplier(2.0, 1e-5).unwrap();
        let mut losses = Vec::new();
        for kind in [Kind::Optimal, Kind::Family(Family::TreeOnline), Kind::Family(Family::Identity)] {
            let design = design(kind, None).unwrap();
            let privacy = design.privacy(Budget::Epsilon(2.0), 1e-5).unwrap();
            assert!((privacy.noise_multiplier / z - 1.0).abs() < 1e-6 && privacy.epsilon <= 2.0);
            assert!(design.valid && !design.poisson);
            losses.push(design.mechanism.unwrap().claims.loss);
        }
        assert!(losses.is_sorted(), "{losses:?}");
        let identity = design(Kind::Family(Family::Identity), None).unwrap();
        assert!((identity.sensitivity - 2.0).abs() < 1e-6); // √k
        let [real, shuffled] = [Kind::DpSgd, Kind::ShuffledDpSgd].map(|kind| design(kind, None).unwrap());
        assert!(real.valid && real.poisson && !shuffled.valid && !shuffled.poisson);
        let [real, shuffled] =
            [&real, &shuffled].map(|design| design.privacy(Budget::Epsilon(2.0), 1e-5).unwrap());
        assert_eq!(real.noise_multiplier, shuffled.noise_multiplier);
        assert!(real.valid && !shuffled.valid);
        // Forty independent Gaussians need more than sampled ones.
        assert!(real.noise_multiplier < identity.sensitivity * z);
        let again = design_of_multiplier(z);
        assert!((again.epsilon - 2.0).abs() < 1e-5);
    }

    fn design_of_multiplier(z: f64) -> Privacy {
        design(Kind::Optimal, None).unwrap().privacy(Budget::NoiseMultiplier(z), 1e-5).unwrap()
    }

    #[test]
    fn stamps_are_the_best_or_as_asked() {
        let tree = Kind::Family(Family::TreeOnline);
        let loss = |stamps| design(tree, stamps).unwrap().mechanism.unwrap().claims.loss;
        let best = loss(None);
        assert!(STAMPS.iter().all(|stamps| best <= loss(Some(*stamps)) * (1.0 + 1e-9)));
        assert_eq!(design(tree, Some(4)).unwrap().name, "tree, 4 stamps");
        assert!(design(Kind::Optimal, Some(2)).is_err());
        assert_eq!("fft-optimal".parse::<Kind>().unwrap().name(), "fft-optimal-decoder");
        assert!("laplace".parse::<Kind>().unwrap_err().to_string().contains("got laplace"));
    }
}
