//! Small files of each format, written here, whole and damaged; and the digits.

mod cifar10;
mod fashion_mnist;
mod fetched;
mod text;

use super::checked::{Sum, hexadecimal};
use super::{Images, Name, State, default_folder, digits, folder, inspect, load};
use sha2::{Digest, Sha256};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Bytes with no pattern that a wrong stride would keep.
fn noise(count: usize, seed: u32) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..count).map(|_| next()).collect()
}

fn labels(count: usize, seed: u32) -> Vec<u8> {
    noise(count, seed).iter().map(|x| x % 10).collect()
}

/// The error as a user sees it; there must be one, and it must have all of these words.
fn complains<T>(result: antiphon::Result<T>, words: &[&str]) {
    let text = result.err().expect("an error").to_string();
    for word in words {
        assert!(text.contains(word), "no {word:?} in {text:?}");
    }
}

fn counts(labels: &[u8]) -> [usize; 10] {
    let mut counts = [0; 10];
    labels.iter().for_each(|&label| counts[usize::from(label)] += 1);
    counts
}

#[test]
fn the_digits_are_what_the_script_made() {
    // digits/digits.py prints this.
    let sum = "d8121ca7764eccfaef1df6bc4589c6527c58fcbab0cb1b079e79f97f8cb8219a";
    assert_eq!(hexadecimal(&Sha256::digest(digits::RECORDS)), sum);
    // The first line of digits.csv in scikit-learn 1.9.1, a nought.
    let first = "0,0,5,13,9,1,0,0,0,0,13,15,10,15,5,0,0,3,15,2,0,11,8,0,0,4,12,0,0,8,8,0,0,5,8,0,0,9,8,0,0,4,11,0,1,12,7,\
                 0,0,2,14,5,10,12,0,0,0,0,6,13,10,0,0,0";
    let first: Vec<u8> = first.split(',').map(|x| x.parse().unwrap()).collect();
    assert_eq!((digits::RECORDS[0], &digits::RECORDS[1..65]), (0, &first[..]));
}

#[test]
fn the_digits_are_split_evenly() {
    let set = load(Name::Digits, Path::new("nowhere")).unwrap();
    assert_eq!((set.name, set.shape, set.classes), (Name::Digits, (1, 8, 8), 10));
    assert_eq!((set.train.len(), set.test.len(), set.train.size()), (1440, 357, 64));
    let (train, test) = (counts(set.train.labels()), counts(set.test.labels()));
    for class in 0..10 {
        // scikit-learn says the same of all 1,797: np.bincount(load_digits().target).
        let all = [178, 182, 177, 183, 181, 182, 181, 179, 174, 180][class];
        assert_eq!(train[class] + test[class], all);
        assert!((test[class] as f64 - all as f64 * 357.0 / 1797.0).abs() <= 1.0, "{class}: {}", test[class]);
    }
    // Together they are the file again: no image twice, none lost.
    let records = |images: &Images| -> Vec<Vec<u8>> {
        (0..images.len()).map(|i| [&[images.labels()[i]], images.bytes(i)].concat()).collect()
    };
    let mut both = [records(&set.train), records(&set.test)].concat();
    let mut file: Vec<Vec<u8>> = digits::RECORDS.chunks(65).map(<[u8]>::to_vec).collect();
    both.sort();
    file.sort();
    assert!(both == file);
}

#[test]
fn the_nearest_neighbour_knows_the_digits() {
    // Pixels and labels that did not belong together would give 10 %. The figure is that of the same few lines in Python on the
    // same split: 352 of 357.
    let set = digits::load().unwrap();
    let distance =
        |a: &[u8], b: &[u8]| -> u32 { a.iter().zip(b).map(|(&a, &b)| u32::from(a.abs_diff(b)).pow(2)).sum() };
    let right = (0..set.test.len()).filter(|&t| {
        let test = set.test.bytes(t);
        let nearest = (0..set.train.len()).min_by_key(|&i| distance(test, set.train.bytes(i))).unwrap();
        set.train.labels()[nearest] == set.test.labels()[t]
    });
    assert_eq!(right.count(), 352);
}

