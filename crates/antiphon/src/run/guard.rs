//! The participation guard: no step in which a unit would break the schema that ε was computed for.
//!
//! | schema | what is remembered of a unit |
//! |---|---|
//! | fixed order | its first step |
//! | minimum separation | its last step, and how often it took part |
//! | reshuffled epochs | its last step |
//! | patterns | the patterns that hold all its steps: the number of a set, since many units share one |
//!
//! So a step takes time in proportion to its batch, and the guard memory in proportion to the units.

use super::Unit;
use crate::error::{Error, Result};
use crate::schema::Schema;
use crate::text::counted;
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};

/// Remembers who took part when, as far as the schema needs it.
#[derive(Debug, Clone)]
pub struct Guard {
    schema: Schema,
    unit: Unit,
    /// How many units there are, where that is known.
    known: Option<usize>,
    memory: Memory,
    /// Of a schema with listed patterns: those that hold a step.
    of_step: Vec<Vec<u32>>,
    /// The sets of patterns in [`Memory::Patterns`], by what is in them.
    numbers: HashMap<Vec<u32>, u32>,
}

/// What is remembered of all units; a part of the state of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "schema", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Memory {
    /// The first step of every unit, plus one; zero before it.
    FixedOrder {
        /// One per unit.
        first: Vec<u32>,
    },
    /// The last step of every unit, plus one, and its participations so far.
    MinSeparation {
        /// One per unit.
        last: Vec<u32>,
        /// One per unit.
        count: Vec<u32>,
    },
    /// The last step of every unit, plus one; zero before its first.
    Reshuffled {
        /// One per unit.
        last: Vec<u32>,
    },
    /// The patterns that every unit can still follow.
    Patterns {
        /// Sets of patterns, each in rising order.
        sets: Vec<Vec<u32>>,
        /// The number of its set, plus one, for every unit; zero before its first step.
        of_unit: Vec<u32>,
    },
}

/// Units that are not counted before have numbers below this.
const MAX_UNITS: usize = 1 << 28;

impl Memory {
    fn units(&self) -> usize {
        match self {
            Memory::FixedOrder { first } => first.len(),
            Memory::MinSeparation { last, .. } | Memory::Reshuffled { last } => last.len(),
            Memory::Patterns { of_unit, .. } => of_unit.len(),
        }
    }

    /// Makes room for at least so many units.
    fn grow(&mut self, units: usize) {
        let grow = |marks: &mut Vec<u32>| marks.resize(marks.len().max(units), 0);
        match self {
            Memory::FixedOrder { first: marks } | Memory::Reshuffled { last: marks } => grow(marks),
            Memory::MinSeparation { last, count } => {
                grow(last);
                grow(count);
            }
            Memory::Patterns { of_unit, .. } => grow(of_unit),
        }
    }
}

/// What a step changes, once it is taken: a unit and what is remembered of it.
#[derive(Debug, Clone, Default)]
pub struct Changes(Vec<(usize, u32)>);

impl Guard {
    /// For a schema and so many units, 0, …, `units` − 1. Where nobody knows how many there are, they are counted as they come.
    pub fn new(schema: &Schema, unit: Unit, units: Option<usize>) -> Guard {
        let none = || vec![0; units.unwrap_or(0)];
        let mut of_step = Vec::new();
        let memory = match schema {
            Schema::FixedOrder { .. } => Memory::FixedOrder { first: none() },
            Schema::MinSeparation { .. } => Memory::MinSeparation { last: none(), count: none() },
            Schema::Reshuffled { .. } => Memory::Reshuffled { last: none() },
            Schema::Patterns { steps, patterns } => {
                of_step = vec![Vec::new(); *steps];
                for (i, pattern) in patterns.iter().enumerate() {
                    pattern.iter().for_each(|step| of_step[*step].push(i as u32));
                }
                Memory::Patterns { sets: Vec::new(), of_unit: none() }
            }
        };
        Guard { schema: schema.clone(), unit, known: units, memory, of_step, numbers: HashMap::new() }
    }

