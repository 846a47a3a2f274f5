//! The sum against a slow one, and against itself on other numbers of threads.

use super::differences::gradient;
use super::{distance, normals};
use crate::engine::{Batch, PerExample, Totals};
use crate::layers::Image;
use crate::models;
use crate::network::{Initial, Network};
use antiphon::noise::{Cipher, Key};

struct Case {
    network: Network,
    parameters: Vec<f32>,
    inputs: Vec<f32>,
    labels: Vec<u8>,
    examples: Vec<usize>,
}

impl Case {
    /// More examples in the data than in the batch, in another order, one twice.
    fn new(network: Network, examples: usize) -> Case {
        let parameters = network.initial(Initial::Uniform, &Key::from_seed(5, Cipher::ChaCha20));
        let inputs = normals(6, (examples + 3) * network.inputs());
        let labels = (0..examples + 3).map(|i| (i * i % network.classes()) as u8).collect();
        let mut examples: Vec<usize> = (0..examples).map(|i| (7 * i + 2) % (examples + 3)).collect();
        if examples.len() > 1 {
            examples[1] = examples[0];
        }
        Case { network, parameters, inputs, labels, examples }
    }

    fn batch(&self) -> Batch<'_> {
        Batch { inputs: &self.inputs, labels: &self.labels, examples: &self.examples }
    }

    fn sum(&self, clip: f64) -> (Vec<f64>, Totals) {
        let mut sum = vec![f64::NAN; self.parameters.len()];
        let totals = self.network.clipped_sum(&self.parameters, self.batch(), clip, &mut sum);
        (sum, totals.expect("a step"))
    }
}

fn on_threads<T: Send>(threads: usize, f: impl FnOnce() -> T + Send) -> T {
    rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads").install(f)
}

fn cases() -> Vec<Case> {
    vec![
        Case::new(models::small(8, 8, 10), 37),
        Case::new(models::small(28, 28, 10), 9),
        Case::new(models::linear(Image::new(5, 3, 2), 7), 20),
        Case::new(models::cifar10(), 3),
    ]
}

#[test]
fn is_the_sum_of_clipped_gradients() {
    for case in cases() {
        let parameters: Vec<f64> = case.parameters.iter().map(|x| f64::from(*x)).collect();
        let inputs: Vec<f64> = case.inputs.iter().map(|x| f64::from(*x)).collect();
        let n = case.network.inputs();
        let each: Vec<(f64, Vec<f64>, f64)> = (case.examples.iter())
            .map(|i| {
                let (loss, g) = gradient(&case.network, &parameters, &inputs[i * n..][..n], case.labels[*i]);
                let norm = g.iter().map(|x| x * x).sum::<f64>().sqrt();
                (loss, g, norm)
            })
            .collect();
        let mut norms: Vec<f64> = each.iter().map(|(_, _, norm)| *norm).collect();
        norms.sort_by(f64::total_cmp);
        // None, some, all are clipped.
        for clip in [2.0 * norms[norms.len() - 1], 0.999 * norms[norms.len() / 2], 0.5 * norms[0]] {
            let mut expected = vec![0.0; parameters.len()];
            for (_, g, norm) in &each {
                let factor = (clip / norm).min(1.0);
                expected.iter_mut().zip(g).for_each(|(sum, g)| *sum += factor * g);
            }
            let (sum, totals) = case.sum(clip);
            assert!(distance(&sum, &expected) < 1e-5, "{}", distance(&sum, &expected));
            let loss: f64 = each.iter().map(|(loss, _, _)| loss).sum();
            assert!((totals.loss - loss).abs() < 1e-5 * loss);
            assert!((totals.norms - norms.iter().sum::<f64>()).abs() < 1e-5 * totals.norms);
            assert_eq!(totals.examples, case.examples.len());
            assert_eq!(totals.clipped, norms.iter().filter(|norm| **norm > clip).count());
            assert_eq!(totals.not_finite, 0);
            let evaluated = case.network.evaluate(&case.parameters, case.batch()).expect("figures");
            assert_eq!(evaluated, Totals { clipped: 0, norms: 0.0, ..totals });
        }
    }
}

#[test]
fn threads_change_no_bit() {
    for case in cases() {
        let first = on_threads(1, || case.sum(0.3));
        for threads in [2, 3, 7] {
            assert!(first == on_threads(threads, || case.sum(0.3)), "{threads} threads");
        }
    }
}

#[test]
fn the_sum_is_exact() {
    // The sum of a batch is the sum of the sums of its examples: no addition has rounded.
    let case = Case::new(models::small(8, 8, 10), 21);
    let (whole, _) = case.sum(0.7);
    let mut parts = vec![0.0; whole.len()];
    for example in &case.examples {
        let one = Batch { examples: &[*example], ..case.batch() };
        let mut sum = vec![0.0; whole.len()];
        case.network.clipped_sum(&case.parameters, one, 0.7, &mut sum).expect("a step");
        assert!(sum.iter().map(|x| x * x).sum::<f64>().sqrt() <= 0.7 * (1.0 + 1e-12));
        parts.iter_mut().zip(sum).for_each(|(parts, sum)| *parts += sum);
    }
    assert_eq!(whole, parts);
}

