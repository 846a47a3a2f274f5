//! What the paper's tables say of its own experiment.

use antiphon::error::{Error, Result};
use serde::{Deserialize, Serialize};

/// The best of each mechanism and ε.
#[derive(Deserialize, Serialize)]
pub struct Paper {
    pub source: String,
    /// Why these figures are not to be compared with ours.
    pub note: String,
    /// The best accuracy without noise.
    pub unnoised: f64,
    pub cells: Vec<Cell>,
}

/// A mean over the runs with the best learning rate.
#[derive(Deserialize, Serialize)]
pub struct Cell {
    /// The algorithm here that is the same, if there is one.
    pub algorithm: Option<String>,
    pub mechanism: String,
    pub epsilon: f64,
    pub accuracy: f64,
    pub learning_rate: f64,
    pub runs: usize,
}

/// Reads them.
pub fn paper() -> Result<Paper> {
    let text = include_str!("../../../../../repro/federated.json");
    serde_json::from_str(text)
        .map_err(|error| Error::File { path: "repro/federated.json".into(), reason: error.to_string() })
}

impl Paper {
    /// The paper's figure for an algorithm at about this ε: its tables have 8.82 or 8.84 for what is rounded to 8.8.
    pub fn cell(&self, algorithm: &str, epsilon: f64) -> Option<&Cell> {
        let near = |cell: &&Cell| (cell.epsilon / epsilon - 1.0).abs() < 0.01;
        self.cells.iter().filter(near).find(|cell| cell.algorithm.as_deref() == Some(algorithm))
    }
}

#[cfg(test)]
mod tests {
    use super::super::algorithm;
    use super::*;

    #[test]
    fn cells_are_those_of_algorithms_and_found_by_about_their_epsilon() {
        let paper = paper().unwrap();
        assert_eq!(paper.cells.len(), 18);
        for cell in &paper.cells {
            let known = |name: &String| algorithm::ALL.iter().any(|algorithm| algorithm.name == name);
            assert!(cell.algorithm.as_ref().is_none_or(known), "{}", cell.mechanism);
        }
        let accuracy = |name, epsilon| paper.cell(name, epsilon).map(|cell| cell.accuracy);
        assert_eq!(accuracy("mf6", 17.65), Some(0.25265));
        assert_eq!(accuracy("mf6", 8.8), Some(0.24897));
        assert_eq!(accuracy("dp-fedavg-assumed", 8.8), Some(0.23447));
        assert_eq!((accuracy("mf6", 8.0), accuracy("comb-blt", 2.0)), (None, None));
    }
}