    /// What is remembered.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Goes on with what another guard for the same schema and as many units remembered after `steps` steps.
    pub fn restore(&mut self, memory: &Memory, steps: usize) -> Result<()> {
        self.check_memory(memory, steps)?;
        if let Memory::Patterns { sets, .. } = memory {
            self.numbers = sets.iter().cloned().zip(0..).collect();
        }
        self.memory = memory.clone();
        Ok(())
    }

    /// Whether another guard would decide the same about everybody.
    pub fn remembers_the_same_as(&self, other: &Guard) -> bool {
        match (&self.memory, &other.memory) {
            (Memory::Patterns { sets: a, of_unit: of_a }, Memory::Patterns { sets: b, of_unit: of_b }) => {
                // The numbers of sets depend on who was refused.
                let set = |sets: &[Vec<u32>], mark: u32| {
                    (mark as usize).checked_sub(1).and_then(|number| sets.get(number).cloned())
                };
                let mark = |of_unit: &[u32], unit: usize| of_unit.get(unit).copied().unwrap_or(0);
                (0..of_a.len().max(of_b.len()))
                    .all(|unit| set(a, mark(of_a, unit)) == set(b, mark(of_b, unit)))
            }
            (a, b) => {
                // Where units are counted as they come, one that was refused may have made room for itself.
                let (mut a, mut b) = (a.clone(), b.clone());
                a.grow(b.units());
                b.grow(a.units());
                a == b
            }
        }
    }

    /// Whether these units may take part in a step. Nothing changes before [`Guard::commit`].
    pub fn check(&mut self, step: usize, units: &[usize]) -> Result<Changes> {
        self.check_batch(step, units)?;
        self.memory.grow(units.iter().max().map_or(0, |last| last + 1));
        let mut changes = Vec::with_capacity(units.len());
        // Sets of patterns after this step, by their number before it.
        let mut after: HashMap<u32, Option<u32>> = HashMap::new();
        for unit in units {
            let allowed = match &self.memory {
                Memory::FixedOrder { first } => self.fixed_order(first[*unit], step),
                Memory::MinSeparation { last, count } => self.separated(last[*unit], count[*unit], step),
                Memory::Reshuffled { last } => self.once_in_an_epoch(last[*unit], step),
                Memory::Patterns { of_unit, .. } => {
                    let before = of_unit[*unit];
                    *after.entry(before).or_insert_with(|| {
                        narrowed(&mut self.memory, &mut self.numbers, &self.of_step[step], before)
                    })
                }
            };
            match allowed {
                Some(mark) => changes.push((*unit, mark)),
                None => return Err(self.refusal(step, *unit)),
            }
        }
        Ok(Changes(changes))
    }

    /// The units took part.
    pub fn commit(&mut self, Changes(changes): Changes) {
        for (unit, mark) in changes {
            match &mut self.memory {
                Memory::FixedOrder { first: marks } | Memory::Reshuffled { last: marks } => {
                    marks[unit] = mark
                }
                Memory::MinSeparation { last, count } => {
                    last[unit] = mark;
                    count[unit] += 1;
                }
                Memory::Patterns { of_unit, .. } => of_unit[unit] = mark,
            }
        }
    }

    /// What concerns the batch as a whole: the step exists, and every unit exists and is there once.
    fn check_batch(&self, step: usize, units: &[usize]) -> Result<()> {
        let refuse = |why: String| Err(Error::Privacy(format!("step {step} is refused: {why}")));
        if step >= self.schema.steps() {
            return refuse(format!("the mechanism has {}", counted(self.schema.steps(), "step")));
        }
        let mut seen = HashSet::with_capacity(units.len());
        for unit in units {
            let name = self.unit.name();
            match self.known {
                Some(all) if *unit >= all => {
                    let all = counted(all, name);
                    return refuse(format!("there is no {name} {unit} (there are {all}, counted from 0)"));
                }
                None if *unit >= MAX_UNITS => {
                    return refuse(format!("{name} {unit} has a number that is not below {MAX_UNITS}"));
                }
                _ => {}
            }
            if !seen.insert(*unit) {
                return refuse(format!("{name} {unit} is in the batch twice"));
            }
        }
        Ok(())
    }

