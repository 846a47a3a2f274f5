//! Which noise a run gets, and how it is accounted for.

use crate::kind::Kind;
use crate::trainer::Figures;
use antiphon::accounting::calibrate::{self, Run};
use antiphon::accounting::{self, Params as Accounting};
use antiphon::mechanism::{self, Family, Mechanism, Noise, NoisingMatrix, Structured};
use antiphon::optimize::{self, Params, Progress};
use antiphon::schema::Schema;
use antiphon::workload::Workload;
use antiphon::{Error, Result, make, verify};

/// Numbers of stamps among which the best is sought: those of the paper's sweep.
pub const STAMPS: [usize; 5] = [1, 2, 5, 10, 20];
/// How close to the optimum the mechanisms are made, or measured.
const GAP: f64 = 1e-3;

/// A kind of noise for one run, ready to be accounted for. Its parts are private: what privacy rests on was derived here.
#[derive(Debug, Clone)]
pub struct Design {
    name: String,
    mechanism: Option<Mechanism>,
    steps: usize,
    sensitivity: f64,
    run: Run,
    poisson: bool,
    valid: bool,
}

/// What a run costs. Only [`Design::privacy`] makes one.
///
/// ```compile_fail
/// use antiphon_train::design::Privacy;
/// let forged = Privacy { epsilon: 0.1, delta: 1e-9, noise_multiplier: 0.5, run: todo!(), valid: true };
/// ```
///
/// Nor is one read from a file: what a file says is a plain [`Figures`].
///
/// ```compile_fail
/// let forged: antiphon_train::design::Privacy = serde_json::from_str("{}").unwrap();
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Privacy {
    epsilon: f64,
    delta: f64,
    noise_multiplier: f64,
    /// What was accounted for.
    run: Run,
    valid: bool,
}

impl Privacy {
    /// An upper bound on ε.
    pub fn epsilon(&self) -> f64 {
        self.epsilon
    }

    /// δ.
    pub fn delta(&self) -> f64 {
        self.delta
    }

    /// Noise standard deviation over sensitivity.
    pub fn noise_multiplier(&self) -> f64 {
        self.noise_multiplier
    }

    /// Whether ε holds for what the run does.
    pub fn valid(&self) -> bool {
        self.valid
    }
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
    /// For people and files: `tree-online, 8 stamps`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The mechanism; none for DP-SGD.
    pub fn mechanism(&self) -> Option<&Mechanism> {
        self.mechanism.as_ref()
    }

    /// n.
    pub fn steps(&self) -> usize {
        self.steps
    }

    /// What a standard deviation is relative to: an upper bound that was derived here, for contributions of norm one.
    pub fn sensitivity(&self) -> f64 {
        self.sensitivity
    }

    /// The event that is accounted for.
    pub fn run(&self) -> Run {
        self.run
    }

    /// Whether batches are Poisson samples; otherwise they come in a fixed order.
    pub fn poisson(&self) -> bool {
        self.poisson
    }

    /// Whether ε holds for what the run does.
    pub fn valid(&self) -> bool {
        self.valid
    }

    /// Whether a privacy was accounted for the event of this design. ε depends on that event and the noise multiplier alone.
    pub fn covers(&self, privacy: &Privacy) -> bool {
        (privacy.run, privacy.valid) == (self.run, self.valid)
    }

