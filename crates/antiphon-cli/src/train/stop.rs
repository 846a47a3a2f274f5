//! Ctrl-C, and other signals that ask a process to end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether somebody asked the work to stop. The default one is asked by nobody.
#[derive(Clone, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// From now on the first Ctrl-C or SIGTERM asks the work to stop after its step, and the second one ends the process at once.
    pub fn start() -> anyhow::Result<Stop> {
        let stop = Stop::default();
        let flag = stop.0.clone();
        ctrlc::set_handler(move || {
            if flag.swap(true, Ordering::SeqCst) {
                std::process::exit(130);
            }
            eprintln!("antiphon: stopping after this step; press Ctrl-C again to stop at once");
        })?;
        Ok(stop)
    }

    /// Whether to stop.
    pub fn asked(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}
