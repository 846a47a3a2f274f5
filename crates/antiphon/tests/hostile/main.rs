//! Hostile files of every form that is read: seeded mutations, with the bodies that the fuzz targets run too.
//!
//! | file | what |
//! |---|---|
//! | `bodies` | what must hold of any bytes, for each form; `fuzz/` runs them on bytes of its own |
//! | `formats` | mutations of keys, events, logs, states and matrices |
//! | `mechanisms` | mutations of mechanism files: what verifies is true |
//! | `genuine` | the mechanism files that are changed |
//! | `forger` | how they are changed, with id and checksum made to fit |
//! | `truth` | what a mechanism's figures are, by slow code that shares nothing with `verify` |

mod bodies;
mod forger;
mod formats;
mod genuine;
mod mechanisms;
#[path = "../../src/testing.rs"]
#[allow(dead_code)] // each test uses a part of it
mod testing;
mod truth;
