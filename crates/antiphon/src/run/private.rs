//! The run.

use super::guard::{Changes, Guard};
use super::log::Writer;
use super::sampling::Samples;
use super::state::{Identity, Seal, State};
use super::who::Who;
use super::{Privacy, Sampled, Settings, Unit};
use crate::accounting::calibrate::Run;
use crate::error::{Error, Result};
use crate::families;
use crate::mechanism::stream::Recurrence;
use crate::mechanism::{Noise, Structured};
use crate::noise::key_file;
use crate::noise::{Key, Origin, Prepared, Rows, Stddev, buffers};
use crate::text::counted;
use crate::verify::Verified;
use std::ops::Range;
use std::path::Path;

/// Numbers to which noise can be added: `f32` and `f64`.
pub trait Sum: Copy + sealed::Sealed {
    /// The number with some noise.
    fn plus(self, noise: f32) -> Self;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for f64 {}
}

impl Sum for f32 {
    fn plus(self, noise: f32) -> f32 {
        self + noise
    }
}

impl Sum for f64 {
    fn plus(self, noise: f32) -> f64 {
        self + f64::from(noise)
    }
}

/// One private run, from its first step to its last.
///
/// `examples/private_run.rs` has a whole one. A key serves one run, which takes it:
///
/// ```compile_fail
/// use antiphon::noise::Key;
/// use antiphon::run::{PrivateRun, Settings};
/// use antiphon::verify::Verified;
///
/// fn twice(mechanism: Verified, settings: &Settings, key: Key) -> antiphon::Result<()> {
///     let one = PrivateRun::new(mechanism.clone(), settings, key)?;
///     let two = PrivateRun::new(mechanism, settings, key)?;
///     Ok(())
/// }
/// ```
pub struct PrivateRun {
    who: Who,
    unit: Unit,
    clip_norm: f64,
    privacy: Privacy,
    identity: Identity,
    key: Key,
    /// Seals states.
    seal: Seal,
    prepared: Prepared,
    rows: Vec<Rows>,
    row: Vec<f32>,
    /// Whether `row` is that of the step that is next.
    ready: bool,
    step: usize,
    /// Who was admitted to the step that is next.
    admitted: Option<Admitted>,
    began: Began,
    restored: bool,
    /// Whether it goes on from an earlier state than the last one, on purpose.
    repeats: bool,
    log: Option<Writer>,
}

struct Admitted {
    units: Vec<u64>,
    changes: Changes,
}

/// Whether a key file knows of this run.
#[derive(Clone, Copy, PartialEq)]
enum Began {
    /// Not yet: this is a new run.
    No,
    /// The run goes on that another process began.
    Elsewhere,
    /// This one did.
    Here,
}

impl PrivateRun {
    /// A run with correlated noise. It takes the key.
    pub fn new(mechanism: Verified, settings: &Settings, key: Key) -> Result<PrivateRun> {
        let privacy = settings.budget.account(Run::Matrix, settings.adjacency)?;
        PrivateRun::accounted(mechanism, settings, privacy, key)
    }

    /// The same where the noise is accounted for already; the budget of the settings does not count then.
    pub fn accounted(
        mechanism: Verified,
        settings: &Settings,
        privacy: Privacy,
        key: Key,
    ) -> Result<PrivateRun> {
        settings.check(&privacy, Run::Matrix)?;
        let stddev = Stddev::of(&mechanism, privacy.noise_multiplier(), settings.clip_norm)?;
        let prepared = Prepared::of(&mechanism, stddev)?;
        let guard = Guard::new(mechanism.schema(), settings.unit, settings.units);
        let id = mechanism.id();
        PrivateRun::with(
            Who::Schema(Box::new((mechanism, guard))),
            id,
            settings,
            privacy,
            stddev,
            &prepared,
            key,
        )
    }

