//! Which users are for training, for validation and for testing.
//!
//! A hash of the user's name decides, and nothing else: neither other users nor the order of the file. So a user who is added or
//! removed moves no other one, and all units of a user are on the same side.

use super::Unit;
use crate::data::checked::Checked;
use sha2::{Digest, Sha256};

/// What a user is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Training: eight of ten.
    Train,
    /// Validation: one of ten.
    Validation,
    /// Testing: one of ten.
    Test,
}

impl Part {
    /// The part of a user: the first eight bytes of the SHA-256 of the name, big end first, modulo 10; 8 is for validation, 9 for
    /// testing.
    pub fn of(user: &str) -> Part {
        let sum = Sha256::digest(user.as_bytes());
        let number = sum[..8].iter().fold(0u64, |number, &byte| number << 8 | u64::from(byte));
        match number % 10 {
            8 => Part::Validation,
            9 => Part::Test,
            _ => Part::Train,
        }
    }
}

/// The units to train on, to validate on and to test on, in their order; at least one of each.
pub(super) fn divide(units: &[Unit]) -> Checked<[Vec<&Unit>; 3]> {
    let mut parts = [const { Vec::new() }; 3];
    for unit in units {
        parts[Part::of(&unit.user) as usize].push(unit);
    }
    match parts.iter().any(Vec::is_empty) {
        false => Ok(parts),
        true => {
            let [train, validation, test] = parts.map(|part| part.len());
            Err(format!(
                "expected users to train on (8 of 10, by a hash of the name), to validate on (1 of 10) and to test on (1 of 10), \
                 found {train}, {validation} and {test}; there must be at least 3 users, and 50 are almost always enough"
            ))
        }
    }
}
