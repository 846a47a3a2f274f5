//! Time per iteration against n: it should grow linearly, whatever the number of epochs.
//!
//! Prints one line per size, with the time per step and per quadrature node, which should stay level.

use antiphon::optimize::blocks::BlockDual;
use antiphon::optimize::resolvent::Resolvent;
use antiphon::schema::Schema;
use antiphon::workload::Workload;
use std::time::Instant;

fn main() {
    println!(
        "{:>9} {:>4} {:>9} {:>6} {:>12} {:>16}",
        "steps", "k", "momentum", "nodes", "ms/iteration", "ns/(step·node)"
    );
    for (k, momentum) in [(1, 0.0), (10, 0.0), (10, 0.9), (20, 0.0)] {
        for steps in [2_000, 8_000, 32_000, 128_000] {
            let schema = Schema::epochs(k, steps / k).unwrap();
            let workload = Workload::training(steps, momentum, None).unwrap();
            let mut resolvent = Resolvent::new(&schema, &workload).unwrap();
            let mut dual = BlockDual::identity(schema.listed().unwrap());
            let (mut best, mut nodes) = (f64::INFINITY, 0);
            for _ in 0..4 {
                let start = Instant::now();
                let rule = resolvent.rule(&dual, 1e-5).unwrap();
                let (grams, _) = resolvent.blocks(&dual, &rule);
                dual = dual.update(&grams);
                // The first iteration, at U = I, has fewer nodes.
                if rule.nodes.len() > nodes {
                    (best, nodes) = (f64::INFINITY, rule.nodes.len());
                }
                best = best.min(start.elapsed().as_secs_f64());
            }
            println!(
                "{steps:>9} {k:>4} {momentum:>9} {nodes:>6} {:>12.2} {:>16.1}",
                1e3 * best,
                1e9 * best / (steps * nodes) as f64
            );
        }
    }
}
