//! What all commands print alike.

use antiphon::mechanism::Mechanism;
use serde::Serialize;
use std::io::{BufWriter, ErrorKind, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

/// Prints a line on standard output; ends quietly where nobody reads any more.
macro_rules! say {
    ($($text:tt)*) => { $crate::output::line(format_args!($($text)*)) };
}

/// Whether the one JSON object is out.
static PRINTED: AtomicBool = AtomicBool::new(false);

/// One JSON object on standard output. It may have millions of entries, and is not put together in memory first.
pub fn print_json(value: &impl Serialize) -> anyhow::Result<()> {
    let mut out = BufWriter::with_capacity(1 << 16, std::io::stdout().lock());
    match serde_json::to_writer_pretty(&mut out, value) {
        Err(error) if !error.is_io() => return Err(error.into()),
        written => {
            printed(written.map_err(Into::into).and_then(|()| writeln!(out)).and_then(|()| out.flush()))
        }
    }
    PRINTED.store(true, Ordering::Relaxed);
    Ok(())
}

/// Whether [`print_json`] was called.
pub fn printed_json() -> bool {
    PRINTED.load(Ordering::Relaxed)
}

/// The width of the terminal, where standard output is one; a pipe has no limit.
pub fn width() -> Option<usize> {
    let stdout = std::io::stdout();
    let size = stdout.is_terminal().then(|| terminal_size::terminal_size_of(&stdout))??;
    Some(usize::from(size.0.0))
}

/// The width of running text: that of the terminal, 100 at most.
pub fn text_width() -> usize {
    width().unwrap_or(100).clamp(20, 100)
}

/// What is claimed of a mechanism, with the names that all commands use.
pub fn figures_json(mechanism: &Mechanism) -> serde_json::Value {
    let Mechanism { schema, workload, noise, claims, .. } = mechanism;
    serde_json::json!({
        "steps": schema.steps(),
        "schema": schema,
        "workload": workload.describe(),
        "loss": claims.loss,
        "lower_bound": claims.lower_bound,
        "gap": claims.gap(),
        "rmse": claims.rmse(schema.steps()),
        "sensitivity": claims.sensitivity,
        "kind": noise.kind(),
    })
}

/// The same for people.
pub fn print_figures(mechanism: &Mechanism) {
    let Mechanism { schema, workload, claims, .. } = mechanism;
    say!("  workload      {}", workload.describe());
    say!("  participation {}", schema.describe());
    say!(
        "  loss          {}   (total squared error per coordinate at noise multiplier 1, clip norm 1)",
        figure(claims.loss)
    );
    say!("  rmse          {}   (per step)", figure(claims.rmse(schema.steps())));
    say!(
        "  gap           loss proven within {} of the best possible (lower bound {}, numerically certified)",
        percent(claims.gap()),
        figure(claims.lower_bound)
    );
    say!("  sensitivity   {} (upper bound, vector contributions)", bound(claims.sensitivity, true));
}

/// How the user starts this program: a clone without an installation goes through cargo.
pub fn program() -> &'static str {
    if std::env::var_os("CARGO").is_some() { "cargo run --release --" } else { "antiphon" }
}

/// 0 where all checks passed, 1 where one failed.
pub fn answer(yes: bool) -> ExitCode {
    ExitCode::from(u8::from(!yes))
}

/// A word as a shell wants it.
pub fn quoted(word: &std::ffi::OsStr) -> String {
    let word = word.to_string_lossy();
    let plain = |c: char| c.is_alphanumeric() || "-_./:=,".contains(c);
    if word.chars().all(plain) { word.into_owned() } else { format!("'{}'", word.replace('\'', "'\\''")) }
}

/// See `say!`.
pub fn line(text: std::fmt::Arguments<'_>) {
    printed(writeln!(std::io::stdout(), "{text}"));
}

/// Ends the program where standard output takes no more.
fn printed(written: std::io::Result<()>) {
    match written {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::BrokenPipe => {
            std::process::exit(141); // as a shell reports a broken pipe
        }
        Err(error) => {
            eprintln!("antiphon: standard output: {error}");
            std::process::exit(crate::failure::REFUSED.into());
        }
    }
}

/// A figure with thousands separated, to about seven significant digits.
pub fn figure(x: f64) -> String {
    if !x.is_finite() || x == 0.0 || !(1e-3..1e12).contains(&x.abs()) {
        return format!("{x:.6e}");
    }
    let decimals = (6 - x.abs().log10().floor() as i32).clamp(0, 9) as usize;
    let text = format!("{x:.decimals$}");
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let mut grouped = String::new();
    for (i, digit) in whole.chars().enumerate() {
        if i > 0 && (whole.len() - i) % 3 == 0 && !grouped.ends_with('-') {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    if fraction.is_empty() { grouped } else { format!("{grouped}.{fraction}") }
}

/// A bound to ten significant digits, rounded away from the truth: up for an upper one, down for a lower one.
pub fn bound(x: f64, upper: bool) -> String {
    bound_to(10, x, upper)
}

/// The same to fewer digits, for figures that are read rather than used.
pub fn short_bound(x: f64, upper: bool) -> String {
    bound_to(6, x, upper)
}

/// A figure that was given, as it was given; rounded up where it has more than seven significant digits, which an ε or a δ
/// that is stated may be.
pub fn given(x: f64) -> String {
    let [plain, scientific] = [format!("{x}"), format!("{x:e}")];
    let mantissa = scientific.split('e').next().unwrap_or_default();
    if mantissa.chars().filter(char::is_ascii_digit).count() > 7 {
        return bound_to(7, x, true);
    }
    if (1e-3..1e7).contains(&x) { plain } else { scientific }
}

fn bound_to(digits: i32, x: f64, upper: bool) -> String {
    if !(x.is_finite() && x > 0.0) {
        return format!("{x}");
    }
    let exponent = x.log10().floor() as i32;
    // Whole numbers of more digits than that would show digits that nobody asked for.
    let scientific = !(1e-6..10f64.powi(digits + 1).min(1e9)).contains(&x);
    // The decimals that are printed, and the last place of what is.
    let (decimals, last) = match scientific {
        true => (digits - 1, exponent - digits + 1),
        false => ((digits - 1 - exponent).clamp(0, 15), -(digits - 1 - exponent).clamp(0, 15)),
    };
    let print = |x: f64| match scientific {
        true => format!("{x:.*e}", decimals as usize),
        false => format!("{x:.*}", decimals as usize),
    };
    let text = print(x);
    let printed: f64 = text.parse().unwrap_or(x);
    let unit = 10f64.powi(last);
    let mut text = match upper {
        true if printed < x => print(x + unit),
        // Rounding errors of the figure itself are not shown: 1 − 2e-16 is 1.
        false if printed > x * (1.0 + 1e-14) => print(x - unit),
        _ => text,
    };
    // 9.999999 may have become 10.00000, with a zero more than there are to be digits.
    let shown = text.trim_start_matches(['0', '.']).chars().filter(char::is_ascii_digit).count();
    if !scientific && shown > digits as usize && text.contains('.') && text.ends_with('0') {
        text.pop();
    }
    text
}

/// Text in lines of at most so many characters, broken at spaces.
pub fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.into()),
        }
    }
    lines
}

