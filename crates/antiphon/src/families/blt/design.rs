//! The poles, zeros and profile with the least loss.
//!
//! What is minimised is ln(‖A·Diag(o)·T‖²_F·sens²), by BFGS. Poles and zeros stay interlaced because each is the one before it times a number in (0, 1);
//! o does not fall because each of its knots is the one before it times a number above 1. The derivatives by o are exact, those by the few
//! poles and zeros differences of closed forms that are accurate to 1e-13 or so.

use super::rational::Rational;
use super::segments::{Cut, Segments};
use super::sensitivity::{Rule, correlation};
use crate::families::comb::filter::Filter;
use crate::linalg::minimize::{Minimum, Options, minimize};
use std::ops::Range;

/// One more buffer must lower the loss by this part of it.
const WORTHWHILE: f64 = 1e-4;
/// The same for buffers that somebody asks for.
const MEASURABLE: f64 = 1e-6;
/// Most buffers where nobody says how many: more than are ever worthwhile.
const MOST: usize = 6;
/// Most epochs with knots of their own.
const MOST_EPOCHS: usize = 32;
/// Keeps poles and zeros that cancel from running off to infinity in the coordinates here. It changes the loss by less than 1e-7 of it.
const RIDGE: f64 = 1e-10;
/// For differences by coordinates of size one: errors of 1e-10 by its square and by rounding.
const DIFFERENCE: f64 = 1e-5;

const OPTIONS: Options = Options { iterations: 400, gradient: 1e-8, decrease: 1e-9 };
const OPTIONS_WITH_PROFILE: Options = Options { decrease: 1e-8, ..OPTIONS };

/// What a mechanism is made for.
#[derive(Debug, Clone, Copy)]
pub struct Problem<'a> {
    /// n.
    pub steps: usize,
    /// b.
    pub separation: usize,
    /// k.
    pub participations: usize,
    /// β.
    pub momentum: f64,
    /// η, where they are not all one.
    pub rates: Option<&'a [f64]>,
    /// Whether o may differ from step to step.
    pub profile: Profile,
}

/// Whether the steps may have factors of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// o = 1: a Toeplitz matrix.
    Equal,
    /// o is made for the run.
    Free,
}

/// Numbers of a mechanism.
#[derive(Debug, Clone)]
pub struct Found {
    /// T.
    pub filter: Filter,
    /// Where o has its knots.
    pub knots: Vec<usize>,
    /// o at them.
    pub gains: Vec<f64>,
    /// ln of the loss, nearly: what was minimised.
    pub objective: f64,
}

/// The best with so many buffers; the best number of them where none is said.
pub fn design(problem: &Problem<'_>, buffers: Option<usize>) -> Found {
    let shape = Shape::new(problem);
    let x = equal_norms(&shape, buffers);
    let equal = shape.equal(&x);
    let with_profile = match (problem.profile, shape.single) {
        (Profile::Equal, _) => None,
        (Profile::Free, true) => Some(with_equal_columns(&shape, &x)),
        (Profile::Free, false) => Some(with_rises(&shape, &x)),
    };
    let found = with_profile.filter(|(_, _, objective)| *objective < equal);
    let (x, logs, objective) = found.unwrap_or_else(|| (x, vec![0.0; shape.knots.len()], equal));
    let gains = logs.iter().map(|x| x.exp()).collect();
    Found { filter: filter(&padded(x, buffers)), knots: shape.knots, gains, objective }
}

/// More buffers that do nothing: poles with zeros next to them. They change the loss by 1e-9 of it.
fn padded(mut x: Vec<f64>, buffers: Option<usize>) -> Vec<f64> {
    while x.len() < 2 * buffers.unwrap_or(0) {
        x.extend([0.0, 21.0]);
    }
    x
}

/// Poles and zeros, ln o at the knots and the objective, for a single participation.
fn with_equal_columns(shape: &Shape<'_>, x: &[f64]) -> (Vec<f64>, Vec<f64>, f64) {
    let found = minimize(x, |x, g| differences(x, g, |x| shape.normalised(x)), &OPTIONS_WITH_PROFILE);
    let logs = shape.column_norms(&rational(&found.x));
    (found.x, logs, found.value)
}

