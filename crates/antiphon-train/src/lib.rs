//! Differentially private training with correlated noise.
//!
//! The rooms: [`data`] has the data sets; [`models`] are the networks, built from [`network`] and [`layers`]; [`engine`] turns
//! parameters and examples into the sum of clipped gradients, and [`clip`] says what may be in that sum.

pub mod clip;
pub mod data;
pub mod engine;
pub mod layers;
pub mod models;
pub mod network;
mod pass;
pub mod product;
pub mod real;

#[cfg(test)]
mod tests;
