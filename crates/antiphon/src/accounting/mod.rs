//! Accounting: from noise to privacy, and back.
//!
//! A run with correlated noise is one Gaussian mechanism, whatever the number of its steps: the sensitivity of the
//! whole stream is in the noise multiplier. So its privacy is a closed formula, and no composition is needed.
//!
//! Every figure is rounded toward caution: pessimistic by at most what its function says, never optimistic.

pub mod gaussian;
