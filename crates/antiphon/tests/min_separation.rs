//! The optimum for a fixed order under minimum separation: examples that return a little later than in the fixed order
//! move it more than those that keep to it, and the lower bound says so.

use antiphon::linalg::dense::{self, Matrix};
use antiphon::optimize::{self, Options};
use antiphon::schema::Schema;
use antiphon::sensitivity::{pattern_squared, worst_case_of_encoder};
use antiphon::workload::Workload;

/// The encoder of the optimum for a fixed order.
fn optimum(epochs: usize, steps_per_epoch: usize) -> Matrix {
    let schema = Schema::epochs(epochs, steps_per_epoch).unwrap();
    let workload = Workload::prefix_sum(epochs * steps_per_epoch).unwrap();
    let found = optimize::optimize(&schema, &workload, &Options::default()).unwrap();
    found.noising().unwrap().encoder().unwrap()
}
