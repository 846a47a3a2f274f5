//! linalg
pub mod dense;
pub use dense::Matrix;
