//! Training without noise, to compare private training with. NOT private: clipping alone protects nobody.
//!
//! The same contributions, clipped and summed in the same order, the same momentum and rates as in [`crate::trainer`]; only the noise is
//! missing. A run of the same seed begins with the same parameters and meets the same batches as a private one in fixed order.

use crate::batches::Batches;
use crate::description::{Description, Figures, Named};
use crate::secrets::Secrets;
use crate::settings::Settings;
use crate::task::{Task, Turn};
use crate::trainer::{Epoch, State};
use antiphon::{Error, Result};

/// What such a run has in place of the name of a mechanism.
pub const NAME: &str = "unnoised";

/// The run, written down. There is no ε: it is infinite here, and `null` in JSON.
pub fn description(task: &dyn Task, settings: &Settings) -> Description {
    Description {
        antiphon_run: Description::VERSION,
        dataset: task.identity(),
        model: task.model(),
        settings: *settings,
        mechanism: Named { name: NAME.into(), id: None },
        privacy: Figures { epsilon: f64::INFINITY, delta: 1.0, noise_multiplier: 0.0, valid: false },
        stddev: 0.0,
        client: task.client(),
    }
}

/// Trains from the first step to the last, without checkpoints. `watch` is called after every step, with the epoch where one ended;
/// `false` stops the run with [`Error::Interrupted`].
pub fn train(
    task: &dyn Task,
    settings: &Settings,
    seed: u64,
    mut watch: impl FnMut(&State, Option<&Epoch>) -> bool,
) -> Result<State> {
    let units = task.units();
    settings.check(units)?;
    let secrets = Secrets::from_seed(seed, &description(task, settings).id());
    let rates = settings.rates(settings.steps(units))?;
    let batches = Batches::new(settings, units, secrets.order);
    let mut state = State::new(task.initial(settings.initial, &secrets.start));
    let local = Secrets::units(secrets.start);
    let mut sum = vec![0.0; state.parameters.len()];
    for step in 0..rates.len() {
        let turn = Turn { step, key: &local };
        let totals =
            task.clipped_sum(turn, &state.parameters, &batches.step(step), settings.clip_norm, &mut sum)?;
        let epoch = state.advance(task, settings, &rates, &sum, &totals)?;
        if !watch(&state, epoch.as_ref()) {
            return Err(Error::Interrupted);
        }
    }
    Ok(state)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classification::{Classification, Model};
    use crate::data::{self, Name};
    use crate::job::{self, Job, Logs};
    use antiphon::accounting::NoiseMultiplier;
    use antiphon::run::Budget;

    fn digits() -> (Classification, Settings) {
        let task =
            Classification::new(data::load(Name::Digits, "".as_ref()).unwrap(), Model::Linear).unwrap();
        (task, Settings { epochs: 2, ..Settings::usual(Name::Digits, None) })
    }

    /// A private run with next to no noise goes the same way.
    #[test]
    fn it_is_the_private_loop_without_noise() {
        let (task, settings) = digits();
        let design = job::design("identity".parse().unwrap(), None, &task, &settings, &|_| true).unwrap();
        let noise_multiplier = NoiseMultiplier::new(1e-4).unwrap();
        let privacy = design.privacy(Budget::Noise { noise_multiplier, delta: 1e-5 }).unwrap();
        let job = Job { design, settings, privacy };
        let private = job.run(&task, Some(5), None, Logs::default(), &mut ()).unwrap().state;
        let plain = train(&task, &settings, 5, |_, _| true).unwrap();
        let apart = |a: &State, b: &State| {
            let pairs = a.parameters.iter().zip(&b.parameters);
            pairs.map(|(a, b)| f64::from((a - b).abs())).fold(0.0, f64::max)
        };
        let moved = apart(&plain, &State::new(vec![0.0; plain.parameters.len()]));
        assert!(moved > 0.1 && apart(&plain, &private) < 1e-4, "{moved} {}", apart(&plain, &private));
        assert_eq!((plain.step, plain.epochs.len()), (48, 2));
        assert!((plain.epochs[1].test.accuracy - private.epochs[1].test.accuracy).abs() < 0.01);
        // The seed fixes everything, another one changes the order.
        assert_eq!(train(&task, &settings, 5, |_, _| true).unwrap(), plain);
        assert_ne!(train(&task, &settings, 6, |_, _| true).unwrap().parameters, plain.parameters);
    }

    #[test]
    fn it_stops_when_asked_and_divergence_is_an_error() {
        let (task, settings) = digits();
        let stopped = train(&task, &settings, 1, |state, _| state.step < 3);
        assert!(matches!(stopped, Err(Error::Interrupted)));
        let wild = Settings { learning_rate: 1e60, ..settings };
        assert!(matches!(train(&task, &wild, 1, |_, _| true), Err(Error::Numerical(_))));
        assert!(serde_json::to_value(description(&task, &settings)).unwrap()["privacy"]["epsilon"].is_null());
    }
}
