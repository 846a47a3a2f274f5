//! Minimization of smooth functions of a few to many thousand variables: BFGS.
//!
//! Dense approximations of the inverse Hessian, and a line search for the weak Wolfe conditions by bracketing and cubic interpolation. The
//! function may answer with infinity or NaN outside its domain: such points count as too far.

use super::dense::Matrix;
use super::vectors::dot;
use std::collections::VecDeque;

/// When to stop.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Most iterations, each of one line search.
    pub iterations: usize,
    /// Enough when no entry of the gradient is larger.
    pub gradient: f64,
    /// Enough when [`PATIENCE`] iterations together lower the value by less than this, relatively.
    pub decrease: f64,
}

impl Default for Options {
    fn default() -> Options {
        Options { iterations: 1_000, gradient: 1e-10, decrease: 1e-14 }
    }
}

/// Why it stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// The gradient is small enough.
    Gradient,
    /// The value hardly falls.
    Decrease,
    /// No lower value was found along a direction of descent: rounding, a wrong gradient, or an edge of the domain.
    LineSearch,
    /// There were as many iterations as are allowed.
    Iterations,
}

/// What was found.
#[derive(Debug, Clone)]
pub struct Minimum {
    /// The point with the least value that was seen at the end of an iteration.
    pub x: Vec<f64>,
    /// The value there.
    pub value: f64,
    /// The largest entry of the gradient there, without its sign.
    pub gradient: f64,
    /// How many iterations there were.
    pub iterations: usize,
    /// How often the function was computed.
    pub evaluations: usize,
    /// Why it stopped.
    pub stop: Stop,
}

/// Over how many iterations the decrease is measured.
pub const PATIENCE: usize = 5;
/// A step must lower the value by this part of what the slope promises,
const ENOUGH: f64 = 1e-4;
/// and leave at most this part of the slope.
const FLAT: f64 = 0.9;
/// Most points of one line search: enough to halve an interval down to rounding.
const POINTS: usize = 60;

/// A local minimum of f near x0. f gets a point and room for the gradient, and returns the value.
pub fn minimize(x0: &[f64], f: impl FnMut(&[f64], &mut [f64]) -> f64, options: &Options) -> Minimum {
    go_on(x0, f, options, &mut Curvature::new(x0.len()))
}

/// As [`minimize`], with what is known of the curvature from the same function, or one much like it.
pub fn go_on(
    x0: &[f64],
    mut f: impl FnMut(&[f64], &mut [f64]) -> f64,
    options: &Options,
    inverse: &mut Curvature,
) -> Minimum {
    let mut at = Point::of(x0.to_vec(), &mut f);
    let (mut values, mut evaluations, mut iterations) = (vec![at.value], 1, 0);
    let stop = loop {
        if largest(&at.gradient) <= options.gradient {
            break Stop::Gradient;
        }
        if values.len() > PATIENCE {
            let before = values[values.len() - 1 - PATIENCE];
            if before - at.value <= options.decrease * at.value.abs() {
                break Stop::Decrease;
            }
        }
        if iterations == options.iterations {
            break Stop::Iterations;
        }
        let next =
            match search(&at, &inverse.direction(&at.gradient), inverse.first_step(&at.gradient), &mut f) {
                (Some(next), points) => {
                    evaluations += points;
                    next
                }
                (None, points) => {
                    evaluations += points;
                    // A poor model of the curvature gets one more chance, from the beginning.
                    if inverse.is_new() {
                        break Stop::LineSearch;
                    }
                    *inverse = Curvature::new(x0.len());
                    continue;
                }
            };
        inverse.update(&at, &next);
        at = next;
        values.push(at.value);
        iterations += 1;
    };
    let gradient = largest(&at.gradient);
    Minimum { x: at.x, value: at.value, gradient, iterations, evaluations, stop }
}

struct Point {
    x: Vec<f64>,
    gradient: Vec<f64>,
    value: f64,
}

impl Point {
    fn of(x: Vec<f64>, f: &mut impl FnMut(&[f64], &mut [f64]) -> f64) -> Point {
        let mut gradient = vec![0.0; x.len()];
        let value = f(&x, &mut gradient);
        Point { x, gradient, value }
    }
}

