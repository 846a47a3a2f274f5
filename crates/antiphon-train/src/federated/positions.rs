//! Text as a model sees it: every token of a line is to be predicted from the tokens before it.

use super::window;
use crate::data::text::{BEGIN, Corpus};
use antiphon::noise::Key;

/// Targets, each with as many tokens before it as the model looks at. Lines begin with [`BEGIN`], as often as is needed.
#[derive(Debug, Default)]
pub struct Positions {
    contexts: Vec<u32>,
    labels: Vec<u32>,
    /// The lines of a user, of which the first are drawn.
    order: Vec<u32>,
    words: Vec<u64>,
}

impl Positions {
    /// Lines of a user, drawn by a key without replacement, up to so many tokens. Other `draw`s give other lines, where there are more.
    pub fn take(&mut self, corpus: &Corpus, user: usize, context: usize, most: usize, key: &Key, draw: u64) {
        self.contexts.clear();
        self.labels.clear();
        let lines = corpus.lines(user);
        self.order.clear();
        self.order.extend(0..lines as u32);
        // A line has at least one token.
        self.words.resize(lines.min(most), 0);
        key.fill_words(draw, &mut self.words);
        for i in 0..self.words.len() {
            if self.labels.len() >= most {
                break;
            }
            self.order.swap(i, i + (self.words[i] % (lines - i) as u64) as usize);
            self.push(corpus.line(user, self.order[i] as usize), context, most);
        }
    }

    /// A line, up to so many tokens in all.
    fn push(&mut self, line: &[u32], context: usize, most: usize) {
        for t in 0..line.len().min(most - self.labels.len()) {
            let known = t.min(context);
            self.contexts.extend(std::iter::repeat_n(BEGIN, context - known));
            self.contexts.extend(&line[t - known..t]);
            self.labels.push(line[t]);
        }
    }

    /// For the model.
    pub fn view(&self) -> window::Positions<'_> {
        window::Positions { contexts: &self.contexts, labels: &self.labels }
    }

    /// What is to be predicted.
    pub fn labels(&self) -> &[u32] {
        &self.labels
    }
}
