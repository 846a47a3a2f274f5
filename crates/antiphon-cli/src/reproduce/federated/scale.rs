//! What the paper's own run would take here.

use crate::train::Stop;
use antiphon_train::data::text::TextData;

pub fn run(_: &TextData, _: &Stop, _: bool) -> anyhow::Result<serde_json::Value> {
    anyhow::bail!("not here yet")
}
