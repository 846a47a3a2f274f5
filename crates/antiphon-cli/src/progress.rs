//! The progress bar and Ctrl-C.

use antiphon::optimize::{Phase, Progress};
use antiphon::plan::Comparing;
use antiphon::text::counted;
use antiphon_train::data::fetch::Fetching;
use indicatif::{ProgressBar, ProgressStyle};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A bar on standard error (none when that is not a terminal), and a flag that Ctrl-C sets.
pub struct Watch {
    bar: ProgressBar,
    stopped: Arc<AtomicBool>,
    /// ln of the gap that ends the work.
    goal: f64,
}

impl Watch {
    /// Starts watching for work that ends at this gap. The first Ctrl-C asks the work to stop, the second one stops it.
    pub fn start(gap: f64) -> anyhow::Result<Self> {
        let stopped = Arc::new(AtomicBool::new(false));
        let flag = stopped.clone();
        ctrlc::set_handler(move || {
            if flag.swap(true, Ordering::SeqCst) {
                std::process::exit(130);
            }
            eprintln!(
                "antiphon: stopping after this step; press Ctrl-C again to stop at once (no output file is left incomplete)"
            );
        })?;
        // The bar runs in the logarithm of the gap, from 1 down to the goal.
        let bar = ProgressBar::new(1000);
        bar.set_style(ProgressStyle::with_template("{bar:30} {msg} [{elapsed}]")?);
        // The time goes on where one step takes long.
        bar.enable_steady_tick(Duration::from_millis(500));
        Ok(Watch { bar, stopped, goal: gap.min(0.5).ln() })
    }

    /// An observer for the library.
    pub fn observe(&self, progress: &Progress) -> bool {
        let gap = progress.gap();
        if progress.phase == Phase::Designing {
            let reached = match gap.is_finite() {
                true => format!("{:.2} % above the best possible", 100.0 * gap),
                false => "shorter epochs first".into(),
            };
            self.bar.set_message(format!("designing, evaluation {}, {reached}", progress.iteration));
            return !self.stopped();
        }
        let done = (gap.clamp(1e-15, 1.0).ln() / self.goal).clamp(0.0, 1.0);
        self.bar.set_position((1000.0 * done) as u64);
        let phase = match progress.phase {
            Phase::Iterating | Phase::Designing => "",
            Phase::Forming => ", forming the matrix",
            Phase::Certifying => ", certifying",
        };
        self.bar.set_message(format!(
            "iteration {}, loss {:.6e}, gap {gap:.1e}{phase}",
            progress.iteration, progress.loss
        ));
        !self.stopped()
    }

    /// An observer for comparisons: the bar counts mechanisms.
    pub fn observe_comparison(&self, comparing: &Comparing<'_>) -> bool {
        let (done, all) = comparing.done;
        let (place, of) = comparing.tried;
        let part = place as f64 / of.max(1) as f64;
        self.bar.set_position((1000.0 * (done as f64 + part) / all.max(1) as f64) as u64);
        let optimizing = comparing
            .optimizing
            .map_or(String::new(), |progress| format!(", optimizing, iteration {}", progress.iteration));
        self.bar.set_message(format!(
            "{} of {all}: {}, {}{optimizing}",
            done + 1,
            comparing.family.name(),
            counted(comparing.stamps, "stamp")
        ));
        !self.stopped()
    }

    /// An observer for fetches: the bar counts tasks.
    pub fn observe_fetch(&self, fetching: &Fetching) -> bool {
        let (done, all) = fetching.done;
        self.bar.set_position((1000 * done / all.max(1)) as u64);
        self.bar.set_message(fetching.task);
        !self.stopped()
    }

    /// Takes the bar away.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }

    /// Whether Ctrl-C was pressed.
    pub fn stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }
}

/// Work that cannot say how far it is: a sign of life on standard error (none when that is not a terminal).
pub fn busy<T>(what: &'static str, work: impl FnOnce() -> T) -> T {
    let bar = ProgressBar::new_spinner().with_message(what);
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} [{elapsed}]") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(100));
    let done = work();
    bar.finish_and_clear();
    done
}

/// A bar that counts, on standard error (none when that is not a terminal).
pub fn counter(length: u64, template: &str) -> ProgressBar {
    let bar = ProgressBar::new(length);
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}
