//! The range of an axis, and where it has which labels.

/// A linear or logarithmic axis.
pub struct Axis {
    log: bool,
    low: f64,
    high: f64,
    /// Labelled places.
    pub ticks: Vec<(f64, String)>,
    /// Places of fainter lines: powers of ten without a label, and the digits between them.
    pub minor: Vec<f64>,
}

impl Axis {
    /// An axis that shows all of `values` with a margin of the share `margin` of its length, and has at most `most`
    /// labels that all fit: `fits` is asked with the labels and their places between 0 and 1.
    pub fn new(
        values: impl Iterator<Item = f64>,
        log: bool,
        margin: f64,
        most: usize,
        fits: impl Fn(&[(f64, &str)]) -> bool,
    ) -> Self {
        let scale = |value: f64| if log { value.log10() } else { value };
        let shown = |value: &f64| scale(*value).is_finite();
        let (min, max) = values
            .filter(shown)
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(min, max), value| (value.min(min), value.max(max)));
        let (min, max) = if min <= max { (min, max) } else { (1.0, 1.0) };
        let (mut low, mut high) = (scale(min), scale(max));
        if low == high {
            // One value only: around it, it does not matter how far.
            let around = if log { 0.5 } else { (low.abs() * 0.1).max(f64::MIN_POSITIVE.sqrt()) };
            (low, high) = (low - around, high + around);
        }
        let margin = margin * (high - low);
        // What cannot be negative should not look as if it could.
        let low = if !log && min >= 0.0 { (low - margin).max(0.0) } else { low - margin };
        let mut axis = Self { log, low, high: high + margin, ticks: Vec::new(), minor: Vec::new() };
        for most in (2..=most.max(2)).rev() {
            axis.set_ticks(most);
            let places: Vec<_> = axis
                .ticks
                .iter()
                .filter_map(|(value, label)| Some((axis.place(*value)?, label.as_str())))
                .collect();
            if fits(&places) {
                break;
            }
        }
        axis
    }

    /// Labels at these values, in rising order, instead of at round numbers, if they all fit and there is any.
    pub fn label(&mut self, values: &[f64], fits: impl Fn(&[(f64, &str)]) -> bool) {
        let ticks: Vec<(f64, String)> = values.iter().map(|value| (*value, value.to_string())).collect();
        let places: Vec<_> =
            ticks.iter().filter_map(|(value, label)| Some((self.place(*value)?, label.as_str()))).collect();
        if !values.is_empty() && fits(&places) {
            self.ticks = ticks;
        }
    }

    /// Where a value lies: 0 is the start of the axis, 1 its end. Some values are nowhere: log 0, NaN.
    pub fn place(&self, value: f64) -> Option<f64> {
        let scaled = if self.log { value.log10() } else { value };
        scaled.is_finite().then_some((scaled - self.low) / (self.high - self.low))
    }

    fn set_ticks(&mut self, most: usize) {
        self.minor.clear();
        if !self.log {
            self.ticks = linear(self.low, self.high, most);
            return;
        }
        let shown = |value: &f64| (self.low..=self.high).contains(&value.log10());
        let powers = self.low.floor() as i32..=self.high.ceil() as i32;
        let multiples = |factors: &[u8], every: i32| -> Vec<f64> {
            let chosen = powers.clone().filter(|power| power.rem_euclid(every) == 0);
            let all = chosen.flat_map(|power| factors.iter().map(move |&factor| decimal(factor, power)));
            all.filter(shown).collect()
        };
        let fine = [&[1, 2, 3, 5, 7][..], &[1, 2, 5]].map(|factors| multiples(factors, 1));
        let coarse = (1..=powers.clone().count() as i32).map(|every| multiples(&[1], every));
        let Some(places) = fine.into_iter().chain(coarse).find(|places| places.len() <= most) else { return };
        if places.len() < 2 {
            self.ticks = linear(10f64.powf(self.low), 10f64.powf(self.high), most);
            return;
        }
        // Plain numbers are read faster, but only as long as one need not count zeros.
        let plain = places.iter().all(|place| (0.9e-3..1.1e5).contains(place));
        let powers_only = places.iter().all(|place| is_power(*place));
        let label = |&place: &f64| match (plain, powers_only) {
            (true, _) => fixed(place, (-(place.log10() + 1e-9).floor()).max(0.0) as usize),
            (false, true) => format!("10{}", superscript(place.log10().round() as i32)),
            (false, false) => scientific(place, 1),
        };
        self.ticks = places.iter().map(|place| (*place, label(place))).collect();
        let crowded = powers.clone().count() > 12;
        self.minor = multiples(if crowded { &[1] } else { &[1, 2, 3, 4, 5, 6, 7, 8, 9] }, 1);
    }
}

/// `factor`·10^`power`, as exact as it is written.
fn decimal(factor: u8, power: i32) -> f64 {
    format!("{factor}e{power}").parse().unwrap_or(f64::NAN)
}

fn is_power(value: f64) -> bool {
    let power = value.log10();
    (power - power.round()).abs() < 1e-9
}

