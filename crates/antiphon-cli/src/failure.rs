//! How a command fails: what it says, on which stream, and with which exit status.

use crate::output::{print_json, printed_json};
use antiphon::Error;
use antiphon::error::Hint;
use std::io::ErrorKind;
use std::process::ExitCode;

/// All exit statuses, for `antiphon --help`.
pub const EXIT_STATUSES: &str = "\
Exit status:
  0    done
  1    a check failed: a claim does not hold, a gap was not reached, a figure differs from the paper's
  2    bad input: arguments, or an input file that is missing or malformed
  3    the machine refused: disk full, no permission, no folder to write into
  130  interrupted (Ctrl-C)";

/// What the machine refuses.
pub const REFUSED: u8 = 3;

/// Reports an error on standard error, with `--json` also as an object on standard output.
pub fn report(error: &anyhow::Error, json: bool) -> ExitCode {
    let message = explain(error);
    eprintln!("antiphon: {message}");
    // One object only: a command that has printed its result and fails then has had its turn.
    if json && !printed_json() {
        say_json(kind(error), &message);
    }
    ExitCode::from(exit_status(error))
}

/// Reports what the parser of arguments has to say: help and version, or what is wrong with the arguments.
pub fn usage(error: &clap::Error, json: bool) -> ExitCode {
    // What cannot be printed here cannot be reported either.
    let _ = error.print();
    if json && error.use_stderr() {
        let text = error.render().to_string();
        say_json("usage", text.trim().trim_start_matches("error: "));
    }
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
}

fn say_json(kind: &str, message: &str) {
    let object = serde_json::json!({ "ok": false, "error": { "kind": kind, "message": message } });
    // Strings always have a JSON form.
    let _ = print_json(&object);
}

/// An error in the words of the command line: a library argument that is a flag is named as the flag.
fn explain(error: &anyhow::Error) -> String {
    const FLAGS: &[&str] = &[
        "batch_size",
        "buffers",
        "client_batch_size",
        "client_epochs",
        "client_rate",
        "client_steps",
        "client_tokens",
        "clients_per_round",
        "clip_norm",
        "context",
        "dataset",
        "delta",
        "epochs",
        "epsilon",
        "gap",
        "held_out",
        "interval",
        "learning_rate",
        "learning_rates",
        "line_length",
        "max_iterations",
        "max_participations",
        "mechanism",
        "memory",
        "min_separation",
        "model",
        "momentum",
        "noise_multiplier",
        "over_optimum",
        "params",
        "sampling_rate",
        "silent",
        "stamps",
        "stddev",
        "steps",
        "steps_per_epoch",
        "tokens",
        "vocabulary_size",
        "width",
        "without",
        "zero_threshold",
    ];
    let Some(error) = error.downcast_ref::<Error>() else {
        return error.to_string();
    };
    let (plain, hint) = error.parts();
    let mut text = plain.to_string();
    match plain {
        Error::Argument { argument, .. } if FLAGS.contains(&argument.as_str()) => {
            text = format!("--{}{}", argument.replace('_', "-"), text.trim_start_matches(argument.as_str()));
        }
        // Its words are part of the message.
        Error::NoConvergence { hint, .. } => text = text.replace(&format!("; {hint}"), ""),
        _ => {}
    }
    hint.map_or(text.clone(), |hint| text + advice(hint))
}

/// What may help, with the flags of this program.
fn advice(hint: Hint) -> &'static str {
    match hint {
        Hint::Replace => "; use --force to replace it",
        Hint::ReplaceKey => {
            ": remove the file, or use --force to make a new key; for more noise of the same run, give this file with --key"
        }
        Hint::Resume => ": use --resume to continue it, or another folder for a new run",
        Hint::ReuseKey => {
            ": use another key, or --reuse-key if no other noise of this key was or will be used in training"
        }
        Hint::NotImplicit => "; optimize without --implicit, or use `make comb-blt`",
        Hint::Implicit => {
            "; `make comb-blt` makes a mechanism for fixed order and any number of steps, --implicit computes the best possible loss only"
        }
        Hint::MoreIterations => "; try a larger --gap or --max-iterations",
        Hint::LargerGap => {
            "; double precision does not allow to certify more for this workload, try a larger --gap"
        }
        Hint::ListedSchema => {
            ". Use fixed epoch order (--steps-per-epoch) if the data keep their order, or an explicit list (--patterns). Other \
             mechanisms can be made under this schema: `antiphon compare` shows them, `antiphon make` makes them (per-epoch for \
             --reshuffled)"
        }
        Hint::DataFolder => ": give --data DIR or set ANTIPHON_DATA",
    }
}

