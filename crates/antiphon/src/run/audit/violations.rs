//! Which participations a schema does not allow: for every unit the pattern that explains most of its steps, and all other steps
//! with what was expected instead. One slip is one violation, not a cascade of them.

use super::Violation;
use super::participations::{Grouped, Participations};
use crate::schema::Schema;
use crate::text::counted;
use rayon::prelude::*;
use serde::{Serialize, Serializer};
use std::collections::HashMap;
use std::fmt;

/// How many steps of a listed pattern are shown.
const SHOWN: usize = 8;

/// All violations of a schema in a log, by step and unit. There may be as many as participations, where data were shuffled again
/// in every epoch: only step and unit are kept, and the words are found again when they are asked for.
pub struct Violations {
    schema: Schema,
    all: Participations,
    /// Step and unit, each pair once, sorted.
    keys: Vec<(u32, u64)>,
}

/// The steps and units that violate a schema, each pair once, sorted.
pub(super) fn keys(schema: &Schema, grouped: &Grouped<'_>) -> Vec<(u32, u64)> {
    let rule = Rule::new(schema);
    let of_pattern = |number: usize| rule.violating(&grouped.steps(number));
    let by_pattern: Vec<Vec<u32>> = (0..grouped.patterns()).into_par_iter().map(of_pattern).collect();
    let count = grouped.units().iter().map(|(_, pattern)| by_pattern[*pattern as usize].len()).sum();
    let mut keys = Vec::with_capacity(count);
    for (unit, pattern) in grouped.units() {
        keys.extend(by_pattern[*pattern as usize].iter().map(|step| (*step, *unit)));
    }
    keys.par_sort_unstable();
    keys
}

impl Violations {
    pub(super) fn new(schema: Schema, all: Participations, keys: Vec<(u32, u64)>) -> Self {
        Violations { schema, all, keys }
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// One after another, with what was expected.
    pub fn iter(&self) -> impl Iterator<Item = Violation> {
        let rule = Rule::new(&self.schema);
        self.keys.iter().map(move |(step, unit)| Violation {
            step: Some(*step as usize),
            unit: Some(*unit),
            reason: rule.reason(*step as usize, &self.all.steps_of(*unit)),
        })
    }
}

impl fmt::Debug for Violations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Violations({})", self.len())
    }
}

impl Serialize for Violations {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

/// How often a step is listed, where that is more than once.
pub(super) fn repeated(step: usize, steps: &[usize]) -> Option<String> {
    let times = steps.iter().filter(|other| **other == step).count();
    (times > 1).then(|| format!("listed {times} times in this step: its contributions to one step add up"))
}

/// A schema, with what it takes to find patterns in it.
enum Rule<'a> {
    FixedOrder { steps: usize, b: usize, k: usize },
    MinSeparation { b: usize, k: usize },
    Reshuffled { b: usize },
    Patterns { patterns: &'a [Vec<usize>], containing: HashMap<usize, Vec<usize>> },
}

impl<'a> Rule<'a> {
    fn new(schema: &'a Schema) -> Self {
        match schema {
            Schema::FixedOrder { steps, steps_per_epoch, max_participations } => {
                Rule::FixedOrder { steps: *steps, b: *steps_per_epoch, k: *max_participations }
            }
            Schema::MinSeparation { min_separation, max_participations, .. } => {
                Rule::MinSeparation { b: *min_separation, k: *max_participations }
            }
            Schema::Reshuffled { steps_per_epoch, .. } => Rule::Reshuffled { b: *steps_per_epoch },
            Schema::Patterns { patterns, .. } => {
                let mut containing: HashMap<usize, Vec<usize>> = HashMap::new();
                for (number, pattern) in patterns.iter().enumerate() {
                    pattern.iter().for_each(|step| containing.entry(*step).or_default().push(number));
                }
                Rule::Patterns { patterns, containing }
            }
        }
    }

    /// The pattern that explains most of a unit's distinct, sorted steps.
    fn explanation(&self, distinct: &[usize]) -> Explanation<'_> {
        match self {
            Rule::FixedOrder { b, k, .. } => Explanation::Class(Class::of(distinct, *b, *k)),
            Rule::MinSeparation { b, k } => Explanation::Apart(kept(distinct, *b, *k)),
            Rule::Reshuffled { b } => Explanation::Firsts(firsts(distinct, *b)),
            Rule::Patterns { patterns, containing } => {
                let best = largest_overlap(distinct, containing);
                Explanation::Listed(best.map(|number| (number, patterns[number].as_slice())))
            }
        }
    }

