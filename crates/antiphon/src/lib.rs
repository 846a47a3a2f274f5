//! antiphon
pub mod error;
pub mod linalg;
pub mod schema;
pub mod workload;
pub use error::{Error, Result};
