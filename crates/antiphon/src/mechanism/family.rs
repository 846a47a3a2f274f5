//! Families of mechanisms: what the table in [`families`](crate::families) has in each of its rows.
//!
//! A family is one file under `families/`: its name, how a mechanism of it is made for a run, and what such a mechanism is, three times
//! over: by definition (for `verify`), by what it does to vectors (a [`Factorization`](super::Factorization)), and by its noise (a [`Kernel`]).

use super::stamp::Shared;
use super::stream::Kernel;
use super::structured::Structured;
use super::{Certificate, Mechanism, Noise};
use crate::error::{Error, Result};
use crate::linalg::dense::Matrix;
use crate::optimize::Observer;
use crate::schema::Schema;
use crate::workload::Workload;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// One row of the table of families.
pub trait Row: Send + Sync {
    /// The name, as files, the command line and Python have it.
    fn name(&self) -> &'static str;

    /// Names that mean the same: those of former versions.
    fn aliases(&self) -> &'static [&'static str] {
        &[]
    }

    /// One line for people.
    fn about(&self) -> &'static str;

    /// What has to be said to make one.
    fn needs(&self) -> Needs {
        Needs::Stamps
    }

    /// Whether W is the pseudo-inverse of C: no other decoder has less noise.
    fn has_optimal_decoder(&self) -> bool {
        true
    }

    /// Whether stamps of the same length are the same. Where they are not, each has numbers of its own among the parameters.
    fn repeats(&self) -> bool {
        true
    }

    /// How many buffers a mechanism with these parameters has: rows that its noise keeps between steps, of which [`Run::buffers`] may ask for a
    /// number. Such a mechanism is one for all steps and is not repeated. `None` for families that have none.
    fn buffers(&self, _parameters: &Parameters) -> Option<usize> {
        None
    }

    /// Why no mechanism of it can be made for a schema, where that is so: the whole message.
    fn refuses(&self, _schema: &Schema) -> Option<String> {
        None
    }

    /// Whether it is a candidate for a run of this schema, where nobody asks for it by name.
    fn suits(&self, _schema: &Schema) -> bool {
        true
    }

    /// A mechanism of the family for a run. Most need no parameters.
    fn design(&self, run: &Run<'_>) -> Result<Designed> {
        let family = crate::families::named(self.name())?;
        let structured = Structured::new(family, run.stamps, Parameters::default());
        structured.check(run.schema.steps())?;
        Ok(Designed::Noise(Noise::Structured(structured)))
    }

    /// The parameters of so many steps in so many stamps: names, and how many numbers each has. Where that is for the mechanism to say,
    /// `length` tells how many numbers of a name there are. `None` where the mechanisms of this family are kept as matrices or implicitly,
    /// and not by name.
    fn parameters(
        &self,
        _steps: usize,
        _stamps: usize,
        _length: &dyn Fn(&str) -> usize,
    ) -> Option<Vec<(&'static str, u128)>> {
        Some(Vec::new())
    }

    /// What one stamp does to vectors.
    fn factorization(&self, stamp: &Stamp<'_>) -> Result<Shared>;

    /// Both matrices of one stamp, entry by entry from docs/FORMAT.md. It must share nothing with the other two.
    fn definition(&self, stamp: &Stamp<'_>) -> Result<Explicit>;

    /// The noise of one stamp, for Z of this standard deviation.
    fn kernel(&self, stamp: &Stamp<'_>, stddev: f64) -> Result<Arc<dyn Kernel>>;
}

/// What has to be said to make a mechanism, beside schema and workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// Nothing: it cannot be stamped, or stamps change nothing.
    Nothing,
    /// The number of stamps; the best one can be searched for.
    Stamps,
    /// A matrix, and the number of stamps.
    Matrix,
}

/// One run, for which a mechanism is made.
#[derive(Clone, Copy)]
pub struct Run<'a> {
    /// Who may take part when.
    pub schema: &'a Schema,
    /// A.
    pub workload: &'a Workload,
    /// How often the mechanism is repeated.
    pub stamps: usize,
    /// How near to an optimum it is made, or measured.
    pub gap: f64,
    /// An encoder C of one stamp, for families that need one.
    pub encoder: Option<&'a Matrix>,
    /// Whether the optimum may be implicit where its matrix would be too large. No noise can be drawn from it then.
    pub may_be_implicit: bool,
    /// So many buffers, for families that have them; as many as it takes, where nothing is said.
    pub buffers: Option<usize>,
    /// How far above the best possible loss a family with buffers may be, relatively: it takes no more buffers than that needs.
    pub over_optimum: f64,
    /// Whether the best possible loss is of no interest. Families that do not need it for their design then have no certificate.
    pub without_bound: bool,
    /// Sees the optimizer's progress.
    pub observer: Observer<'a>,
}