/// What is known of the inverse Hessian. Up to `MOST_DENSE` variables it is a matrix, beyond that the last steps.
#[derive(Debug, Clone)]
pub struct Curvature {
    size: usize,
    known: Known,
}

#[derive(Debug, Clone)]
enum Known {
    /// Not even the scale.
    Nothing,
    /// An approximation of the inverse Hessian.
    Matrix(Matrix),
    /// Steps and how the gradient changed along them, the last one first.
    Steps(VecDeque<(Vec<f64>, Vec<f64>)>),
}

/// More variables than this have no matrix.
const MOST_DENSE: usize = 5_000;
/// How many steps are remembered instead.
const REMEMBERED: usize = 60;

impl Curvature {
    /// Of a function of so many variables, of which nothing is known.
    pub fn new(size: usize) -> Self {
        Curvature { size, known: Known::Nothing }
    }

    /// The number of variables.
    pub fn size(&self) -> usize {
        self.size
    }

    fn is_new(&self) -> bool {
        matches!(self.known, Known::Nothing)
    }

    /// −H·g.
    fn direction(&self, gradient: &[f64]) -> Vec<f64> {
        let mut direction = match &self.known {
            Known::Nothing => gradient.to_vec(),
            Known::Matrix(h) => product(h, gradient),
            Known::Steps(steps) => two_loops(steps, gradient),
        };
        direction.iter_mut().for_each(|x| *x = -*x);
        direction
    }

    /// The step that the line search tries first: along a mere gradient one of length at most one.
    fn first_step(&self, gradient: &[f64]) -> f64 {
        if self.is_new() { (1.0 / dot(gradient, gradient).sqrt()).min(1.0) } else { 1.0 }
    }

    fn update(&mut self, from: &Point, to: &Point) {
        let s = difference(&to.x, &from.x);
        let y = difference(&to.gradient, &from.gradient);
        let (sy, yy) = (dot(&s, &y), dot(&y, &y));
        // The Wolfe conditions make it positive, but for rounding; a NaN is of no use either.
        let curved = sy > 1e-14 * (dot(&s, &s) * yy).sqrt();
        if !curved {
            return;
        }
        if self.is_new() {
            let scaled = |i, j| if i == j { sy / yy } else { 0.0 };
            self.known = match self.size <= MOST_DENSE {
                true => Known::Matrix(super::dense::from_fn(self.size, self.size, scaled)),
                false => Known::Steps(VecDeque::new()),
            };
        }
        match &mut self.known {
            Known::Nothing => {}
            Known::Matrix(h) => update(h, &s, &y, sy),
            Known::Steps(steps) => {
                steps.truncate(REMEMBERED - 1);
                steps.push_front((s, y));
            }
        }
    }
}

fn product(h: &Matrix, x: &[f64]) -> Vec<f64> {
    let mut product = vec![0.0; x.len()];
    for (j, x) in x.iter().enumerate() {
        product.iter_mut().zip(h.col_as_slice(j)).for_each(|(sum, h)| *sum += h * x);
    }
    product
}

/// H ← (I − s·yᵀ/sᵀy)·H·(I − y·sᵀ/sᵀy) + s·sᵀ/sᵀy.
fn update(h: &mut Matrix, s: &[f64], y: &[f64], sy: f64) {
    let hy = product(h, y);
    let own = (1.0 + dot(y, &hy) / sy) / sy;
    super::dense::for_each_column(h, |j, column| {
        let (a, b) = (own * s[j] - hy[j] / sy, s[j] / sy);
        column.iter_mut().zip(s).zip(&hy).for_each(|((h, s), hy)| *h += a * s - b * hy);
    });
}

/// The same applied to a vector, by the steps from which H would have been made (Nocedal and Wright, algorithm 7.4).
fn two_loops(steps: &VecDeque<(Vec<f64>, Vec<f64>)>, gradient: &[f64]) -> Vec<f64> {
    let mut x = gradient.to_vec();
    let add = |x: &mut [f64], weight: f64, v: &[f64]| x.iter_mut().zip(v).for_each(|(x, v)| *x += weight * v);
    let mut weights = Vec::with_capacity(steps.len());
    for (s, y) in steps {
        let weight = dot(s, &x) / dot(s, y);
        add(&mut x, -weight, y);
        weights.push(weight);
    }
    if let Some((s, y)) = steps.front() {
        let scale = dot(s, y) / dot(y, y);
        x.iter_mut().for_each(|x| *x *= scale);
    }
    for ((s, y), weight) in steps.iter().zip(weights).rev() {
        let weight = weight - dot(y, &x) / dot(s, y);
        add(&mut x, weight, s);
    }
    x
}

