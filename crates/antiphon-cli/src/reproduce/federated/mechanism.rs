//! The mechanism of the paper's own run.

use crate::reproduce::Pictures;
use crate::train::Stop;

/// Its figure.
pub const FIGURE: &str = "federated-variance";

pub fn run(_: &Pictures, _: &Stop, _: bool) -> anyhow::Result<serde_json::Value> {
    anyhow::bail!("not here yet")
}
