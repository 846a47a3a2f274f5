//! antiphon
pub mod error;
pub mod linalg;
pub mod mechanism;
pub mod optimize;
pub mod schema;
pub mod sensitivity;
pub mod workload;
pub use error::{Error, Result};