/// A point along the direction that meets the weak Wolfe conditions, or at least has a lower value, and how many points were tried.
fn search(
    from: &Point,
    direction: &[f64],
    first: f64,
    f: &mut impl FnMut(&[f64], &mut [f64]) -> f64,
) -> (Option<Point>, usize) {
    let slope = dot(&from.gradient, direction);
    let descends = slope < 0.0;
    if !descends {
        return (None, 0);
    }
    // Values are known to rounding only; where they cannot tell, slopes do (Hager and Zhang's approximate Wolfe conditions).
    let rounding = 4.0 * f64::EPSILON * from.value.abs();
    let mut low = (0.0, from.value, slope);
    let mut high: Option<(f64, f64, f64)> = None;
    let mut best: Option<Point> = None;
    let mut step = first;
    for points in 1..=POINTS {
        let x = from.x.iter().zip(direction).map(|(x, d)| x + step * d).collect();
        let point = Point::of(x, f);
        let here = (step, point.value, dot(&point.gradient, direction));
        let falls = here.1 <= from.value + ENOUGH * step * slope
            || (here.1 <= from.value + rounding && here.2 <= (2.0 * ENOUGH - 1.0) * slope);
        let valid = here.1.is_finite() && here.2.is_finite();
        if valid && falls && here.2 >= FLAT * slope {
            return (Some(point), points);
        }
        if valid && falls {
            low = here;
            if point.value < best.as_ref().map_or(from.value, |best| best.value) {
                best = Some(point);
            }
        } else {
            high = Some(here);
        }
        let next = match high {
            Some(high) => between(low, high),
            None => step * 4.0,
        };
        if !(next > 0.0 && next.is_finite() && next != step) {
            return (best, points);
        }
        step = next;
    }
    (best, POINTS)
}

/// The minimum of the cubic through two values and slopes, kept away from both ends; the middle where there is none.
fn between(low: (f64, f64, f64), high: (f64, f64, f64)) -> f64 {
    let width = high.0 - low.0;
    let middle = low.0 + 0.5 * width;
    if !(high.1.is_finite() && high.2.is_finite()) {
        return low.0 + 0.1 * width;
    }
    let theta = 3.0 * (low.1 - high.1) / width + low.2 + high.2;
    let root = (theta * theta - low.2 * high.2).sqrt();
    let part = (root - low.2 + theta) / (2.0 * root - low.2 + high.2);
    if part.is_finite() { low.0 + part.clamp(0.1, 0.9) * width } else { middle }
}

fn difference(x: &[f64], y: &[f64]) -> Vec<f64> {
    x.iter().zip(y).map(|(x, y)| x - y).collect()
}

