//! Participation schemas: in which steps one example may take part.
//!
//! A *pattern* is a set of steps in which one example may take part, a *schema*
//! is the set of all patterns (paper, Section 2). Privacy is for the worst
//! example, so only maximal patterns are kept: taking part less often never
//! raises the sensitivity.

use crate::error::{Error, Result};
use crate::text::counted;
use serde::{Deserialize, Serialize};

/// Largest number of steps any schema accepts; far beyond what can be computed, but no overflow below it.
pub const MAX_STEPS: usize = 1 << 28;
/// Largest number of participations listed over all patterns of an explicit schema.
pub const MAX_LISTED: usize = 1 << 26;

/// Who may take part when.
///
/// Build one with the constructors, which check their arguments.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Schema {
    /// Fixed epoch order: participations of one example are exactly `steps_per_epoch` apart,
    /// and there are at most `max_participations` of them: the paper's (k, b)-participation.
    FixedOrder {
        /// n
        steps: usize,
        /// b
        steps_per_epoch: usize,
        /// k
        max_participations: usize,
    },
    /// Participations of one example are at least `min_separation` steps apart,
    /// and there are at most `max_participations` of them.
    MinSeparation {
        /// n
        steps: usize,
        /// b
        min_separation: usize,
        /// k
        max_participations: usize,
    },
    /// Epochs with a new order in each: one example takes part at most once in every epoch, in any of its steps.
    Reshuffled {
        /// k
        epochs: usize,
        /// b
        steps_per_epoch: usize,
    },
    /// An explicit list of patterns; they may overlap.
    Patterns {
        /// n
        steps: usize,
        /// Each pattern is a strictly increasing list of steps, counted from 0.
        patterns: Vec<Vec<usize>>,
    },
}

impl Schema {
    /// Every example takes part at most once.
    pub fn single(steps: usize) -> Result<Self> {
        Self::fixed_order(steps, steps)
    }

    /// Every example takes part in every step (full-batch gradient descent).
    pub fn every_step(steps: usize) -> Result<Self> {
        Self::fixed_order(steps, 1)
    }

    /// `epochs` passes over the data in the same order, each of `steps_per_epoch` steps.
    pub fn epochs(epochs: usize, steps_per_epoch: usize) -> Result<Self> {
        check("epochs", epochs, 1, MAX_STEPS)?;
        check("steps_per_epoch", steps_per_epoch, 1, MAX_STEPS / epochs)?;
        Self::fixed_order(epochs * steps_per_epoch, steps_per_epoch)
    }

    /// `steps` steps in fixed epoch order; the last epoch may be incomplete, so k = ⌈steps / steps_per_epoch⌉.
    pub fn fixed_order(steps: usize, steps_per_epoch: usize) -> Result<Self> {
        check("steps", steps, 1, MAX_STEPS)?;
        check("steps_per_epoch", steps_per_epoch, 1, steps)?;
        Ok(Schema::FixedOrder { steps, steps_per_epoch, max_participations: steps.div_ceil(steps_per_epoch) })
    }

    /// Fixed epoch order where an example leaves after `max_participations` epochs, whenever it came:
    /// the paper's (k, b)-participation with n > k·b. The patterns overlap.
    pub fn fixed_order_at_most(
        steps: usize,
        steps_per_epoch: usize,
        max_participations: usize,
    ) -> Result<Self> {
        let Schema::FixedOrder { max_participations: most, .. } = Self::fixed_order(steps, steps_per_epoch)?
        else {
            unreachable!("fixed_order builds FixedOrder")
        };
        check("max_participations", max_participations, 1, most)?;
        Ok(Schema::FixedOrder { steps, steps_per_epoch, max_participations })
    }

    /// `epochs` passes over the data, each of `steps_per_epoch` steps and in an order of its own. With one epoch or with one
    /// step per epoch this is what [`Schema::epochs`] is.
    pub fn reshuffled(epochs: usize, steps_per_epoch: usize) -> Result<Self> {
        check("epochs", epochs, 1, MAX_STEPS)?;
        check("steps_per_epoch", steps_per_epoch, 1, MAX_STEPS / epochs)?;
        Ok(Schema::Reshuffled { epochs, steps_per_epoch })
    }

