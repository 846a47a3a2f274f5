//! Mechanisms of every kind that a file can hold, of at most twelve steps, each of which verifies.

use antiphon::families::{COMB_BLT, FFT_OPTIMAL, IDENTITY, SINGLE_EPOCH, TREE_ONLINE, TREE_OPTIMAL};
use antiphon::linalg::dense;
use antiphon::make::{from_encoder, make, structured};
use antiphon::mechanism::family::Run;
use antiphon::mechanism::{Family, Mechanism, Noise};
use antiphon::optimize::{Params, optimize};
use antiphon::schema::Schema;
use antiphon::workload::Workload;

fn optimal(schema: Schema, workload: Workload, implicit: bool) -> Mechanism {
    let params = Params { implicit, ..Params::default() };
    optimize(&schema, &workload, &params, &|_| true).unwrap().mechanism
}

fn made(family: Family, stamps: usize, schema: Schema, workload: Workload) -> Mechanism {
    make(family, &Run { stamps, ..Run::new(&schema, &workload, &|_| true) }).unwrap()
}

/// The same noise for a schema that it was not made for.
fn under(schema: Schema, mechanism: Mechanism) -> Mechanism {
    let parts = mechanism.into_parts();
    let Noise::Structured(noise) = parts.noise else { unreachable!("combs are described") };
    structured(noise, &schema, &parts.workload, 1e-3, &|_| true).unwrap()
}

/// The same without a bound.
fn unproven(mechanism: &Mechanism) -> Mechanism {
    let mut parts = mechanism.clone().into_parts();
    (parts.certificate, parts.claims.lower_bound) = (None, None);
    parts.into()
}

/// One of every kind.
pub fn all() -> Vec<Mechanism> {
    let rates = |n: usize| (0..n).map(|i| 1.0 / (1.0 + i as f64)).collect();
    let sum = Workload::prefix_sum;
    let momentum = |n| Workload::training(n, 0.9, None).unwrap();
    let training = |n| Workload::training(n, 0.5, Some(rates(n))).unwrap();
    let matrix =
        |n| Workload::dense(dense::from_fn(n, n, |i, j| if j <= i { 1.0 / (1 + i - j) as f64 } else { 0.0 }));
    let encoder = dense::from_fn(4, 4, |i, j| if j <= i { 1.0 / (1 + i - j) as f64 } else { 0.0 });
    let (short, patterns) = (
        Schema::epochs(3, 2).unwrap(),
        Schema::patterns(5, vec![vec![0, 3], vec![1, 4], vec![2, 3]]).unwrap(),
    );
    let separated = Schema::min_separation(10, 3, 3).unwrap();
    let reshuffled = Schema::reshuffled(3, 3).unwrap();
    let given = {
        let (schema, workload) = (Schema::epochs(3, 4).unwrap(), momentum(12));
        from_encoder(&encoder, Some(3), &Run::new(&schema, &workload, &|_| true)).unwrap().mechanism
    };
    let mut all = vec![
        optimal(short.clone(), sum(6), false),
        optimal(Schema::fixed_order(7, 3).unwrap(), training(7), false),
        optimal(Schema::single(4).unwrap(), matrix(4).unwrap(), false),
        optimal(patterns, momentum(5), false),
        optimal(Schema::epochs(2, 6).unwrap(), momentum(12), true),
        optimal(
            Schema::fixed_order(7, 3).unwrap(),
            Workload::training(7, 0.0, Some(rates(7))).unwrap(),
            true,
        ),
        made(TREE_ONLINE, 2, Schema::epochs(3, 4).unwrap(), momentum(12)),
        made(TREE_OPTIMAL, 1, short.clone(), training(6)),
        made(FFT_OPTIMAL, 1, Schema::fixed_order_at_most(7, 2, 2).unwrap(), sum(7)),
        made(IDENTITY, 1, short, matrix(6).unwrap()),
        made(SINGLE_EPOCH, 2, Schema::fixed_order(7, 3).unwrap(), sum(7)),
        made(TREE_ONLINE, 1, separated.clone(), sum(10)),
        made(SINGLE_EPOCH, 3, separated, training(10)),
        made(FFT_OPTIMAL, 1, reshuffled.clone(), momentum(9)),
        made(SINGLE_EPOCH, 1, reshuffled, sum(9)),
        given,
        made(COMB_BLT, 1, Schema::epochs(3, 3).unwrap(), momentum(9)),
        made(COMB_BLT, 1, Schema::fixed_order(7, 3).unwrap(), training(7)),
        under(
            Schema::min_separation(8, 2, 3).unwrap(),
            made(COMB_BLT, 1, Schema::epochs(4, 2).unwrap(), sum(8)),
        ),
    ];
    let without: Vec<Mechanism> =
        [0, 6, 10, 11, 14, 16].iter().map(|number| unproven(&all[*number])).collect();
    all.extend(without);
    all
}
