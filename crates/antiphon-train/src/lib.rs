//! Differentially private training with correlated noise.
//!
//! The rooms: [`data`] has the data sets; [`models`] are the networks, built from [`network`] and [`layers`]; [`engine`] turns
//! parameters and examples into the sum of clipped gradients, and [`antiphon::clip`] says what may be in that sum. [`classification`] puts these
//! together; [`federated`] is the same for users, whose updates are clipped as a whole.
//!
//! A run: [`task`] is what is learnt, [`kind`] names the kinds of noise, [`design`] is the noise of one run and what it costs,
//! [`settings`] say how, [`description`] writes all of it down. [`trainer`] is the loop over a private run, with [`order`] and
//! [`batches`] for who takes part when; [`job`] a whole run with its folder and its log. [`secrets`] are its keys, [`checkpoint`] keeps it through a crash, [`summary`] sums
//! several up. [`unnoised`] is the same loop without noise, to compare with: not private.

mod aligned;
pub mod batches;
pub mod checkpoint;
pub mod classification;
pub mod data;
pub mod description;
pub mod design;
pub mod engine;
pub mod federated;
pub mod job;
pub mod kind;
pub mod layers;
pub mod models;
pub mod network;
pub mod order;
mod pass;
pub mod product;
pub mod real;
pub mod rested;
pub mod secrets;
pub mod settings;
pub mod summary;
pub mod task;
pub mod trainer;
pub mod unnoised;

#[cfg(test)]
mod tests;
