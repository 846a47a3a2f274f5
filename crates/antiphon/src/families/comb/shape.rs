//! The numbers of a comb, and what they mean.
//!
//! ```text
//! W = Diag(o) · T · Diag(e) · ⊕_r L_r          C = ⊕_r L_r⁻¹ · Diag(1/e) · T⁻¹ · Diag(1/o)
//! ```
//!
//! Step t = j·b + r is step r of epoch j. L_r is k×k, lower triangular: it mixes the normals of the steps of the same residue r. L_r, e and o
//! are linear in r between knots, and o has a factor for every residue besides.

use super::filter::Filter;
use crate::error::{Error, Result};
use crate::mechanism::Parameters;

/// The names of the parameters in files.
pub(in crate::families) mod name {
    pub const PERIOD: &str = "period";
    pub const POLES: &str = "poles";
    pub const ZEROS: &str = "zeros";
    pub const MIX_KNOTS: &str = "mix_knots";
    pub const MIX: &str = "mix";
    pub const GAIN_KNOTS: &str = "gain_knots";
    pub const INPUT_GAIN: &str = "input_gain";
    pub const OUTPUT_GAIN: &str = "output_gain";
    pub const RESIDUE_GAIN: &str = "residue_gain";
}

/// Gains are within this of one, so that nothing overflows.
const GAINS: std::ops::RangeInclusive<f64> = 1e-60..=1e60;

/// Most numbers in one of the tables that figures of a comb are computed from: 1 GiB. A tiny file can name any number of steps.
const LARGEST_TABLE: usize = 1 << 27;

/// A comb over n steps in epochs of b steps.
#[derive(Debug, Clone, PartialEq)]
pub struct Comb {
    /// n.
    pub steps: usize,
    /// b.
    pub period: usize,
    /// T.
    pub filter: Filter,
    /// Where the mixes stand, from 0 to b − 1.
    pub mix_knots: Vec<usize>,
    /// L at every knot, its lower triangle row by row.
    pub mix: Vec<f64>,
    /// Where the gains stand.
    pub gain_knots: Vec<usize>,
    /// e at every knot of every epoch.
    pub input_gain: Vec<f64>,
    /// o at every knot of every epoch.
    pub output_gain: Vec<f64>,
    /// A factor of o for every residue; all ones where there is none.
    pub residue_gain: Vec<f64>,
}

/// A place between two knots.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Place {
    /// The knot before it.
    pub knot: usize,
    /// How far it is to the next one, in [0, 1).
    pub part: f64,
}

/// The place of a residue among knots: that of the first or the last knot outside of them.
pub fn place(knots: &[usize], residue: usize) -> Place {
    let after = knots.partition_point(|knot| *knot <= residue);
    match (after.checked_sub(1), knots.get(after)) {
        (None, _) => Place { knot: 0, part: 0.0 },
        (Some(knot), None) => Place { knot, part: 0.0 },
        (Some(knot), Some(next)) => {
            Place { knot, part: (residue - knots[knot]) as f64 / (next - knots[knot]) as f64 }
        }
    }
}

impl Place {
    /// The number at this place, of those at the knots.
    pub fn of(self, at_knots: impl Fn(usize) -> f64) -> f64 {
        match self.part == 0.0 {
            true => at_knots(self.knot),
            false => (1.0 - self.part) * at_knots(self.knot) + self.part * at_knots(self.knot + 1),
        }
    }
}

impl Place {
    /// The knots around it, each with its part.
    pub fn parts(self) -> impl Iterator<Item = (usize, f64)> {
        let both = [(self.knot, 1.0 - self.part), (self.knot + 1, self.part)];
        both.into_iter().filter(|(_, part)| *part > 0.0)
    }
}

/// Entries of a lower triangle of k rows.
pub fn packed_len(k: usize) -> usize {
    k * (k + 1) / 2
}

impl Comb {
    /// The number of epochs k; the last one may be incomplete.
    pub fn epochs(&self) -> usize {
        self.steps.div_ceil(self.period)
    }

    /// The steps of one residue: k, or one less where the last epoch does not reach it.
    pub fn epochs_of(&self, residue: usize) -> usize {
        (self.steps - residue).div_ceil(self.period)
    }

    /// e of a step.
    pub fn input_gain(&self, step: usize) -> f64 {
        self.gain(&self.input_gain, step)
    }

    /// o of a step.
    pub fn output_gain(&self, step: usize) -> f64 {
        let factor = self.residue_gain.get(step % self.period).unwrap_or(&1.0);
        self.gain(&self.output_gain, step) * factor
    }

    fn gain(&self, at_knots: &[f64], step: usize) -> f64 {
        let of_epoch = &at_knots[step / self.period * self.gain_knots.len()..];
        place(&self.gain_knots, step % self.period).of(|knot| of_epoch[knot])
    }

    /// Row j of L_r: j + 1 numbers.
    pub fn mix_row(&self, residue: usize, epoch: usize, row: &mut Vec<f64>) {
        let length = packed_len(self.epochs());
        let place = place(&self.mix_knots, residue);
        let entry = |i: usize| place.of(|knot| self.mix[knot * length + packed_len(epoch) + i]);
        row.clear();
        row.extend((0..=epoch).map(entry));
    }