    /// At least `min_separation` steps between two participations, at most `max_participations` of them.
    pub fn min_separation(steps: usize, min_separation: usize, max_participations: usize) -> Result<Self> {
        check("steps", steps, 1, MAX_STEPS)?;
        check("min_separation", min_separation, 1, steps)?;
        let most = steps.div_ceil(min_separation);
        check("max_participations", max_participations, 1, most)?;
        Ok(Schema::MinSeparation { steps, min_separation, max_participations })
    }

    /// An explicit list of patterns over `steps` steps. Each must be strictly increasing and not empty.
    pub fn patterns(steps: usize, patterns: Vec<Vec<usize>>) -> Result<Self> {
        check("steps", steps, 1, MAX_STEPS)?;
        if patterns.is_empty() {
            return Err(Error::argument("patterns", "a list of at least one pattern", "[]"));
        }
        let mut listed = 0usize;
        for (number, pattern) in patterns.iter().enumerate() {
            let name = format!("pattern {number}");
            if pattern.is_empty() {
                return Err(Error::argument(name, "a list of at least one step", "[]"));
            }
            for pair in pattern.windows(2) {
                if pair[0] >= pair[1] {
                    let value = format!("{} before {}", pair[0], pair[1]);
                    return Err(Error::argument(name, "strictly increasing", value));
                }
            }
            let last = pattern[pattern.len() - 1];
            check(&format!("every step of {name}"), last, 0, steps - 1)?;
            listed += pattern.len();
        }
        check("the number of steps listed in all patterns", listed, 1, MAX_LISTED)?;
        Ok(Schema::Patterns { steps, patterns })
    }

    /// Checks a schema that was not built by a constructor (one read from a file).
    pub fn validate(self) -> Result<Self> {
        match self {
            Schema::FixedOrder { steps, steps_per_epoch, max_participations } => {
                Self::fixed_order_at_most(steps, steps_per_epoch, max_participations)
            }
            Schema::MinSeparation { steps, min_separation, max_participations } => {
                Self::min_separation(steps, min_separation, max_participations)
            }
            Schema::Reshuffled { epochs, steps_per_epoch } => Self::reshuffled(epochs, steps_per_epoch),
            Schema::Patterns { steps, patterns } => Self::patterns(steps, patterns),
        }
    }

    /// n, the number of steps.
    pub fn steps(&self) -> usize {
        match self {
            Schema::FixedOrder { steps, .. }
            | Schema::MinSeparation { steps, .. }
            | Schema::Patterns { steps, .. } => *steps,
            Schema::Reshuffled { epochs, steps_per_epoch } => epochs * steps_per_epoch,
        }
    }

    /// k, the largest number of participations of one example.
    pub fn max_participations(&self) -> usize {
        match self {
            Schema::FixedOrder { max_participations, .. }
            | Schema::MinSeparation { max_participations, .. } => *max_participations,
            Schema::Reshuffled { epochs, .. } => *epochs,
            Schema::Patterns { patterns, .. } => patterns.iter().map(Vec::len).max().unwrap_or(0),
        }
    }

    /// b, where the patterns are the residue classes {r, r+b, r+2b, …}: disjoint, and covering all steps.
    pub fn residues(&self) -> Option<usize> {
        match self {
            Schema::FixedOrder { steps, steps_per_epoch, max_participations }
                if *max_participations == steps.div_ceil(*steps_per_epoch) =>
            {
                Some(*steps_per_epoch)
            }
            _ => None,
        }
    }

    /// Whether [`Schema::listed`] lists the patterns: not under minimum separation and for reshuffled epochs, which have
    /// exponentially many (but for one epoch, or one step per epoch).
    pub fn is_listed(&self) -> bool {
        match self {
            Schema::FixedOrder { .. } | Schema::Patterns { .. } => true,
            Schema::MinSeparation { .. } => false,
            Schema::Reshuffled { epochs, steps_per_epoch } => *epochs == 1 || *steps_per_epoch == 1,
        }
    }

    /// All maximal patterns, or `None` where there are too many ([`Schema::is_listed`]).
    pub fn listed(&self) -> Option<Vec<Vec<usize>>> {
        match self {
            Schema::FixedOrder { steps, steps_per_epoch: b, max_participations: k } => {
                // A start r is maximal unless the pattern could be extended backwards, that is, unless
                // r >= b and the pattern from r - b still has room for its last step.
                let patterns = (0..*steps)
                    .filter(|r| *r < *b || r + (k - 1) * b < *steps)
                    .map(|r| (0..*k).map(|e| r + e * b).filter(|i| i < steps).collect())
                    .collect();
                Some(patterns)
            }
            Schema::MinSeparation { .. } => None,
            Schema::Reshuffled { epochs: 1, steps_per_epoch: n } => Some((0..*n).map(|i| vec![i]).collect()),
            Schema::Reshuffled { epochs: n, steps_per_epoch: 1 } => Some(vec![(0..*n).collect()]),
            Schema::Reshuffled { .. } => None,
            Schema::Patterns { patterns, .. } => Some(patterns.clone()),
        }
    }

