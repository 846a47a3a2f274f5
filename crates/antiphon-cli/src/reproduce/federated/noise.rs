//! How much noise the parameters of the model have: what a mechanism and a rate come to, before anything is trained.
//!
//! With σ the standard deviation of Z, W the noising matrix, m clients per round and A the server's momentum and rates (relative to its rate η), the noise in
//! every parameter after round t has the standard deviation η·σ/m·‖row t of A·W‖.

use antiphon::error::Result;
use antiphon::linalg::Matrix;
use antiphon::mechanism::{DenseFactorization, Factorization, Noise};
use antiphon::run::Privacy;
use antiphon::workload::Workload;
use antiphon_train::design::Design;
use antiphon_train::settings::Settings;
use serde::Serialize;

/// Standard deviations of the noise in a parameter of the model.
#[derive(Serialize, Clone, Copy, Debug, PartialEq)]
pub struct IterateNoise {
    /// Root mean square over all rounds: what the mechanisms are made to keep small.
    pub rms: f64,
    /// After the last round: what is left in the model that is tested.
    pub last: f64,
}

impl IterateNoise {
    pub fn of(design: &Design, privacy: &Privacy, settings: &Settings) -> Result<IterateNoise> {
        let steps = design.steps();
        // That of the loop, whatever the mechanism was made for.
        let workload = Workload::training(steps, settings.momentum, Some(settings.rates(steps)?))?;
        let variances = match design.mechanism().map(|verified| verified.mechanism().noise()) {
            Some(Noise::Dense(noising)) => DenseFactorization::new(noising.clone())?.variances(&workload),
            Some(Noise::Structured(structured)) => structured.factorization(steps)?.variances(&workload),
            _ => independent(&workload),
        };
        let sigma = design.stddev(privacy, settings.clip_norm)?.value();
        let scale = settings.learning_rate * sigma / settings.batch_size as f64;
        let mean = variances.iter().sum::<f64>() / steps as f64;
        let last = variances.last().copied().unwrap_or(0.0);
        Ok(IterateNoise { rms: scale * mean.sqrt(), last: scale * last.sqrt() })
    }
}

/// W = I.
fn independent(workload: &Workload) -> Vec<f64> {
    let a: Matrix = workload.matrix();
    let steps = workload.steps();
    (0..steps).map(|t| (0..=t).map(|j| a[(t, j)] * a[(t, j)]).sum()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use antiphon::families;
    use antiphon::run::Budget;
    use antiphon::schema::Schema;
    use antiphon_train::kind::Kind;

    /// Independent noise of DP-SGD and of the identity, by the formula; and the optimum has less.
    #[test]
    fn is_what_the_loop_makes_of_the_noise() {
        let settings = Settings {
            epochs: 3,
            batch_size: 10,
            momentum: 0.5,
            cooldown: None,
            learning_rate: 2.0,
            ..Settings::federated(40, 1.0, None)
        };
        let (schema, workload) = (Schema::epochs(3, 4).unwrap(), settings.workload(12).unwrap());
        let budget = Budget::Target { epsilon: 2.0, delta: 1e-4 };
        let noise = |kind: Kind| {
            let design = Design::new(kind, None, &schema, &workload, 0.25, &|_| true).unwrap();
            let privacy = design.privacy(budget).unwrap();
            (
                IterateNoise::of(&design, &privacy, &settings).unwrap(),
                design.stddev(&privacy, 1.0).unwrap().value(),
            )
        };
        // θ_t = −η Σ_j (2 − 2^(j−t)) z_j / m.
        let variance = |t: usize| (0..=t).map(|j| (2.0 - 0.5f64.powi((t - j) as i32)).powi(2)).sum::<f64>();
        for kind in [Kind::DpSgd, Kind::Family(families::IDENTITY)] {
            let (noise, sigma) = noise(kind);
            let scale = 2.0 * sigma / 10.0;
            let rms = scale * ((0..12).map(variance).sum::<f64>() / 12.0).sqrt();
            assert!((noise.rms / rms - 1.0).abs() < 1e-9, "{noise:?} {rms}");
            assert!((noise.last / (scale * variance(11).sqrt()) - 1.0).abs() < 1e-9, "{noise:?}");
        }
        let [optimal, identity] =
            [families::OPTIMAL, families::IDENTITY].map(|family| noise(Kind::Family(family)).0);
        assert!(optimal.rms < identity.rms && optimal.last < identity.last);
    }
}
