//! Writing a table of noise so that a kill loses nothing: the numbers go to a sibling, and a note beside it says how far it is.
//!
//! ```text
//! noise.bin.partial        the table, with holes
//! noise.bin.partial.json   which table it is, and the first column that is not done
//! noise.bin.json           the description, when the table is whole
//! noise.bin                appears at the end, by renaming
//! ```

use super::{About, Claimed, Description, Keys};
use crate::error::{Error, Hint, Result};
use crate::noise::{Part, Prepared, Table};
use crate::{atomic, npy};
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions};
use std::io::{Seek, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// A table to be written.
pub struct Job<'a> {
    table: Table,
    part: Part,
    keys: &'a Keys,
    description: Description,
    output: &'a Path,
    force: bool,
}

/// What is known of an unfinished table.
#[derive(Serialize, Deserialize, PartialEq, Clone, Debug)]
#[serde(deny_unknown_fields)]
struct Note {
    antiphon_noise: u32,
    /// Of mechanism and standard deviation.
    noise_id: String,
    key_fingerprint: String,
    rows: [usize; 2],
    coordinates: [u64; 2],
    /// Columns below this one are on disk.
    next: u64,
}

/// What was done.
pub struct Done {
    /// The first column that was drawn now; the ones before it were there already.
    pub resumed_at: Option<u64>,
    /// What it took.
    pub seconds: f64,
}

/// What is told of a table that is being written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// The key is recorded for it; nothing has been drawn yet.
    Claimed(Claimed),
    /// Numbers are on disk.
    Written {
        /// So many bytes.
        bytes: u64,
        /// Of so many.
        of: u64,
    },
}

/// A file beside another: its name and one more ending.
pub fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(".");
    name.push(ending);
    path.with_file_name(name)
}

/// What comes before the numbers: nothing, unless the name says that it is a .npy file.
pub fn header(path: &Path, part: &Part) -> Vec<u8> {
    match path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("npy")) {
        true => npy::header_f32(part.rows.len() as u64, part.width()),
        false => Vec::new(),
    }
}

/// The length of the whole file.
pub fn bytes(path: &Path, part: &Part) -> Result<u64> {
    let bytes = part.bytes().and_then(|bytes| bytes.checked_add(header(path, part).len() as u64));
    bytes.ok_or_else(|| Error::Io { path: path.into(), source: std::io::ErrorKind::FileTooLarge.into() })
}

