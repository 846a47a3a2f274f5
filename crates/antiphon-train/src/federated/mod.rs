//! Federated, user-level training: rounds are steps, and users are units.
//!
//! In every round some users train the server's model on their own text and send how it changed; the server clips every update as a whole, adds
//! them up, and goes on as with gradients: noise, division by a constant, momentum, rate ([`crate::trainer`]). So all that protects
//! examples protects users here, and nothing of it is written twice: this room has the clients.
//!
//! [`client`] is what a client does and what becomes of its update, [`positions`] the text that it learns from, [`window`] the model, and
//! [`Federated`] the task that they make up.

pub mod client;
pub mod positions;
mod task;
pub mod window;

#[cfg(test)]
pub(crate) use task::Answer;
pub use task::Federated;
