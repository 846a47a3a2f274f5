//! The trees as docs/FORMAT.md defines them: slow, and written from that page alone.

use crate::linalg::dense::{self, Matrix};

/// The nodes (l, q) of the tree, level by level from the leaves to the root.
fn nodes(n: usize) -> Vec<(usize, usize)> {
    let mut nodes = Vec::new();
    for level in 0.. {
        let count = n.div_ceil(1 << level);
        nodes.extend((0..count).map(|place| (level, place)));
        if count == 1 {
            break;
        }
    }
    nodes
}

/// Row (l, q) is one on the steps q·2^l, …, (q+1)·2^l − 1.
pub fn tree(n: usize) -> Matrix {
    let nodes = nodes(n);
    dense::from_fn(nodes.len(), n, |i, step| f64::from(step >> nodes[i].0 == nodes[i].1))
}

/// The weights of all nodes in the estimates of the n prefix sums.
pub fn online_estimates(n: usize) -> Matrix {
    let nodes = nodes(n);
    let root = nodes[nodes.len() - 1].0;
    let mut b = Matrix::zeros(n, nodes.len());
    for t in 0..n {
        if t + 1 == n {
            add_estimate(&mut b, t, root, 0, 1.0);
            continue;
        }
        // The subtrees that the first t + 1 steps fill, the largest first.
        let mut first = 0;
        for level in (0..=root).rev().filter(|level| ((t + 1) >> level) & 1 == 1) {
            add_estimate(&mut b, t, level, first >> level, 1.0);
            first += 1 << level;
        }
    }
    b
}

/// Adds `factor` times the estimate at a node to row t: its own weight, and the rest from the nodes below.
fn add_estimate(b: &mut Matrix, t: usize, level: usize, place: usize, factor: f64) {
    let n = b.nrows();
    if place >= n.div_ceil(1 << level) {
        return; // virtual steps only
    }
    let before: usize = (0..level).map(|l| n.div_ceil(1 << l)).sum();
    let size = (1u64 << level) as f64;
    let own = size / (2.0 * size - 1.0);
    b[(t, before + place)] += factor * own;
    if level > 0 {
        add_estimate(b, t, level - 1, 2 * place, factor * (1.0 - own));
        add_estimate(b, t, level - 1, 2 * place + 1, factor * (1.0 - own));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_of_five_steps_by_hand() {
        let c = tree(5);
        let rows: Vec<Vec<f64>> = (0..c.nrows()).map(|i| (0..5).map(|j| c[(i, j)]).collect()).collect();
        assert_eq!(rows.len(), 5 + 3 + 2 + 1);
        assert_eq!(rows[2], [0.0, 0.0, 1.0, 0.0, 0.0]);
        assert_eq!(rows[6], [0.0, 0.0, 1.0, 1.0, 0.0]);
        assert_eq!(rows[7], [0.0, 0.0, 0.0, 0.0, 1.0]); // its other step is virtual
        assert_eq!(rows[8], [1.0, 1.0, 1.0, 1.0, 0.0]);
        assert_eq!(rows[10], [1.0; 5]);
        // The sum of two steps: 2/3 of their node, 1/3 of the leaves.
        let b = online_estimates(5);
        let row: Vec<f64> = (0..11).map(|j| b[(1, j)]).collect();
        let third = 1.0 / 3.0;
        let expected = [third, third, 0.0, 0.0, 0.0, 2.0 * third, 0.0, 0.0, 0.0, 0.0, 0.0];
        assert!(row.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-15), "{row:?}");
    }
}
