//! Mechanisms that a name, a number of stamps and a few numbers describe: no n×n matrix is stored.

use super::family::{Family, Parameters, Stamp};
use super::stamp::{self, Stamped};
use crate::error::{Error, Result};
use crate::text::counted;

/// A family, a number of stamps, and parameters where the family has any.
#[derive(Debug, Clone, PartialEq)]
pub struct Structured {
    /// What is repeated.
    pub family: Family,
    /// How often.
    pub stamps: usize,
    /// The family's own numbers.
    pub parameters: Parameters,
}

impl Structured {
    /// Puts one together. [`Structured::check`] says whether it makes sense.
    pub fn new(family: Family, stamps: usize, parameters: Parameters) -> Structured {
        Structured { family, stamps, parameters }
    }

    /// One that has no parameters.
    pub fn formula(family: Family, stamps: usize) -> Structured {
        Structured::new(family, stamps, Parameters::default())
    }

    /// How many buffers its noise has, where the family has any.
    pub fn buffers(&self) -> Option<usize> {
        self.family.buffers(&self.parameters)
    }

    /// In words, for people: `tree-online, 10 stamps`, `comb-blt, 4 buffers`.
    pub fn describe(&self) -> String {
        let title = stamp::title(self.family.name(), self.stamps);
        match self.buffers() {
            Some(buffers) => format!("{title}, {}", counted(buffers, "buffer")),
            None => title,
        }
    }

    /// Refuses a number of stamps that so many steps cannot have, and parameters that the family does not have.
    pub fn check(&self, steps: usize) -> Result<()> {
        stamp::check(steps, self.stamps)?;
        let name = self.family.name();
        if self.buffers().is_some() && self.stamps != 1 {
            return Err(Error::argument("stamps", format!("1 for {name}"), self.stamps));
        }
        let length = |name: &str| self.parameters.get(name).len();
        let expected = self.family.parameters(steps, self.stamps, &length).ok_or_else(|| {
            Error::Unsupported(format!("{name} is no family whose mechanisms are described by a name"))
        })?;
        for (parameter, numbers) in self.parameters.iter() {
            if !expected.iter().any(|(known, _)| *known == parameter) {
                let allowed = format!("one that {name} has with {} stamps", self.stamps);
                return Err(Error::argument("the parameter", allowed, parameter));
            }
            if let Some(i) = numbers.iter().position(|x| !x.is_finite()) {
                return Err(Error::argument(format!("{parameter}[{i}]"), "finite", numbers[i]));
            }
        }
        for (parameter, length) in expected {
            let there = self.parameters.get(parameter).len();
            if there as u128 != length {
                let allowed = format!("{length} numbers long");
                return Err(Error::argument(format!("the parameter {parameter}"), allowed, there));
            }
        }
        Ok(())
    }

    /// Makes something of every stamp of so many steps, in order; once for all that are the same.
    pub fn for_each<T: Clone>(
        &self,
        steps: usize,
        mut make: impl FnMut(&Stamp<'_>) -> Result<T>,
    ) -> Result<Vec<(usize, T)>> {
        self.check(steps)?;
        let lengths = stamp::lengths(steps, self.stamps)?;
        let mut made: Vec<(usize, T)> = Vec::with_capacity(lengths.len());
        for (number, steps) in lengths.iter().copied().enumerate() {
            let one = match made.last() {
                Some((length, last)) if *length == steps && self.family.repeats() => last.clone(),
                _ => make(&Stamp { number, steps, lengths: &lengths, parameters: &self.parameters })?,
            };
            made.push((steps, one));
        }
        Ok(made)
    }

    /// The factorization over so many steps.
    pub fn factorization(&self, steps: usize) -> Result<Stamped> {
        let parts = self.for_each(steps, |stamp| self.family.factorization(stamp))?;
        Ok(Stamped::of(parts.into_iter().map(|(_, part)| part)))
    }
}
