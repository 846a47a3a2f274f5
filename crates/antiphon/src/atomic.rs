//! Files appear whole or not at all: they are written to a sibling, which is renamed at the end. What takes many writes is locked
//! meanwhile.

use crate::error::{Error, Hint, Result};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Refuses what [`write()`] would refuse, before any work is done for it: an existing file without `replace`, what is not a
/// regular file, a folder that is not there.
pub fn check(path: &Path, replace: bool) -> Result<()> {
    let refuse = |reason: &str| Err(Error::File { path: path.into(), reason: reason.into() });
    match fs::metadata(path) {
        Ok(there) if there.is_dir() => return refuse("is a folder, not a file"),
        Ok(there) if !there.is_file() => return refuse("is not a regular file and is not replaced"),
        Ok(_) if !replace => return Err(exists(path)),
        _ => {}
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    if folder.is_some_and(|folder| !folder.is_dir()) {
        // Not `NotFound`, which is what a missing input is.
        let source = io::Error::new(io::ErrorKind::NotADirectory, "its folder does not exist");
        return Err(Error::Io { path: path.into(), source });
    }
    Ok(())
}

fn exists(path: &Path) -> Error {
    Error::File { path: path.into(), reason: "exists".into() }.with(Hint::Replace)
}

/// Writes a file through `fill`. An existing one is only replaced if `replace` says so; a link is followed.
pub fn write(path: &Path, replace: bool, fill: impl FnOnce(&mut File) -> io::Result<()>) -> Result<()> {
    write_as(path, replace, false, fill)
}

/// [`write()`] for a secret: a file that only its owner may read, from its first byte on.
pub fn write_secret(
    path: &Path,
    replace: bool,
    fill: impl FnOnce(&mut File) -> io::Result<()>,
) -> Result<()> {
    write_as(path, replace, true, fill)
}

fn write_as(
    path: &Path,
    replace: bool,
    secret: bool,
    fill: impl FnOnce(&mut File) -> io::Result<()>,
) -> Result<()> {
    check(path, replace)?;
    let resolved = fs::canonicalize(path).unwrap_or_else(|_| path.into());
    let path = resolved.as_path();
    let io = |source| Error::Io { path: path.into(), source };
    let (mut file, sibling) = create_sibling(path, secret).map_err(io)?;
    let guard = Removed(&sibling);
    fill(&mut file).map_err(io)?;
    file.sync_all().map_err(io)?;
    if replace {
        fs::rename(&sibling, path).map_err(io)?;
    } else {
        // A hard link fails if the file has appeared meanwhile; not every file system has them.
        match fs::hard_link(&sibling, path) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Err(exists(path)),
            Err(_) => fs::rename(&sibling, path).map_err(io)?,
        }
    }
    drop(guard);
    Ok(())
}

/// Keeps other processes that ask for it from a file as long as it is open. A kill ends that too. Where a file system knows no
/// locks, there are none.
pub fn lock(file: &File, path: &Path) -> Result<()> {
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => {
            Err(Error::File { path: path.into(), reason: "is in use by another process".into() })
        }
        _ => Ok(()),
    }
}

/// A sibling that nobody has. What a killed process left behind is passed over: in a container the next one has its number again.
fn create_sibling(path: &Path, secret: bool) -> io::Result<(File, PathBuf)> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, if secret { 0o600 } else { 0o666 });
    loop {
        let sibling = sibling(path);
        match options.open(&sibling) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            file => return Ok((file?, sibling)),
        }
    }
}

fn sibling(path: &Path) -> PathBuf {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    // The process and a counter: no two writers share a sibling.
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    path.with_file_name(format!(".{name}.{}-{count}.partial", std::process::id()))
}

/// Removes a file when dropped, whatever happened; it is gone already after a rename.
struct Removed<'a>(&'a Path);

impl Drop for Removed<'_> {
    fn drop(&mut self) {
        let _ = fs::remove_file(self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_failed_write_leaves_nothing_and_harms_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        fs::write(&path, "old").unwrap();
        let fill = |file: &mut File| {
            file.write_all(b"half")?;
            Err(io::Error::other("disk on fire"))
        };
        assert!(write(&path, true, fill).is_err());
        assert!(write(&path, false, |file| file.write_all(b"new")).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        write(&path, true, |file| file.write_all(b"new")).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_is_locked_as_long_as_it_is_open() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("z");
        let first = File::create(&path).unwrap();
        lock(&first, &path).unwrap();
        let second = File::open(&path).unwrap();
        assert!(lock(&second, &path).unwrap_err().to_string().contains("in use"));
        drop(first);
        lock(&second, &path).unwrap();
    }

    #[test]
    fn what_a_killed_process_with_the_same_number_left_is_no_obstacle() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("y");
        // Whatever other tests have counted meanwhile.
        for count in 0..1000 {
            fs::write(path.with_file_name(format!(".y.{}-{count}.partial", std::process::id())), "").unwrap();
        }
        write(&path, false, |file| file.write_all(b"new")).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
    }
}