    /// A run of DP-SGD, with one key for the noise and one for the samples: two parts of one key, by [`Key::split`].
    pub fn sampled(sampled: Sampled, settings: &Settings, noise: Key, sampling: Key) -> Result<PrivateRun> {
        let privacy = settings.budget.account(sampled.run(), settings.adjacency)?;
        PrivateRun::sampled_accounted(sampled, settings, privacy, noise, sampling)
    }

    /// The same where the noise is accounted for already.
    pub fn sampled_accounted(
        sampled: Sampled,
        settings: &Settings,
        privacy: Privacy,
        noise: Key,
        sampling: Key,
    ) -> Result<PrivateRun> {
        sampled.check()?;
        settings.check(&privacy, sampled.run())?;
        if noise.fingerprint() == sampling.fingerprint() {
            let allowed = "another one than the key of the noise: make both by splitting one key";
            return Err(Error::argument("the key of the samples", allowed, "the same"));
        }
        // What is said about one and recorded for one must hold for both.
        if (noise.origin(), &noise.record) != (sampling.origin(), &sampling.record) {
            let allowed = "from where the key of the noise is from: make both by splitting one key";
            return Err(Error::argument(
                "the key of the samples",
                allowed,
                format!("{:?}", sampling.origin()),
            ));
        }
        let stddev = sampled.stddev(&privacy, settings.clip_norm)?;
        let independent = Noise::Structured(Structured::formula(families::IDENTITY, 1));
        let prepared = Prepared::new(&independent, sampled.steps, stddev.value())?;
        let units = settings.units.ok_or_else(|| {
            Error::argument("units", "given: a sample is drawn from so many units", "nothing")
        })?;
        let who = match sampled.poisson {
            true => Who::Samples(sampled, Samples::new(units, sampled.sampling_rate, sampling)),
            false => Who::Anybody(sampled),
        };
        PrivateRun::with(who, sampled.describe(), settings, privacy, stddev, &prepared, noise)
    }

    fn with(
        who: Who,
        mechanism: String,
        settings: &Settings,
        privacy: Privacy,
        stddev: Stddev,
        prepared: &Prepared,
        key: Key,
    ) -> Result<PrivateRun> {
        settings.validate()?;
        let ranges = settings.coordinates()?;
        let memory = settings.memory / ranges.len().max(1);
        let rows =
            ranges.into_iter().map(|range| prepared.rows(&key, range, memory)).collect::<Result<Vec<_>>>()?;
        let coordinates = rows.iter().map(Rows::coordinates).sum();
        let sampling_fingerprint = match &who {
            Who::Samples(_, samples) => Some(samples.fingerprint()),
            _ => None,
        };
        let identity = Identity {
            mechanism,
            noise: prepared.id().into(),
            stddev: stddev.value(),
            clip_norm: settings.clip_norm,
            adjacency: privacy.adjacency(),
            unit: settings.unit,
            units: settings.units,
            params: settings.params,
            layout: settings.layout.clone(),
            key_fingerprint: key.fingerprint(),
            sampling_fingerprint,
        };
        Ok(PrivateRun {
            who,
            unit: settings.unit,
            clip_norm: settings.clip_norm,
            privacy,
            identity,
            seal: Seal::new(&key),
            key,
            prepared: prepared.clone(),
            rows,
            row: vec![0.0; coordinates],
            ready: false,
            step: 0,
            admitted: None,
            began: Began::No,
            restored: false,
            repeats: false,
            log: None,
        })
    }

    /// n.
    pub fn steps(&self) -> usize {
        match &self.who {
            Who::Schema(both) => both.0.steps(),
            Who::Samples(sampled, _) | Who::Anybody(sampled) => sampled.steps,
        }
    }

    /// Steps that are done; also the step that is next.
    pub fn step(&self) -> usize {
        self.step
    }

    /// Numbers in a sum: the coordinates of this process.
    pub fn coordinates(&self) -> usize {
        self.row.len()
    }

    /// Which coordinates these are, in the order of the sum; ranges that touch are one.
    pub fn ranges(&self) -> Vec<Range<u64>> {
        self.rows.iter().map(Rows::range).collect()
    }

