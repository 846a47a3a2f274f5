//! A private run from its schema to its statement: `cargo run -p antiphon --example private_run`.

use antiphon::noise::{Cipher, Key};
use antiphon::optimize::{Params, optimize};
use antiphon::run::{Budget, PrivateRun, Settings};
use antiphon::schema::Schema;
use antiphon::verify::verify;
use antiphon::workload::Workload;

pub(crate) fn main() -> antiphon::Result<()> {
    // Two epochs of five steps, in the same order; plain SGD. The best mechanism for it, verified.
    let schema = Schema::epochs(2, 5)?;
    let optimized = optimize(&schema, &Workload::prefix_sum(10), &Params::default(), &|_| true)?;
    let mechanism = verify(optimized.mechanism)?;

    // (8, 1e-6)-differential privacy for 100 examples and a model of 1,000 parameters; gradients are clipped to norm 1.
    let settings = Settings::new(Budget::Target { epsilon: 8.0, delta: 1e-6 }, 1.0, 100, 1000);
    let mut run = PrivateRun::new(mechanism, &settings, Key::from_os(Cipher::fastest())?)?;

    for step in 0..run.steps() {
        // Twenty examples per batch; whoever comes at the wrong time is refused.
        let batch: Vec<usize> = (0..20).map(|i| 20 * (step % 5) + i).collect();
        run.admit(step, &batch)?;
        let mut sum = vec![0.0f32; 1000]; // the sum of the clipped gradients of the batch goes here
        run.privatize(&mut sum)?;
        println!("step {step}: first coordinate with noise {:+.3}", sum[0]);
    }
    println!("{}", run.statement());
    Ok(())
}
