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
    let mut state = State::new(task.initial(&secrets.start));
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
