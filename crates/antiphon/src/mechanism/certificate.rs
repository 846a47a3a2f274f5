//! The proof that no mechanism has a much smaller loss.

use crate::error::{Error, Result};
use crate::schema::Schema;

/// Of which mechanisms a lower bound speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BoundClass {
    /// Of all mechanisms for the run.
    All,
    /// Of those of the same family.
    Family,
    /// Of none: there is no bound.
    None,
}

impl BoundClass {
    /// The name, as files have it.
    pub fn name(self) -> &'static str {
        match self {
            BoundClass::All => "all",
            BoundClass::Family => "family",
            BoundClass::None => "none",
        }
    }
}

/// A dual feasible U = Σ_π E_π L_π L_πᵀ E_πᵀ, given by one lower triangular factor per participation pattern, in the
/// order of [`Schema::listed`]. It proves that the loss of every mechanism is at least a²/c, with a = ‖A·L‖_* and
/// c = Σ_π max_i ‖row i of L_π‖².
#[derive(Debug, Clone, PartialEq)]
pub struct Certificate {
    /// The patterns, where these are not all that the mechanism's schema has: a bound for fewer patterns is one for more.
    /// `None`: those of the schema itself.
    pub patterns: Option<Schema>,
    /// L_π, row-major and square; zero above the diagonal.
    pub factors: Vec<Vec<f64>>,
}

impl Certificate {
    /// For the patterns of the mechanism's own schema.
    pub fn new(factors: Vec<Vec<f64>>) -> Certificate {
        Certificate { patterns: None, factors }
    }

    /// The schema whose patterns it weighs, for a mechanism of this one.
    pub fn schema<'a>(&'a self, of_mechanism: &'a Schema) -> &'a Schema {
        self.patterns.as_ref().unwrap_or(of_mechanism)
    }

    /// The sizes of the factors for a schema. Patterns that are listed have one each. Reshuffled epochs, whose patterns are too many, have a weight for every step and
    /// then one factor whose rows are vectors of the epochs (`certificate::product`).
    pub(crate) fn sizes(schema: &Schema) -> Option<Vec<usize>> {
        match (schema, schema.listed()) {
            (_, Some(patterns)) => Some(patterns.iter().map(Vec::len).collect()),
            (Schema::Reshuffled { epochs, .. }, None) => {
                Some(std::iter::repeat_n(1, schema.steps()).chain([*epochs]).collect())
            }
            (_, None) => None,
        }
    }

    /// Checks patterns, shapes, finiteness and triangularity against the schema of the mechanism.
    pub fn check(&self, of_mechanism: &Schema) -> Result<()> {
        let schema = self.schema(of_mechanism);
        if let Some(patterns) = &self.patterns {
            patterns.clone().validate()?;
            if !of_mechanism.contains(patterns) {
                let allowed = "for patterns that the mechanism's schema has too";
                return Err(Error::argument("the certificate", allowed, patterns.describe()));
            }
        }
        let sizes = Self::sizes(schema).ok_or_else(|| {
            let allowed = "for patterns that can be listed, or for reshuffled epochs";
            Error::argument("the certificate", allowed, schema.describe())
        })?;
        if sizes.len() != self.factors.len() {
            let allowed = format!("{} factors, one per pattern", sizes.len());
            return Err(Error::argument("the certificate", allowed, self.factors.len()));
        }
        if !schema.is_listed()
            && let Some(i) =
                self.factors[..schema.steps()].iter().position(|u| u.first().is_none_or(|u| *u < 0.0))
        {
            return Err(Error::argument(
                format!("the weight of step {i}"),
                "at least 0",
                format!("{:?}", self.factors[i]),
            ));
        }
        for (r, (k, factor)) in sizes.into_iter().zip(&self.factors).enumerate() {
            if factor.len() != k * k {
                let value = format!("{} entries", factor.len());
                return Err(Error::argument(format!("certificate factor {r}"), format!("{k}×{k}"), value));
            }
            for (e, x) in factor.iter().enumerate() {
                let name = || format!("entry ({}, {}) of certificate factor {r}", e / k, e % k);
                if !x.is_finite() {
                    return Err(Error::argument(name(), "finite", x));
                }
                if e % k > e / k && *x != 0.0 {
                    return Err(Error::argument(name(), "0 (lower triangular)", x));
                }
            }
        }
        Ok(())
    }
}