    /// A schema with patterns that can be listed, all of which this one has too: itself where that is possible. What bounds all mechanisms from below
    /// under fewer patterns does so under more.
    pub fn listed_part(&self) -> Option<Schema> {
        match self {
            // An example that returns every b' ≥ b steps, with so large a b' that it comes at most k times.
            Schema::MinSeparation { steps, min_separation, max_participations } => {
                Self::fixed_order(*steps, (*min_separation).max(steps.div_ceil(*max_participations))).ok()
            }
            Schema::Reshuffled { epochs, steps_per_epoch } if !self.is_listed() => {
                Self::epochs(*epochs, *steps_per_epoch).ok()
            }
            other => Some(other.clone()),
        }
    }

    /// Whether every pattern of another schema is allowed under this one.
    pub fn contains(&self, other: &Schema) -> bool {
        if self.steps() != other.steps() {
            return false;
        }
        if self == other {
            return true;
        }
        match (self, other) {
            (
                Schema::MinSeparation { min_separation: b, max_participations: k, .. },
                Schema::FixedOrder { steps_per_epoch: other_b, max_participations: other_k, .. }
                | Schema::MinSeparation { min_separation: other_b, max_participations: other_k, .. },
            ) if other_b >= b && other_k <= k => true,
            (
                Schema::Reshuffled { steps_per_epoch: b, .. },
                Schema::FixedOrder { steps_per_epoch: other_b, .. },
            ) if other_b == b => true,
            _ => other.listed().is_some_and(|patterns| patterns.iter().all(|pattern| self.permits(pattern))),
        }
    }

    /// Whether one example may take part in these steps, which increase.
    pub fn permits(&self, pattern: &[usize]) -> bool {
        let apart = |least: usize| pattern.windows(2).all(|pair| pair[1] - pair[0] >= least);
        match self {
            Schema::FixedOrder { steps_per_epoch: b, max_participations: k, .. } => match pattern {
                [first, .., last] => {
                    (last - first) / b < *k && pattern.iter().all(|step| (step - first).is_multiple_of(*b))
                }
                _ => true,
            },
            Schema::MinSeparation { min_separation, max_participations, .. } => {
                pattern.len() <= *max_participations && apart(*min_separation)
            }
            Schema::Reshuffled { steps_per_epoch: b, .. } => {
                pattern.windows(2).all(|pair| pair[0] / b < pair[1] / b)
            }
            Schema::Patterns { patterns, .. } => {
                let inside =
                    |whole: &Vec<usize>| pattern.iter().all(|step| whole.binary_search(step).is_ok());
                patterns.iter().any(inside)
            }
        }
    }

    /// Whether every step belongs to exactly one pattern. Then orthogonal mechanisms are optimal (docs/theory.md).
    pub fn is_partition(&self) -> bool {
        if self.residues().is_some() {
            return true;
        }
        let Some(patterns) = self.listed() else {
            return false;
        };
        let mut seen = vec![0u32; self.steps()];
        patterns.iter().flatten().for_each(|i| seen[*i] += 1);
        seen.iter().all(|count| *count == 1)
    }