/// The library's error, without its hint.
fn library(error: &anyhow::Error) -> Option<&Error> {
    error.downcast_ref::<Error>().map(|error| error.parts().0)
}

/// The kind of an error, as `--json` has it.
fn kind(error: &anyhow::Error) -> &'static str {
    match library(error) {
        Some(Error::Argument { .. }) => "argument",
        Some(Error::Unsupported(_)) => "unsupported",
        Some(Error::NoConvergence { .. }) => "no-convergence",
        Some(Error::Numerical(_)) => "numerical",
        Some(Error::Interrupted) => "interrupted",
        Some(Error::Io { .. }) => "io",
        Some(Error::File { .. }) => "file",
        Some(Error::Verification { .. }) => "verification",
        Some(Error::Privacy(_)) => "privacy",
        Some(Error::Hinted { .. }) | None => "other",
    }
}

/// See [`EXIT_STATUSES`].
fn exit_status(error: &anyhow::Error) -> u8 {
    let io = |kind: ErrorKind| if is_bad_input(kind) { 2 } else { REFUSED };
    match (library(error), error.downcast_ref::<std::io::Error>()) {
        (Some(Error::NoConvergence { .. } | Error::Numerical(_) | Error::Verification { .. }), _) => 1,
        (Some(Error::Interrupted), _) => 130,
        (Some(Error::Io { source, .. }), _) => io(source.kind()),
        (None, Some(error)) => io(error.kind()),
        _ => 2,
    }
}

/// Whether a failure of the operating system is one of a file that the user named for reading. A missing folder for writing
/// has another kind (`antiphon::atomic::check`), and all other failures have nothing to do with the input.
fn is_bad_input(kind: ErrorKind) -> bool {
    use ErrorKind::{InvalidData, InvalidInput, IsADirectory, NotFound, UnexpectedEof};
    matches!(kind, NotFound | IsADirectory | InvalidData | InvalidInput | UnexpectedEof)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_has_its_status_and_kind() {
        let io = |kind: ErrorKind| Error::Io { path: "f".into(), source: kind.into() };
        for (error, status, name) in [
            (Error::argument("steps", "in 1..=2", 3), 2, "argument"),
            (Error::Unsupported("no".into()), 2, "unsupported"),
            (Error::Numerical("no".into()), 1, "numerical"),
            (Error::Interrupted, 130, "interrupted"),
            (Error::Verification { check: "loss", detail: "no".into() }, 1, "verification"),
            (Error::Privacy("no".into()), 2, "privacy"),
            (Error::File { path: "f".into(), reason: "no".into() }, 2, "file"),
            (io(ErrorKind::NotFound), 2, "io"),
            (io(ErrorKind::InvalidData), 2, "io"),
            (io(ErrorKind::PermissionDenied), 3, "io"),
            (io(ErrorKind::StorageFull), 3, "io"),
            (io(ErrorKind::QuotaExceeded), 3, "io"),
            (io(ErrorKind::ReadOnlyFilesystem), 3, "io"),
            (io(ErrorKind::NotADirectory), 3, "io"),
        ] {
            let error = anyhow::Error::from(error);
            assert_eq!((exit_status(&error), kind(&error)), (status, name), "{error}");
        }
        let hinted = anyhow::Error::from(io(ErrorKind::StorageFull).with(Hint::Replace));
        assert_eq!((exit_status(&hinted), kind(&hinted)), (3, "io"));
        let gap = Error::NoConvergence { gap: 0.5, target: 0.1, iterations: 3, hint: Hint::MoreIterations };
        assert_eq!(
            explain(&gap.into()),
            "the gap reached is 5.000e-1, above the requested 1.000e-1, after 3 iterations; try a larger --gap or \
             --max-iterations"
        );
        let missing = antiphon::atomic::check("no such folder/m".as_ref(), false).unwrap_err();
        assert_eq!(exit_status(&missing.into()), 3);
        assert_eq!(exit_status(&std::io::Error::from(ErrorKind::StorageFull).into()), 3);
        assert_eq!(
            explain(&Error::argument("steps", "in 1..=2", 3).into()),
            "--steps must be in 1..=2, got 3"
        );
    }
}
