//! Six small files of records, whole and damaged.

use super::{complains, labels, noise};
use crate::data::checked::hexadecimal;
use crate::data::cifar10::{load, load_files};
use crate::data::{Dataset, Name};
use md5::{Digest, Md5};
use std::fs;
use std::path::Path;

const NAMES: [&str; 6] = [
    "data_batch_1.bin",
    "data_batch_2.bin",
    "data_batch_3.bin",
    "data_batch_4.bin",
    "data_batch_5.bin",
    "test_batch.bin",
];
const BATCH: usize = 4;

fn content(file: u32) -> Vec<u8> {
    let (pixels, labels) = (noise(BATCH * 3072, file), labels(BATCH, 100 + file));
    labels.iter().zip(pixels.chunks(3072)).flat_map(|(&label, pixels)| [&[label], pixels].concat()).collect()
}

fn write_all(folder: &Path) {
    (0..6).for_each(|i| fs::write(folder.join(NAMES[i as usize]), content(i)).unwrap());
}

/// Loads with the sums of the right contents, whatever the folder has.
fn load_small(folder: &Path) -> antiphon::Result<Dataset> {
    let sums = [0, 1, 2, 3, 4, 5].map(|i| hexadecimal(&Md5::digest(content(i))));
    load_files(folder, &[0, 1, 2, 3, 4, 5].map(|i| (NAMES[i], sums[i].as_str())), BATCH)
}

#[test]
fn six_files_are_a_data_set() {
    let folder = tempfile::tempdir().unwrap();
    write_all(folder.path());
    let set = load_small(folder.path()).unwrap();
    assert_eq!((set.name, set.shape, set.classes), (Name::Cifar10, (3, 32, 32), 10));
    assert_eq!((set.train.len(), set.test.len(), set.train.size()), (20, 4, 3072));
    for (images, file, first) in [(&set.train, 0, 0), (&set.train, 4, 16), (&set.test, 5, 0)] {
        assert_eq!(images.labels()[first..][..BATCH], labels(BATCH, 100 + file));
        assert_eq!(images.bytes(first + 3), &noise(BATCH * 3072, file)[3 * 3072..]);
    }
}

#[test]
fn each_kind_of_damage_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let right = content(2);
    let changed = |place: usize, value: u8| {
        let mut bytes = right.clone();
        bytes[place] = value;
        bytes
    };
    let long = [&right[..], &[0]].concat();
    let path = folder.join(NAMES[2]);
    for (bytes, words) in [
        (&right[..9999], &["expected 12292 bytes (4 records of 3073)", "found 9999"][..]),
        (&long, &["expected 12292 bytes", "found more"]),
        (&changed(2 * 3073, 10), &["labels below 10", "found 10 in record 2"]),
        (&changed(77, !right[77]), &["expected content with the MD5 sum", "found"]),
        (&content(3), &["expected content with the MD5 sum", "found"]),
    ] {
        write_all(folder);
        fs::write(&path, bytes).unwrap();
        complains(load_small(folder), &[&[NAMES[2]][..], words].concat());
    }
    fs::remove_file(&path).unwrap();
    complains(load_small(folder), &[NAMES[2], "expected a file of 12292 bytes", "found none"]);
    let command = format!("`antiphon data fetch cifar10 --data {}`", folder.display());
    complains(load(folder), &[NAMES[0], "expected 30730000 bytes", "found 12292", &command]);
}
