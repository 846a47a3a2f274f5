//! Whether a table fits its disk: found out before the work, not after hours of it.

use crate::output::size;
use antiphon::error::{Error, Result};
use std::io;
use std::path::Path;

/// Refuses a file of so many bytes where its file system has no room for what is missing of `partial`, its beginning.
pub fn check(partial: &Path, bytes: u64) -> Result<()> {
    let needed = bytes.saturating_sub(there(partial));
    let folder = partial.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match free(folder) {
        Some(free) if free < needed => {
            let text = format!(
                "the table needs {needed} bytes more ({}), and the file system has {free} free ({})",
                size(needed),
                size(free)
            );
            let source = io::Error::new(io::ErrorKind::StorageFull, text);
            Err(Error::Io { path: partial.into(), source })
        }
        _ => Ok(()),
    }
}

/// Bytes that an unfinished file has on the disk: it has holes.
#[cfg(unix)]
fn there(partial: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(partial).map_or(0, |file| file.blocks() * 512)
}

/// Bytes that this user may still write.
#[cfg(unix)]
fn free(folder: &Path) -> Option<u64> {
    let found = rustix::fs::statvfs(folder).ok()?;
    Some(found.f_bavail.saturating_mul(found.f_frsize))
}

#[cfg(not(unix))]
fn there(_: &Path) -> u64 {
    0
}

/// Not known.
#[cfg(not(unix))]
fn free(_: &Path) -> Option<u64> {
    None
}
