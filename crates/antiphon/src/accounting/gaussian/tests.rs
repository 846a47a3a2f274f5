//! Exact values, the paper's values, and what must not happen.

use super::*;

mod lower;

// Goldens by mpmath 1.4.1 with 60 digits, rounded to the nearest f64. The arguments are the f64 that are written.
//
//     def delta(z, e):
//         a = e*z - 1/(2*z)
//         return (erfc(a/sqrt(2)) - exp(e)*erfc((a + 1/z)/sqrt(2)))/2
//
// and 260 bisections of it for ε and for z.

/// z, ε, δ.
const DELTAS: [(f64, f64, f64); 26] = [
    (0.01, 4000.0, 1.0),
    (0.01, 5000.0, 0.49601097601864236),
    (0.01, 5500.0, 2.724936223404394e-07),
    (0.01, 8000.0, 3.7732070407196056e-198),
    (0.1, 10.0, 0.9999465977191498),
    (0.1, 50.0, 0.46049330589861376),
    (0.1, 100.0, 1.8797170020519075e-07),
    (0.1, 350.0, 1.2248968581477606e-198),
    (0.5, 0.01, 0.6811010599164893),
    (0.5, 1.0, 0.5098616600546702),
    (0.5, 8.0, 0.0004954017389387454),
    (0.5, 60.0, 2.1178975657208594e-186),
    (1.0, 0.001, 0.3826164068097858),
    (1.0, 0.5, 0.23842170813487662),
    (1.0, 4.0, 4.71224120079312e-05),
    (1.0, 30.0, 4.709326318097522e-193),
    (3.0, 1e-06, 0.13236723140601317),
    (3.0, 0.1, 0.0929021705448766),
    (3.0, 2.0, 1.3981124979490764e-10),
    (3.0, 9.0, 8.077065519399237e-161),
    (50.0, 0.001, 0.007492429865655373),
    (50.0, 0.05, 4.109573341021319e-05),
    (50.0, 0.7, 9.106566021615723e-272),
    (1000.0, 1e-05, 0.00039396418054508486),
    (1000.0, 0.001, 8.335713212520849e-05),
    (1000.0, 0.037, 1.5740512394509996e-304),
];

/// z, δ, ε.
const EPSILONS: [(f64, f64, f64); 30] = [
    (0.01, 1e-300, 8703.858958300743),
    (0.01, 1e-100, 7126.438716707697),
    (0.01, 1e-12, 5702.482015738906),
    (0.01, 1e-05, 5425.509846147429),
    (0.01, 0.5, 4999.000033324004),
    (0.1, 1e-300, 420.05299591238116),
    (0.1, 1e-100, 262.1986968417968),
    (0.1, 1e-12, 119.58840871231335),
    (0.1, 1e-05, 91.81728962466374),
    (0.1, 0.5, 49.003244369463886),
    (0.7, 1e-300, 53.81781279686426),
    (0.7, 1e-100, 31.225284001838016),
    (0.7, 1e-12, 10.708964307480839),
    (0.7, 1e-05, 6.652487889939968),
    (0.7, 0.5, 0.10462269171853342),
    (2.0, 1e-300, 18.590234297297755),
    (2.0, 1e-100, 10.672945439809633),
    (2.0, 1e-12, 3.4490521504828076),
    (2.0, 1e-05, 1.9930914044151196),
    (2.0, 0.1, 0.2864961017568259),
    (30.0, 1e-300, 1.2291393547947973),
    (30.0, 1e-100, 0.6995134479814387),
    (30.0, 1e-12, 0.20908548066626392),
    (30.0, 1e-05, 0.10273957661140407),
    (30.0, 0.001, 0.05002240994739544),
    (1000.0, 1e-300, 0.03676291669948786),
    (1000.0, 1e-100, 0.02080217411496786),
    (1000.0, 1e-12, 0.005699546468426282),
    (1000.0, 1e-05, 0.00193872496986011),
    (1000.0, 0.0001, 0.000902592317141511),
];

/// ε, δ, z.
const NOISE_MULTIPLIERS: [(f64, f64, f64); 20] = [
    (0.001, 1e-300, 36664.4700954285),
    (0.001, 1e-30, 10411.137950399481),
    (0.001, 1e-06, 2436.5524937485807),
    (0.001, 0.5, 0.7408691851956264),
    (0.1, 1e-300, 367.909238577685),
    (0.1, 1e-30, 108.38081240135593),
    (0.1, 1e-06, 36.30469042619578),
    (0.1, 0.5, 0.7016745806207029),
    (1.0, 1e-300, 36.8654978941111),
    (1.0, 1e-30, 11.083102948976993),
    (1.0, 1e-06, 4.224678889326835),
    (1.0, 0.5, 0.5070650314763313),
    (8.0, 1e-300, 4.627006193552799),
    (8.0, 1e-30, 1.4449756686197475),
    (8.0, 1e-06, 0.652935384358216),
    (8.0, 0.5, 0.23591533527680705),
    (300.0, 1e-300, 0.13561815959339094),
    (300.0, 1e-30, 0.064067560735797),
    (300.0, 1e-06, 0.04942082919315094),
    (300.0, 0.5, 0.04075699461174328),
];

