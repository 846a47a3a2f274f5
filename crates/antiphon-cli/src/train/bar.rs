//! What is seen of a run while it is trained.

use super::stop::Stop;
use crate::compare::plural;
use crate::output::short_bound;
use crate::progress;
use antiphon::error::Result;
use antiphon_train::design::Design;
use antiphon_train::job::{self, Beginning, Job, Place, Watch};
use antiphon_train::kind::Kind;
use antiphon_train::settings::Settings;
use antiphon_train::task::Task;
use antiphon_train::trainer::{Epoch, State, Trainer};
use indicatif::ProgressBar;
use std::path::PathBuf;

/// The design of a kind for a task, with a sign of life while it is made.
pub fn design(
    kind: Kind,
    stamps: Option<usize>,
    task: &dyn Task,
    settings: &Settings,
    stop: &Stop,
) -> Result<Design> {
    progress::busy("making the mechanism", || job::design(kind, stamps, task, settings, &|_| !stop.asked()))
}

/// A bar, a line for every epoch if there is a table, and what is said where a run begins and where it stops.
pub struct Bar<'a> {
    stop: &'a Stop,
    folder: Option<PathBuf>,
    table: bool,
    steps: usize,
    /// Name and ε.
    words: [String; 2],
    bar: ProgressBar,
}

impl<'a> Bar<'a> {
    /// For a run that is kept somewhere or nowhere; `table` prints a line for every epoch.
    pub fn new(stop: &'a Stop, place: Option<&Place<'_>>, table: bool) -> Bar<'a> {
        let folder = place.map(|place| place.folder.to_path_buf());
        Bar { stop, folder, table, steps: 0, words: Default::default(), bar: ProgressBar::hidden() }
    }

    fn message(&self, epoch: Option<&Epoch>) -> String {
        let figures = epoch.map_or(String::new(), |epoch| {
            format!(", loss {:.3}, accuracy {:.1}%", epoch.train_loss, 100.0 * epoch.test.accuracy)
        });
        let [name, epsilon] = &self.words;
        format!("{name}{figures}, ε = {epsilon},")
    }

    /// Where a run stands that was asked to stop, and whether it can be continued.
    fn say_stopped(&self, step: usize) {
        let kept = match &self.folder {
            Some(folder) => format!("; they are saved in {}", folder.display()),
            None => ", without a checkpoint".into(),
        };
        let steps = self.steps;
        eprintln!("antiphon: stopped after {step} of {steps} step{}{kept}", plural(steps));
    }
}

impl Watch for Bar<'_> {
    /// The bar, at the step where the run stands, and the head of the table with the epochs that are done.
    fn begins(&mut self, job: &Job, trainer: &Trainer<'_>, from: Beginning) {
        let (State { step, epochs, .. }, steps) = (trainer.state(), trainer.steps());
        let folder = self.folder.as_deref().unwrap_or("".as_ref()).display();
        match from {
            Beginning::New => {}
            Beginning::NoCheckpoint => {
                eprintln!("antiphon: resuming {folder} from the beginning: it has no checkpoint yet");
            }
            Beginning::Checkpoint => {
                eprintln!("antiphon: resuming {folder}: {step} of {steps} step{} done", plural(steps));
            }
        }
        let valid = if job.design.valid() { "" } else { " (not valid)" };
        let epsilon = format!("{}{valid}", short_bound(job.privacy.epsilon(), true));
        (self.steps, self.words) = (steps, [job.design.name().into(), epsilon]);
        self.bar =
            progress::counter(steps as u64, "{bar:30} {msg} step {pos} of {len} [{elapsed}, {eta} left]");
        self.bar.set_position(*step as u64);
        self.bar.reset_eta();
        self.bar.set_message(self.message(epochs.last()));
        if self.table {
            let (step, zeroed) = match trainer.task().client() {
                Some(_) => ("round", format!(" {:>7}", "zeroed")),
                None => ("step", String::new()),
            };
            let [epoch, loss, clipped] = ["epoch", "train loss", "clipped"];
            let [tested, accuracy] = ["test loss", "test accuracy"];
            self.bar.suspend(|| {
                say!("  {epoch:>5} {step:>7} {loss:>11} {clipped:>8}{zeroed} {tested:>10} {accuracy:>14}");
                epochs.iter().for_each(line);
            });
        }
    }

    fn step(&mut self, _: &State, epoch: Option<&Epoch>) {
        self.bar.inc(1);
        if let Some(epoch) = epoch {
            self.bar.set_message(self.message(Some(epoch)));
            if self.table {
                self.bar.suspend(|| line(epoch));
            }
        }
    }

    fn ends(&mut self, state: &State) {
        self.bar.finish_and_clear();
        if state.step < self.steps {
            self.say_stopped(state.step);
        }
    }

    fn warns(&mut self, text: &str) {
        eprintln!("antiphon: warning: {text}");
    }

    fn stops(&self) -> bool {
        self.stop.asked()
    }
}

fn line(epoch: &Epoch) {
    let zeroed = epoch.zeroed.map(|zeroed| format!(" {zeroed:>7}")).unwrap_or_default();
    say!(
        "  {:>5} {:>7} {:>11.4} {:>7.1}%{zeroed} {:>10.4} {:>13.2}%",
        epoch.epoch,
        epoch.step,
        epoch.train_loss,
        100.0 * epoch.clipped,
        epoch.test.loss,
        100.0 * epoch.test.accuracy
    );
}
