//! Federated, user-level training.

pub mod clipped;
pub mod window;