#[test]
fn what_is_not_finite_contributes_nothing() {
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX] {
        for network in [models::small(8, 8, 10), models::linear(Image::new(8, 8, 1), 10)] {
            let mut case = Case::new(network, 10);
            let n = case.network.inputs();
            case.examples = (0..10).collect();
            case.inputs[4 * n + 9] = bad;
            // Signs that make ∞ − ∞ where there is something to subtract.
            case.inputs[4 * n + 10] = -bad;
            let (all, totals) = case.sum(0.5);
            assert!(all.iter().all(|x| x.is_finite()));
            if bad == f32::MAX {
                continue;
            }
            assert_eq!((totals.examples, totals.not_finite), (10, 1), "{bad}");
            assert!(totals.loss.is_finite() && totals.norms.is_finite());
            case.examples.remove(4);
            assert!(all == case.sum(0.5).0, "{bad}");
        }
    }
}

#[test]
fn empty_batches_and_what_does_not_fit() {
    let mut case = Case::new(models::small(8, 8, 10), 5);
    case.examples.clear();
    assert_eq!(case.sum(1.0), (vec![0.0; case.parameters.len()], Totals::default()));
    let refused = |case: &Case, clip: f64, length: usize| {
        let mut sum = vec![0.0; length];
        case.network
            .clipped_sum(&case.parameters, case.batch(), clip, &mut sum)
            .expect_err("refused")
            .to_string()
    };
    let d = case.parameters.len();
    assert!(refused(&case, 0.0, d).starts_with("clip_norm must be in [1e-30, 1e30]"));
    assert!(refused(&case, 1.0, d - 1).starts_with("length of sum must be"));
    case.examples = vec![8];
    assert_eq!(refused(&case, 1.0, d), "example must be below 8, got 8");
    case.examples = vec![7];
    case.labels[7] = 10;
    assert_eq!(refused(&case, 1.0, d), "label of example 7 must be below 10, got 10");
    case.inputs.pop();
    assert!(refused(&case, 1.0, d).starts_with("inputs must be 8 examples of 64 numbers"));
}

#[test]
fn parameters_to_start_from() {
    let network = models::cifar10();
    assert_eq!(network.parameters(), 550_570);
    assert_eq!(models::small(28, 28, 10).parameters(), 27_930);
    let key = Key::from_seed(1, Cipher::ChaCha20);
    let start = network.initial(Initial::Uniform, &key);
    assert!(start == on_threads(1, || network.initial(Initial::Uniform, &key)));
    // Second convolution: 288 inputs and outputs, uniform up to the bound, biases zero.
    let (weights, biases) = start[896..][..9248].split_at(9216);
    let bound = (6.0f32 / 576.0).sqrt();
    let square = weights.iter().map(|x| f64::from(x * x)).sum::<f64>() / 9216.0;
    assert!(weights.iter().all(|x| x.abs() <= bound) && biases.iter().all(|x| *x == 0.0));
    assert!((square / f64::from(bound * bound / 3.0) - 1.0).abs() < 0.05);
    // Normal weights: convolutions of 3 and 32 channels to 32 and 64, and the first dense layer.
    let start = network.initial(Initial::Normal, &key);
    let variance = |at: usize, count: usize| {
        start[at..at + count].iter().map(|x| f64::from(x * x)).sum::<f64>() / count as f64
    };
    let third = 896 + 9248;
    let dense = 550_570 - 1_290 - 262_272;
    for (at, count, expected) in
        [(0, 864, 1.0 / 27.0), (third, 18_432, 1.0 / 288.0), (dense, 262_144, 2.0 / (2048.0 + 128.0))]
    {
        // Four standard deviations of a mean of squares of normals.
        let tolerance = 4.0 * (2.0 / count as f64).sqrt();
        assert!((variance(at, count) / expected - 1.0).abs() < tolerance, "{at}");
        assert!(start[at..at + count].iter().any(|x| f64::from(*x) > 2.5 * expected.sqrt()));
    }
    assert!(start[864..896].iter().all(|x| *x == 0.0));
}

/// An example that is not finite must not leave anything behind for the next one in its place: pooling leaves out an odd last row, whose
/// gradients nobody writes, and tanh multiplies them by what may be no number.
#[test]
fn an_example_that_is_not_finite_changes_no_other() {
    use crate::layers::activation::Activation;
    let network = Network::new(Image::new(5, 5, 1)).conv(1).then(Activation::Tanh).pool().dense(2);
    let mut parameters = vec![0.1f32; network.parameters()];
    (parameters[0], parameters[1]) = (1e38, -1e38);
    // The first has pixels that are infinite, the others are small.
    let inputs: Vec<f32> =
        (0..75).map(|i| if i < 25 { f32::INFINITY } else { 1e-38 * (i % 7) as f32 }).collect();
    let sum = |examples: &[usize]| {
        let mut sum = vec![0.0; network.parameters()];
        let batch = Batch { inputs: &inputs, labels: &[0, 1, 0], examples };
        let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
        let totals = pool.install(|| network.clipped_sum(&parameters, batch, 1.0, &mut sum)).unwrap();
        (totals.not_finite, sum)
    };
    let (bad, with) = sum(&[0, 1, 1, 1, 2]);
    let (good, without) = sum(&[1, 1, 1, 2]);
    assert_eq!((bad, good), (1, 0));
    assert_eq!(with, without);
}
