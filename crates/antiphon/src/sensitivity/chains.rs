//! Chains: sums of weights at distances of at least b, by the dynamic programme (2.4) of docs/theory.md.

/// The largest sum of at most k non-negative weights at distances of at least b, and where it is reached:
///
/// ```text
/// best(i, c) = max( best(i−1, c),  weight_i + best(i−b, c−1) ),   best over steps up to i.
/// ```
pub(super) fn best_chain(weights: &[f64], b: usize, k: usize) -> (f64, Vec<usize>) {
    best_chain_by_place(weights.iter().map(|weight| move |_| *weight), b, k)
}

/// The same where the weight of a step depends on how many steps of the chain come before it.
pub(super) fn best_chain_by_place<W: Fn(usize) -> f64>(
    weights: impl ExactSizeIterator<Item = W>,
    b: usize,
    k: usize,
) -> (f64, Vec<usize>) {
    let (row, n) = (k + 1, weights.len());
    let mut table = Vec::new();
    fill_table(weights, b, k, &mut table);
    let mut chain = Vec::new();
    // A shorter chain may weigh more where places matter.
    let (value, length) =
        (0..=k).map(|c| (table[n * row + c], c)).fold((0.0, 0), |a, b| if b.0 > a.0 { b } else { a });
    let (mut i, mut c) = (n, length);
    while i > 0 && c > 0 {
        if table[i * row + c] > table[(i - 1) * row + c] {
            chain.push(i - 1);
            i = i.saturating_sub(b);
            c -= 1;
        } else {
            i -= 1;
        }
    }
    chain.reverse();
    (value, chain)
}

/// Row p of the table holds best(p−1, c) for c = 0..=k: the best chain of c steps, or fewer, among the first p. The last
/// of c steps has the weight of place c − 1. (Fewer than c − 1 may come before it, which only makes a maximum larger.)
pub(super) fn fill_table<W: Fn(usize) -> f64>(
    weights: impl Iterator<Item = W>,
    b: usize,
    k: usize,
    table: &mut Vec<f64>,
) {
    let row = k + 1;
    table.clear();
    table.resize(row, 0.0);
    for (i, weight) in weights.enumerate() {
        let (before, last) = ((i + 1).saturating_sub(b) * row, i * row);
        table.push(0.0);
        for c in 1..=k {
            table.push(table[last + c].max(weight(c - 1) + table[before + c - 1]));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sensitivity::testing::{Noise, all_patterns};

    #[test]
    fn the_best_chain_is_the_best_of_all_patterns() {
        let mut noise = Noise(13);
        for (n, b, k) in [(1, 1, 1), (6, 1, 4), (9, 2, 3), (10, 3, 4), (11, 4, 2), (12, 5, 3), (7, 7, 1)] {
            let weights: Vec<f64> = (0..n).map(|_| noise.uniform()).collect();
            let sum = |pattern: &[usize]| pattern.iter().map(|i| weights[*i]).sum::<f64>();
            let expected = all_patterns(n, b, k).iter().map(|p| sum(p)).fold(0.0, f64::max);
            let (value, chain) = best_chain(&weights, b, k);
            assert!((value - expected).abs() < 1e-14 && (sum(&chain) - expected).abs() < 1e-14);
            assert!(chain.len() <= k && chain.windows(2).all(|pair| pair[1] - pair[0] >= b));
        }
    }
}