    /// The sorted steps of one unit that are not allowed, each once.
    fn violating(&self, steps: &[usize]) -> Vec<u32> {
        let distinct = distinct(steps);
        let explanation = self.explanation(&distinct);
        let mut twice = steps.chunk_by(|a, b| a == b).map(|same| same.len() > 1);
        let wrong = |step: &&usize| twice.next() == Some(true) || !explanation.covers(**step);
        distinct.iter().filter(wrong).map(|step| *step as u32).collect()
    }

    /// What is wrong with one of them.
    fn reason(&self, step: usize, steps: &[usize]) -> String {
        let distinct = distinct(steps);
        let explanation = self.explanation(&distinct);
        let unexpected = (!explanation.covers(step)).then(|| match (self, &explanation) {
            (Rule::FixedOrder { steps: n, .. }, Explanation::Class(class)) => {
                class.reason(step, &distinct, *n)
            }
            (Rule::MinSeparation { b, k }, Explanation::Apart(kept)) => too_soon(step, kept, *b, *k),
            (Rule::Reshuffled { b }, Explanation::Firsts(firsts)) => second_in_epoch(step, firsts, *b),
            (_, Explanation::Listed(Some((number, pattern)))) => outside(*number, pattern),
            _ => "this step is in no participation pattern".into(),
        });
        let reasons: Vec<String> = unexpected.into_iter().chain(repeated(step, steps)).collect();
        reasons.join("; ")
    }
}

fn distinct(steps: &[usize]) -> Vec<usize> {
    let mut distinct = steps.to_vec();
    distinct.dedup();
    distinct
}

/// What explains most steps of a unit.
enum Explanation<'a> {
    Class(Class),
    /// The steps that are far enough apart.
    Apart(Vec<usize>),
    /// The first step in every epoch.
    Firsts(Vec<usize>),
    /// A listed pattern and its number; `None` where no pattern has any of the steps.
    Listed(Option<(usize, &'a [usize])>),
}

impl Explanation<'_> {
    fn covers(&self, step: usize) -> bool {
        match self {
            Explanation::Class(class) => class.covers(step),
            Explanation::Apart(kept) | Explanation::Firsts(kept) => kept.binary_search(&step).is_ok(),
            Explanation::Listed(pattern) => {
                pattern.is_some_and(|(_, pattern)| pattern.binary_search(&step).is_ok())
            }
        }
    }
}

/// The pattern {first, first + b, …} of at most k steps that covers most steps of a unit.
struct Class {
    first: usize,
    b: usize,
    k: usize,
}

impl Class {
    /// The earliest of those that cover most.
    fn of(steps: &[usize], b: usize, k: usize) -> Class {
        let mut by_residue = steps.to_vec();
        by_residue.sort_unstable_by_key(|step| (step % b, *step));
        let (mut most, mut first) = (0, 0);
        for class in by_residue.chunk_by(|a, c| a % b == c % b) {
            let mut end = 0;
            for (start, from) in class.iter().enumerate() {
                while end < class.len() && class[end] - from < k * b {
                    end += 1;
                }
                if end - start > most || (end - start == most && *from < first) {
                    (most, first) = (end - start, *from);
                }
            }
        }
        Class { first, b, k }
    }

    fn covers(&self, step: usize) -> bool {
        let Class { first, b, k } = *self;
        step >= first && (step - first).is_multiple_of(b) && step - first < k * b
    }

    fn reason(&self, step: usize, steps: &[usize], n: usize) -> String {
        let Class { first, b, k } = *self;
        if k == 1 {
            return format!("at most 1 participation is allowed, and this unit took part in step {first}");
        }
        // Without a limit of its own, the pattern may start in the first epoch and go on to the end.
        let limited = k < n.div_ceil(b);
        let (from, until) = match limited {
            true => (first, format!("to step {}", (first + (k - 1) * b).min(n - 1))),
            false => (first % b, "on".into()),
        };
        let expected = format!("expected every {} from step {from} {until}", counted(b, "step"));
        let late = (step + b - first % b) % b;
        if late == 0 {
            let most = counted(k, "participation");
            return format!("{expected}, at most {most}; step {step} is outside of these");
        }
        let early = b - late;
        let (by, word, nearest) = match step < late || (early < late && step + early < n) {
            true => (early, "early", step + early),
            false => (late, "late", step - late),
        };
        let too = match self.covers(nearest) && steps.contains(&nearest) {
            true => format!(", and the unit took part in step {nearest} too"),
            false => String::new(),
        };
        format!("{expected}; step {step} is {} {word}{too}", counted(by, "step"))
    }
}

