//! Which noise a run gets, and how it is accounted for.

use crate::description::Figures;
use crate::kind::Kind;
use crate::settings::Settings;
use antiphon::accounting::Adjacency;
use antiphon::accounting::calibrate::Run as Accounted;
use antiphon::mechanism::Mechanism;
use antiphon::mechanism::family::{Needs, Run};
use antiphon::noise::{Key, Stddev};
use antiphon::optimize::Progress;
use antiphon::run::{self, Budget, Privacy, PrivateRun, Sampled};
use antiphon::schema::Schema;
use antiphon::text::counted;
use antiphon::verify::{self, Verified};
use antiphon::workload::Workload;
use antiphon::{Error, Result, families, make, plan};

/// Numbers of stamps among which the best is sought: those of the paper's sweep.
pub const STAMPS: [usize; 5] = [1, 2, 5, 10, 20];
/// How close to the optimum the mechanisms are made, or measured.
const GAP: f64 = 1e-3;

/// A kind of noise for one run, ready to be accounted for.
#[derive(Debug, Clone)]
pub struct Design {
    name: String,
    noise: Noise,
}

/// What it is.
#[derive(Debug, Clone)]
enum Noise {
    Matrix(Verified),
    Sampled(Sampled),
}

impl Design {
    /// For people and files: `tree-online, 8 stamps`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The mechanism; none for DP-SGD.
    pub fn mechanism(&self) -> Option<&Verified> {
        match &self.noise {
            Noise::Matrix(verified) => Some(verified),
            Noise::Sampled(_) => None,
        }
    }

    /// n.
    pub fn steps(&self) -> usize {
        match &self.noise {
            Noise::Matrix(verified) => verified.steps(),
            Noise::Sampled(sampled) => sampled.steps,
        }
    }

    /// The event that is accounted for.
    pub fn run(&self) -> Accounted {
        match &self.noise {
            Noise::Matrix(_) => Accounted::Matrix,
            Noise::Sampled(sampled) => sampled.run(),
        }
    }

    /// Whether batches are Poisson samples; otherwise the settings say in which order the examples come.
    pub fn poisson(&self) -> bool {
        matches!(self.noise, Noise::Sampled(Sampled { poisson: true, .. }))
    }

    /// Refuses settings that this noise was not made for: another number of steps, another sampling rate, or batches in which an example
    /// may take part as the mechanism does not allow for.
    pub fn check(&self, settings: &Settings, examples: usize) -> Result<()> {
        let (steps_per_epoch, steps) = (settings.steps_per_epoch(examples), settings.steps(examples));
        let refuse = |allowed: String, value: String| Err(Error::argument("mechanism", allowed, value));
        if self.steps() != steps {
            let epochs = counted(settings.epochs, "epoch");
            let allowed = format!("made for {} ({epochs} of {steps_per_epoch})", counted(steps, "step"));
            return refuse(allowed, counted(self.steps(), "step"));
        }
        match &self.noise {
            Noise::Matrix(verified) => {
                let (schema, made_for) = (settings.schema(examples)?, verified.mechanism().schema());
                if !made_for.contains(&schema) {
                    let allowed = format!("made for what this run does: {}", schema.describe());
                    return refuse(allowed, made_for.describe());
                }
            }
            Noise::Sampled(sampled) => {
                let rate = settings.sampling_rate(examples);
                if sampled.sampling_rate != rate {
                    let allowed =
                        format!("accounted for with a sampling rate of {rate}, as the batches have it");
                    return refuse(allowed, sampled.sampling_rate.to_string());
                }
                if !settings.order.is_fixed() {
                    let allowed = format!("a matrix mechanism where the order is {}", settings.order.name());
                    return refuse(allowed, self.name.clone());
                }
            }
        }
        Ok(())
    }

    /// Whether ε holds for what the run does.
    pub fn valid(&self) -> bool {
        !matches!(self.noise, Noise::Sampled(Sampled { poisson: false, .. }))
    }

    /// The noise for a budget, or the privacy of a noise.
    pub fn privacy(&self, budget: Budget) -> Result<Privacy> {
        budget.account(self.run(), Adjacency::ZeroOut)
    }

