//! How much noise the parameters of the model have: what a mechanism and a rate come to, before anything is trained.
//!
//! The noise n_t = σ·(row t of W)·Z/m of round t moves the parameters by v_t = β·v_{t−1} + n_t, θ_t = θ_{t−1} − η_t·v_t. That is the error that
//! mechanisms are made to keep small, and it counts every round alike. Two things about training are not in it: the model that is tested is that of the last
//! round, and a gradient answers to errors. Where it has the slope h (the loss is h/2·θ² around its minimum) the recursion is
//! v_t = β·v_{t−1} + n_t + h·θ_{t−1}: old errors fade, and noise that was to be cancelled later is not all there any more.

use antiphon::error::Result;
use antiphon::linalg::Matrix;
use antiphon::mechanism::factorization::noising_matrix;
use antiphon::mechanism::{DenseFactorization, Noise};
use antiphon::run::Privacy;
use antiphon_train::design::Design;
use antiphon_train::settings::Settings;
use serde::Serialize;

/// Slopes of the gradient for which the noise is given; the first is that of the mechanisms' own error.
pub const SLOPES: [f64; 4] = [0.0, 0.001, 0.01, 0.1];

/// Standard deviations of the noise in a parameter of the model.
#[derive(Serialize, Clone, Copy, Debug, PartialEq)]
pub struct IterateNoise {
    /// Root mean square over all rounds.
    pub rms: f64,
    /// After the last round.
    pub last: f64,
    /// After the last round, for each of [`SLOPES`].
    pub last_by_slope: [f64; 4],
}

impl IterateNoise {
    pub fn of(design: &Design, privacy: &Privacy, settings: &Settings) -> Result<IterateNoise> {
        let steps = design.steps();
        let noising = match design.mechanism().map(|verified| verified.mechanism().noise()) {
            Some(Noise::Dense(noising)) => noising_matrix(&DenseFactorization::new(noising.clone())?),
            Some(Noise::Structured(structured)) => noising_matrix(&structured.factorization(steps)?),
            _ => Matrix::identity(steps, steps),
        };
        let rates = settings.rates(steps)?;
        let scale = design.stddev(privacy, settings.clip_norm)?.value() / settings.batch_size as f64;
        let by_slope = SLOPES.map(|slope| iterate(&noising, settings, &rates, slope));
        let [(rms, last), ..] = by_slope.map(|(rms, last)| (scale * rms, scale * last));
        Ok(IterateNoise { rms, last, last_by_slope: by_slope.map(|(_, last)| scale * last) })
    }
}

/// Norms of what the recursion makes of Z: root mean square over all rounds, and after the last.
fn iterate(noising: &Matrix, settings: &Settings, rates: &[f64], slope: f64) -> (f64, f64) {
    let inputs = noising.ncols();
    let (mut theta, mut velocity) = (vec![0.0; inputs], vec![0.0; inputs]);
    let (mut all, mut last) = (0.0, 0.0);
    for (t, rate) in rates.iter().enumerate() {
        last = 0.0;
        for j in 0..inputs {
            velocity[j] = settings.momentum * velocity[j] + noising[(t, j)] + slope * theta[j];
            theta[j] -= settings.learning_rate * rate * velocity[j];
            last += theta[j] * theta[j];
        }
        all += last;
    }
    ((all / rates.len() as f64).sqrt(), last.sqrt())
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
        // Errors fade.
        assert!(
            identity.last == identity.last_by_slope[0] && identity.last_by_slope.is_sorted_by(|a, b| a > b)
        );
    }
}
