//! Maximum over 2×2 pixels, channel by channel. A last odd row or column is left out.

use super::Image;
use crate::real::Real;
use pulp::Arch;

/// Pooling of one image.
#[derive(Clone, Copy, Debug)]
pub struct Pool {
    /// What goes in.
    pub input: Image,
}

impl Pool {
    /// What comes out.
    pub fn output(self) -> Image {
        Image { height: self.input.height / 2, width: self.input.width / 2, ..self.input }
    }

    /// The four pixels that make pixel (y, x), row by row.
    fn window(self, y: usize, x: usize) -> [usize; 4] {
        [(0, 0), (0, 1), (1, 0), (1, 1)].map(|(i, j)| self.input.at(2 * y + i, 2 * x + j))
    }

    /// One image through the layer.
    pub fn forward<T: Real>(self, input: &[T], output: &mut [T]) {
        let (to, n) = (self.output(), self.input.channels);
        Arch::new().dispatch(|| {
            for y in 0..to.height {
                for x in 0..to.width {
                    let four = self.window(y, x).map(|at| &input[at..at + n]);
                    let out = &mut output[to.at(y, x)..][..n];
                    for c in 0..n {
                        out[c] = four.map(|pixel| pixel[c]).into_iter().reduce(greater).unwrap_or_default();
                    }
                }
            }
        });
    }

    /// The gradient of the output to that of the input: it goes to the first of the largest pixels.
    pub fn backward<T: Real>(self, input: &[T], output: &[T], output_gradient: &[T], gradient: &mut [T]) {
        let (to, n) = (self.output(), self.input.channels);
        Arch::new().dispatch(|| {
            for y in 0..to.height {
                for x in 0..to.width {
                    let four = self.window(y, x);
                    let (largest, d) = (&output[to.at(y, x)..][..n], &output_gradient[to.at(y, x)..][..n]);
                    // Zero after it has been given away.
                    let mut left = [T::default(); BLOCK];
                    for first in (0..n).step_by(BLOCK) {
                        let count = BLOCK.min(n - first);
                        let (left, largest) = (&mut left[..count], &largest[first..first + count]);
                        left.copy_from_slice(&d[first..first + count]);
                        for at in four {
                            let input = &input[at + first..][..count];
                            let gradient = &mut gradient[at + first..][..count];
                            for c in 0..count {
                                let taken = input[c] == largest[c];
                                gradient[c] = if taken { left[c] } else { T::default() };
                                left[c] = if taken { T::default() } else { left[c] };
                            }
                        }
                    }
                }
            }
        });
        self.clear_rest(gradient);
    }

    /// Zero where a last odd row or column is left out. Activations work in place, so what an example left there (not a number,
    /// perhaps) would be multiplied on for the next one.
    fn clear_rest<T: Real>(self, gradient: &mut [T]) {
        let Image { height, width, channels } = self.input;
        let rows = height / 2 * 2..height;
        for at in rows.map(|y| self.input.at(y, 0)) {
            gradient[at..at + width * channels].fill(T::default());
        }
        let columns = width / 2 * 2..width;
        for at in columns.flat_map(|x| (0..height).map(move |y| self.input.at(y, x))) {
            gradient[at..at + channels].fill(T::default());
        }
    }
}

/// Channels that are worked on together.
const BLOCK: usize = 32;

/// The greater one, or the one that is not a number.
#[inline(always)]
fn greater<T: Real>(largest: T, x: T) -> T {
    // The first comparison is false for a NaN on either side; the second finds one in x.
    #[allow(clippy::eq_op)]
    if x > largest || x != x { x } else { largest }
}
