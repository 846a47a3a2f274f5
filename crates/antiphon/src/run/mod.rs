//! Runs: who took part in which step, written down while training and checked afterwards.

pub mod audit;
pub mod log;
