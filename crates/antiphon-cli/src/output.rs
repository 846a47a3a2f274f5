//! What all commands print alike.

use antiphon::Error;
use serde::Serialize;
use std::process::ExitCode;

/// One JSON object on standard output.
pub fn print_json(value: &impl Serialize) -> anyhow::Result<()> {
    println!("{}", serde_json::to_string_pretty(value)?);
    Ok(())
}

/// How the user starts this program: a clone without an installation goes through cargo.
pub fn program() -> &'static str {
    if std::env::var_os("CARGO").is_some() { "cargo run --release --" } else { "antiphon" }
}

/// 0 for yes, 1 for no.
pub fn answer(yes: bool) -> ExitCode {
    ExitCode::from(u8::from(!yes))
}

/// 1: the answer is no. 2: bad input. 130: interrupted, as shells have it.
pub fn exit_status(error: &anyhow::Error) -> ExitCode {
    ExitCode::from(match error.downcast_ref::<Error>() {
        Some(Error::NoConvergence { .. } | Error::Numerical(_)) => 1,
        Some(Error::Interrupted) => 130,
        _ => 2,
    })
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

/// A gap as a percentage with two significant digits, rounded up.
pub fn percent(gap: f64) -> String {
    let percent = (gap * 100.0).max(0.0);
    if percent == 0.0 {
        return "0%".into();
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
        assert_eq!(percent(6.61e-4), "0.067%");
        assert_eq!(percent(0.0), "0%");
        assert_eq!(percent(0.5), "50%");
        assert_eq!(percent(1.02e-9), "1.1e-7%");
    }
}
