//! ε of DP-SGD on Poisson samples: a run that other accountants are timed on, at a fixed interval of the grid, and some that
//! are left to find their own. Medians; the first call, which makes the plans of the transforms, is apart. With the argument
//! `first`, only the first case.

use antiphon::accounting::{Event, Params, epsilon};
use std::time::Instant;

const RUNS: usize = 9;

fn main() {
    println!("{:>8} {:>6} {:>8} {:>8} {:>9} {:>9}  epsilon", "q", "z", "T", "interval", "first", "median");
    let cases = [
        (0.01, 1.0, 10_000, Some(1e-4)),
        (0.01, 1.0, 10_000, None),
        (1000.0 / 342_477.0, 0.402, 2_052, None),
        (1e-4, 1.0, 1_000_000, None),
        (0.5, 20.0, 1_000, None),
    ];
    let cases_wanted = if std::env::args().any(|argument| argument == "first") { 1 } else { cases.len() };
    for (rate, multiplier, steps, interval) in cases.into_iter().take(cases_wanted) {
        let event = Event::dp_sgd(rate, multiplier, steps);
        let params = Params { interval, ..Params::default() };
        let mut seconds = Vec::new();
        let mut found = None;
        for _ in 0..RUNS {
            let start = Instant::now();
            found = Some(epsilon(&event, 1e-6, &params).expect("an epsilon"));
            seconds.push(start.elapsed().as_secs_f64());
        }
        let first = seconds[0];
        seconds.sort_by(f64::total_cmp);
        let (median, found) = (seconds[RUNS / 2], found.expect("a bracket"));
        let interval = interval.map_or("its own".into(), |h| format!("{h:.0e}"));
        println!(
            "{rate:>8.2e} {multiplier:>6} {steps:>8} {interval:>8} {first:>7.4} s {median:>7.4} s  {:.6} to {:.6}",
            found.lower, found.upper
        );
    }
}