    /// What it costs.
    pub fn privacy(&self) -> &Privacy {
        &self.privacy
    }

    /// The mechanism, where there is one.
    pub fn mechanism(&self) -> Option<&Verified> {
        match &self.who {
            Who::Schema(both) => Some(&both.0),
            _ => None,
        }
    }

    /// What is sampled, or should be, in a run of DP-SGD.
    pub fn sampling(&self) -> Option<&Sampled> {
        match &self.who {
            Who::Schema(_) => None,
            Who::Samples(sampled, _) | Who::Anybody(sampled) => Some(sampled),
        }
    }

    /// Whether it goes on from a saved state.
    pub fn restored(&self) -> bool {
        self.restored
    }

    /// Whether ε holds for what the run does.
    pub fn valid(&self) -> bool {
        !matches!(self.who, Who::Anybody(_))
    }

    /// How many units there are, where that is known.
    pub fn units(&self) -> Option<usize> {
        self.identity.units
    }

    /// What is protected as a whole.
    pub fn unit(&self) -> Unit {
        self.unit
    }

    /// ζ.
    pub fn clip_norm(&self) -> f64 {
        self.clip_norm
    }

    /// Where the key comes from.
    pub fn origin(&self) -> Origin {
        self.key.origin()
    }

    /// The standard deviation of the numbers in Z.
    pub fn stddev(&self) -> f64 {
        self.identity.stddev
    }

    /// The id of the noise: the coefficients of the mechanism and σ, as they are used.
    pub fn noise_id(&self) -> &str {
        &self.identity.noise
    }

    /// The sample of the step that is next, in a run that draws them; these units, and no others, are to be admitted.
    pub fn sample(&self) -> Option<Vec<usize>> {
        self.sample_of(self.step)
    }

    /// The sample of any step.
    pub fn sample_of(&self, step: usize) -> Option<Vec<usize>> {
        match &self.who {
            Who::Samples(_, samples) if step < self.steps() => Some(samples.step(step)),
            _ => None,
        }
    }

    /// Admits the units that take part in a step, which must be the next one; or refuses, and nothing has happened then.
    ///
    /// Whose contribution is lost on the way counts as having taken part. The same units in the same order may be admitted again while they
    /// wait for their noise; others may not.
    pub fn admit(&mut self, step: usize, units: &[usize]) -> Result<()> {
        self.check_step(step)?;
        let same =
            |admitted: &Admitted| admitted.units.iter().map(|unit| *unit as usize).eq(units.iter().copied());
        if self.admitted.as_ref().is_some_and(same) {
            return Ok(()); // whoever was interrupted before the noise may ask again
        }
        if self.admitted.is_some() {
            return Err(Error::Privacy(format!(
                "step {step} is refused: its participants were admitted already, and wait for their noise"
            )));
        }
        let changes = self.who.check(step, units, self.unit)?;
        self.begin()?;
        let units = units.iter().map(|unit| *unit as u64).collect();
        self.admitted = Some(Admitted { units, changes });
        Ok(())
    }

    /// Adds the noise of the step to the sum of the clipped contributions of those who were admitted. The step is done then.
    pub fn privatize<T: Sum>(&mut self, sum: &mut [T]) -> Result<()> {
        self.check_length("the sum", sum.len())?;
        self.draw()?;
        sum.iter_mut().zip(&self.row).for_each(|(x, noise)| *x = x.plus(*noise));
        Ok(())
    }

    /// Writes the noise of the step, for those who add it themselves. The step is done then.
    pub fn row_into(&mut self, out: &mut [f32]) -> Result<()> {
        self.check_length("the row of noise", out.len())?;
        self.draw()?;
        out.copy_from_slice(&self.row);
        Ok(())
    }

