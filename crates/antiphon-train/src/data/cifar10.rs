//! CIFAR-10: 60,000 colour photographs of ten kinds of things, 32×32, as six files of 10,000 records.
//!
//! A. Krizhevsky, Learning Multiple Layers of Features from Tiny Images (2009). The files are those of the official archive
//! `cifar-10-binary.tar.gz` (not of the ones for Python and Matlab), in which a record is the label, then all red values row by
//! row, all green ones, all blue ones. Their MD5 sums below are those which several public projects give for the files
//! of that archive; the author publishes one for the archive only. That files which were put together again from the pictures of
//! another package (see [`fetch`](super::fetch())) have these very sums shows that both are right.

use super::checked::{self, Expected, Sum};
use super::{Dataset, Images, Name, folder, records};
use antiphon::error::Result;
use std::path::Path;

/// Names and MD5 sums; the last one is for testing.
pub(super) const FILES: [(&str, &str); 6] = [
    ("data_batch_1.bin", "5dd7e06a14cb22eb9f671a540d1b7c25"),
    ("data_batch_2.bin", "5ea93a67294ea407fff1d09f752e9692"),
    ("data_batch_3.bin", "942cd6a4bcdd0dd3c604fbe906cb4421"),
    ("data_batch_4.bin", "ae636b3ba5c66a11e91e8cb52e771fcb"),
    ("data_batch_5.bin", "53f37980c15c3d472c316c40844f3f0d"),
    ("test_batch.bin", "803d5f7f4d78ea53de84dbe85f74fb6d"),
];

/// Images per file.
pub(super) const BATCH: usize = 10_000;
pub(super) const CLASSES: usize = 10;
const SHAPE: (usize, usize, usize) = (3, 32, 32);
const PIXELS: usize = 3 * 32 * 32;

/// Reads the data set from a folder (see [`folder::locate`]).
pub fn load(data: &Path) -> Result<Dataset> {
    load_files(&folder::locate(Name::Cifar10, data), &FILES, BATCH)
        .map_err(|error| folder::with_command(error, Name::Cifar10, data))
}

/// The same from exactly this folder. The number of images and the sums are arguments because tests have other ones.
pub(super) fn load_files(folder: &Path, files: &[(&str, &str); 6], batch: usize) -> Result<Dataset> {
    let part = |files: &[(&str, &str)]| {
        let (mut pixels, mut labels) = (Vec::new(), Vec::new());
        for (name, sum) in files {
            let expected = Expected { name, bytes: batch * (1 + PIXELS), sum: Sum::Md5(sum) };
            let parse = |bytes: &[u8]| records::parse(bytes, batch, PIXELS, CLASSES);
            let (p, l) = checked::read(folder, &expected, parse)?;
            pixels.extend(p);
            labels.extend(l);
        }
        Images::new(pixels, labels, PIXELS, 255)
    };
    let (train, test) = files.split_at(5);
    Ok(Dataset {
        name: Name::Cifar10,
        shape: SHAPE,
        classes: CLASSES,
        train: part(train)?,
        test: part(test)?,
    })
}