    /// The standard deviation of Z.
    pub fn stddev(&self, privacy: &Privacy, clip_norm: f64) -> Result<Stddev> {
        match &self.noise {
            Noise::Matrix(verified) => Stddev::of(verified, privacy.noise_multiplier(), clip_norm),
            Noise::Sampled(sampled) => sampled.stddev(privacy, clip_norm),
        }
    }

    /// The run, with the noise that was accounted for. It takes the keys that it needs.
    pub fn start(
        &self,
        settings: &run::Settings,
        privacy: Privacy,
        noise: Key,
        sampling: Key,
    ) -> Result<PrivateRun> {
        match &self.noise {
            Noise::Matrix(verified) => PrivateRun::accounted(verified.clone(), settings, privacy, noise),
            Noise::Sampled(sampled) => {
                PrivateRun::sampled_accounted(*sampled, settings, privacy, noise, sampling)
            }
        }
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
        let family = match kind {
            Kind::Family(family) => family,
            Kind::DpSgd | Kind::ShuffledDpSgd => {
                check_stamps(kind, stamps, false)?;
                let sampled = sampled(kind, rate, schema.steps());
                return Ok(Design { name: kind.name().into(), noise: Noise::Sampled(sampled) });
            }
        };
        let run = Run { gap: GAP, ..Run::new(schema, workload, observe) };
        let (stamps, designed) = match (stamps, family.needs()) {
            (None, Needs::Stamps) => {
                let counts: Vec<usize> =
                    STAMPS.into_iter().filter(|stamps| *stamps <= schema.steps()).collect();
                let (stamps, designed, _) = plan::best_stamps(family, &counts, &run, &|_, _| true)?;
                (stamps, designed)
            }
            (stamps, needs) => {
                // Stamps change nothing about independent noise.
                check_stamps(kind, stamps, needs == Needs::Stamps || family == families::IDENTITY)?;
                let stamps = stamps.unwrap_or(1);
                let run = Run { stamps, ..run };
                (stamps, make::checked_design(family, &run)?)
            }
        };
        Design::of(kind.with_stamps(stamps), make::finish(designed, &run)?.mechanism)
    }

    /// The design of a mechanism, for instance from a file. It is verified: no claim is believed.
    pub fn of(name: String, mechanism: Mechanism) -> Result<Design> {
        let verified = verify::verify(mechanism).map_err(|error| match error {
            Error::Verification { check, detail } => {
                Error::Verification { check, detail: format!("{detail}; mechanism {name}") }
            }
            other => other,
        })?;
        Ok(Design { name, noise: Noise::Matrix(verified) })
    }
}

/// DP-SGD of a kind.
fn sampled(kind: Kind, sampling_rate: f64, steps: usize) -> Sampled {
    Sampled { steps, sampling_rate, poisson: kind == Kind::DpSgd }
}

/// What a run will cost, before its mechanism is made: of a kind, or of a mechanism from a file. Figures to compare, no [`Privacy`].
pub fn figures(kind: Option<Kind>, rate: f64, steps: usize, budget: Budget) -> Result<Figures> {
    let (run, valid) = match kind {
        Some(kind @ (Kind::DpSgd | Kind::ShuffledDpSgd)) => {
            (sampled(kind, rate, steps).run(), kind == Kind::DpSgd)
        }
        _ => (Accounted::Matrix, true),
    };
    Ok(Figures::new(&budget.account(run, Adjacency::ZeroOut)?, valid))
}