/// The same for several.
fn with_rises(shape: &Shape<'_>, x: &[f64]) -> (Vec<f64>, Vec<f64>, f64) {
    let count = shape.knots.len() - 1;
    // A start that rises a little.
    let rises = vec![(0.5 / count as f64).ln(); count];
    let all = [x, &rises].concat();
    let found = minimize(&all, |all, g| shape.joint(all, x.len(), g), &OPTIONS_WITH_PROFILE);
    let (x, rises) = found.x.split_at(x.len());
    (x.to_vec(), rising(rises), found.value)
}

/// Poles and zeros without a profile, which is quick. How many of them are of use is found here.
fn equal_norms(shape: &Shape<'_>, buffers: Option<usize>) -> Vec<f64> {
    let run = |start: Vec<f64>| minimize(&start, |x, g| differences(x, g, |x| shape.equal(x)), &OPTIONS);
    let mut best: Option<Minimum> = None;
    let (most, worthwhile) = buffers.map_or((MOST, WORTHWHILE), |buffers| (buffers, MEASURABLE));
    for count in 1..=most {
        // Pairs of a pole and a zero may cancel on the way, and do not part again; seldom from both of these starts. The slowest pole hardly moves when
        // there is one more.
        let mut starts = vec![start((2.0 / shape.problem.steps as f64).min(0.3), 0.7, count)];
        starts.extend(best.as_ref().map(|best| start(gaps(&best.x).0[0].min(0.3), 0.8, count)));
        let found = starts.into_iter().map(run).min_by(|a, b| a.value.total_cmp(&b.value)).expect("a start");
        let gain = best.as_ref().map_or(f64::INFINITY, |best| best.value - found.value);
        if gain < worthwhile {
            break;
        }
        best = Some(found);
    }
    best.expect("at least one buffer").x
}

/// The nearest filter: poles and zeros that cancel to the last bit are kept apart.
fn filter(x: &[f64]) -> Filter {
    let (poles, zeros) = gaps(x);
    // Each has a floor of its own, half of that before it: some may be zero to the last bit.
    let (mut above, mut floor) = (1.0, 1e-100f64);
    let mut below = |gap: &f64| {
        floor /= 2.0;
        above = (1.0 - gap).max(floor).min(above * (1.0 - f64::EPSILON));
        above
    };
    let pairs: Vec<(f64, f64)> = poles.iter().zip(&zeros).map(|(p, z)| (below(p), below(z))).collect();
    let (poles, zeros): (Vec<f64>, Vec<f64>) = pairs.into_iter().unzip();
    Filter::new(&poles, &zeros).expect("interlaced")
}

/// Coordinates of poles and zeros whose distances from one are log-spaced.
fn start(low: f64, high: f64, buffers: usize) -> Vec<f64> {
    let count = 2 * buffers;
    let gap = |i: usize| low * (high / low).powf(i as f64 / (count - 1) as f64);
    let coordinate = |i: usize| {
        let (before, here) = (if i == 0 { 0.0 } else { gap(i - 1) }, gap(i));
        // ln(s/(1 − s)) for s = (1 − here)/(1 − before).
        ((1.0 - here) / (here - before)).ln()
    };
    (0..count).map(coordinate).collect()
}

/// 1 − p and 1 − ẑ of coordinates: each pole and zero is the one before it times 1/(1 + exp(−x)).
fn gaps(x: &[f64]) -> (Vec<f64>, Vec<f64>) {
    let mut gap = 0.0;
    let mut all = x.iter().map(|x| {
        let fall = 1.0 / (1.0 + x.exp());
        gap += (1.0 - gap) * fall;
        gap
    });
    let (mut poles, mut zeros) = (Vec::new(), Vec::new());
    while let (Some(pole), Some(zero)) = (all.next(), all.next()) {
        poles.push(pole);
        zeros.push(zero);
    }
    (poles, zeros)
}

fn rational(x: &[f64]) -> Rational {
    let (poles, zeros) = gaps(x);
    Rational::from_gaps(&poles, &zeros)
}

fn ridge(x: &[f64]) -> f64 {
    RIDGE * x.iter().map(|x| x * x).sum::<f64>()
}

