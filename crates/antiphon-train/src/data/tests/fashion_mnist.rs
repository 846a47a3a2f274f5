//! Four small IDX files, whole and damaged.

use super::{complains, labels, noise};
use crate::data::checked::hexadecimal;
use crate::data::fashion_mnist::{load, load_files};
use crate::data::folder::locate;
use crate::data::{Dataset, Name};
use flate2::{Compression, write::GzEncoder};
use sha2::{Digest, Sha256};
use std::fs;
use std::io::Write;
use std::path::Path;

const NAMES: [&str; 4] = [
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
];
const IMAGES: [usize; 4] = [5, 5, 3, 3];

/// An IDX file of bytes.
fn idx(dimensions: &[u32], values: &[u8]) -> Vec<u8> {
    let mut file = vec![0, 0, 8, dimensions.len() as u8];
    dimensions.iter().for_each(|d| file.extend(d.to_be_bytes()));
    file.extend(values);
    file
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn contents() -> [Vec<u8>; 4] {
    [
        idx(&[5, 28, 28], &noise(5 * 784, 1)),
        idx(&[5], &labels(5, 2)),
        idx(&[3, 28, 28], &noise(3 * 784, 3)),
        idx(&[3], &labels(3, 4)),
    ]
}

/// Loads with the sums of the right contents, whatever the folder has.
fn load_small(folder: &Path) -> antiphon::Result<Dataset> {
    let sums = contents().map(|bytes| hexadecimal(&Sha256::digest(bytes)));
    load_files(folder, &[0, 1, 2, 3].map(|i| (NAMES[i], IMAGES[i], sums[i].as_str())))
}

fn write_all(folder: &Path) {
    for (name, bytes) in NAMES.iter().zip(contents()) {
        fs::write(folder.join(name), bytes).unwrap();
    }
}

#[test]
fn four_files_are_a_data_set() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_all(folder);
    let check = || {
        let set = load_small(folder).unwrap();
        assert_eq!((set.name, set.shape, set.classes), (Name::FashionMnist, (1, 28, 28), 10));
        assert_eq!((set.train.len(), set.test.len()), (5, 3));
        assert_eq!((set.train.labels(), set.test.labels()), (&labels(5, 2)[..], &labels(3, 4)[..]));
        assert_eq!(set.train.bytes(4), &noise(5 * 784, 1)[4 * 784..]);
        assert_eq!(set.test.bytes(0), &noise(3 * 784, 3)[..784]);
    };
    check();
    for name in NAMES {
        let path = folder.join(name);
        fs::write(folder.join(format!("{name}.gz")), gzip(&fs::read(&path).unwrap())).unwrap();
        fs::remove_file(path).unwrap();
        check();
    }
}

#[test]
fn each_kind_of_damage_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let [images, ..] = contents();
    let changed = |place: usize, value: u8| {
        let mut bytes = images.clone();
        bytes[place] = value;
        bytes
    };
    let long = [&images[..], &[0]].concat();
    let half = &images[..2000];
    let path = folder.join(NAMES[0]);
    for (bytes, words) in [
        (&[][..], &["header of 16 bytes", "found 0 bytes"][..]),
        (half, &["expected 3920 bytes behind the header", "found 1984"]),
        (&long, &["expected 3920 bytes behind the header", "found more"]),
        (&changed(2, 9), &["[00, 00, 08, 03]", "found [00, 00, 09, 03]"]),
        (&changed(7, 4), &["expected the dimensions [5, 28, 28]", "found [4, 28, 28]"]),
        (&changed(4, 255), &["expected the dimensions [5, 28, 28]", "found [4278190085, 28, 28]"]),
        (&changed(100, !images[100]), &["expected content with the SHA-256 sum", "found"]),
    ] {
        write_all(folder);
        fs::write(&path, bytes).unwrap();
        complains(load_small(folder), &[&[NAMES[0]][..], words].concat());
    }
    write_all(folder);
    fs::write(folder.join(NAMES[3]), idx(&[3], &[0, 10, 0])).unwrap();
    complains(load_small(folder), &[NAMES[3], "labels below 10", "found 10 for image 1"]);
    fs::remove_file(folder.join(NAMES[3])).unwrap();
    complains(load_small(folder), &[NAMES[3], "expected a file of 11 bytes", "found none"]);
}

#[test]
fn damaged_compression_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_all(folder);
    let name = format!("{}.gz", NAMES[0]);
    let packed = gzip(&contents()[0]);
    let last = packed.len() - 5; // the sum of gzip itself
    let mut wrong_sum = packed.clone();
    wrong_sum[last] ^= 1;
    for bytes in
        [&packed[..packed.len() / 2], &packed[..packed.len() - 1], b"not gzip at all", b"", &wrong_sum]
    {
        fs::write(folder.join(&name), bytes).unwrap();
        complains(load_small(folder), &[&name, "expected 3936 bytes, compressed by gzip, found damage"]);
    }
    // A bomb: a gigabyte of zeros would be unpacked to one byte more than expected.
    fs::write(folder.join(&name), gzip(&[&contents()[0][..], &vec![0; 1 << 24]].concat())).unwrap();
    complains(load_small(folder), &[&name, "found more"]);
}

#[test]
fn files_of_another_data_set_do_not_pass_and_the_command_is_named() {
    let data = tempfile::tempdir().unwrap();
    let data = data.path();
    let command = format!("`antiphon data fetch fashion-mnist --data {}`", data.display());
    complains(load(data), &["fashion-mnist", NAMES[0], "47040016 bytes", "found none", &command]);
    // The right shape, as MNIST would have it.
    fs::write(data.join(NAMES[0]), idx(&[60_000, 28, 28], &vec![0; 60_000 * 784])).unwrap();
    assert_eq!(locate(Name::FashionMnist, data), data);
    complains(load(data), &[NAMES[0], "SHA-256 sum c59f468a", "found", &command]);
}