    /// Makes the noise of the next step ahead of time, so that [`PrivateRun::privatize`] and [`PrivateRun::row_into`] only have to add or copy it.
    /// Nothing is given away and no step is taken. Does nothing in a run that has not begun (no step was admitted in this process) or has ended.
    pub fn prepare(&mut self) -> Result<()> {
        if self.began == Began::Here && self.step < self.steps() && !self.ready {
            self.make()?;
        }
        Ok(())
    }

    /// Takes the step without making its noise, for those who make it elsewhere, on a device, from the key and what is returned. The noise of the
    /// step is then that of [`PrivateRun::row_into`] to the last bit, if it is made as a [`Recurrence`] says.
    pub fn made_elsewhere(&mut self) -> Result<Recurrence> {
        let found = self.recurrence(self.step.min(self.steps() - 1))?;
        self.take()?;
        Ok(found)
    }

    /// How the noise of any step is made, where a device can make it.
    pub fn recurrence(&self, step: usize) -> Result<Recurrence> {
        if step >= self.steps() {
            return Err(Error::argument("step", format!("in 0..={}", self.steps() - 1), step));
        }
        self.prepared.recurrence(step).ok_or_else(|| {
            Error::Unsupported(
                "noise can be made on a device for the mechanisms comb-blt, blt and identity: others need more than a few buffers".into(),
            )
        })
    }

    /// The key of the noise, for those who make it elsewhere. Who knows it knows the noise.
    pub fn noise_key(&self) -> &Key {
        &self.key
    }

    /// Refuses now what would be refused later: goes through all steps that are left with the units that a schedule will admit.
    pub fn rehearse(&self, schedule: impl Fn(usize) -> Vec<usize>) -> Result<()> {
        let mut who = match &self.who {
            Who::Schema(both) => both.1.clone(),
            _ => return Ok(()),
        };
        (self.step..self.steps()).try_for_each(|step| {
            let changes = who.check(step, &schedule(step))?;
            who.commit(changes);
            Ok(())
        })
    }

    /// All that another process needs to go on after the last step that is done, except the keys. A step that was admitted and has no
    /// noise yet is not in it.
    ///
    /// Steps after this state that are repeated after a restore get the same noise again. If their sums are not the same to the last bit,
    /// nothing that followed from the first ones may be published.
    pub fn state(&self) -> State {
        let participation = match &self.who {
            Who::Schema(both) => Some(both.1.memory().clone()),
            _ => None,
        };
        let mut state = State {
            antiphon_run_state: 1,
            identity: self.identity.clone(),
            step: self.step,
            participation,
            seal: String::new(),
        };
        state.seal = self.seal.of(&state);
        state
    }

    /// Goes on from a state of this very run: mechanism, noise, clip norm, layout and keys are compared. Only a run that has not begun can
    /// do that.
    ///
    /// Where a later state was kept ([`PrivateRun::state_is_kept`]), this one is refused: see [`PrivateRun::restore_repeating`].
    pub fn restore(&mut self, state: &State) -> Result<()> {
        self.restore_from(state, false)
    }

    /// The same from any state of the run. The steps after it that were made before get the same noise again; if their sums are not the same
    /// to the last bit, nothing that followed from the first ones may be published, and nothing may have been.
    pub fn restore_repeating(&mut self, state: &State) -> Result<()> {
        self.restore_from(state, true)
    }

    /// Says that a state of this moment is where no crash can reach it. From then on no earlier one is restored: going back would use the noise
    /// of the steps between for something else. The key file remembers it; a key without a file does not. An error if a later one was kept:
    /// another process goes on with the run.
    pub fn state_is_kept(&self) -> Result<()> {
        match &self.key.record {
            Some(record) => {
                // One that has not begun will be refused when it does, with the reason.
                let may_be_earlier = self.repeats || self.began == Began::No;
                key_file::record_kept(record, &self.identity.id(), self.step, may_be_earlier)
            }
            None => Ok(()),
        }
    }