    /// The design of a kind for a schema. `workload` is what the mechanism is made for; `stamps` of mechanisms that can be stamped,
    /// or the best of [`STAMPS`]; `rate` is the sampling rate of DP-SGD.
    pub fn new(
        kind: Kind,
        stamps: Option<usize>,
        schema: &Schema,
        workload: &Workload,
        rate: f64,
        observe: &dyn Fn(&Progress) -> bool,
    ) -> Result<Design> {
        if let (Some(stamps), Kind::Optimal | Kind::DpSgd | Kind::ShuffledDpSgd) = (stamps, kind) {
            let allowed = "left out for optimal and DP-SGD, which are not stamped";
            return Err(Error::argument("stamps", allowed, stamps));
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
                Design::of(kind.with_stamps(stamps), mechanism)
            }
            Kind::SingleEpoch => {
                let (stamps, noising) = single_epoch(stamps, schema, workload, observe)?;
                let mechanism = make::dense(noising, schema, workload, GAP, observe)?;
                Design::of(kind.with_stamps(stamps), mechanism)
            }
            Kind::DpSgd | Kind::ShuffledDpSgd => {
                let (run, valid) = kind.event(rate, schema.steps());
                Ok(Design {
                    name: kind.name().into(),
                    mechanism: None,
                    steps: schema.steps(),
                    sensitivity: 1.0,
                    run,
                    poisson: kind == Kind::DpSgd,
                    valid,
                })
            }
        }
    }

    /// The design of a mechanism, for instance from a file. It is verified: no claim is believed.
    pub fn of(name: String, mechanism: Mechanism) -> Result<Design> {
        let report = verify::mechanism(&mechanism)?;
        if let Some(failed) = report.checks.iter().find(|check| !check.passed) {
            return Err(Error::Numerical(format!(
                "the mechanism {name} fails verification ({}: {})",
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
        account(self.run, self.valid, budget, delta)
    }

    /// The standard deviation of Z: noise multiplier times clip norm times sensitivity, rounded up.
    pub fn stddev(&self, privacy: &Privacy, clip_norm: f64) -> f64 {
        privacy.noise_multiplier * clip_norm * self.sensitivity * (1.0 + 1e-15)
    }
}

fn account(run: Run, valid: bool, budget: Budget, delta: f64) -> Result<Privacy> {
    let params = Accounting::default();
    let (noise_multiplier, epsilon) = match budget {
        Budget::Epsilon(epsilon) => {
            let found = calibrate::noise_multiplier(run, epsilon, delta, &params)?;
            (found.noise_multiplier, found.epsilon.upper)
        }
        Budget::NoiseMultiplier(multiplier) => {
            (multiplier, accounting::epsilon(&run.event(multiplier), delta, &params)?.upper)
        }
    };
    Ok(Privacy { epsilon, delta, noise_multiplier, run, valid })
}

/// What a run will cost, before its mechanism is made: of a kind, or of a mechanism from a file. Figures to compare, no [`Privacy`].
pub fn figures(kind: Option<Kind>, rate: f64, steps: usize, budget: Budget, delta: f64) -> Result<Figures> {
    let (run, valid) = kind.map_or((Run::Matrix, true), |kind| kind.event(rate, steps));
    account(run, valid, budget, delta).map(|privacy| Figures::from(&privacy))
}

/// Of [`STAMPS`], those that so many steps can have.
fn possible(steps: usize) -> impl Iterator<Item = usize> {
    STAMPS.into_iter().filter(move |stamps| *stamps <= steps)
}

/// Of [`STAMPS`], the number with the smallest loss.
fn best_stamps(family: Family, schema: &Schema, workload: &Workload) -> Result<usize> {
    let mut best = (f64::INFINITY, 1);
    for stamps in possible(schema.steps()) {
        let factorization = Structured { family, stamps }.factorization(schema.steps())?;
        let loss = mechanism::evaluate(&factorization, schema, workload)?.loss();
        if loss < best.0 {
            best = (loss, stamps);
        }
    }
    Ok(best.1)
}

/// The optimum for a single pass with so many stamps, or with the best of [`STAMPS`] under the schema of the run.
fn single_epoch(
    stamps: Option<usize>,
    schema: &Schema,
    workload: &Workload,
    observe: &dyn Fn(&Progress) -> bool,
) -> Result<(usize, NoisingMatrix)> {
    let steps = schema.steps();
    let make = |stamps| make::single_epoch_factorization(steps, stamps, workload, GAP, observe);
    if let Some(stamps) = stamps {
        return Ok((stamps, make(stamps)?.1));
    }
    let mut best: Option<(f64, usize, NoisingMatrix)> = None;
    for stamps in possible(steps) {
        let (factorization, noising) = make(stamps)?;
        let loss = mechanism::evaluate(&factorization, schema, workload)?.loss();
        if best.as_ref().is_none_or(|(least, ..)| loss < *least) {
            best = Some((loss, stamps, noising));
        }
    }
    let (_, stamps, noising) = best.expect("every run can have one stamp");
    Ok((stamps, noising))
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
        assert_eq!(design(tree, Some(4)).unwrap().name, "tree-online, 4 stamps");
        assert!(design(Kind::Optimal, Some(2)).is_err());
        assert!("laplace".parse::<Kind>().unwrap_err().to_string().contains("got laplace"));
    }

    #[test]
    fn single_epoch_optima_are_those_of_make_and_the_best_stamps_are_found() {
        let schema = Schema::epochs(4, 10).unwrap();
        let workload = Workload::prefix_sum(40);
        let loss = |stamps| design(Kind::SingleEpoch, stamps).unwrap().mechanism.unwrap().claims.loss;
        for stamps in STAMPS {
            let made = make::single_epoch(stamps, &schema, &workload, GAP, &|_| true).unwrap();
            assert!((loss(Some(stamps)) / made.claims.loss - 1.0).abs() < 1e-9, "{stamps} stamps");
        }
        let best = design(Kind::SingleEpoch, None).unwrap();
        let least = STAMPS.map(|stamps| loss(Some(stamps))).into_iter().fold(f64::INFINITY, f64::min);
        assert_eq!(best.mechanism.unwrap().claims.loss, least);
        // Worse than the optimum for this run, better than independent noise.
        let other = |kind| design(kind, None).unwrap().mechanism.unwrap().claims.loss;
        assert!(other(Kind::Optimal) < least && least < other(Kind::Family(Family::Identity)));
        assert_eq!(design(Kind::SingleEpoch, Some(2)).unwrap().name, "single-epoch, 2 stamps");
        assert!(design(Kind::SingleEpoch, Some(41)).is_err());
    }
}
