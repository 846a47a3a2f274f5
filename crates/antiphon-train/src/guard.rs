//! The participation guard: no step in which an example would break the schema that ε was computed for.

use antiphon::schema::Schema;
use antiphon::{Error, Result};

/// Remembers which patterns every example can still follow.
#[derive(Debug, Clone)]
pub struct Guard {
    /// The patterns that hold a step.
    of_step: Vec<Vec<u32>>,
    /// Of every example: those that hold all its steps; nothing before the first.
    left: Vec<Option<Vec<u32>>>,
    /// The last step that was admitted.
    last: Option<usize>,
}

impl Guard {
    /// For a schema with patterns, and so many examples.
    pub fn new(schema: &Schema, examples: usize) -> Result<Guard> {
        let patterns = schema.listed().ok_or_else(|| {
            Error::Unsupported(
                "training needs a schema whose patterns can be listed, such as fixed epochs".into(),
            )
        })?;
        let mut of_step = vec![Vec::new(); schema.steps()];
        for (i, pattern) in patterns.iter().enumerate() {
            pattern.iter().for_each(|step| of_step[*step].push(i as u32));
        }
        Ok(Guard { of_step, left: vec![None; examples], last: None })
    }

    /// Admits the examples of a step, or says which one may not take part. Nothing is admitted then.
    pub fn admit(&mut self, step: usize, examples: &[usize]) -> Result<()> {
        let refuse = |why: String| Err(Error::Unsupported(format!("step {step} is refused: {why}")));
        if self.last.is_some_and(|last| step <= last) {
            return refuse(format!("step {} was already taken", self.last.unwrap_or(0)));
        }
        let Some(patterns) = self.of_step.get(step) else {
            return refuse(format!("the mechanism has {} steps", self.of_step.len()));
        };
        let mut seen = std::collections::HashSet::with_capacity(examples.len());
        let mut left = Vec::with_capacity(examples.len());
        for example in examples {
            let Some(before) = self.left.get(*example) else {
                return refuse(format!("there is no example {example}"));
            };
            if !seen.insert(*example) {
                return refuse(format!("example {example} is in the batch twice"));
            }
            let now: Vec<u32> = match before {
                None => patterns.clone(),
                Some(before) => before.iter().filter(|pattern| patterns.contains(pattern)).copied().collect(),
            };
            if now.is_empty() {
                return refuse(format!(
                    "example {example} would take part in a way that the privacy statement does not cover"
                ));
            }
            left.push(now);
        }
        for (example, left) in examples.iter().zip(left) {
            self.left[*example] = Some(left);
        }
        self.last = Some(step);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fixed_epochs_are_admitted_and_all_else_is_refused() {
        let schema = Schema::epochs(3, 4).unwrap();
        let mut guard = Guard::new(&schema, 8).unwrap();
        for step in 0..8 {
            guard.admit(step, &[2 * (step % 4), 2 * (step % 4) + 1]).unwrap();
        }
        let mut message = |step, examples: &[usize]| guard.admit(step, examples).unwrap_err().to_string();
        assert!(message(8, &[0, 2]).contains("example 2 would take part"));
        assert!(message(8, &[0, 0]).contains("twice"));
        assert!(message(8, &[9]).contains("no example 9"));
        assert!(message(7, &[6]).contains("already taken"));
        assert!(message(12, &[0]).contains("12 steps"));
        // What was refused was not admitted.
        guard.admit(8, &[0, 1]).unwrap();
        guard.admit(9, &[]).unwrap();
    }

    #[test]
    fn overlapping_patterns_leave_a_choice() {
        let schema = Schema::patterns(5, vec![vec![0, 2, 4], vec![0, 3], vec![1]]).unwrap();
        let mut guard = Guard::new(&schema, 2).unwrap();
        guard.admit(0, &[0, 1]).unwrap();
        guard.admit(2, &[0]).unwrap();
        assert!(guard.admit(3, &[0]).is_err());
        guard.admit(3, &[1]).unwrap();
        assert!(guard.admit(4, &[1]).is_err());
        guard.admit(4, &[0]).unwrap();
        assert!(Guard::new(&Schema::min_separation(5, 2, 2).unwrap(), 1).is_err());
    }
}