    /// Refuses a run that another process has overtaken: before a state is written in place of a later one.
    pub fn check_latest(&self) -> Result<()> {
        let Some(record) = self.key.record.as_ref().filter(|_| self.began != Began::No && !self.repeats)
        else {
            return Ok(());
        };
        match key_file::kept(record, &self.identity.id())? {
            Some(later) if later > self.step => Err(key_file::overtaken(record, later, self.step)),
            _ => Ok(()),
        }
    }

    /// Writes what the noise of later steps is made from beside the key, where there is any ([`PrivateRun::keeps_buffers`]): with it a restored
    /// run goes on at once, and without it the next row takes as long as all rows before it. It is no part of a [`State`]: it is as secret as
    /// the key. Only the owner may read the file, it is replaced as a whole, and it is sealed by the key.
    ///
    /// Write it after the state is where it belongs. If a crash comes between the two, the buffers are older than the state, and only the rows
    /// between are made again.
    pub fn save_buffers(&self, path: &Path) -> Result<()> {
        buffers::write(path, &self.rows)
    }

    /// Goes on from such a file after [`PrivateRun::restore`]. The noise has the same bits with it and without it. A file that is not there
    /// changes nothing; one that is damaged or belongs to something else is an error, and nothing has happened then: the run can go on.
    ///
    /// Returns how many rows have to be made again before that of the next step.
    pub fn restore_buffers(&mut self, path: &Path) -> Result<usize> {
        if path.exists() {
            buffers::read(path, &mut self.rows)?;
            self.rows.iter_mut().try_for_each(|rows| rows.seek(self.step))?;
        }
        Ok(self.rows.iter().map(|rows| rows.seek_cost(self.step)).max().unwrap_or(0))
    }

    /// Whether something is kept of earlier rows beside the key, so that [`PrivateRun::save_buffers`] saves work.
    pub fn keeps_buffers(&self) -> bool {
        self.rows.iter().any(Rows::keeps_buffers)
    }

    fn restore_from(&mut self, state: &State, repeating: bool) -> Result<()> {
        if self.began == Began::Here || self.step > 0 {
            return Err(Error::Privacy("a run that has begun cannot go on from another state".into()));
        }
        if self.log.is_some() {
            return Err(Error::Privacy(
                "a run that writes a log already cannot go on from another state".into(),
            ));
        }
        if state.antiphon_run_state != 1 {
            return Err(Error::argument("the version of the state", "1", state.antiphon_run_state));
        }
        self.identity.check(&state.identity)?;
        if state.seal != self.seal.of(state) {
            return Err(Error::Privacy("the state was changed after the run had given it out".into()));
        }
        if state.step > self.steps() {
            return Err(Error::argument(
                "the step of the state",
                format!("in 0..={}", self.steps()),
                state.step,
            ));
        }
        let kept = match &self.key.record {
            Some(record) if !repeating => key_file::kept(record, &self.identity.id())?,
            _ => None,
        };
        if let Some(kept) = kept.filter(|kept| *kept > state.step) {
            return Err(Error::Privacy(format!(
                "the state is one after {}, and a later one, after {}, was kept: going back would use the noise of the steps between again. \
                 Restore the last state",
                counted(state.step, "step"),
                counted(kept, "step")
            )));
        }
        match (&mut self.who, &state.participation) {
            (Who::Schema(both), Some(memory)) => both.1.restore(memory, state.step)?,
            (Who::Samples(..) | Who::Anybody(_), None) => {}
            _ => {
                let allowed = "there exactly where a schema decides who takes part";
                return Err(Error::argument("the participation in the state", allowed, "not so"));
            }
        }
        self.rows.iter_mut().try_for_each(|rows| rows.seek(state.step))?;
        (self.step, self.began, self.restored, self.repeats) =
            (state.step, Began::Elsewhere, true, repeating);
        Ok(())
    }