/// Under minimum separation: as many steps as can be kept, beginning with the first.
fn kept(steps: &[usize], b: usize, k: usize) -> Vec<usize> {
    let mut kept: Vec<usize> = Vec::new();
    for step in steps {
        if kept.len() < k && kept.last().is_none_or(|last| step - last >= b) {
            kept.push(*step);
        }
    }
    kept
}

fn too_soon(step: usize, kept: &[usize], b: usize, k: usize) -> String {
    match kept.iter().rev().find(|last| **last < step) {
        Some(last) if step - last < b => format!(
            "expected at least {} after step {last}; step {step} is {} after it",
            counted(b, "step"),
            counted(step - last, "step")
        ),
        _ => format!("more than {}", counted(k, "participation")),
    }
}

/// With a new order in every epoch: the first step of every epoch that has any.
fn firsts(steps: &[usize], b: usize) -> Vec<usize> {
    let mut firsts = steps.to_vec();
    firsts.dedup_by_key(|step| *step / b);
    firsts
}

fn second_in_epoch(step: usize, firsts: &[usize], b: usize) -> String {
    let epoch = step / b;
    let (from, to) = (epoch * b, epoch * b + b - 1);
    match firsts.iter().find(|first| **first / b == epoch) {
        Some(first) => {
            format!(
                "at most 1 participation in epoch {epoch} (steps {from} to {to}) is allowed, and this unit took part in step {first}"
            )
        }
        None => "this step is in no participation pattern".into(),
    }
}

/// The number of the listed pattern with the largest overlap, the first one of these.
fn largest_overlap(steps: &[usize], containing: &HashMap<usize, Vec<usize>>) -> Option<usize> {
    let mut overlaps: HashMap<usize, usize> = HashMap::new();
    for number in steps.iter().filter_map(|step| containing.get(step)).flatten() {
        *overlaps.entry(*number).or_default() += 1;
    }
    let best = overlaps.iter().max_by_key(|(number, overlap)| (**overlap, std::cmp::Reverse(**number)));
    best.map(|(number, _)| *number)
}

