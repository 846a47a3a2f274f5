//! Linear algebra: the only room that names faer, rustfft and realfft, and the structured inverse at the heart of the solver.

pub mod block_cyclic;
pub mod convolution;
pub mod dense;
mod lanes;
pub mod minimize;
pub mod quadrature;
pub mod toeplitz;
pub mod vectors;

pub use dense::Matrix;
