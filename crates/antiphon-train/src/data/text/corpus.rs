//! The text of users as numbers, one after the other: four bytes for a token, eight for a line and eight for a user.

use sha2::{Digest, Sha256};

/// Lines of tokens of users.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Corpus {
    tokens: Vec<u32>,
    /// Where each line ends in `tokens`.
    line_ends: Vec<usize>,
    /// Where each user ends in `line_ends`.
    user_ends: Vec<usize>,
}

impl Corpus {
    /// How many users there are.
    pub fn users(&self) -> usize {
        self.user_ends.len()
    }

    /// How many lines a user has.
    pub fn lines(&self, user: usize) -> usize {
        self.user_ends[user] - start(&self.user_ends, user)
    }

    /// The tokens of a line of a user: at least one, [`END`](super::END) included where the line was not cut.
    pub fn line(&self, user: usize, line: usize) -> &[u32] {
        assert!(line < self.lines(user), "line {line} of user {user}, who has {} lines", self.lines(user));
        let line = start(&self.user_ends, user) + line;
        &self.tokens[start(&self.line_ends, line)..self.line_ends[line]]
    }

    /// How many tokens a user has in all lines, the [`END`](super::END)s included.
    pub fn tokens(&self, user: usize) -> usize {
        let end = |lines: usize| start(&self.line_ends, lines);
        end(self.user_ends[user]) - end(start(&self.user_ends, user))
    }

    /// How many tokens all users have, the [`END`](super::END)s included.
    pub fn all_tokens(&self) -> usize {
        self.tokens.len()
    }

    /// How many lines all users have.
    pub fn all_lines(&self) -> usize {
        self.line_ends.len()
    }

    /// Some of the users, in the order in which they are named.
    pub fn select(&self, users: &[usize]) -> Corpus {
        let mut selected = Corpus::default();
        for &user in users {
            for line in 0..self.lines(user) {
                selected.push_line(self.line(user, line));
            }
            selected.finish_user();
        }
        selected.shrink();
        selected
    }

    /// The bytes that the text takes in memory.
    pub fn bytes(&self) -> usize {
        let offsets = self.line_ends.capacity() + self.user_ends.capacity();
        self.tokens.capacity() * size_of::<u32>() + offsets * size_of::<usize>()
    }

    pub(super) fn push_line(&mut self, tokens: &[u32]) {
        self.tokens.extend(tokens);
        self.line_ends.push(self.tokens.len());
    }

    pub(super) fn finish_user(&mut self) {
        self.user_ends.push(self.line_ends.len());
    }

    /// Gives back the memory that growing took in advance.
    pub(super) fn shrink(&mut self) {
        self.tokens.shrink_to_fit();
        self.line_ends.shrink_to_fit();
        self.user_ends.shrink_to_fit();
    }

    /// Adds everything to a sum, lengths first.
    pub(super) fn add_to(&self, sum: &mut Sha256) {
        for numbers in [&self.user_ends, &self.line_ends] {
            sum.update((numbers.len() as u64).to_le_bytes());
            numbers.iter().for_each(|&n| sum.update((n as u64).to_le_bytes()));
        }
        self.tokens.iter().for_each(|token| sum.update(token.to_le_bytes()));
    }
}

/// Where the part with this number starts: where the one before ends.
fn start(ends: &[usize], number: usize) -> usize {
    number.checked_sub(1).map_or(0, |before| ends[before])
}