fn outside(number: usize, pattern: &[usize]) -> String {
    let shown: Vec<String> = pattern.iter().take(SHOWN).map(usize::to_string).collect();
    let more = if pattern.len() > SHOWN { ", …" } else { "" };
    let shown = shown.join(", ");
    format!("expected in the steps of pattern {number} ({shown}{more}), which has most of this unit's steps")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(schema: &Schema, steps: &[usize]) -> Vec<(usize, String)> {
        let rule = Rule::new(schema);
        let reason = |step: u32| (step as usize, rule.reason(step as usize, steps));
        rule.violating(steps).into_iter().map(reason).collect()
    }

    fn one(schema: &Schema, steps: &[usize]) -> (usize, String) {
        let mut found = found(schema, steps);
        assert_eq!(found.len(), 1, "{found:?}");
        found.remove(0)
    }

    #[test]
    fn one_slip_is_one_violation_wherever_it_is() {
        let schema = Schema::epochs(5, 100).unwrap();
        assert!(found(&schema, &[3, 103, 203, 303, 403]).is_empty());
        assert!(found(&schema, &[103, 403]).is_empty());
        for (steps, step, part) in [
            (vec![8, 103, 203, 303, 403], 8, "step 8 is 5 steps late"),
            (vec![3, 108, 203, 303, 403], 108, "step 108 is 5 steps late"),
            (vec![3, 103, 203, 303, 398], 398, "step 398 is 5 steps early"),
            (vec![3, 103, 104, 203, 303], 104, "1 step late, and the unit took part in step 103 too"),
            (vec![3, 4], 4, "step 4 is 1 step late"),
        ] {
            let (at, reason) = one(&schema, &steps);
            assert_eq!(at, step);
            assert!(reason.starts_with("expected every 100 steps from step 3 on; step"), "{reason}");
            assert!(reason.contains(part), "{reason}");
        }
        // Nothing is expected before step 0 or after the last one.
        let (_, reason) = one(&schema, &[99, 199, 201]);
        assert!(
            reason.ends_with("step 201 is 2 steps late, and the unit took part in step 199 too"),
            "{reason}"
        );
        let (_, reason) = one(&schema, &[1, 90, 190, 290]);
        assert!(reason.contains("from step 90 on; step 1 is 89 steps early"), "{reason}");
        // Nearer to the step that follows, which would be step 510.
        let (_, reason) = one(&schema, &[10, 110, 495]);
        assert!(reason.ends_with("step 495 is 85 steps late"), "{reason}");
    }

    #[test]
    fn a_limit_of_participations_is_a_window() {
        let schema = Schema::fixed_order_at_most(100, 10, 3).unwrap();
        assert!(found(&schema, &[25, 35, 45]).is_empty());
        let (step, reason) = one(&schema, &[5, 25, 35, 45]);
        assert_eq!((step, reason.contains("every 10 steps from step 25 to step 45, at most 3")), (5, true));
        assert_eq!(found(&schema, &[5, 15, 25, 35]).iter().map(|v| v.0).collect::<Vec<_>>(), [35]);
        let (step, reason) = one(&Schema::single(10).unwrap(), &[2, 7]);
        assert_eq!((step, reason.contains("took part in step 2")), (7, true));
        assert!(found(&Schema::every_step(5).unwrap(), &[0, 1, 2, 3, 4]).is_empty());
    }

    #[test]
    fn a_unit_twice_in_one_step() {
        let (step, reason) = one(&Schema::epochs(2, 5).unwrap(), &[1, 6, 6, 6]);
        assert_eq!(step, 6);
        assert!(reason.starts_with("listed 3 times in this step"), "{reason}");
        // Wrong in two ways.
        let (step, reason) = one(&Schema::epochs(3, 5).unwrap(), &[1, 6, 12, 12]);
        assert_eq!(step, 12);
        assert!(reason.contains("1 step late; listed 2 times in this step"), "{reason}");
    }

    #[test]
    fn minimum_separation_is_greedy() {
        let schema = Schema::min_separation(100, 10, 3).unwrap();
        assert!(found(&schema, &[0, 10, 99]).is_empty());
        let (step, reason) = one(&schema, &[0, 7, 10, 30]);
        assert_eq!(step, 7);
        assert_eq!(reason, "expected at least 10 steps after step 0; step 7 is 7 steps after it");
        let (step, reason) = one(&schema, &[0, 20, 40, 60]);
        assert_eq!((step, reason.as_str()), (60, "more than 3 participations"));
        // After the last participation that counts, and too soon.
        let (step, reason) = one(&schema, &[0, 20, 40, 45]);
        assert_eq!((step, reason.contains("step 45 is 5 steps after it")), (45, true));
    }

    #[test]
    fn a_second_participation_in_an_epoch_is_named() {
        let schema = Schema::reshuffled(5, 10).unwrap();
        assert!(found(&schema, &[9, 10, 25, 39, 40]).is_empty());
        let (step, reason) = one(&schema, &[3, 12, 17, 20]);
        assert_eq!(step, 17);
        assert_eq!(
            reason,
            "at most 1 participation in epoch 1 (steps 10 to 19) is allowed, and this unit took part in step 12"
        );
        let all = found(&schema, &[0, 1, 2, 30, 39]);
        assert_eq!(all.iter().map(|violation| violation.0).collect::<Vec<_>>(), [1, 2, 39]);
        // Twice in one step, once in the epoch.
        let (step, reason) = one(&schema, &[4, 14, 14]);
        assert_eq!((step, reason.starts_with("listed 2 times in this step")), (14, true));
    }

    /// Against the definition: as few steps as possible are violations, and the others are a pattern.
    #[test]
    fn what_is_no_violation_of_reshuffled_epochs_is_a_pattern() {
        let mut seeded = crate::testing::Seeded(4);
        let mut violations = 0;
        for _ in 0..300 {
            let (k, b) = (1 + seeded.below(5), 1 + seeded.below(5));
            let schema = Schema::reshuffled(k, b).unwrap();
            let steps: Vec<usize> = (0..k * b).filter(|_| seeded.below(3) == 0).collect();
            let wrong: Vec<usize> = found(&schema, &steps).into_iter().map(|violation| violation.0).collect();
            let count = |steps: &[usize], e: usize| steps.iter().filter(|step| *step / b == e).count();
            let right: Vec<usize> = steps.iter().copied().filter(|step| !wrong.contains(step)).collect();
            for e in 0..k {
                assert_eq!(count(&right, e), count(&steps, e).min(1), "{schema:?} {steps:?}");
            }
            violations += wrong.len();
        }
        assert!(violations > 100, "{violations}");
    }

    #[test]
    fn listed_patterns_by_the_largest_overlap() {
        let schema = Schema::patterns(20, vec![vec![0, 5], vec![1, 5, 9], vec![1, 6, 9]]).unwrap();
        assert!(found(&schema, &[1, 9]).is_empty());
        let (step, reason) = one(&schema, &[1, 5, 6]);
        assert_eq!(step, 6);
        assert!(reason.contains("pattern 1 (1, 5, 9)"), "{reason}");
        assert_eq!(one(&schema, &[17]).1, "this step is in no participation pattern");
    }
}
