//! Against jax-privacy (tests/fixtures/make_blt.py).

use super::*;
use crate::families::blt::doubling::Steps;
use crate::families::blt::rational::Rational;
use crate::mechanism::{Factorization, sensitivity_of};
use crate::schema::Schema;
use serde_json::Value;

#[test]
fn sensitivities_and_errors_are_those_of_jax_privacy() {
    let text = include_str!("../../../../tests/fixtures/blt.json");
    let fixture: Value = serde_json::from_str(text).unwrap();
    let numbers = |value: &Value| -> Vec<f64> {
        value.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
    };
    let cases = fixture["cases"].as_array().unwrap();
    assert!(cases.len() >= 48);
    for case in cases {
        let filter = Filter::new(&numbers(&case["poles"]), &numbers(&case["zeros"])).unwrap();
        let whole = |name: &str| case[name].as_u64().unwrap() as usize;
        let (n, b, k) = (whole("steps"), whole("separation"), whole("participations"));
        let blt = toeplitz(&filter, &vec![1.0; n]);
        for schema in [Schema::min_separation(n, b, k), Schema::fixed_order_at_most(n, b, k)] {
            let found = sensitivity_of(&blt, &schema.unwrap()).unwrap();
            let expected = case["sensitivity_squared"].as_f64().unwrap();
            assert!(near(found.upper.powi(2), expected, 1e-9), "{case} {found:?}");
        }
        for (momentum, expected) in numbers(&fixture["momentum"]).iter().zip(numbers(&case["errors"])) {
            let sum: f64 = blt.variances(&Workload::training(n, *momentum, None).unwrap()).iter().sum();
            assert!(near(sum, expected, 1e-9), "{case} {momentum} {sum}");
            let found = Steps::new(&Rational::of(&filter), *momentum, n).covariances.variance();
            assert!(near(found, expected, 1e-9), "{case} {momentum} {found}");
        }
    }
}