/// The largest absolute value; NaN counts as infinite.
fn largest(x: &[f64]) -> f64 {
    x.iter().fold(0.0, |largest: f64, x| if x.is_nan() { f64::INFINITY } else { largest.max(x.abs()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Σ 100(x_(i+1) − x_i²)² + (1 − x_i)².
    fn rosenbrock(x: &[f64], gradient: &mut [f64]) -> f64 {
        gradient.fill(0.0);
        let mut value = 0.0;
        for i in 0..x.len() - 1 {
            let (a, b) = (x[i + 1] - x[i] * x[i], 1.0 - x[i]);
            value += 100.0 * a * a + b * b;
            gradient[i] += -400.0 * a * x[i] - 2.0 * b;
            gradient[i + 1] += 200.0 * a;
        }
        value
    }

    #[test]
    fn rosenbrocks_valley_in_two_and_fifty_dimensions() {
        for n in [2, 50] {
            let x0: Vec<f64> = (0..n).map(|i| if i % 2 == 0 { -1.2 } else { 1.0 }).collect();
            let found = minimize(&x0, rosenbrock, &Options { decrease: 0.0, ..Options::default() });
            assert_eq!(found.stop, Stop::Gradient, "{found:?}");
            assert!(found.gradient <= 1e-10 && found.iterations < 30 * n, "{found:?}");
            // From the usual start, in more than three dimensions, there is a local minimum too; here it is not met.
            assert!(found.x.iter().all(|x| (x - 1.0).abs() < 1e-8), "{found:?}");
        }
    }

    #[test]
    fn a_quadratic_of_condition_ten_thousand_in_three_hundred_variables() {
        let n = 300;
        let scale = |i: usize| 1e4f64.powf(i as f64 / (n - 1) as f64);
        let quadratic = |x: &[f64], gradient: &mut [f64]| -> f64 {
            (0..n)
                .map(|i| {
                    gradient[i] = scale(i) * (x[i] - i as f64);
                    0.5 * gradient[i] * (x[i] - i as f64)
                })
                .sum()
        };
        let options = Options { iterations: 3_000, decrease: 0.0, ..Options::default() };
        let found = minimize(&vec![0.0; n], quadratic, &options);
        assert!(found.gradient <= 1e-8, "{:?} {} {}", found.stop, found.gradient, found.iterations);
        assert!(found.x.iter().enumerate().all(|(i, x)| (x - i as f64).abs() < 1e-6));
    }

    #[test]
    fn many_variables_are_minimized_from_the_last_steps() {
        let n = MOST_DENSE + 1;
        let x0: Vec<f64> = (0..n).map(|i| if i % 2 == 0 { -1.2 } else { 1.0 }).collect();
        let scale = |i: usize| 1.0 + (i % 100) as f64;
        let quadratic = |x: &[f64], gradient: &mut [f64]| -> f64 {
            gradient.iter_mut().zip(x).enumerate().for_each(|(i, (g, x))| *g = scale(i) * (x - 1.0));
            0.5 * gradient.iter().zip(x).map(|(g, x)| g * (x - 1.0)).sum::<f64>()
        };
        let mut curvature = Curvature::new(n);
        let options = Options { iterations: 30, ..Options::default() };
        let first = go_on(&x0, quadratic, &options, &mut curvature);
        let then = go_on(&first.x, quadratic, &Options { iterations: 200, ..options }, &mut curvature);
        assert!(matches!(curvature.known, Known::Steps(_)));
        assert!(then.x.iter().all(|x| (x - 1.0).abs() < 1e-8), "{:?} {}", then.stop, then.gradient);
    }

    #[test]
    fn points_outside_the_domain_are_too_far() {
        // x − ln x − ln(2 − x) on (0, 2): the first step leaves it.
        let barrier = |x: &[f64], gradient: &mut [f64]| {
            gradient[0] = 50.0 - 1.0 / x[0] + 1.0 / (2.0 - x[0]);
            if x[0] <= 0.0 { f64::NAN } else { 50.0 * x[0] - x[0].ln() - (2.0 - x[0]).ln() }
        };
        let found = minimize(&[1.9], barrier, &Options::default());
        // 50·x·(2 − x) − (2 − x) + x = 0: 25x² − 51x + 1 = 0.
        let exact = (51.0 - (51.0f64 * 51.0 - 100.0).sqrt()) / 50.0;
        assert!((found.x[0] - exact).abs() < 1e-9, "{found:?} {exact}");
    }

    #[test]
    fn it_stops_where_nothing_can_be_gained() {
        let flat = |x: &[f64], gradient: &mut [f64]| {
            gradient[0] = 4.0 * x[0].powi(3);
            1.0 + x[0].powi(4)
        };
        let found = minimize(&[1.1], flat, &Options { gradient: 0.0, ..Options::default() });
        assert!(matches!(found.stop, Stop::Decrease | Stop::LineSearch), "{found:?}");
        assert!(found.value <= 1.0 + 1e-12 && found.iterations < 100, "{found:?}");
        let wrong = |x: &[f64], gradient: &mut [f64]| {
            gradient[0] = -2.0 * x[0];
            x[0] * x[0]
        };
        let found = minimize(&[1.0], wrong, &Options::default());
        assert_eq!((found.stop, found.x[0]), (Stop::LineSearch, 1.0), "{found:?}");
        let found = minimize(&[-1.2, 1.0], rosenbrock, &Options { iterations: 3, ..Options::default() });
        assert_eq!((found.stop, found.iterations), (Stop::Iterations, 3));
    }
}
