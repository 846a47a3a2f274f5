//! antiphon
pub mod atomic;
pub mod error;
pub mod file;
pub mod linalg;
pub mod mechanism;
pub mod npy;
pub mod optimize;
pub mod schema;
pub mod sensitivity;
pub mod verify;
pub mod workload;
pub use error::{Error, Result};
