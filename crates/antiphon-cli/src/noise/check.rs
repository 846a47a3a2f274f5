//! `antiphon noise --check`: is this table the noise of that mechanism and key?

use crate::output::print_json;
use antiphon::noise::file::Verdict;
use std::path::Path;

/// Says it.
pub fn show(table: &Path, verdict: &Verdict, json: bool) -> anyhow::Result<()> {
    if json {
        return print_json(&serde_json::json!({
            "ok": verdict.is_ok(),
            "file": table.to_string_lossy(),
            "places": verdict.as_ref().ok(),
            "reason": verdict.as_ref().err(),
        }));
    }
    match verdict {
        Ok(places) => {
            say!("{}: {places} numbers, drawn again from the key, have the same bits.", table.display());
            say!(
                "This does not check the privacy level: the standard deviation was read from the description. See `antiphon account`."
            );
        }
        Err(reason) => say!("{}: FAILED: {reason}.", table.display()),
    }
    Ok(())
}