/// What a family made for a run.
#[derive(Debug, Clone)]
pub enum Designed {
    /// The noise; its figures are still to be found.
    Noise(Noise),
    /// The noise, a certificate for the run that the work gave, and the lower bound that it proves.
    Proven(Noise, Certificate, f64),
    /// A mechanism with figures and certificate.
    Mechanism(Box<Mechanism>),
}

impl Designed {
    /// What is added to the gradients.
    pub fn noise(&self) -> &Noise {
        match self {
            Designed::Noise(noise) | Designed::Proven(noise, ..) => noise,
            Designed::Mechanism(mechanism) => &mechanism.noise,
        }
    }
}

/// Both matrices, written out.
#[derive(Debug, Clone)]
pub struct Explicit {
    /// C, one column per step.
    pub encoder: Matrix,
    /// W with W·C = I, one row per step.
    pub noising: Matrix,
    /// A bound on the norm by which rounding moved a column of C.
    pub column_error: f64,
}

/// One stamp of a mechanism.
#[derive(Debug, Clone, Copy)]
pub struct Stamp<'a> {
    /// Its number, from 0.
    pub number: usize,
    /// Its steps.
    pub steps: usize,
    /// The lengths of all stamps.
    pub lengths: &'a [usize],
    /// The parameters of the mechanism.
    pub parameters: &'a Parameters,
}

/// Vectors of numbers by their names.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Parameters(Arc<BTreeMap<&'static str, Vec<f64>>>);

impl Parameters {
    /// The numbers of this name; none where there is no such name.
    pub fn get(&self, name: &str) -> &[f64] {
        self.0.get(name).map_or(&[], Vec::as_slice)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &[f64])> {
        self.0.iter().map(|(name, numbers)| (*name, numbers.as_slice()))
    }
}

/// The most buffers that a mechanism may have.
pub const MAX_BUFFERS: usize = 16;

/// How far above the best possible loss a family with buffers may be, where nothing is said.
pub const OVER_OPTIMUM: f64 = 0.015;

impl<'a> Run<'a> {
    /// A run with one stamp, a gap of 0.1 % and nothing else said.
    pub fn new(schema: &'a Schema, workload: &'a Workload, observer: Observer<'a>) -> Run<'a> {
        Run {
            schema,
            workload,
            stamps: 1,
            gap: 1e-3,
            encoder: None,
            may_be_implicit: false,
            buffers: None,
            over_optimum: OVER_OPTIMUM,
            without_bound: false,
            observer,
        }
    }
}

impl FromIterator<(&'static str, Vec<f64>)> for Parameters {
    fn from_iter<I: IntoIterator<Item = (&'static str, Vec<f64>)>>(numbers: I) -> Self {
        Parameters(Arc::new(numbers.into_iter().collect()))
    }
}

/// A row of the table, to be passed around. Two are equal if their names are.
#[derive(Clone, Copy)]
pub struct Family(&'static dyn Row);

impl Family {
    /// The handle of a row. A family that is not in the table can be used, but no file with it can be read.
    pub const fn of(row: &'static dyn Row) -> Family {
        Family(row)
    }

    /// Whether its mechanisms have buffers.
    pub fn has_buffers(self) -> bool {
        self.buffers(&Parameters::default()).is_some()
    }

    /// Refuses what a run asks of a family that does not have it.
    pub fn check(self, run: &Run<'_>) -> Result<()> {
        if let Some(reason) = self.refuses(run.schema) {
            return Err(Error::Unsupported(reason));
        }
        match run.buffers {
            Some(buffers) if !self.has_buffers() => {
                let allowed = format!("left out for {self}, which has no buffers");
                return Err(Error::argument("buffers", allowed, buffers));
            }
            Some(buffers) if !(1..=MAX_BUFFERS).contains(&buffers) => {
                return Err(Error::argument("buffers", format!("in 1..={MAX_BUFFERS}"), buffers));
            }
            _ => {}
        }
        if !(run.over_optimum > 0.0 && run.over_optimum <= 1.0) {
            return Err(Error::argument("over_optimum", "in (0, 1]", run.over_optimum));
        }
        if self.has_buffers() && run.stamps != 1 {
            let allowed = format!("1 for {self}, whose buffers run through all steps");
            return Err(Error::argument("stamps", allowed, run.stamps));
        }
        Ok(())
    }
}

impl std::ops::Deref for Family {
    type Target = dyn Row;

    fn deref(&self) -> &(dyn Row + 'static) {
        self.0
    }
}

impl PartialEq for Family {
    fn eq(&self, other: &Family) -> bool {
        self.name() == other.name()
    }
}

impl Eq for Family {}

impl fmt::Debug for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Serialize for Family {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl std::str::FromStr for Family {
    type Err = Error;

    fn from_str(name: &str) -> Result<Family> {
        crate::families::named(name)
    }
}