    /// The kind of schema in words, for people.
    pub fn name(&self) -> &'static str {
        match self {
            Schema::FixedOrder { .. } => "fixed epoch order",
            Schema::MinSeparation { .. } => "minimum separation",
            Schema::Reshuffled { .. } => "epochs with a new order in each",
            Schema::Patterns { .. } => "a list of patterns",
        }
    }

    /// The schema in words, for people.
    pub fn describe(&self) -> String {
        self.describe_for("example")
    }

    /// The same where a unit of privacy has another name.
    pub fn describe_for(&self, unit: &str) -> String {
        let one = if unit == "example" { "an example".into() } else { format!("a {unit}") };
        let of = |n: &usize| counted(*n, "step");
        match self {
            Schema::FixedOrder { steps, steps_per_epoch, max_participations: k } => {
                if *k == 1 && steps == steps_per_epoch {
                    format!("{}, each {unit} at most once", of(steps))
                } else if self.residues().is_some() && steps % steps_per_epoch == 0 {
                    format!(
                        "{} of {} ({}), same order in every epoch",
                        counted(*k, "epoch"),
                        of(steps_per_epoch),
                        of(steps)
                    )
                } else {
                    let often = counted(*k, "participation");
                    format!("{}, {one} returns every {}, at most {often}", of(steps), of(steps_per_epoch))
                }
            }
            Schema::MinSeparation { steps, min_separation, max_participations } => format!(
                "{}, {one} returns after {} at the earliest, at most {}",
                of(steps),
                of(min_separation),
                counted(*max_participations, "participation")
            ),
            Schema::Reshuffled { epochs, steps_per_epoch } => format!(
                "{} of {} ({}), a new order in every epoch",
                counted(*epochs, "epoch"),
                of(steps_per_epoch),
                of(&self.steps())
            ),
            Schema::Patterns { steps, patterns } => {
                let listed = counted(patterns.len(), "participation pattern");
                format!("{}, {listed} from a list", of(steps))
            }
        }
    }
}