/// Multiples of 1, 2 or 5 times a power of ten, at most `most` of them.
pub fn linear(low: f64, high: f64, most: usize) -> Vec<(f64, String)> {
    let power = ((high - low) / most as f64).log10().floor() as i32;
    let steps = (power..power + 3).flat_map(|power| [1, 2, 5].map(|factor| decimal(factor, power)));
    let ticks = |step: f64| {
        let (first, last) = ((low / step - 1e-9).ceil() as i64, (high / step + 1e-9).floor() as i64);
        (first..=last).map(|k| k as f64 * step).collect::<Vec<f64>>()
    };
    let Some((step, ticks)) = steps.map(|step| (step, ticks(step))).find(|(_, ticks)| ticks.len() <= most)
    else {
        return Vec::new();
    };
    let largest = ticks.iter().fold(0f64, |largest, tick| largest.max(tick.abs()));
    let digit = (step.log10() + 1e-9).floor() as i32;
    let label = |&tick: &f64| {
        if tick == 0.0 {
            "0".into()
        } else if !(1e-3..1e6).contains(&largest) {
            let digits = (tick.abs().log10() + 1e-9).floor() as i32 - digit;
            scientific(tick, digits.max(0) as usize)
        } else {
            fixed(tick, (-digit).max(0) as usize)
        }
    };
    ticks.iter().map(|tick| (*tick, label(tick))).collect()
}

/// Two digits of a number, in the form that is shorter to read.
pub fn short(value: f64) -> String {
    // Rounding first: 9.96 has two digits as 10.
    let value: f64 = format!("{value:.1e}").parse().unwrap_or(value);
    let power = if value == 0.0 { 0 } else { (value.abs().log10() + 1e-9).floor() as i32 };
    if !(-3..=4).contains(&power) {
        return scientific(value, 1);
    }
    let text = fixed(value, (1 - power).max(0) as usize);
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').into() } else { text }
}

/// 1.5e6, with at most `digits` digits after the point.
fn scientific(value: f64, digits: usize) -> String {
    let text = format!("{value:.digits$e}");
    let Some((digits, power)) = text.split_once('e') else { return text };
    let digits =
        if digits.contains('.') { digits.trim_end_matches('0').trim_end_matches('.') } else { digits };
    format!("{digits}e{power}").replace('-', "−")
}

/// 12,345.6: thousands are separated from five digits on.
fn fixed(value: f64, decimals: usize) -> String {
    let text = format!("{:.decimals$}", value.abs());
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    let mut separated = String::new();
    for (k, digit) in whole.chars().enumerate() {
        if k > 0 && whole.len() > 4 && (whole.len() - k) % 3 == 0 {
            separated.push(',');
        }
        separated.push(digit);
    }
    format!("{}{separated}{rest}", if value < 0.0 { "−" } else { "" })
}

fn superscript(power: i32) -> String {
    let raised = |sign| match sign {
        '-' => '⁻',
        digit => ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'][digit as usize - '0' as usize],
    };
    power.to_string().chars().map(raised).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(low: f64, high: f64, log: bool) -> String {
        let axis = Axis::new([low, high].into_iter(), log, 0.0, 6, |_| true);
        axis.ticks.into_iter().map(|(_, label)| label).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn labels_are_short_and_exact() {
        assert_eq!(labels(0.0, 1.0, false), "0 0.2 0.4 0.6 0.8 1.0");
        assert_eq!(labels(-0.01, 0.01, false), "−0.010 −0.005 0 0.005 0.010");
        assert_eq!(labels(0.0, 50_000.0, false), "0 10,000 20,000 30,000 40,000 50,000");
        assert_eq!(labels(0.0, 2e6, false), "0 5e5 1e6 1.5e6 2e6");
        assert_eq!(labels(0.0, 1e-5, false), "0 2e−6 4e−6 6e−6 8e−6 1e−5");
        assert_eq!(labels(1e-9, 1e3, true), "10⁻⁸ 10⁻⁶ 10⁻⁴ 10⁻² 10⁰ 10²");
        assert_eq!(labels(0.01, 100.0, true), "0.01 0.1 1 10 100");
        assert_eq!(labels(90.0, 1100.0, true), "100 200 300 500 700 1000");
        assert_eq!(labels(10.0, 13.0, true), "10 11 12 13");
        assert_eq!(labels(3.0, 3.0, false), "2.8 3.0 3.2");
        assert_eq!(labels(10.0, 2e5, true), "10 100 1000 10,000 100,000");
        assert!(!labels(0.0, f64::NAN, true).is_empty());
    }

    #[test]
    fn numbers_of_two_digits() {
        let written = [0.0, 9.96, -0.0312, 1234.0, 123_456.0, 1.2e7, -4.04e-6].map(short);
        assert_eq!(written, ["0", "10", "−0.031", "1200", "1.2e5", "1.2e7", "−4e−6"]);
    }

    #[test]
    fn values_without_a_place() {
        let axis = Axis::new([0.0, 1.0, 100.0, f64::NAN].into_iter(), true, 0.0, 5, |_| true);
        assert_eq!([1.0, 10.0, 100.0].map(|value| axis.place(value)), [Some(0.0), Some(0.5), Some(1.0)]);
        assert_eq!([0.0, -1.0, f64::NAN].map(|value| axis.place(value)), [None; 3]);
    }

    #[test]
    fn labels_stand_where_they_are_asked_for_if_they_fit() {
        let mut axis = Axis::new([2.0, 19.1].into_iter(), true, 0.0, 6, |_| true);
        let labels = |axis: &Axis| axis.ticks.iter().map(|tick| tick.1.clone()).collect::<Vec<_>>();
        let round = labels(&axis);
        axis.label(&[], |_| true);
        axis.label(&[2.0, 4.38], |_| false);
        assert_eq!(labels(&axis), round);
        axis.label(&[2.0, 4.38, 19.1], |places| places[0].0 == 0.0 && places[2].0 == 1.0);
        assert_eq!(labels(&axis), ["2", "4.38", "19.1"]);
    }
}
