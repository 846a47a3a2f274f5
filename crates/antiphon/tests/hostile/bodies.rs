//! What must hold of any bytes: no reader panics, and what one accepts makes sense. Public interface alone: the fuzz targets in `fuzz/`
//! compile this file too.

#![allow(dead_code)] // each target uses one of them

use antiphon::accounting::{Adjacency, Event};
use antiphon::file;
use antiphon::mechanism::Mechanism;
use antiphon::noise::key_file::{self, Use};
use antiphon::npy;
use antiphon::run::State;
use antiphon::run::log::{Limits, Line, Reader};
use std::path::Path;

/// A mechanism file: what is read can be written, and is the same when it is read again.
pub fn mechanism(bytes: &[u8]) -> Option<Mechanism> {
    let mechanism = file::from_bytes(bytes).ok()?;
    let again = file::to_bytes(&mechanism).expect("what was read can be written");
    assert_eq!(file::from_bytes(&again).expect("what was written can be read"), mechanism);
    Some(mechanism)
}

/// A .npy file: as many numbers as there are bytes for.
pub fn npy(bytes: &[u8]) -> bool {
    match npy::from_bytes(bytes) {
        Ok(matrix) => {
            let numbers = matrix.nrows() * matrix.ncols();
            assert!(numbers > 0 && 4 * numbers <= bytes.len());
            true
        }
        Err(reason) => {
            assert!(reason.starts_with("must be a") && reason.len() < 400, "{reason}");
            false
        }
    }
}

/// An event: it is checked before it is accounted for, and one that passes is a run with a privacy loss.
pub fn event(bytes: &[u8]) -> bool {
    let Ok(event) = serde_json::from_slice::<Event>(bytes) else { return false };
    let text = serde_json::to_string(&event).expect("an event is plain data");
    // Numbers that are no numbers are null in JSON; no text has them.
    assert_eq!(serde_json::from_str::<Event>(&text).expect("what was read can be written"), event);
    assert!(
        !event.describe().is_empty() || matches!(&event, Event::Composed { events } if events.is_empty())
    );
    let _ = Adjacency::ReplaceOne.apply(&event);
    match event.as_gaussian() {
        Ok(Some(multiplier)) => {
            assert!(multiplier > 0.0 && multiplier.is_finite(), "{multiplier} of {text}");
            let bracket = antiphon::accounting::delta(&event, 1.0, &Default::default());
            let bracket = bracket.expect("a Gaussian that passed the checks has a δ");
            assert!(0.0 <= bracket.lower && bracket.lower <= bracket.upper && bracket.upper <= 1.0, "{text}");
            true
        }
        // Sampled: what it costs takes too long for a test of its form.
        Ok(None) => true,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            false
        }
    }
}

/// A participation log: lines in order, within the limits, up to the first that is wrong; written again they are the same.
pub fn log(bytes: &[u8]) -> bool {
    let limits = Limits { steps: 12, units: Some(50) };
    let read =
        |bytes: &[u8]| Reader::new(bytes, Path::new("log"), limits).collect::<antiphon::Result<Vec<Line>>>();
    let lines = match read(bytes) {
        Ok(lines) => lines,
        Err(error) => {
            let message = error.to_string();
            assert!(message.starts_with("log: line ") && message.len() < 500, "{message}");
            return false;
        }
    };
    assert!(lines.is_sorted_by(|a, b| a.step < b.step));
    assert!(lines.iter().all(|line| line.step < 12 && line.units.iter().all(|unit| *unit < 50)));
    let text: String =
        lines.iter().map(|line| serde_json::to_string(line).expect("plain data") + "\n").collect();
    assert_eq!(read(text.as_bytes()).expect("what was read can be written"), lines);
    true
}

/// A key file, at a path whose folder is for this test alone: no message tells the key, and a use that is recorded leaves the key as it is.
pub fn key(bytes: &[u8], path: &Path) -> bool {
    std::fs::write(path, bytes).expect("the folder can be written to");
    let silent = |message: String| {
        // Sixteen digits in a row are no accident.
        let text = String::from_utf8_lossy(bytes);
        let digits: Vec<char> = text.chars().collect();
        let told = digits.windows(16).any(|part| {
            part.iter().all(char::is_ascii_hexdigit) && message.contains(&part.iter().collect::<String>())
        });
        assert!(!told, "{message}");
    };
    let key = match key_file::read(path) {
        Ok(key) => key,
        Err(error) => {
            silent(error.to_string());
            return false;
        }
    };
    if let Err(error) = key_file::claim(path, &Use::Train, false) {
        silent(error.to_string());
    }
    key_file::claim(path, &Use::Train, true).expect("who insists is recorded");
    let again = key_file::read(path).expect("what was written can be read");
    assert_eq!((again.fingerprint(), again.cipher()), (key.fingerprint(), key.cipher()));
    assert!(key_file::claim(path, &Use::Train, true).expect("it is recorded").contains(&Use::Train));
    true
}

/// The state of a run: one that was read can be written, and is the same.
pub fn state(bytes: &[u8]) -> Option<State> {
    let state: State = serde_json::from_slice(bytes).ok()?;
    let text = serde_json::to_string(&state).expect("a state is plain data");
    assert_eq!(serde_json::from_str::<State>(&text).expect("what was written can be read"), state);
    Some(state)
}