/// Bytes for people.
pub fn size(bytes: u64) -> String {
    let units = ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let power = bytes.max(1).ilog2() / 10;
    match power {
        0 => antiphon::text::counted(bytes as usize, "byte"),
        _ => format!("{:.1} {}", bytes as f64 / (1u64 << (10 * power)) as f64, units[power as usize]),
    }
}

/// A gap as a percentage with two significant digits, rounded up.
pub fn percent(gap: f64) -> String {
    let percent = (gap * 100.0).max(0.0);
    if percent == 0.0 {
        return "0%".into();
    }
    if percent.is_nan() || percent >= 1e6 {
        return format!("{percent:.1e}%");
    }
    let exponent = percent.log10().floor() as i32;
    let unit = 10f64.powi(exponent - 1);
    let up = (percent / unit).ceil() * unit;
    if exponent < -6 {
        format!("{up:.1e}%")
    } else {
        let decimals = (1 - exponent).clamp(0, 9) as usize;
        format!("{up:.decimals$}%")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_grouped_and_percentages_round_up() {
        assert_eq!(figure(653308.3726), "653,308.4");
        assert_eq!(figure(18.0735), "18.07350");
        assert_eq!(figure(-1234567.8), "-1,234,568");
        assert_eq!(figure(1e-9), "1.000000e-9");
        assert_eq!(bound(1.0000000001, true), "1.000000001");
        assert_eq!(bound(1.0000000004, false), "1.000000000");
        assert_eq!(bound(1.0 - f64::EPSILON, false), "1.000000000");
        assert_eq!(bound(0.99999999996, false), "0.9999999999");
        assert_eq!(bound(1e-12, true), "1.000000000e-12");
        assert_eq!(bound(0.5, true), "0.5000000000");
        assert_eq!(
            (short_bound(17.62712, true), short_bound(17.62712, false)),
            ("17.6272".into(), "17.6271".into())
        );
        assert_eq!((short_bound(8.0, true), short_bound(8.0, false)), ("8.00000".into(), "8.00000".into()));
        assert_eq!(short_bound(1.2345612e-9, true), "1.23457e-9");
        assert_eq!(short_bound(1.23456712e12, true), "1.23457e12");
        assert_eq!(short_bound(12_345_678.2, true), "1.23457e7");
        assert_eq!(short_bound(1_234_567.2, true), "1234568");
        // At most seven significant digits, never below.
        for (x, text) in
            [(8.0, "8"), (0.5, "0.5"), (1e-6, "1e-6"), (8.123456789, "8.123457"), (1.0 / 3.0, "0.3333334")]
        {
            assert_eq!(given(x), text);
            assert!(given(x).parse::<f64>().unwrap() >= x);
        }
        assert_eq!((given(9.99999961), short_bound(0.9999996, true)), ("10.00000".into(), "1.00000".into()));
        assert_eq!((given(123456789.0), given(1e300)), ("1.234568e8".into(), "1e300".into()));
        for exponent in -12..15 {
            for x in [1.2345649, 9.9999951, 2.5, 9.999994999].map(|m| m * 10f64.powi(exponent)) {
                let parsed = |upper| short_bound(x, upper).parse::<f64>().unwrap();
                assert!(parsed(true) >= x && parsed(false) <= x * (1.0 + 1e-14), "{x}");
                assert!(parsed(true) <= x * (1.0 + 2e-5) && parsed(false) >= x * (1.0 - 2e-5), "{x}");
            }
        }
        assert_eq!(wrapped("one two  three", 7), ["one two", "three"]);
        assert_eq!(wrapped("ε ≤ 17 indivisible", 6), ["ε ≤ 17", "indivisible"]);
        assert_eq!(
            (size(1), size(1023), size(1536)),
            ("1 byte".into(), "1023 bytes".into(), "1.5 KiB".into())
        );
        assert_eq!((size(3 << 30), size(u64::MAX)), ("3.0 GiB".into(), "16.0 EiB".into()));
        assert_eq!(percent(6.61e-4), "0.067%");
        assert_eq!(percent(f64::INFINITY), "inf%");
        assert_eq!(percent(0.0), "0%");
        assert_eq!(percent(0.5), "50%");
        assert_eq!(percent(1.02e-9), "1.1e-7%");
    }
}