fn check(argument: &str, value: usize, low: usize, high: usize) -> Result<()> {
    if (low..=high).contains(&value) {
        Ok(())
    } else {
        Err(Error::argument(argument, format!("in {low}..={high}"), value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fixed_order_lists_residue_classes() {
        let schema = Schema::epochs(3, 2).unwrap();
        assert_eq!(schema.listed().unwrap(), [vec![0, 2, 4], vec![1, 3, 5]]);
        assert_eq!(schema.residues(), Some(2));
    }

    #[test]
    fn an_incomplete_last_epoch_shortens_the_later_patterns() {
        let schema = Schema::fixed_order(7, 3).unwrap();
        assert_eq!(schema.max_participations(), 3);
        assert_eq!(schema.listed().unwrap(), [vec![0, 3, 6], vec![1, 4], vec![2, 5]]);
        assert!(schema.is_partition());
    }

    #[test]
    fn fewer_participations_than_epochs_overlap_and_contain_every_pattern() {
        let schema = Schema::fixed_order_at_most(7, 2, 2).unwrap();
        let patterns = schema.listed().unwrap();
        assert_eq!(patterns, [vec![0, 2], vec![1, 3], vec![2, 4], vec![3, 5], vec![4, 6]]);
        assert!(!schema.is_partition());
        assert_eq!(schema.residues(), None);
    }

    #[test]
    fn a_schema_contains_another_if_it_permits_its_patterns() {
        let schemas = [
            Schema::epochs(3, 2),
            Schema::single(6),
            Schema::every_step(6),
            Schema::fixed_order(6, 4),
            Schema::fixed_order_at_most(6, 2, 2),
            Schema::min_separation(6, 2, 3),
            Schema::min_separation(6, 2, 2),
            Schema::min_separation(6, 3, 2),
            Schema::reshuffled(3, 2),
            Schema::reshuffled(2, 3),
            Schema::reshuffled(6, 1),
            Schema::patterns(6, vec![vec![0, 2, 4], vec![1, 3, 5], vec![0, 1]]),
        ]
        .map(Result::unwrap);
        // All sets of six steps; a schema is what it permits.
        let sets: Vec<Vec<usize>> =
            (0..64).map(|bits: usize| (0..6).filter(|step| bits >> step & 1 == 1).collect()).collect();
        for a in &schemas {
            for set in sets.iter().filter(|set| !set.is_empty()) {
                if let Some(patterns) = a.listed() {
                    let inside = patterns.iter().any(|whole| set.iter().all(|step| whole.contains(step)));
                    assert_eq!(a.permits(set), inside, "{a:?} {set:?}");
                }
            }
            for b in &schemas {
                let contains = sets.iter().all(|set| !b.permits(set) || a.permits(set));
                assert!(contains || !a.contains(b), "{a:?} {b:?}");
                assert!(a.contains(b) || !contains || !b.is_listed(), "{a:?} {b:?}");
            }
            let part = a.listed_part().unwrap();
            assert!(part.is_listed() && a.contains(&part), "{a:?}");
        }
        assert!(!schemas[0].contains(&Schema::epochs(3, 3).unwrap()));
    }

    #[test]
    fn partitions_are_recognised_in_explicit_lists() {
        assert!(Schema::patterns(3, vec![vec![0, 2], vec![1]]).unwrap().is_partition());
        assert!(!Schema::patterns(3, vec![vec![0, 2], vec![1, 2]]).unwrap().is_partition());
        assert!(!Schema::patterns(3, vec![vec![0], vec![1]]).unwrap().is_partition());
    }

    #[test]
    fn reshuffled_epochs_are_listed_where_the_order_cannot_matter() {
        let schema = Schema::reshuffled(3, 2).unwrap();
        assert_eq!((schema.steps(), schema.max_participations()), (6, 3));
        assert_eq!((schema.listed(), schema.residues(), schema.is_partition()), (None, None, false));
        for (epochs, b, same) in
            [(1, 4, Schema::single(4)), (4, 1, Schema::every_step(4)), (1, 1, Schema::single(1))]
        {
            let schema = Schema::reshuffled(epochs, b).unwrap();
            assert_eq!(schema.listed(), same.unwrap().listed());
            assert_eq!((schema.is_partition(), schema.residues()), (true, None));
        }
        let all = [schema, Schema::epochs(2, 2).unwrap(), Schema::min_separation(4, 2, 2).unwrap()];
        assert!(all.iter().all(|schema| schema.is_listed() == schema.listed().is_some()));
        let text = r#"{"kind":"reshuffled","epochs":3,"steps_per_epoch":2}"#;
        assert_eq!(serde_json::to_string(&all[0]).unwrap(), text);
        assert_eq!(serde_json::from_str::<Schema>(text).unwrap().validate().unwrap(), all[0]);
        let text = r#"{"kind":"reshuffled","epochs":3,"steps_per_epoch":0}"#;
        let error = serde_json::from_str::<Schema>(text).unwrap().validate().unwrap_err();
        assert_eq!(error.to_string(), "steps_per_epoch must be in 1..=89478485, got 0");
    }

    #[test]
    fn counts_agree_with_their_nouns() {
        let described = |schema: Result<Schema>| schema.unwrap().describe();
        assert_eq!(described(Schema::single(1)), "1 step, each example at most once");
        assert_eq!(
            described(Schema::epochs(2, 1)),
            "2 epochs of 1 step (2 steps), same order in every epoch"
        );
        assert_eq!(
            described(Schema::fixed_order_at_most(5, 1, 1)),
            "5 steps, an example returns every 1 step, at most 1 participation"
        );
        assert_eq!(
            described(Schema::min_separation(3, 1, 2)),
            "3 steps, an example returns after 1 step at the earliest, at most 2 participations"
        );
        assert_eq!(
            described(Schema::reshuffled(20, 100)),
            "20 epochs of 100 steps (2000 steps), a new order in every epoch"
        );
        assert_eq!(
            described(Schema::reshuffled(1, 1)),
            "1 epoch of 1 step (1 step), a new order in every epoch"
        );
        assert_eq!(
            described(Schema::patterns(1, vec![vec![0]])),
            "1 step, 1 participation pattern from a list"
        );
    }

    #[test]
    fn bad_arguments_are_named_with_range_and_value() {
        let message = |result: Result<Schema>| result.unwrap_err().to_string();
        assert_eq!(message(Schema::fixed_order(10, 0)), "steps_per_epoch must be in 1..=10, got 0");
        assert_eq!(message(Schema::epochs(0, 4)), "epochs must be in 1..=268435456, got 0");
        assert_eq!(message(Schema::min_separation(10, 4, 4)), "max_participations must be in 1..=3, got 4");
        assert_eq!(
            message(Schema::patterns(3, vec![vec![0, 3]])),
            "every step of pattern 0 must be in 0..=2, got 3"
        );
        assert_eq!(
            message(Schema::patterns(3, vec![vec![2, 1]])),
            "pattern 0 must be strictly increasing, got 2 before 1"
        );
        assert_eq!(message(Schema::reshuffled(0, 4)), "epochs must be in 1..=268435456, got 0");
        assert_eq!(
            message(Schema::reshuffled(2, 1 << 28)),
            "steps_per_epoch must be in 1..=134217728, got 268435456"
        );
        assert!(Schema::epochs(usize::MAX, usize::MAX).is_err());
        assert!(Schema::reshuffled(usize::MAX, usize::MAX).is_err());
    }
}
