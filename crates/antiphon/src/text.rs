//! Numbers in words: with nouns, and rounded so that they say no more than what is known.

/// The ending of a noun that is counted: nothing for one, `s` otherwise.
pub fn plural(n: usize) -> &'static str {
    if n == 1 { "" } else { "s" }
}

/// "1 step", "2 steps".
pub fn counted(n: usize, noun: &str) -> String {
    format!("{n} {noun}{}", plural(n))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_singular_and_nothing_else_is() {
        assert_eq!([0, 1, 2].map(|n| counted(n, "step")), ["0 steps", "1 step", "2 steps"]);
    }

    #[test]
    fn bounds_are_rounded_away_from_the_truth() {
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
    }
}
