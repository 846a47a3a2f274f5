//! Help texts: written with line breaks of their own in the source, wrapped once, by the width of the terminal.
//!
//! The lines of a paragraph become one, which clap wraps. Indented lines are entries of lists and examples, and are wrapped
//! here: a description under its own beginning, a command with a backslash at the end, so that it can be copied.

use crate::output::wrapped;
use antiphon::families;
use clap::Command;

/// No line of help is longer, however wide the terminal.
pub const WIDEST: usize = 100;

/// A space at which no line is broken.
const BOUND: &str = "\u{1}";

/// A command with all its subcommands, their texts laid out for so many columns.
pub fn laid_out(command: Command, columns: usize) -> Command {
    lay_out(command, columns).term_width(columns)
}

/// The columns of the terminal, as clap has them: of any standard stream, or of the variable COLUMNS.
pub fn columns() -> usize {
    let terminal = terminal_size::terminal_size().map(|(width, _)| usize::from(width.0));
    let variable = || std::env::var("COLUMNS").ok()?.parse().ok();
    terminal.or_else(variable).map_or(WIDEST, |columns| columns.clamp(40, WIDEST))
}

fn lay_out(mut command: Command, columns: usize) -> Command {
    if let Some(text) = command.get_long_about().map(ToString::to_string) {
        command = command.long_about(flowing(&text.replace(CANDIDATES, &candidates()), columns));
    }
    if let Some(text) = command.get_after_long_help().map(ToString::to_string) {
        command = command.after_long_help(flowing(&text, columns));
    }
    command.mut_subcommands(|command| lay_out(command, columns))
}

/// What stands in a text for the list of [`candidates`].
const CANDIDATES: &str = "  {candidates}";

/// The mechanisms that can be made from schema and workload alone, the best one first: a line for each.
fn candidates() -> String {
    let line = |family: antiphon::mechanism::Family| format!("  {:<22}{}", family.name(), family.about());
    families::candidates().rev().map(line).collect::<Vec<_>>().join("\n")
}

fn flowing(text: &str, columns: usize) -> String {
    let mut pieces: Vec<String> = Vec::new();
    for line in text.lines() {
        match pieces.last_mut() {
            Some(piece) if continues(piece, line) => {
                let shorter = piece.trim_end_matches('\\').trim_end().len();
                piece.truncate(shorter);
                piece.push(' ');
                piece.push_str(line.trim_start());
            }
            _ => pieces.push(line.into()),
        }
    }
    pieces.iter().map(|piece| entry(piece, columns)).collect::<Vec<_>>().join("\n")
}

/// Whether a line belongs to the piece before it: in a paragraph, under a description, or after a backslash.
fn continues(piece: &str, line: &str) -> bool {
    let [before, here] = [piece, line].map(indent);
    match (piece.is_empty() || line.is_empty(), before) {
        (true, _) => false,
        (false, 0) => here == 0,
        (false, before) => here > before + 2 || piece.ends_with('\\'),
    }
}

fn indent(line: &str) -> usize {
    line.chars().take_while(|c| *c == ' ').count()
}

/// A piece in lines that fit; a paragraph in one, for clap.
fn entry(piece: &str, columns: usize) -> String {
    let (spaces, text) = piece.split_at(indent(piece));
    if spaces.is_empty() || piece.chars().count() <= columns {
        return piece.into();
    }
    if text.starts_with("antiphon ") {
        // A flag stays with its value: lines break before a hyphen only.
        let bound = text.replace(' ', BOUND).replace(&format!("{BOUND}-"), " -");
        let lines = wrapped(&bound, columns - spaces.len() - 4); // two for the next indent, two for the backslash
        return format!("{spaces}{}", lines.join(&format!(" \\\n{spaces}  "))).replace(BOUND, " ");
    }
    // A term and its description, two spaces or more apart; or text alone.
    let split = text.split_once("  ").map_or((0, text), |(term, rest)| {
        let description = rest.trim_start();
        (term.chars().count() + 2 + rest.chars().count() - description.chars().count(), description)
    });
    let hanging = spaces.len() + split.0;
    let head: String = piece.chars().take(hanging).collect();
    let lines = wrapped(split.1, columns.saturating_sub(hanging).max(16));
    format!("{head}{}", lines.join(&format!("\n{}", " ".repeat(hanging))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paragraphs_flow_and_lists_hang() {
        let text = "One paragraph\nof two lines.\n\nTerms:\n  loss   total squared error\n         of all iterates\n  n      steps\nAfter it.";
        assert_eq!(
            flowing(text, 26),
            "One paragraph of two lines.\n\nTerms:\n  loss   total squared\n         error of all\n         iterates\n  n      steps\nAfter it."
        );
    }

    #[test]
    fn commands_can_be_copied_at_any_width() {
        let text =
            "Examples:\n  antiphon plan --epochs 20 --params 1e6 \\\n    --epsilon 8\n  antiphon train";
        assert_eq!(
            flowing(text, 100),
            "Examples:\n  antiphon plan --epochs 20 --params 1e6 --epsilon 8\n  antiphon train"
        );
        assert_eq!(
            flowing(text, 40),
            "Examples:\n  antiphon plan --epochs 20 \\\n    --params 1e6 --epsilon 8\n  antiphon train"
        );
    }
}