    /// The mark of a unit after a step in fixed order, if it may take part.
    fn fixed_order(&self, first: u32, step: usize) -> Option<u32> {
        let Schema::FixedOrder { steps_per_epoch: b, max_participations: k, .. } = self.schema else {
            return None;
        };
        let Some(start) = (first as usize).checked_sub(1) else {
            return Some(step as u32 + 1);
        };
        let apart = step.checked_sub(start)?;
        (apart.is_multiple_of(b) && apart / b < k).then_some(first)
    }

    /// The mark of a unit after a step under minimum separation, if it may take part.
    fn separated(&self, last: u32, count: u32, step: usize) -> Option<u32> {
        let Schema::MinSeparation { min_separation: b, max_participations: k, .. } = self.schema else {
            return None;
        };
        let rested = last == 0 || step.checked_sub(last as usize - 1)? >= b;
        (rested && (count as usize) < k).then_some(step as u32 + 1)
    }

    /// The mark of a unit after a step of reshuffled epochs, if it may take part.
    fn once_in_an_epoch(&self, last: u32, step: usize) -> Option<u32> {
        let Schema::Reshuffled { steps_per_epoch: b, .. } = self.schema else {
            return None;
        };
        // In an epoch before the last one it may have taken part too: nobody remembers that.
        let later = last == 0 || step / b > (last as usize - 1) / b;
        later.then_some(step as u32 + 1)
    }

    fn refusal(&self, step: usize, unit: usize) -> Error {
        let name = self.unit.name();
        let why = match (&self.memory, &self.schema) {
            (
                Memory::FixedOrder { first },
                Schema::FixedOrder { steps_per_epoch, max_participations, .. },
            ) => {
                format!(
                    "its first step was {}, and it may return every {}, with at most {}",
                    first[unit] - 1,
                    counted(*steps_per_epoch, "step"),
                    counted(*max_participations, "participation")
                )
            }
            (
                Memory::MinSeparation { last, count },
                Schema::MinSeparation { min_separation, max_participations, .. },
            ) => format!(
                "its last step was {}, after {}, and it may return after {} at the earliest, with at most {}",
                last[unit].saturating_sub(1),
                counted(count[unit] as usize, "participation"),
                counted(*min_separation, "step"),
                counted(*max_participations, "participation")
            ),
            (Memory::Reshuffled { last }, Schema::Reshuffled { steps_per_epoch: b, .. }) => {
                let (last, epoch) = (last[unit].saturating_sub(1) as usize, step / b);
                format!(
                    "step {step} is in epoch {epoch} (steps {}..={}, epochs and steps counted from 0), the {name} took part in \
                     step {last} of epoch {}, and it may take part once in every epoch",
                    epoch * b,
                    epoch * b + b - 1,
                    last / b
                )
            }
            _ => "no pattern of the list has all its steps".into(),
        };
        Error::Privacy(format!(
            "step {step} is refused: {name} {unit} would take part in a way that the privacy statement does not cover: {why}"
        ))
    }

    /// Refuses what no guard for this schema and these units can have remembered.
    fn check_memory(&self, memory: &Memory, steps: usize) -> Result<()> {
        let marks = |marks: &[u32], most: usize| {
            self.known.map_or(marks.len() <= MAX_UNITS, |units| marks.len() == units)
                && marks.iter().all(|mark| *mark as usize <= most)
        };
        let fits = match (&self.memory, memory) {
            (Memory::FixedOrder { .. }, Memory::FixedOrder { first }) => marks(first, steps),
            (Memory::Reshuffled { .. }, Memory::Reshuffled { last }) => marks(last, steps),
            (Memory::MinSeparation { .. }, Memory::MinSeparation { last, count }) => {
                marks(last, steps)
                    && marks(count, self.schema.max_participations())
                    && last.len() == count.len()
            }
            (Memory::Patterns { .. }, Memory::Patterns { sets, of_unit }) => {
                let Schema::Patterns { patterns, .. } = &self.schema else { return Ok(()) };
                let known = |set: &Vec<u32>| set.iter().all(|pattern| (*pattern as usize) < patterns.len());
                marks(of_unit, sets.len()) && sets.iter().all(known)
            }
            _ => false,
        };
        match fits {
            true => Ok(()),
            false => {
                let units = self.known.map_or("the units".into(), |units| counted(units, self.unit.name()));
                let allowed = format!("that of {units} under the schema of the mechanism");
                Err(Error::argument("the participation in the state", allowed, "another"))
            }
        }
    }
}

