//! One private run: the object that every program works with, whatever it trains.
//!
//! A [`PrivateRun`] knows who took part, how much noise there is, and what that means. It knows no network, no optimizer and no
//! data: it works on *units* (examples or users) and on *sums* of what they contribute, each clipped to the clip norm as a whole.
//!
//! ```text
//! mechanism ── verify ── Verified ─┐
//! budget, adjacency, unit, clip ───┼── PrivateRun    admit(step, units)    who takes part; or it is refused
//! key ─────────────────────────────┘                 privatize(sum)        adds row t; once; never past the end
//!                                                    statement()           what ε means, and what it does not cover
//!                                                    state(), restore()    everything but the key; compared, not believed
//!                                                    log_to(log)           who took part when, for an audit
//! ```
//!
//! | file | room |
//! |---|---|
//! | `private` | the run; `settings` what it is, `who` who takes part |
//! | `budget` | how much privacy or noise, and what it costs |
//! | `guard` | who may take part in a step |
//! | `sampling` | Poisson samples |
//! | `state` | what is kept of a run, and compared |
//! | `log` | who took part when, as lines of JSON |
//! | `audit` | what privacy a run really had, from that log |

pub mod audit;
mod budget;
pub mod guard;
pub mod log;
mod private;
pub mod sampling;
mod settings;
mod state;
mod who;

pub use budget::{Budget, Privacy, Unit};
pub use private::{PrivateRun, Sum};
pub use settings::Settings;
pub use state::State;
pub use who::Sampled;