    /// From the parameters of a file.
    pub fn from_parameters(steps: usize, parameters: &Parameters) -> Result<Comb> {
        let filter = Filter::new(parameters.get(name::POLES), parameters.get(name::ZEROS))?;
        let period = whole(name::PERIOD, parameters.get(name::PERIOD), 1, steps)?;
        let [period] = period.as_slice() else {
            return Err(Error::argument(name::PERIOD, "one number", period.len()));
        };
        let knots = |name| whole(name, parameters.get(name), 0, period - 1);
        let comb = Comb {
            steps,
            period: *period,
            filter,
            mix_knots: knots(name::MIX_KNOTS)?,
            mix: parameters.get(name::MIX).to_vec(),
            gain_knots: knots(name::GAIN_KNOTS)?,
            input_gain: parameters.get(name::INPUT_GAIN).to_vec(),
            output_gain: parameters.get(name::OUTPUT_GAIN).to_vec(),
            residue_gain: parameters.get(name::RESIDUE_GAIN).to_vec(),
        };
        comb.check()?;
        Ok(comb)
    }

    /// As a file keeps them.
    pub fn to_parameters(&self) -> Parameters {
        let numbers = |whole: &[usize]| whole.iter().map(|x| *x as f64).collect();
        let mut all = vec![
            (name::PERIOD, vec![self.period as f64]),
            (name::POLES, self.filter.poles().to_vec()),
            (name::ZEROS, self.filter.zeros().to_vec()),
            (name::MIX_KNOTS, numbers(&self.mix_knots)),
            (name::MIX, self.mix.clone()),
            (name::GAIN_KNOTS, numbers(&self.gain_knots)),
            (name::INPUT_GAIN, self.input_gain.clone()),
            (name::OUTPUT_GAIN, self.output_gain.clone()),
        ];
        if !self.residue_gain.is_empty() {
            all.push((name::RESIDUE_GAIN, self.residue_gain.clone()));
        }
        all.into_iter().collect()
    }

    /// Refuses numbers that are no comb.
    pub fn check(&self) -> Result<()> {
        let k = self.epochs();
        for (name, knots) in [(name::MIX_KNOTS, &self.mix_knots), (name::GAIN_KNOTS, &self.gain_knots)] {
            if knots.is_empty() || knots.windows(2).any(|pair| pair[0] >= pair[1]) {
                return Err(Error::argument(name, "at least one number, increasing", format!("{knots:?}")));
            }
        }
        let length = |name: &str, numbers: &[f64], wanted: usize| match numbers.len() == wanted {
            true => Ok(()),
            false => Err(Error::argument(name, format!("{wanted} numbers"), numbers.len())),
        };
        length(name::MIX, &self.mix, self.mix_knots.len() * packed_len(k))?;
        length(name::INPUT_GAIN, &self.input_gain, self.gain_knots.len() * k)?;
        length(name::OUTPUT_GAIN, &self.output_gain, self.gain_knots.len() * k)?;
        if !self.residue_gain.is_empty() {
            length(name::RESIDUE_GAIN, &self.residue_gain, self.period)?;
        }
        let gains = [
            (name::INPUT_GAIN, &self.input_gain),
            (name::OUTPUT_GAIN, &self.output_gain),
            (name::RESIDUE_GAIN, &self.residue_gain),
        ];
        for (name, numbers) in gains {
            if let Some(i) = numbers.iter().position(|x| !GAINS.contains(x)) {
                return Err(Error::argument(format!("{name}[{i}]"), "in [1e-60, 1e60]", numbers[i]));
            }
        }
        self.check_mix(k)
    }

    /// Refuses a comb whose figures need too much memory: a k×k matrix for every residue, and d + 2 numbers for every step.
    pub fn check_size(&self) -> Result<()> {
        let of_step = self.epochs().max(self.filter.buffers() + 2);
        let numbers = self.steps.saturating_mul(of_step);
        match numbers <= LARGEST_TABLE {
            true => Ok(()),
            false => Err(Error::Unsupported(format!(
                "a comb of {} steps in {} epochs with {} buffers is too large: its figures need {numbers} numbers at a time, and at most \
                 {LARGEST_TABLE} are allowed (steps times epochs, or times buffers + 2)",
                self.steps,
                self.epochs(),
                self.filter.buffers()
            ))),
        }
    }

    /// The diagonals are positive, so that the mixes between knots have inverses too.
    fn check_mix(&self, k: usize) -> Result<()> {
        let rows = (0..self.mix_knots.len()).flat_map(|_| 1..=k);
        let diagonal = rows.flat_map(|row| (1..=row).map(move |column| column == row));
        for (i, (x, diagonal)) in self.mix.iter().zip(diagonal).enumerate() {
            let (fits, allowed) = match diagonal {
                true => (GAINS.contains(x), "in [1e-60, 1e60], on the diagonal"),
                false => (x.abs() <= *GAINS.end(), "in [-1e60, 1e60]"),
            };
            if !fits {
                return Err(Error::argument(format!("{}[{i}]", name::MIX), allowed, x));
            }
        }
        Ok(())
    }
}

/// Whole numbers that a file keeps as others.
fn whole(name: &str, numbers: &[f64], least: usize, most: usize) -> Result<Vec<usize>> {
    let one = |(i, x): (usize, &f64)| match x.fract() == 0.0 && (least as f64..=most as f64).contains(x) {
        true => Ok(*x as usize),
        false => {
            Err(Error::argument(format!("{name}[{i}]"), format!("a whole number in {least}..={most}"), x))
        }
    };
    numbers.iter().enumerate().map(one).collect()
}