#[test]
fn pixels_become_numbers_by_the_formula() {
    let images = Images::new((0..=255).collect(), vec![3, 7], 128, 255).unwrap();
    let mut out = [0.0; 128];
    images.fill(0, &mut out);
    assert_eq!((out[0], out[51]), (-1.0, -0.6));
    images.fill(1, &mut out);
    assert_eq!((out[127], out[204 - 128]), (1.0, 0.6));
    let digits = digits::load().unwrap();
    let mut out = [0.0; 64];
    for i in 0..digits.train.len() {
        digits.train.fill(i, &mut out);
        assert!(out.iter().zip(digits.train.bytes(i)).all(|(&out, &x)| out == f32::from(x) / 8.0 - 1.0));
    }
    let chosen = images.select(&[1, 1, 0]);
    assert_eq!(
        (chosen.labels(), chosen.bytes(1), chosen.bytes(2)),
        (&[7, 7, 3][..], images.bytes(1), images.bytes(0))
    );
}

#[test]
fn images_that_do_not_fit_are_refused() {
    complains(
        Images::new(vec![0; 7], vec![0; 2], 4, 255),
        &["number of pixels", "4 for each of the 2", "got 7"],
    );
    complains(Images::new(vec![0, 17], vec![0; 1], 2, 16), &["pixel 1 of image 0", "0..=16", "got 17"]);
    complains(Images::new(vec![], vec![], 0, 16), &["size", "at least 1", "got 0"]);
    complains("mnist".parse::<Name>(), &["dataset", "digits, fashion-mnist, cifar10", "got mnist"]);
    for name in Name::ALL {
        assert_eq!(name.as_str().parse::<Name>().unwrap(), name);
    }
}

#[test]
fn sums_are_those_of_the_standards() {
    // RFC 1321, section A.5, and FIPS 180-2, appendix B.1.
    Sum::Md5("900150983cd24fb0d6963f7d28e17f72").check(b"abc").unwrap();
    Sum::Sha256("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad").check(b"abc").unwrap();
    let text = Sum::Md5("900150983cd24fb0d6963f7d28e17f72").check(b"abd").unwrap_err();
    assert!(text.contains("MD5") && text.contains("900150983cd24fb0d6963f7d28e17f72"), "{text}");
}

#[test]
fn the_folder_comes_from_the_environment() {
    let from = |variables: &[(&str, &str)], home: Option<&str>| {
        let get = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, v)| OsString::from(v));
        folder::from_environment(get, home.map(PathBuf::from)).map(|path| path.to_string_lossy().into_owned())
    };
    let own = ("ANTIPHON_DATA", "here");
    assert_eq!(from(&[own, ("XDG_DATA_HOME", "/x")], Some("/h")).unwrap(), "here");
    assert_eq!(from(&[("XDG_DATA_HOME", "/x")], Some("/h")).unwrap(), "/x/antiphon");
    assert_eq!(from(&[("XDG_DATA_HOME", "x")], Some("/h")).unwrap(), "/h/.local/share/antiphon");
    assert_eq!(from(&[("ANTIPHON_DATA", "")], Some("/h")).unwrap(), "/h/.local/share/antiphon");
    complains(from(&[], None), &["no folder for data sets", "ANTIPHON_DATA"]);
}

#[test]
fn files_are_found_in_a_folder_of_their_own_or_beside_others() {
    let data = tempfile::tempdir().unwrap();
    let data = data.path();
    assert_eq!(folder::locate(Name::Cifar10, data), data.join("cifar10"));
    assert!(matches!(inspect(Name::Cifar10, data).state, State::Missing));
    for place in ["", "cifar-10-batches-bin", "cifar10"] {
        let folder = data.join(place);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("test_batch.bin"), "x").unwrap();
        assert_eq!(folder::locate(Name::Cifar10, data), folder);
        assert_eq!(folder::locate(Name::FashionMnist, data), data.join("fashion-mnist"));
    }
    let found = inspect(Name::Cifar10, data);
    assert_eq!(found.files, [(data.join("cifar10/test_batch.bin"), 1)]);
    let State::Damaged(error) = found.state else { panic!("{found:?}") };
    let command = format!("`antiphon data fetch cifar10 --data {}`", data.display());
    complains::<()>(
        Err(error),
        &["data_batch_1.bin", "expected a file of 30730000 bytes", "found none", &command],
    );
    assert!(matches!(inspect(Name::Digits, data).state, State::Valid { train: 1440, test: 357, .. }));
    let command = folder::fetch_command(Name::Cifar10, "it's here".as_ref());
    assert_eq!(command, r"antiphon data fetch cifar10 --data 'it'\''s here'");
    if let Ok(data) = default_folder() {
        assert_eq!(folder::fetch_command(Name::Cifar10, &data), "antiphon data fetch cifar10");
    }
}
