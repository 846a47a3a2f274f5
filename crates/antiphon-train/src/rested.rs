//! A scheduler of users: every step draws from those who have rested.
//!
//! A user who took part in step t can be drawn again from step t + B on, and K times in all: minimum separation, whatever is drawn. Among
//! those who can be drawn, every set is as likely as any other. A step for which too few are left takes all of them; sums are divided by
//! the same number all the same.

use antiphon::noise::Key;

/// Who may be drawn.
#[derive(Debug, Clone, Copy)]
pub struct Rule {
    /// How many users there are.
    pub users: usize,
    /// Users in a step.
    pub size: usize,
    /// B.
    pub min_separation: usize,
    /// K.
    pub max_participations: usize,
}

impl Rule {
    /// The users of every step, by a key.
    pub fn draw(&self, steps: usize, key: &Key) -> Vec<Vec<usize>> {
        let mut rested: Vec<usize> = (0..self.users).collect();
        let mut turns = vec![0; self.users];
        let mut drawn: Vec<Vec<usize>> = Vec::with_capacity(steps);
        let mut words = vec![0; self.size];
        for step in 0..steps {
            if let Some(back) = step.checked_sub(self.min_separation) {
                let again = drawn[back].iter().filter(|user| turns[**user] < self.max_participations);
                rested.extend(again);
            }
            // The streams from 1 on: 0 is that of the order of the users.
            key.fill_words(step as u64 + 1, &mut words);
            let count = self.size.min(rested.len());
            for i in 0..count {
                // 2⁶⁴ is not a multiple of what is left: one user is more likely than another by 2⁻⁴⁰ at most. Privacy does not rest on it.
                let j = i + (words[i] % (rested.len() - i) as u64) as usize;
                rested.swap(i, j);
            }
            let now: Vec<usize> = rested.drain(..count).collect();
            now.iter().for_each(|user| turns[*user] += 1);
            drawn.push(now);
        }
        drawn
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use antiphon::noise::Cipher;
    use antiphon::run::Unit;
    use antiphon::run::guard::Guard;
    use antiphon::schema::Schema;

    fn draw(rule: Rule, steps: usize, seed: u64) -> Vec<Vec<usize>> {
        rule.draw(steps, &Key::from_seed(seed, Cipher::ChaCha20))
    }

    /// Every schedule passes the guard of its schema, and that of a schema which asks for one step more does not let it pass.
    #[test]
    fn who_is_drawn_has_rested() {
        for (seed, (users, size, min_separation, max_participations)) in
            [(40, 5, 3, 9), (40, 5, 8, 4), (17, 4, 4, 20), (9, 9, 1, 30), (6, 2, 1, 20)]
                .into_iter()
                .enumerate()
        {
            let steps = 30;
            let rule = Rule { users, size, min_separation, max_participations };
            let drawn = draw(rule, steps, seed as u64);
            let admits = |b, k| {
                let schema = Schema::min_separation(steps, b, steps.div_ceil(b).min(k)).unwrap();
                let mut guard = Guard::new(&schema, Unit::User, Some(users));
                drawn.iter().enumerate().all(|(step, now)| match guard.check(step, now) {
                    Ok(changes) => {
                        guard.commit(changes);
                        true
                    }
                    Err(_) => false,
                })
            };
            assert!(admits(min_separation, max_participations), "{rule:?}");
            assert!(!admits(min_separation + 1, max_participations), "{rule:?}");
            assert_eq!(drawn, draw(rule, steps, seed as u64));
            assert_ne!(drawn, draw(rule, steps, 77));
        }
    }

    #[test]
    fn rounds_are_full_while_users_have_turns() {
        let rule = Rule { users: 40, size: 5, min_separation: 8, max_participations: 4 };
        let drawn = draw(rule, 33, 1);
        // B·size = users: a fixed order is forced, and 160 turns fill 32 rounds.
        assert!(drawn[..32].iter().all(|now| now.len() == 5));
        assert!(drawn[32].is_empty());
        let mut turns = [0; 40];
        drawn.iter().flatten().for_each(|user| turns[*user] += 1);
        assert!(turns.iter().all(|turns| *turns == 4));
    }

    #[test]
    fn everybody_who_has_rested_is_as_likely() {
        // The second step draws 2 of the 6 who are rested of 8: χ² over users with 7 degrees of freedom, α = 10⁻³.
        let rule = Rule { users: 8, size: 2, min_separation: 2, max_participations: 9 };
        let mut counts = [0f64; 8];
        (0..4000).for_each(|seed| draw(rule, 2, seed)[1].iter().for_each(|user| counts[*user] += 1.0));
        let chi_squared: f64 = counts.iter().map(|count| (count - 1000.0).powi(2) / 1000.0).sum();
        assert!(chi_squared < 24.3, "{counts:?}");
    }
}