/// ln o at the knots, of the logarithms of its rises.
fn rising(y: &[f64]) -> Vec<f64> {
    let mut log = 0.0;
    let rise = |y: &f64| {
        log += y.exp();
        log
    };
    std::iter::once(0.0).chain(y.iter().map(rise).collect::<Vec<_>>()).collect()
}

/// The value, and its derivatives by central differences.
fn differences(x: &[f64], gradient: &mut [f64], f: impl Fn(&[f64]) -> f64) -> f64 {
    let mut moved = x.to_vec();
    for (i, slope) in gradient.iter_mut().enumerate() {
        moved[i] = x[i] + DIFFERENCE;
        let above = f(&moved);
        moved[i] = x[i] - DIFFERENCE;
        *slope = (above - f(&moved)) / (2.0 * DIFFERENCE);
        moved[i] = x[i];
    }
    f(x)
}

/// A place between two knots: the first of them, and how far it is to the second.
#[derive(Debug, Clone, Copy)]
struct Between {
    knot: usize,
    part: f64,
}

impl Between {
    fn new(knots: &[usize], at: f64) -> Between {
        if knots.len() == 1 {
            return Between { knot: 0, part: 0.0 };
        }
        let after = knots.partition_point(|knot| *knot as f64 <= at).clamp(1, knots.len() - 1);
        let (first, second) = (knots[after - 1] as f64, knots[after] as f64);
        Between { knot: after - 1, part: ((at - first) / (second - first)).clamp(0.0, 1.0) }
    }

    fn of(self, at_knots: &[f64]) -> f64 {
        match self.part == 0.0 {
            true => at_knots[self.knot],
            false => (1.0 - self.part) * at_knots[self.knot] + self.part * at_knots[self.knot + 1],
        }
    }

    fn spread(self, amount: f64, at_knots: &mut [f64]) {
        at_knots[self.knot] += (1.0 - self.part) * amount;
        if self.part > 0.0 {
            at_knots[self.knot + 1] += self.part * amount;
        }
    }
}

/// A problem with its segments and knots.
struct Shape<'a> {
    problem: Problem<'a>,
    /// Whether an example takes part once.
    single: bool,
    cut: Cut,
    /// The mean rate of every segment.
    rates: Vec<f64>,
    knots: Vec<usize>,
    /// The middles of segments, and the steps of the pattern, among the knots.
    middles: Vec<Between>,
    pattern: Vec<Between>,
}