fn check_stamps(kind: Kind, stamps: Option<usize>, stamped: bool) -> Result<()> {
    match stamps {
        Some(stamps) if !stamped => {
            let allowed = format!("left out for {}, which is not stamped", kind.name());
            Err(Error::argument("stamps", allowed, stamps))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use antiphon::accounting::{NoiseMultiplier, gaussian};

    const TARGET: Budget = Budget::Target { epsilon: 2.0, delta: 1e-5 };

    fn loss_in(design: &Design) -> f64 {
        design.mechanism().unwrap().mechanism().claims().loss
    }

    fn loss_of(kind: Kind, stamps: Option<usize>) -> f64 {
        loss_in(&design(kind, stamps).unwrap())
    }

    fn design(kind: Kind, stamps: Option<usize>) -> Result<Design> {
        let schema = Schema::epochs(4, 10).unwrap();
        let workload = Workload::prefix_sum(40);
        Design::new(kind, stamps, &schema, &workload, 0.1, &|_| true)
    }

    #[test]
    fn matrix_mechanisms_are_one_gaussian_and_dp_sgd_is_sampled() {
        let z = gaussian::noise_multiplier(2.0, 1e-5).unwrap();
        let mut losses = Vec::new();
        for kind in [
            Kind::Family(families::OPTIMAL),
            Kind::Family(families::TREE_ONLINE),
            Kind::Family(families::IDENTITY),
        ] {
            let design = design(kind, None).unwrap();
            let privacy = design.privacy(TARGET).unwrap();
            assert!((privacy.noise_multiplier().value() / z - 1.0).abs() < 1e-6 && privacy.epsilon() <= 2.0);
            assert!(design.valid() && !design.poisson());
            losses.push(loss_in(&design));
        }
        assert!(losses.is_sorted(), "{losses:?}");
        let identity = design(Kind::Family(families::IDENTITY), None).unwrap();
        let sensitivity = identity.mechanism().unwrap().sensitivity();
        assert!((sensitivity - 2.0).abs() < 1e-6); // √k
        let [real, shuffled] = [Kind::DpSgd, Kind::ShuffledDpSgd].map(|kind| design(kind, None).unwrap());
        assert!(real.valid() && real.poisson() && !shuffled.valid() && !shuffled.poisson());
        let [real, shuffled] = [&real, &shuffled].map(|design| design.privacy(TARGET).unwrap());
        assert_eq!(real.noise_multiplier(), shuffled.noise_multiplier());
        // Forty independent Gaussians need more than sampled ones.
        assert!(real.noise_multiplier().value() < sensitivity * z);
        let again = design_of_multiplier(z);
        assert!((again.epsilon() - 2.0).abs() < 1e-5);
    }

    fn design_of_multiplier(z: f64) -> Privacy {
        let noise = Budget::Noise { noise_multiplier: NoiseMultiplier::new(z).unwrap(), delta: 1e-5 };
        design(Kind::Family(families::OPTIMAL), None).unwrap().privacy(noise).unwrap()
    }

    #[test]
    fn stamps_are_the_best_or_as_asked() {
        let tree = Kind::Family(families::TREE_ONLINE);
        let loss = |stamps| loss_of(tree, stamps);
        let best = loss(None);
        assert!(STAMPS.iter().all(|stamps| best <= loss(Some(*stamps)) * (1.0 + 1e-9)));
        assert_eq!(design(tree, Some(4)).unwrap().name, "tree-online, 4 stamps");
        assert!(design(Kind::Family(families::OPTIMAL), Some(2)).is_err());
        assert!("laplace".parse::<Kind>().unwrap_err().to_string().contains("got laplace"));
    }

    #[test]
    fn single_epoch_optima_are_those_of_make_and_the_best_stamps_are_found() {
        let schema = Schema::epochs(4, 10).unwrap();
        let workload = Workload::prefix_sum(40);
        let loss = |stamps| loss_of(Kind::Family(families::SINGLE_EPOCH), stamps);
        for stamps in STAMPS {
            let made = make::make(
                families::SINGLE_EPOCH,
                &Run { stamps, gap: GAP, ..Run::new(&schema, &workload, &|_| true) },
            )
            .unwrap();
            assert!((loss(Some(stamps)) / made.claims().loss - 1.0).abs() < 1e-9, "{stamps} stamps");
        }
        let best = design(Kind::Family(families::SINGLE_EPOCH), None).unwrap();
        let least = STAMPS.map(|stamps| loss(Some(stamps))).into_iter().fold(f64::INFINITY, f64::min);
        assert_eq!(loss_in(&best), least);
        // Worse than the optimum for this run, better than independent noise.
        let other = |kind| loss_of(kind, None);
        assert!(
            other(Kind::Family(families::OPTIMAL)) < least && least < other(Kind::Family(families::IDENTITY))
        );
        assert_eq!(
            design(Kind::Family(families::SINGLE_EPOCH), Some(2)).unwrap().name,
            "single-epoch, 2 stamps"
        );
        assert!(design(Kind::Family(families::SINGLE_EPOCH), Some(41)).is_err());
    }
}
