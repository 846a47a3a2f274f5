//! What a run does to privacy, as plain data: events that accountants consume.
//!
//! As JSON:
//!
//! ```text
//! {"kind":"gaussian","noise_multiplier":0.6}
//! {"kind":"poisson-sampled","sampling_rate":0.01,"noise_multiplier":1.0}
//! {"kind":"composed","events":[{"event":{…},"count":2052},{"event":{…},"count":1}]}
//! ```

use crate::error::{Error, Result};
use crate::text::counted;
use libm::{expm1, log1p};
use serde::{Deserialize, Serialize};

/// Most repetitions that are accounted for.
pub const MAX_COUNT: u64 = 1_000_000_000;
/// Most sampled events that differ.
const MAX_KINDS: usize = 256;
/// How deep compositions of compositions may go.
const MAX_DEPTH: usize = 100;
/// The noise multipliers that are accounted for.
pub const MIN_NOISE_MULTIPLIER: f64 = 1e-6;
/// See [`MIN_NOISE_MULTIPLIER`].
pub const MAX_NOISE_MULTIPLIER: f64 = 1e12;

/// One event of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Event {
    /// One Gaussian mechanism: noise of standard deviation `noise_multiplier` times the sensitivity. Every matrix
    /// mechanism is one of these, however many steps it has.
    Gaussian {
        /// z.
        noise_multiplier: f64,
    },
    /// A Gaussian mechanism on a sample in which each example is with this probability, independently of all others and
    /// of all other samples: one step of DP-SGD, where the data are really sampled like that.
    PoissonSampled {
        /// q.
        sampling_rate: f64,
        /// z.
        noise_multiplier: f64,
    },
    /// Events one after another, each may depend on what those before it showed.
    Composed {
        /// In any order.
        events: Vec<Repeated>,
    },
}

/// An event that happens several times.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Repeated {
    /// What happens.
    pub event: Event,
    /// How often.
    pub count: u64,
}

impl Event {
    /// A matrix mechanism with this noise multiplier.
    pub fn gaussian(noise_multiplier: f64) -> Event {
        Event::Gaussian { noise_multiplier }
    }

    /// DP-SGD: so many steps on Poisson samples.
    pub fn dp_sgd(sampling_rate: f64, noise_multiplier: f64, steps: u64) -> Event {
        let event = Event::PoissonSampled { sampling_rate, noise_multiplier };
        Event::Composed { events: vec![Repeated { event, count: steps }] }
    }

    /// DP-GD: so many steps on all data.
    pub fn dp_gd(noise_multiplier: f64, steps: u64) -> Event {
        Event::Composed { events: vec![Repeated { event: Event::gaussian(noise_multiplier), count: steps }] }
    }

    /// The noise multiplier of the one Gaussian that the event is, rounded down: Gaussians compose to a Gaussian. `None`
    /// where something in it is sampled. The event is checked, as every accountant does.
    pub fn as_gaussian(&self) -> Result<Option<f64>> {
        let flat = self.flat()?;
        Ok(flat.sampled.is_empty().then(|| flat.gaussian_multiplier()))
    }

    /// The event in words, for people.
    pub fn describe(&self) -> String {
        match self {
            Event::Gaussian { noise_multiplier: z } => {
                format!("a Gaussian mechanism of noise multiplier {z}")
            }
            Event::PoissonSampled { sampling_rate: q, noise_multiplier: z } => {
                format!("a Gaussian mechanism of noise multiplier {z} on a Poisson sample of rate {q}")
            }
            Event::Composed { events } => {
                let describe = |repeated: &Repeated| match (&repeated.event, repeated.count) {
                    (event, 1) => event.describe(),
                    (event @ Event::Composed { .. }, count) => {
                        format!("{count} times ({})", event.describe())
                    }
                    (event, count) => format!("{count} times {}", event.describe()),
                };
                // Nobody reads more than a few.
                let mut parts: Vec<String> = events.iter().take(4).map(describe).collect();
                parts.extend((events.len() > 4).then(|| counted(events.len() - 4, "more event")));
                parts.join(", and ")
            }
        }
    }

    /// The simple events in it with their counts, checked: Gaussians and sampled Gaussians, no event twice.
    pub(super) fn flat(&self) -> Result<Flat> {
        let mut flat = Flat::default();
        flat.add(self, 1, 0)?;
        Ok(flat)
    }
}

/// An event taken apart.
#[derive(Debug, Clone, Default)]
pub(super) struct Flat {
    /// μ² = Σ 1/z² of all Gaussians that are not sampled: together they are one, with noise multiplier 1/μ.
    pub squared_mu: f64,
    /// How many terms were added up.
    terms: usize,
    /// The sampled ones: sampling rate, noise multiplier, count.
    pub sampled: Vec<(f64, f64, u64)>,
}