impl<'a> Shape<'a> {
    fn new(problem: &Problem<'a>) -> Shape<'a> {
        let n = problem.steps;
        let m = problem.participations.min(n.div_ceil(problem.separation));
        let knots = knots(problem, m);
        let cut = Cut::new(n, &knots);
        let rate = |range: &Range<usize>| match problem.rates {
            Some(rates) => rates[range.clone()].iter().sum::<f64>() / range.len() as f64,
            None => 1.0,
        };
        let middle = |range: &Range<usize>| Between::new(&knots, (range.start + range.end - 1) as f64 / 2.0);
        Shape {
            problem: *problem,
            single: m == 1,
            rates: cut.ranges().iter().map(rate).collect(),
            middles: cut.ranges().iter().map(middle).collect(),
            pattern: (0..m).map(|j| Between::new(&knots, (j * problem.separation) as f64)).collect(),
            cut,
            knots,
        }
    }

    fn rule(&self, rational: &Rational) -> Rule {
        Rule::new(rational, self.problem.steps, self.problem.separation, self.problem.participations)
    }

    /// ln ‖A·Diag(o)·T‖² and its derivatives by o at the knots.
    fn log_error(&self, rational: &Rational, gains: &[f64], gradient: &mut [f64]) -> f64 {
        let segments = Segments::new(rational, self.problem.momentum, &self.cut);
        let own: Vec<f64> = self.middles.iter().map(|place| place.of(gains)).collect();
        let mut slopes = vec![0.0; own.len()];
        let sum = segments.sum(&own, &self.rates, &mut slopes);
        gradient.fill(0.0);
        self.middles.iter().zip(slopes).for_each(|(place, slope)| place.spread(slope / sum, gradient));
        sum.ln()
    }

    /// With o = 1.
    fn equal(&self, x: &[f64]) -> f64 {
        let rational = rational(x);
        let sens = self.rule(&rational).squared(|_| 1.0);
        let error = match self.problem.rates {
            None => {
                let all = super::doubling::Steps::new(&rational, self.problem.momentum, self.problem.steps);
                all.covariances.variance().ln()
            }
            Some(_) => {
                let mut unused = vec![0.0; self.knots.len()];
                self.log_error(&rational, &vec![1.0; self.knots.len()], &mut unused)
            }
        };
        error + sens.ln() + ridge(x)
    }

    /// ln o that gives all columns of C the same norm, at the knots, from 0 at the first.
    fn column_norms(&self, rational: &Rational) -> Vec<f64> {
        let norm = |step: usize| correlation(rational, 0, self.problem.steps - step).ln() / 2.0;
        self.knots.iter().map(|step| norm(*step) - norm(0)).collect()
    }

    /// With columns of the same norm, for a single participation.
    fn normalised(&self, x: &[f64]) -> f64 {
        let rational = rational(x);
        let gains: Vec<f64> = self.column_norms(&rational).iter().map(|x| x.exp()).collect();
        let mut unused = vec![0.0; gains.len()];
        let norm = correlation(&rational, 0, self.problem.steps);
        self.log_error(&rational, &gains, &mut unused) + norm.ln() + ridge(x)
    }

    /// With a profile: poles and zeros first, then the logarithms of the rises of ln o.
    fn joint(&self, all: &[f64], split: usize, gradient: &mut [f64]) -> f64 {
        let (x, y) = all.split_at(split);
        let logs = rising(y);
        let gains: Vec<f64> = logs.iter().map(|x| x.exp()).collect();
        let mut by_gain = vec![0.0; gains.len()];
        let value =
            |x: &[f64], by_gain: &mut [f64]| self.with_gains(&rational(x), &gains, by_gain) + ridge(x);
        let (by_filter, by_rise) = gradient.split_at_mut(split);
        differences(x, by_filter, |x| value(x, &mut vec![0.0; gains.len()]));
        let found = value(x, &mut by_gain);
        // A rise lifts all knots behind it.
        let mut later = 0.0;
        for i in (0..y.len()).rev() {
            later += by_gain[i + 1] * gains[i + 1];
            by_rise[i] = later * y[i].exp();
        }
        // The same for rises that vanish.
        by_rise.iter_mut().zip(y).for_each(|(slope, y)| *slope += 2.0 * RIDGE * y);
        found + ridge(y)
    }

    fn with_gains(&self, rational: &Rational, gains: &[f64], by_gain: &mut [f64]) -> f64 {
        let error = self.log_error(rational, gains, by_gain);
        let d: Vec<f64> = self.pattern.iter().map(|place| 1.0 / place.of(gains)).collect();
        let mut by_d = vec![0.0; d.len()];
        let squared = self.rule(rational).squared_with_gradient(&d, &mut by_d);
        for ((place, d), slope) in self.pattern.iter().zip(&d).zip(by_d) {
            place.spread(-slope * d * d / squared, by_gain);
        }
        error + squared.ln()
    }
}

/// Where o may bend: for a single participation ever closer to the end, where the norms of columns change; otherwise at the first and the last step of
/// every epoch, or evenly where there are many epochs.
fn knots(problem: &Problem<'_>, m: usize) -> Vec<usize> {
    let n = problem.steps;
    let mut knots: Vec<usize> = match (problem.profile, m) {
        (Profile::Equal, _) => vec![0],
        (Profile::Free, 1) => {
            // Four in each octave, so that few lengths are between them.
            let next = |before: &usize| Some(before + (before.next_power_of_two() / 8).max(1));
            std::iter::successors(Some(1), next)
                .take_while(|before| *before < n)
                .map(|before| n - before)
                .chain([0])
                .collect()
        }
        (Profile::Free, m) if m <= MOST_EPOCHS => {
            let b = problem.separation;
            // As long as momentum remembers.
            let ramp = ((1.0 / (1.0 - problem.momentum)).round() as usize).min(b.div_ceil(2));
            (0..m).flat_map(|j| [j * b, (j * b + b - ramp).min(n - 1)]).chain([n - 1]).collect()
        }
        (Profile::Free, _) => (0..=MOST_EPOCHS).map(|i| (n - 1) * i / MOST_EPOCHS).collect(),
    };
    knots.sort_unstable();
    knots.dedup();
    knots
}
