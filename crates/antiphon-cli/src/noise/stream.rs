//! Rows of noise on standard output: one after another, in the order of the steps, and nothing else there.

use super::{keys, show};
use crate::progress;
use antiphon::error::{Error, Result};
use antiphon::noise::file::{About, Keys};
use antiphon::noise::{Part, Prepared};
use std::io::{self, ErrorKind, Write};

/// Writes them. What is to be said goes to standard error. Where nobody reads any more, it ends like everything that is printed.
pub fn run(prepared: &Prepared, about: &About, keys: &Keys, part: &Part, memory: usize) -> Result<()> {
    let mut rows = prepared.rows(&keys.key, part.coordinates.clone(), memory)?;
    rows.seek(part.rows.start)?;
    keys::remark(keys.claim()?, keys);
    show::lines(about).iter().for_each(|line| eprintln!("{line}"));
    let bar =
        progress::counter(part.rows.len() as u64, "{bar:30} row {pos} of {len} [{elapsed}, {eta} left]");
    let mut row = vec![0.0f32; rows.coordinates()];
    let mut bytes = Vec::with_capacity(4 * row.len());
    let mut out = io::stdout().lock();
    for _ in part.rows.clone() {
        rows.next_into(&mut row)?;
        bytes.clear();
        bytes.extend(row.iter().flat_map(|x| x.to_le_bytes()));
        match out.write_all(&bytes).and_then(|()| out.flush()) {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => std::process::exit(141), // as a shell reports it
            written => written.map_err(|source| Error::Io { path: "standard output".into(), source })?,
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(())
}