impl Flat {
    /// The noise multiplier of the one Gaussian that stands for all that are not sampled, rounded down.
    pub fn gaussian_multiplier(&self) -> f64 {
        rounded_multiplier(self.squared_mu, self.terms)
    }

    /// The same rounded up, for lower ends. A term is too large by 8 + 2 units of 2⁻⁵² at most and the sum of all by half a
    /// unit per term; the root halves that. Root, quotient and product here cost half a unit each.
    pub fn gaussian_multiplier_above(&self) -> f64 {
        1.0 / self.squared_mu.sqrt() * (1.0 + (8 + self.terms) as f64 * f64::EPSILON)
    }

    /// The probability that an example is ever looked at, rounded up: without that, both data sets look the same.
    pub fn ever_sampled(&self) -> f64 {
        let never: f64 = self.sampled.iter().map(|(q, _, count)| *count as f64 * log1p(-q)).sum();
        if self.squared_mu > 0.0 { 1.0 } else { -expm1(never) * (1.0 + 1e-12) } // up
    }

    /// The noise multiplier of the one Gaussian that all would be together if nothing were sampled, rounded down. A sampled
    /// Gaussian is that Gaussian with its result thrown away now and then, and is never worse.
    pub fn unsampled_multiplier(&self) -> f64 {
        let sampled = self.sampled.iter().map(|(_, z, count)| *count as f64 / (z * z));
        rounded_multiplier(self.squared_mu + sampled.sum::<f64>(), self.terms + self.sampled.len())
    }

    fn add(&mut self, event: &Event, count: u64, depth: usize) -> Result<()> {
        if depth > MAX_DEPTH {
            let allowed = format!("nested at most {MAX_DEPTH} deep");
            return Err(Error::argument("a composed event", allowed, format!("{depth} or more")));
        }
        if !(1..=MAX_COUNT).contains(&count) {
            return Err(Error::argument("the count of an event", format!("in 1..={MAX_COUNT}"), count));
        }
        match event {
            Event::Gaussian { noise_multiplier } => self.add_gaussian(*noise_multiplier, count),
            Event::PoissonSampled { sampling_rate, noise_multiplier } => {
                if !(*sampling_rate > 0.0 && *sampling_rate <= 1.0) {
                    return Err(Error::argument("sampling_rate", "in (0, 1]", sampling_rate));
                }
                if *sampling_rate == 1.0 {
                    return self.add_gaussian(*noise_multiplier, count);
                }
                check_multiplier(*noise_multiplier)?;
                let same = |(q, z, _): &&mut (f64, f64, u64)| q == sampling_rate && z == noise_multiplier;
                let kinds = self.sampled.len();
                match self.sampled.iter_mut().find(same) {
                    Some((_, _, known)) if count <= MAX_COUNT - *known => *known += count,
                    Some(_) => return Err(too_many()),
                    None if kinds < MAX_KINDS => {
                        self.sampled.push((*sampling_rate, *noise_multiplier, count));
                    }
                    None => {
                        let allowed = format!("at most {MAX_KINDS} that differ");
                        return Err(Error::argument("sampled events", allowed, MAX_KINDS + 1));
                    }
                }
                Ok(())
            }
            Event::Composed { events } => {
                if events.is_empty() {
                    return Err(Error::argument("a composed event", "a list of at least one event", "[]"));
                }
                events.iter().try_for_each(|repeated| {
                    let count = count.checked_mul(repeated.count).filter(|count| *count <= MAX_COUNT);
                    let count = count.ok_or_else(too_many)?;
                    self.add(&repeated.event, count, depth + 1)
                })
            }
        }
    }

    fn add_gaussian(&mut self, noise_multiplier: f64, count: u64) -> Result<()> {
        check_multiplier(noise_multiplier)?;
        // Up: Gaussians compose to a Gaussian with the sum of the squares.
        self.terms += 1;
        self.squared_mu += count as f64 / (noise_multiplier * noise_multiplier) * (1.0 + 8.0 * f64::EPSILON);
        Ok(())
    }
}

/// 1/μ, down: each term and each sum was rounded.
fn rounded_multiplier(squared_mu: f64, terms: usize) -> f64 {
    1.0 / squared_mu.sqrt() * (1.0 - (8 + terms) as f64 * f64::EPSILON)
}

fn too_many() -> Error {
    let got = format!("more than {MAX_COUNT}");
    Error::argument("the count of an event", format!("in 1..={MAX_COUNT}"), got)
}

pub(super) fn check_multiplier(noise_multiplier: f64) -> Result<()> {
    match (MIN_NOISE_MULTIPLIER..=MAX_NOISE_MULTIPLIER).contains(&noise_multiplier) {
        true => Ok(()),
        false => {
            let allowed = format!("in [{MIN_NOISE_MULTIPLIER:e}, {MAX_NOISE_MULTIPLIER:e}]");
            Err(Error::argument("noise_multiplier", allowed, noise_multiplier))
        }
    }
}
