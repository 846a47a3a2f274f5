//! A client's update, clipped, into the sum of a round. What may be in that sum is the business of [`antiphon::clip`]; here it runs
//! with vectors.

use antiphon::clip::{Clip, squared_norm};
use pulp::{Arch, Simd, WithSimd};

/// Adds a client's update to the sum, scaled down as the rule says, and returns its squared norm before that. An update
/// that is not finite adds nothing, and its squared norm is not finite.
///
/// # Panics
///
/// If the update is shorter than the sum.
pub fn add(clip: Clip, update: &[f32], sum: &mut [f64]) -> f64 {
    Arch::new().dispatch(Add { clip, update, sum })
}

/// Not a closure: those are not always inlined, and then run without vectors.
struct Add<'a> {
    clip: Clip,
    update: &'a [f32],
    sum: &'a mut [f64],
}

impl WithSimd for Add<'_> {
    type Output = f64;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> f64 {
        let squared = squared_norm(self.update);
        self.clip.add(
            &[self.clip.factor(squared)],
            #[inline(always)]
            |_| self.update,
            self.sum,
        );
        squared
    }
}

#[cfg(test)]
mod tests {
    use super::add;
    use antiphon::clip::Clip;

    fn norm(x: &[f64]) -> f64 {
        x.iter().map(|x| x * x).sum::<f64>().sqrt()
    }

    #[test]
    fn contributions_are_at_most_the_clipping_norm() {
        let update: Vec<f32> = (0..1003).map(|i| ((i * 37 % 101) as f32 - 50.0) / 50.0).collect();
        let exact = update.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>();
        for (clip, length) in [(0.5, 0.5), (1e3, exact.sqrt())] {
            let (rule, mut sum) = (Clip::new(clip, update.len()).unwrap(), vec![0.0; update.len()]);
            let squared = add(rule, &update, &mut sum);
            assert!((squared / exact - 1.0).abs() < 1e-12);
            assert!(norm(&sum) <= clip && (norm(&sum) / length - 1.0).abs() < 1e-6, "{clip}");
            let once = sum.clone();
            add(rule, &update, &mut sum);
            assert!(sum.iter().zip(&once).all(|(sum, once)| *sum == 2.0 * once));
        }
    }

    #[test]
    fn updates_that_are_not_finite_add_nothing() {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let (rule, mut sum) = (Clip::new(1.0, 20).unwrap(), vec![0.0; 20]);
            let mut update = vec![1.0; 20];
            update[7] = bad;
            assert!(!add(rule, &update, &mut sum).is_finite());
            assert_eq!(sum, [0.0; 20]);
        }
    }
}