/// The set of patterns that are left of another (or of all, for a unit that comes for the first time) after a step; `None` if none is.
fn narrowed(
    memory: &mut Memory,
    numbers: &mut HashMap<Vec<u32>, u32>,
    with_step: &[u32],
    before: u32,
) -> Option<u32> {
    let Memory::Patterns { sets, .. } = memory else { return None };
    let left: Vec<u32> = match (before as usize).checked_sub(1) {
        None => with_step.to_vec(),
        // Both are in rising order.
        Some(set) => sets[set].iter().filter(|x| with_step.binary_search(x).is_ok()).copied().collect(),
    };
    if left.is_empty() {
        return None;
    }
    let number = *numbers.entry(left).or_insert_with_key(|left| {
        sets.push(left.clone());
        sets.len() as u32 - 1
    });
    Some(number + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Seeded;

    fn guard(schema: &Schema, units: usize) -> Guard {
        Guard::new(schema, Unit::Example, Some(units))
    }

    fn admit(guard: &mut Guard, step: usize, units: &[usize]) -> Result<()> {
        let changes = guard.check(step, units)?;
        guard.commit(changes);
        Ok(())
    }

    #[test]
    fn fixed_epochs_are_admitted_and_all_else_is_refused() {
        let schema = Schema::epochs(3, 4).unwrap();
        let mut guard = guard(&schema, 8);
        for step in 0..8 {
            admit(&mut guard, step, &[2 * (step % 4), 2 * (step % 4) + 1]).unwrap();
        }
        let mut message = |step, examples: &[usize]| guard.check(step, examples).unwrap_err().to_string();
        let text = message(8, &[0, 2]);
        assert!(text.contains("step 8 is refused: example 2 would take part"), "{text}");
        assert!(text.ends_with(
            "its first step was 1, and it may return every 4 steps, with at most 3 participations"
        ));
        assert!(message(8, &[0, 0]).contains("twice"));
        assert!(message(8, &[9]).contains("no example 9"));
        assert!(message(12, &[0]).contains("12 steps"));
        // What was refused was not admitted.
        admit(&mut guard, 8, &[0, 1]).unwrap();
        admit(&mut guard, 9, &[]).unwrap();
    }

    #[test]
    fn a_new_order_in_every_epoch_and_nobody_twice_in_one() {
        let mut guard = guard(&Schema::reshuffled(3, 4).unwrap(), 8);
        admit(&mut guard, 3, &[5, 6]).unwrap();
        // The next step is in the next epoch.
        admit(&mut guard, 4, &[5]).unwrap();
        let text = guard.check(7, &[6, 5]).unwrap_err().to_string();
        assert!(text.starts_with("step 7 is refused: example 5 would take part"), "{text}");
        assert!(
            text.ends_with(
                "step 7 is in epoch 1 (steps 4..=7, epochs and steps counted from 0), the example took part in step 4 of epoch 1, \
                 and it may take part once in every epoch"
            ),
            "{text}"
        );
        // What was refused was not admitted, and an epoch may be left out.
        admit(&mut guard, 7, &[6]).unwrap();
        admit(&mut guard, 11, &[5, 6, 0]).unwrap();
        // The memory of another schema, or of steps that were not taken, is none of this one.
        let fixed = Guard::new(&Schema::epochs(3, 4).unwrap(), Unit::Example, Some(8));
        assert!(guard.clone().restore(fixed.memory(), 12).is_err());
        let memory = guard.memory().clone();
        assert!(guard.restore(&memory, 11).is_err() && guard.restore(&memory, 12).is_ok());
        assert!(guard.check(10, &[0]).is_err());
    }

    #[test]
    fn units_that_nobody_counted_come_as_they_come() {
        let mut guard = Guard::new(&Schema::epochs(3, 4).unwrap(), Unit::User, None);
        admit(&mut guard, 0, &[7, 1000]).unwrap();
        assert!(guard.check(1, &[1000]).is_err());
        admit(&mut guard, 4, &[1000, 3]).unwrap();
        let text = guard.check(5, &[1 << 28]).unwrap_err().to_string();
        assert!(text.contains("user 268435456 has a number that is not below 268435456"), "{text}");
        assert_eq!(guard.memory().units(), 1001);
    }

    #[test]
    fn overlapping_patterns_leave_a_choice() {
        let schema = Schema::patterns(5, vec![vec![0, 2, 4], vec![0, 3], vec![1]]).unwrap();
        let mut guard = guard(&schema, 2);
        admit(&mut guard, 0, &[0, 1]).unwrap();
        admit(&mut guard, 2, &[0]).unwrap();
        assert!(guard.check(3, &[0]).is_err());
        admit(&mut guard, 3, &[1]).unwrap();
        assert!(guard.check(4, &[1]).is_err());
        admit(&mut guard, 4, &[0]).unwrap();
    }

    /// Every schema against the slow truth: a unit may take part if some pattern holds all its steps.
    #[test]
    fn a_unit_is_admitted_where_some_pattern_holds_all_its_steps() {
        let separated = |steps: &[usize], b: usize, k: usize| {
            steps.len() <= k && steps.windows(2).all(|pair| pair[1] - pair[0] >= b)
        };
        // By the definition: no two of the steps in one epoch.
        let once_per_epoch = |steps: &[usize], b: usize| {
            steps.iter().all(|step| steps.iter().filter(|other| *other / b == step / b).count() == 1)
        };
        let mut seeded = Seeded(1);
        let mut random = move |below: usize| seeded.below(below);
        for case in 0..120 {
            let (n, b) = (4 + random(9), 1 + random(4));
            let k = 1 + random(n.div_ceil(b));
            let epochs = n.div_ceil(b);
            let schema = match case % 4 {
                0 => Schema::fixed_order_at_most(n, b, k).unwrap(),
                1 => Schema::min_separation(n, b, k).unwrap(),
                2 => Schema::reshuffled(epochs, b).unwrap(),
                _ => {
                    let mut patterns: Vec<Vec<usize>> =
                        (0..4).map(|_| (0..n).filter(|_| random(2) == 0).collect()).collect();
                    patterns.retain(|pattern| !pattern.is_empty());
                    patterns.push(vec![0]);
                    Schema::patterns(n, patterns).unwrap()
                }
            };
            // Known before, or counted as they come.
            let mut guard = Guard::new(&schema, Unit::Example, (case / 4 % 2 == 0).then_some(5));
            let mut taken = vec![Vec::new(); 5];
            let n = schema.steps();
            for step in 0..n {
                for unit in 0..5 {
                    if random(3) == 0 {
                        continue;
                    }
                    let mut with = taken[unit].clone();
                    with.push(step);
                    let truth = match schema.listed() {
                        Some(patterns) => {
                            patterns.iter().any(|pattern| with.iter().all(|step| pattern.contains(step)))
                        }
                        None if case % 4 == 2 => once_per_epoch(&with, b),
                        None => separated(&with, b, k),
                    };
                    assert_eq!(admit(&mut guard, step, &[unit]).is_ok(), truth, "{schema:?} {with:?}");
                    if truth {
                        taken[unit] = with;
                    }
                }
                // What was remembered is enough to go on.
                let text = serde_json::to_string(guard.memory()).unwrap();
                let known = (case / 4 % 2 == 0).then_some(5);
                let mut again = Guard::new(&schema, Unit::Example, known);
                again.restore(&serde_json::from_str(&text).unwrap(), step + 1).unwrap();
                assert!(again.memory() == guard.memory() && again.remembers_the_same_as(&guard));
                guard = again;
            }
            let other = Guard::new(&schema, Unit::User, Some(4)).restore(guard.memory(), n);
            assert!(case / 4 % 2 == 1 || other.is_err(), "other units");
        }
    }
}
