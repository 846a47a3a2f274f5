//! Which participations a schema does not allow: for every unit the pattern that explains most of its steps, and all other steps
//! with what was expected instead. One slip is one violation, not a cascade of them.

use super::Violation;
use super::participations::Grouped;
use crate::schema::Schema;
use crate::text::counted;
use rayon::prelude::*;
use std::collections::HashMap;

/// How many steps of a listed pattern are shown.
const SHOWN: usize = 8;

/// All violations, by step and unit.
pub(super) fn of(schema: &Schema, grouped: &Grouped<'_>) -> Vec<Violation> {
    let rule = Rule::new(schema);
    let of_pattern = |number: usize| rule.violations(&grouped.steps(number));
    let by_pattern: Vec<_> = (0..grouped.patterns()).into_par_iter().map(of_pattern).collect();
    let of_unit = |(unit, pattern): &(u64, u32)| {
        let unit = *unit;
        by_pattern[*pattern as usize].iter().map(move |(step, reason)| Violation {
            step: Some(*step),
            unit: Some(unit),
            reason: reason.clone(),
        })
    };
    let mut all: Vec<Violation> = grouped.units().iter().flat_map(of_unit).collect();
    all.par_sort_by_key(|violation| (violation.step, violation.unit)); // stable: two of one step stay in order
    all
}

/// The steps of one unit that are listed more than once.
pub(super) fn repeated(steps: &[usize]) -> impl Iterator<Item = (usize, String)> {
    steps.chunk_by(|a, b| a == b).filter(|same| same.len() > 1).map(|same| {
        let reason =
            format!("listed {} times in this step: its contributions to one step add up", same.len());
        (same[0], reason)
    })
}

/// A schema, with what it takes to find patterns in it.
enum Rule<'a> {
    FixedOrder { steps: usize, b: usize, k: usize },
    MinSeparation { b: usize, k: usize },
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
            Schema::Patterns { patterns, .. } => {
                let mut containing: HashMap<usize, Vec<usize>> = HashMap::new();
                for (number, pattern) in patterns.iter().enumerate() {
                    pattern.iter().for_each(|step| containing.entry(*step).or_default().push(number));
                }
                Rule::Patterns { patterns, containing }
            }
        }
    }

    /// What is wrong with the sorted steps of one unit: step and reason.
    fn violations(&self, steps: &[usize]) -> Vec<(usize, String)> {
        let mut distinct = steps.to_vec();
        distinct.dedup();
        let mut found = match self {
            Rule::FixedOrder { steps, b, k } => Class::of(&distinct, *b, *k).violations(&distinct, *steps),
            Rule::MinSeparation { b, k } => too_soon(&distinct, *b, *k),
            Rule::Patterns { patterns, containing } => outside_of_list(&distinct, patterns, containing),
        };
        found.extend(repeated(steps));
        found
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

    fn violations(&self, steps: &[usize], n: usize) -> Vec<(usize, String)> {
        let others = steps.iter().filter(|step| !self.covers(**step));
        others.map(|step| (*step, self.reason(*step, steps, n))).collect()
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

/// Under minimum separation: as many steps are kept as can be, beginning with the first.
fn too_soon(steps: &[usize], b: usize, k: usize) -> Vec<(usize, String)> {
    let (mut last, mut count, mut found) = (None, 0, Vec::new());
    for step in steps {
        match last {
            Some(last) if step - last < b => found.push((
                *step,
                format!(
                    "expected at least {} after step {last}; step {step} is {} after it",
                    counted(b, "step"),
                    counted(step - last, "step")
                ),
            )),
            _ if count == k => {
                found.push((*step, format!("more than {}", counted(k, "participation"))));
            }
            _ => (last, count) = (Some(*step), count + 1),
        }
    }
    found
}

/// The steps that are not in the listed pattern with the largest overlap, the first one of these.
fn outside_of_list(
    steps: &[usize],
    patterns: &[Vec<usize>],
    containing: &HashMap<usize, Vec<usize>>,
) -> Vec<(usize, String)> {
    let mut overlaps: HashMap<usize, usize> = HashMap::new();
    for number in steps.iter().filter_map(|step| containing.get(step)).flatten() {
        *overlaps.entry(*number).or_default() += 1;
    }
    let best = overlaps.iter().max_by_key(|(number, overlap)| (**overlap, std::cmp::Reverse(**number)));
    let Some((number, _)) = best else {
        let reason = "this step is in no participation pattern".to_owned();
        return steps.iter().map(|step| (*step, reason.clone())).collect();
    };
    let pattern = &patterns[*number];
    let outside = steps.iter().filter(|step| pattern.binary_search(step).is_err());
    let shown: Vec<String> = pattern.iter().take(SHOWN).map(usize::to_string).collect();
    let more = if pattern.len() > SHOWN { ", …" } else { "" };
    let reason = format!(
        "expected in the steps of pattern {number} ({}{more}), which has most of this unit's steps",
        shown.join(", ")
    );
    outside.map(|step| (*step, reason.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(schema: &Schema, steps: &[usize]) -> Vec<(usize, String)> {
        Rule::new(schema).violations(steps)
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