impl<'a> Job<'a> {
    /// Part of some noise, to be written to a file. `force` says that a file that is there may be replaced.
    pub fn new(
        prepared: &Prepared,
        about: &About,
        part: &Part,
        keys: &'a Keys,
        output: &'a Path,
        force: bool,
    ) -> Result<Job<'a>> {
        let description = Description::new(about, keys, header(output, part).len() as u64);
        let table = prepared.table(&keys.key, part.clone())?;
        Ok(Job { table, part: part.clone(), keys, description, output, force })
    }

    /// What will be beside the finished table.
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// Writes what is missing, with about so many bytes of memory. `observe` is told how the key is recorded, where the work
    /// begins, and then how far it is.
    pub fn run(&self, memory: usize, observe: &dyn Fn(Progress)) -> Result<Done> {
        let start = Instant::now();
        let (partial, noted) = (beside(self.output, "partial"), beside(self.output, "partial.json"));
        let io = |source| Error::Io { path: partial.clone(), source };
        let mut note = self.note();
        let bytes = bytes(self.output, &self.part)?;
        let found = self.find(&partial, &noted, bytes)?;
        self.check_description()?;
        // Before the first number: a kill must not leave noise whose key does not say what it is for.
        observe(Progress::Claimed(self.keys.claim()?));
        let resumed_at = found.filter(|next| *next > note.next);
        note.next = resumed_at.unwrap_or(note.next);
        if found.is_none() {
            // First the note, which says that nothing is there yet: that of an earlier file must not speak for the zeros of this one.
            write_note(&noted, &note)?;
        }
        let mut file = open(&partial, found.is_none())?;
        if found.is_none() {
            file.set_len(0).map_err(io)?;
        }
        let header = header(self.output, &self.part);
        file.rewind().and_then(|()| file.write_all(&header)).map_err(io)?;
        file.set_len(bytes).map_err(io)?;
        let whole = bytes - header.len() as u64;
        let place = |next: u64| (next - self.part.coordinates.start) * 4 * self.part.rows.len() as u64;
        let written = |next: u64| observe(Progress::Written { bytes: place(next), of: whole });
        written(note.next);
        for piece in self.table.pieces(note.next, memory) {
            self.table.write(piece.clone(), &file, header.len() as u64).map_err(io)?;
            // First the numbers, then the note that they are there.
            file.sync_data().map_err(io)?;
            note.next = piece.end;
            write_note(&noted, &note)?;
            written(note.next);
        }
        file.sync_all().map_err(io)?;
        atomic::check(self.output, self.force)?;
        // Before the table has its name, so that a table with a name has a description.
        self.check_description()?;
        let text = serde_json::to_string_pretty(&self.description).expect("plain fields") + "\n";
        atomic::write(&self.described(), true, |file| file.write_all(text.as_bytes()))?;
        fs::rename(&partial, self.output).map_err(io)?;
        drop(file); // and with it the lock
        remove_if_there(&noted)?;
        Ok(Done { resumed_at, seconds: start.elapsed().as_secs_f64() })
    }

    fn note(&self) -> Note {
        Note {
            antiphon_noise: 1,
            noise_id: self.description.about.noise_id.clone(),
            key_fingerprint: self.keys.key.fingerprint(),
            rows: [self.part.rows.start, self.part.rows.end],
            coordinates: [self.part.coordinates.start, self.part.coordinates.end],
            next: self.part.coordinates.start,
        }
    }

    fn described(&self) -> PathBuf {
        beside(self.output, "json")
    }

    /// A file that has the name of the description must be one that this job has left, or may be replaced.
    fn check_description(&self) -> Result<()> {
        let path = self.described();
        let left = Description::read(&path).is_ok_and(|found| found == self.description);
        atomic::check(&path, self.force || left)
    }

    /// Where an unfinished table of the same job goes on; nothing where there is none. One of another job is not touched.
    fn find(&self, partial: &Path, noted: &Path, bytes: u64) -> Result<Option<u64>> {
        let whole = fs::metadata(partial).is_ok_and(|there| there.len() == bytes);
        let text = match fs::read_to_string(noted) {
            Ok(text) => text,
            _ if partial.exists() && !self.force => {
                let reason = "exists, without a note of what it is".into();
                return Err(Error::File { path: partial.into(), reason }.with(Hint::Replace));
            }
            _ => return Ok(None),
        };
        let expected = self.note();
        match serde_json::from_str::<Note>(&text) {
            Ok(found)
                if (Note { next: expected.next, ..found.clone() }) == expected
                    && (expected.next..=self.part.coordinates.end).contains(&found.next) =>
            {
                // Killed after it had got its name: it may be in use.
                if self.keys.own && !whole && found.next > expected.next {
                    let reason = "is missing, but part of it was written. The same noise must not be used in two runs: remove its \
                                  note (.partial.json) and its key to make new noise";
                    return Err(Error::File { path: partial.into(), reason: reason.into() });
                }
                // Killed before it had its length: once more from the beginning.
                Ok(whole.then_some(found.next))
            }
            // A note alone, of a file that is gone.
            _ if !partial.exists() && !self.keys.own => Ok(None),
            // A key that was made for another job must not serve this one.
            _ if self.force && !self.keys.own => Ok(None),
            _ => {
                let finish = if self.keys.own { ". Finish that one, or remove it and its key" } else { "" };
                let reason = format!(
                    "is the unfinished file of another job (mechanism, stddev, key, rows or coordinates differ){finish}"
                );
                let error = Error::File { path: partial.into(), reason };
                Err(if self.keys.own { error } else { error.with(Hint::Replace) })
            }
        }
    }
}

/// The unfinished file, for this process alone. One that goes on must be there: a new one would have zeros where columns are said to be
/// done.
fn open(partial: &Path, fresh: bool) -> Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(fresh).truncate(false);
    // Whoever has the noise can subtract it and see the gradients.
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options.open(partial).map_err(|source| Error::Io { path: partial.into(), source })?;
    atomic::lock(&file, partial)?;
    match partial.exists() {
        true => Ok(file),
        // It has got its name since it was opened.
        false => {
            Err(Error::File { path: partial.into(), reason: "was just finished by another process".into() })
        }
    }
}

fn remove_if_there(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::Io { path: path.into(), source })
        }
        _ => Ok(()),
    }
}

fn write_note(path: &Path, note: &Note) -> Result<()> {
    let text = serde_json::to_string(note).expect("plain fields");
    atomic::write(path, true, |file| file.write_all(text.as_bytes()))
}
