//! Federated, user-level training.

pub mod window;
