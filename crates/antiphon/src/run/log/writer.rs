//! Writes a log step by step, and goes on after a kill.

use super::{Limits, Line, Next, Reader, bytes};
use crate::atomic;
use crate::error::{Error, Result};
use crate::schema::MAX_STEPS;
use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Write};
use std::path::{Path, PathBuf};

/// Appends one line per step. Every line goes to the operating system in one piece before [`Writer::append`] returns, so a
/// kill of this process loses none that was appended, and cuts off at most the last one.
///
/// No other process can write the log meanwhile.
#[derive(Debug)]
pub struct Writer {
    file: File,
    path: PathBuf,
    last_step: Option<usize>,
}

impl Writer {
    /// A new log, which only its owner may read. An existing file is refused.
    pub fn create(path: &Path) -> Result<Writer> {
        let mut options = OpenOptions::new();
        options.append(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.open(path).map_err(|source| match source.kind() {
            io::ErrorKind::AlreadyExists => {
                let reason = "exists, and a log is never overwritten: choose another name, or resume its run";
                Error::File { path: path.into(), reason: reason.into() }
            }
            _ => Error::Io { path: path.into(), source },
        })?;
        atomic::lock(&file, path)?;
        Ok(Writer { file, path: path.into(), last_step: None })
    }

    /// A new log in place of whatever the file holds. It is emptied under its lock and not removed: a run that is writing it is not robbed.
    pub fn replace(path: &Path) -> Result<Writer> {
        let io = |source| Error::Io { path: path.into(), source };
        let file = OpenOptions::new().append(true).open(path).map_err(io)?;
        atomic::lock(&file, path)?;
        // What follows tells who is in the data: first nobody else may read it.
        #[cfg(unix)]
        file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o600)).map_err(io)?;
        file.set_len(0).map_err(io)?;
        Ok(Writer { file, path: path.into(), last_step: None })
    }

    /// Goes on with the log of a run that continues at this step. Lines of earlier steps are kept; those of this step and of later
    /// ones, which will happen again, are dropped, and so is a last line that a kill has cut off. [`Writer::last_step`] tells
    /// where the log is then.
    ///
    /// Nothing is dropped before `check` has seen every whole line, and `None` after the last one that is kept: an error leaves the log
    /// as it was.
    pub fn resume(
        path: &Path,
        step: usize,
        mut check: impl FnMut(Option<&Line>) -> Result<()>,
    ) -> Result<Writer> {
        let io = |source| Error::Io { path: path.into(), source };
        let wrong = |error: Error| Error::File { path: path.into(), reason: error.to_string() };
        // The file itself stays, and with it the lock.
        let mut file = OpenOptions::new().read(true).append(true).open(path).map_err(io)?;
        atomic::lock(&file, path)?;
        let input = BufReader::new(file.try_clone().map_err(io)?);
        let mut reader = Reader::new(input, path, Limits { steps: MAX_STEPS, units: None });
        let (mut last_step, mut kept, mut ended) = (None, 0, true);
        let mut whole = true; // no line has been dropped yet
        while let Next::Line(line) = reader.read()? {
            if line.step < step {
                (last_step, kept, ended) = (Some(line.step), reader.consumed, reader.ended());
            } else if std::mem::take(&mut whole) {
                check(None).map_err(wrong)?;
            }
            check(Some(&line)).map_err(wrong)?;
        }
        if whole {
            check(None).map_err(wrong)?;
        }
        file.set_len(kept).map_err(io)?;
        if !ended {
            file.write_all(b"\n").map_err(io)?;
        }
        Ok(Writer { file, path: path.into(), last_step })
    }

    /// Who took part in a step. Steps must be strictly increasing.
    pub fn append(&mut self, step: usize, units: &[u64]) -> Result<()> {
        let first = self.last_step.map_or(0, |last| last + 1);
        if !(first..MAX_STEPS).contains(&step) {
            let allowed = format!("in {first}..{MAX_STEPS}, as steps are strictly increasing");
            let name = format!("the step to append to {}", self.path.display());
            return Err(Error::argument(name, allowed, step));
        }
        let io = |source| Error::Io { path: self.path.clone(), source };
        let line = bytes(step, units).map_err(io)?;
        let length = self.file.metadata().map_err(io)?.len();
        if let Err(error) = self.file.write_all(&line) {
            // A full disk may take a part of a line, which must not stay in the middle of the log.
            let _ = self.file.set_len(length);
            return Err(io(error));
        }
        self.last_step = Some(step);
        Ok(())
    }

    /// The step of the last line. After [`Writer::resume`] at a step t it is t − 1 if every step has a line and none was lost.
    pub fn last_step(&self) -> Option<usize> {
        self.last_step
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn lines(path: &Path) -> Vec<(usize, Vec<u64>)> {
        let reader = Reader::open(path, Limits { steps: 1000, units: None }).unwrap();
        reader.map(|line| line.map(|Line { step, units }| (step, units)).unwrap()).collect()
    }

    fn resume(path: &Path, step: usize) -> Result<Writer> {
        Writer::resume(path, step, |_| Ok(()))
    }

    fn three_lines(path: &Path) -> Writer {
        let mut writer = Writer::create(path).unwrap();
        for (step, units) in [(0, vec![7, 8]), (1, vec![]), (4, vec![9, 10, u64::MAX])] {
            writer.append(step, &units).unwrap();
        }
        writer
    }

    #[test]
    fn a_log_is_private_and_never_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let mut writer = three_lines(&path);
        assert_eq!(lines(&path), [(0, vec![7, 8]), (1, vec![]), (4, vec![9, 10, u64::MAX])]);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        }
        assert!(Writer::create(&path).unwrap_err().to_string().contains("never overwritten"));
        let refused = writer.append(4, &[1]).unwrap_err().to_string();
        assert!(refused.contains("must be in 5..268435456") && refused.ends_with("got 4"), "{refused}");
        // Another process, or this one by mistake.
        assert!(resume(&path, 1).unwrap_err().to_string().contains("in use"));
        assert_eq!(lines(&path).len(), 3);
    }

    #[test]
    fn a_kill_at_any_byte_of_the_last_line_loses_no_other_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        drop(three_lines(&path));
        let whole = fs::read(&path).unwrap();
        let before = whole[..whole.len() - 1].iter().rposition(|byte| *byte == b'\n').unwrap() + 1;
        for end in before..=whole.len() {
            for (step, kept) in [(4, 2), (5, 3)] {
                fs::write(&path, &whole[..end]).unwrap();
                let mut writer = resume(&path, step).unwrap();
                // Only the line end may be missing of a line that counts.
                let kept = if end + 1 < whole.len() { 2 } else { kept };
                assert_eq!(writer.last_step(), Some(if kept == 2 { 1 } else { 4 }), "{end}");
                writer.append(step, &[3]).unwrap();
                drop(writer);
                let found = lines(&path);
                assert_eq!(found.len(), kept + 1, "{end} {step}: {found:?}");
                assert_eq!(found[..2], [(0, vec![7, 8]), (1, vec![])]);
                assert_eq!(found[kept], (step, vec![3]));
                assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no sibling is left");
            }
        }
    }

    #[test]
    fn resuming_drops_what_will_happen_again_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        drop(three_lines(&path));
        assert_eq!(resume(&path, 1).unwrap().last_step(), Some(0));
        assert_eq!(lines(&path), [(0, vec![7, 8])]);
        let mut writer = resume(&path, 0).unwrap();
        writer.append(0, &[1]).unwrap();
        assert_eq!(lines(&path), [(0, vec![1])]);
        drop(writer);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        }
        assert!(matches!(resume(&folder.path().join("none"), 0), Err(Error::Io { .. })));
        // Another file, which others may read: replaced where that is asked for, unless it is in use.
        let other = folder.path().join("other");
        fs::write(&other, "notes\n").unwrap();
        let mut writer = Writer::replace(&other).unwrap();
        assert!(Writer::replace(&other).unwrap_err().to_string().contains("in use"));
        writer.append(0, &[4]).unwrap();
        assert_eq!(lines(&other), [(0, vec![4])]);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            assert_eq!(fs::metadata(&other).unwrap().permissions().mode() & 0o777, 0o600);
        }
        // What is not as it should be is not touched.
        let text = fs::read_to_string(&path).unwrap();
        let seen = std::cell::Cell::new(0);
        let refused = Writer::resume(&path, 0, |line| match line {
            None => {
                seen.set(seen.get() + 1);
                Ok(())
            }
            Some(_) => Err(Error::Privacy("another run".into())),
        });
        assert!(refused.unwrap_err().to_string().ends_with("another run") && seen.get() == 1);
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
        // A broken line in the middle is no trace of a kill: nothing is touched.
        let broken = "{\"step\":0,\"units\":[1]}\nnonsense\n{\"step\":2,\"units\":[1]}\n";
        fs::write(&path, broken).unwrap();
        assert!(resume(&path, 2).unwrap_err().to_string().contains("line 2: must be JSON"));
        assert_eq!(fs::read_to_string(&path).unwrap(), broken);
    }

    /// Two that go on with one log at the same time: one is refused, and no line is lost.
    #[test]
    fn a_log_has_one_writer() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        drop(three_lines(&path));
        let first = resume(&path, 5).unwrap();
        assert!(resume(&path, 5).unwrap_err().to_string().contains("in use"));
        drop(first);
        let turns = |_| {
            let mut written = 0;
            while written < 40 {
                let Ok(mut writer) = resume(&path, usize::MAX) else {
                    std::thread::yield_now(); // another one has it
                    continue;
                };
                let next = writer.last_step().unwrap() + 1;
                writer.append(next, &[next as u64]).unwrap();
                written += 1;
            }
        };
        std::thread::scope(|scope| {
            [0, 1, 2].map(|i| scope.spawn(move || turns(i))).map(|t| t.join().unwrap())
        });
        let found: Vec<usize> = lines(&path).iter().map(|(step, _)| *step).collect();
        assert!(found.is_sorted() && found.len() == 3 + 3 * 40, "{found:?}");
        assert_eq!(found[3..], (5..5 + found.len() - 3).collect::<Vec<_>>());
    }
}