    /// Writes from now on who takes part in a step, before its noise is given away: what [`audit`](super::audit) reads. A new run makes a new
    /// file; one that was restored goes on with its own, whose lines must be those of the steps that the state has seen.
    ///
    /// Who took part is as private as the data, and for Poisson samples as secret as the key.
    pub fn log_to(&mut self, path: &Path) -> Result<()> {
        if self.step == 0 && !(self.restored && path.exists()) {
            return self.log_with(Writer::create(path)?);
        }
        let (mut again, mut lines) = (self.who.again(self.unit, self.identity.units), 0);
        let writer = Writer::resume(path, self.step, |line| match line {
            // Those after the state will happen again.
            Some(line) if line.step >= self.step => Ok(()),
            Some(line) => {
                let units: Vec<usize> = line.units.iter().map(|unit| *unit as usize).collect();
                let changes = again.check(line.step, &units, self.unit)?;
                again.commit(changes);
                lines += 1;
                Ok(())
            }
            None if lines == self.step && again.remembers_the_same_as(&self.who) => Ok(()),
            None => Err(Error::Privacy("it is the participation log of another run".into())),
        })?;
        self.log_with(writer)
    }

    /// The same with a log that is open. It must end where the run stands; that its lines are those of this run is up to the caller.
    pub fn log_with(&mut self, log: Writer) -> Result<()> {
        let there = log.last_step().map_or(0, |last| last + 1);
        if there != self.step {
            let allowed = format!("one of {}, as the run has taken", counted(self.step, "step"));
            return Err(Error::argument("the participation log", allowed, counted(there, "step")));
        }
        self.log = Some(log);
        Ok(())
    }

    /// Whether a log says who takes part.
    pub fn is_logged(&self) -> bool {
        self.log.is_some()
    }

    /// Draws the noise of the step into `row`, and takes the step.
    fn draw(&mut self) -> Result<()> {
        self.check_admitted()?;
        if !self.ready {
            self.make()?;
        }
        self.take()
    }

    /// Makes the row of the step that is next.
    fn make(&mut self) -> Result<()> {
        let mut rest = &mut self.row[..];
        for rows in &mut self.rows {
            rows.seek(self.step)?; // an earlier try may have failed halfway
            let (now, later) = rest.split_at_mut(rows.coordinates());
            rows.next_into(now)?;
            rest = later;
        }
        self.ready = true;
        Ok(())
    }

    /// Takes the step: who was admitted has taken part.
    fn take(&mut self) -> Result<()> {
        self.check_admitted()?;
        if let (Some(log), Some(admitted)) = (&mut self.log, &self.admitted) {
            log.append(self.step, &admitted.units)?;
        }
        if let Some(admitted) = self.admitted.take() {
            self.who.commit(admitted.changes);
        }
        self.step += 1;
        self.ready = false;
        Ok(())
    }

    fn check_admitted(&self) -> Result<()> {
        self.check_step(self.step)?;
        match self.admitted {
            Some(_) => Ok(()),
            None => Err(Error::Privacy(format!(
                "step {} has no noise yet: admit those who take part in it first",
                self.step
            ))),
        }
    }

    /// Records in the key's file what the key is used for, before the first number is drawn.
    fn begin(&mut self) -> Result<()> {
        if let (Some(record), Began::No | Began::Elsewhere) = (&self.key.record, self.began) {
            let goes_on_after = (self.began == Began::Elsewhere).then_some(self.step);
            key_file::claim_run(record, &self.identity.id(), goes_on_after)?;
        }
        self.began = Began::Here;
        Ok(())
    }

    fn check_step(&self, step: usize) -> Result<()> {
        let why = match step {
            _ if step >= self.steps() => format!("the run has {}", counted(self.steps(), "step")),
            _ if step < self.step => format!("step {step} was already taken"),
            _ if step > self.step => format!("step {} is next", self.step),
            _ => return Ok(()),
        };
        Err(Error::Privacy(format!("step {step} is refused: {why}")))
    }

    fn check_length(&self, name: &str, length: usize) -> Result<()> {
        match length == self.row.len() {
            true => Ok(()),
            false => Err(Error::argument(name, format!("{} numbers long", self.row.len()), length)),
        }
    }
}