/// Not below the truth, which may be half a unit below the golden, and above it by 10⁻¹⁰ at most.
fn assert_just_above(found: f64, golden: f64, what: &str) {
    assert!(
        found >= golden.next_down() && found <= golden * (1.0 + 1e-10),
        "{what}: {found:e}, not {golden:e}"
    );
}

#[test]
fn delta_is_that_of_mpmath() {
    for (z, e, golden) in DELTAS {
        assert_just_above(delta(z, e).unwrap(), golden, &format!("δ({z}, {e})"));
    }
}

#[test]
fn epsilon_is_that_of_mpmath() {
    for (z, d, golden) in EPSILONS {
        assert_just_above(epsilon(z, d).unwrap(), golden, &format!("ε({z}, {d:e})"));
    }
}

#[test]
fn noise_multiplier_is_that_of_mpmath() {
    for (e, d, golden) in NOISE_MULTIPLIERS {
        assert_just_above(noise_multiplier(e, d).unwrap(), golden, &format!("z({e}, {d:e})"));
    }
}

/// The noise multipliers and ε of the paper's table, at δ = 10⁻⁶.
#[test]
fn epsilon_is_that_of_the_paper() {
    for (z, golden) in [(0.341, 17.6476), (0.600, 8.8405), (2.231, 1.9995)] {
        let found = epsilon(z, 1e-6).unwrap();
        assert!((found - golden).abs() < 1e-4, "{z}: {found}, not {golden}");
    }
}

/// What the searches return keeps its promise, and not by much more than it must. Also far outside of all use.
#[test]
fn there_and_back() {
    for i in -30..=30 {
        let here = 10f64.powf(f64::from(i) / 4.0);
        for d in [5e-324, 1e-310, 1e-200, 1e-50, 1e-12, 1e-6, 0.1, 0.5, 0.999, 1.0f64.next_down()] {
            let z = noise_multiplier(here, d).unwrap();
            assert!(delta(z, here).unwrap() <= d, "ε = {here}, δ = {d:e}");
            assert!(delta(z * (1.0 - 1e-6), here).unwrap() >= d, "ε = {here}, δ = {d:e}");
            let e = epsilon(here, d).unwrap();
            assert!(delta_above(here, e) <= d, "z = {here}, δ = {d:e}");
        }
    }
}

#[test]
fn delta_falls_with_noise_and_with_epsilon() {
    for z in [1e-3, 0.1, 1.0, 10.0, 1e3, 1e6, 1e9] {
        let mut before = 1.0;
        for i in 0..60 {
            let d = delta(z, (0.5 / z + 0.1 * f64::from(i)) / z).unwrap();
            assert!(
                d <= before && d > 0.0 && d >= delta(z * 1.01, (0.5 / z + 0.1 * f64::from(i)) / z).unwrap()
            );
            before = d;
        }
    }
}

#[test]
fn the_ends_of_the_range_are_cautious() {
    // Zero is never claimed.
    assert!(delta(1e300, 1e300).unwrap() > 0.0 && delta(10.0, 1e4).unwrap() > 0.0);
    assert_eq!(delta(1e-320, 1.0).unwrap(), 1.0);
    assert!(delta(f64::MAX, 5e-324).unwrap() < 1e-300);
    // δ(0) = erf(1/(z·√8)) is 0.0040 at z = 100.
    assert_eq!(epsilon(100.0, 0.004).unwrap(), 0.0);
    assert!(epsilon(100.0, 0.0039).unwrap() > 0.0);
    // No f64 is large enough.
    assert!(epsilon(1e-160, 1e-6).is_err() && noise_multiplier(5e-324, 5e-324).is_err());
}

#[test]
fn zcdp_is_half_the_inverse_square() {
    assert_just_above(zcdp(1.0).unwrap(), 0.5, "ρ(1)");
    assert_just_above(zcdp(0.1).unwrap(), 50.0, "ρ(0.1)");
    assert!(zcdp(f64::MAX).unwrap() > 0.0);
}

#[test]
fn bad_input_is_named() {
    for bad in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        for error in [delta(bad, 1.0), epsilon(bad, 1e-6), zcdp(bad)] {
            assert!(error.unwrap_err().to_string().starts_with("noise_multiplier must be in (0, ∞), got "));
        }
        for error in [delta(1.0, bad), noise_multiplier(bad, 1e-6)] {
            assert!(error.unwrap_err().to_string().starts_with("epsilon must be in (0, ∞), got "));
        }
    }
    for bad in [0.0, -1e-6, 1.0, f64::NAN] {
        for error in [epsilon(1.0, bad), noise_multiplier(1.0, bad)] {
            assert!(error.unwrap_err().to_string().starts_with("delta must be in (0, 1), got "));
        }
    }
}
