//! Workloads for tests.

use antiphon::linalg::dense;
use antiphon::workload::{Cooldown, Workload};

/// One of four kinds: prefix sum, momentum, momentum with a cooldown, a dense matrix.
pub fn workload(kind: usize, n: usize) -> Workload {
    let rates = Cooldown { fraction: 0.4, end: 0.05 }.rates(n).unwrap();
    match kind {
        0 => Workload::prefix_sum(n),
        1 => Workload::training(n, 0.9, None).unwrap(),
        2 => Workload::training(n, 0.95, Some(rates)).unwrap(),
        _ => Workload::dense(dense::from_fn(n, n, |i, j| match i.checked_sub(j) {
            Some(0) => 1.0 + i as f64 / n as f64,
            Some(d) => ((i + 3 * j) as f64).sin() / d as f64,
            None => 0.0,
        }))
        .unwrap(),
    }
}
