//! The verdict on a mechanism, and the mechanism that passed.

use super::{Report, encoder, mechanism};
use crate::error::{Error, Result};
use crate::file;
use crate::linalg::dense::Matrix;
use crate::mechanism::Mechanism;
use crate::optimize::Observer;
use crate::schema::Schema;
use crate::workload::Workload;
use std::sync::Arc;

/// What was examined, without which a verdict is worth nothing, and what was found.
#[derive(Debug, Clone)]
pub struct Examined {
    /// The kind of mechanism, or `foreign`.
    pub kind: &'static str,
    /// Of a mechanism; a foreign matrix has none.
    pub id: Option<String>,
    /// Who may take part when.
    pub schema: Schema,
    /// In words.
    pub workload: String,
    report: Report,
    mechanism: Option<Arc<Mechanism>>,
}

impl Examined {
    /// Derives again everything that a mechanism claims.
    pub fn mechanism(examined: Mechanism) -> Result<Examined> {
        let report = mechanism(&examined)?;
        Ok(Examined {
            kind: examined.noise.kind(),
            id: Some(file::id(&examined)),
            schema: examined.schema.clone(),
            workload: examined.workload.describe(),
            report,
            mechanism: Some(Arc::new(examined)),
        })
    }

    /// Examines somebody else's encoder, as [`encoder`] does.
    pub fn encoder(
        c: &Matrix,
        schema: Schema,
        workload: &Workload,
        gap: f64,
        observer: Observer<'_>,
    ) -> Result<Examined> {
        let report = encoder(c, &schema, workload, gap, observer)?;
        let (kind, workload) = ("foreign", workload.describe());
        Ok(Examined { kind, id: None, schema, workload, report, mechanism: None })
    }

    /// What was found.
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// The mechanism, if it is one and every check passed.
    pub fn verified(&self) -> Result<Verified> {
        if let Some(failed) = self.report.checks.iter().find(|check| !check.passed) {
            return Err(Error::Verification { check: failed.name, detail: failed.detail.clone() });
        }
        match &self.mechanism {
            Some(mechanism) => Ok(Verified { mechanism: mechanism.clone(), report: self.report.clone() }),
            None => Err(Error::Unsupported(
                "an encoder matrix alone is no mechanism: it has no certificate to verify".into(),
            )),
        }
    }
}

/// A mechanism that was verified in this process: what noise and accounting take. Only [`verify`](super::verify) and
/// [`Examined::verified`] make one; no file holds it.
///
/// ```compile_fail
/// use antiphon::verify::Verified;
/// # fn mechanism() -> antiphon::mechanism::Mechanism { todo!() }
/// let forged = Verified { mechanism: mechanism().into(), report: todo!() };
/// ```
#[derive(Debug, Clone)]
pub struct Verified {
    mechanism: Arc<Mechanism>,
    report: Report,
}

impl Verified {
    /// The mechanism.
    pub fn mechanism(&self) -> &Mechanism {
        &self.mechanism
    }

    /// Who may take part when.
    pub fn schema(&self) -> &Schema {
        &self.mechanism.schema
    }

    /// n.
    pub fn steps(&self) -> usize {
        self.mechanism.schema.steps()
    }

    /// The name of the mechanism, as files have it.
    pub fn id(&self) -> String {
        file::id(&self.mechanism)
    }

    /// The sensitivity for contributions of norm one, an upper bound: derived, not claimed.
    pub fn sensitivity(&self) -> f64 {
        self.report.sensitivity.upper
    }

    /// All that was found.
    pub fn report(&self) -> &Report {
        &self.report
    }
}
