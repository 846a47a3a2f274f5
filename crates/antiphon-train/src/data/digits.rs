//! The digits, compiled in: a data set for first steps and for tests, with nothing to fetch.
//!
//! 1,797 images of 8×8 pixels with values 0..=16; `digits/README.md` says from where, and under which licence. The file has them
//! by writer, thirteen people one after the other, all of whom wrote much the same sequence of about 130 digits. So the last 357
//! images would be a test on other writers than those of the training images, which is harder (the nearest neighbour is right for
//! 95.5 % of them, instead of 98.6 %), and every fifth image would favour some digits: 46 fives, 26 threes.
//!
//! Here the images are lined up by digit, in the order of the file within a digit, and 357 of the 1,797 places, evenly spread,
//! are for testing: place p is one where ⌊357(p + 1)/1797⌋ is more than ⌊357p/1797⌋. Every digit then has its share in both
//! parts, within one image, and so has every writer, within a few (23 to 29 of any 130 images from a multiple of 130 on). A test on
//! writers that the model has not seen it is not.

use super::{Dataset, Images, Name, records};
use antiphon::error::{Error, Result};

/// Records of a label and 64 pixels.
pub(super) const RECORDS: &[u8] = include_bytes!("digits/digits.bin");

const IMAGES: usize = 1797;
const TEST: usize = 357;
const SHAPE: (usize, usize, usize) = (1, 8, 8);
const PIXELS: usize = 64;
const CLASSES: usize = 10;

/// The digits: 1,440 to train on and 357 to test on.
pub fn load() -> Result<Dataset> {
    let damaged = |reason| Error::Unsupported(format!("the digits in this program are damaged: {reason}"));
    let (pixels, labels) = records::parse(RECORDS, IMAGES, PIXELS, CLASSES).map_err(damaged)?;
    let all = Images::new(pixels, labels, PIXELS, 16)?;
    let (train, test) = split(all.labels());
    Ok(Dataset {
        name: Name::Digits,
        shape: SHAPE,
        classes: CLASSES,
        train: all.select(&train),
        test: all.select(&test),
    })
}

/// The images to train on and those to test on, each in the order of the file.
fn split(labels: &[u8]) -> (Vec<usize>, Vec<usize>) {
    let mut line: Vec<usize> = (0..labels.len()).collect();
    line.sort_by_key(|&i| labels[i]); // stable
    let mut is_test = vec![false; labels.len()];
    for (p, &i) in line.iter().enumerate() {
        is_test[i] = TEST * (p + 1) / IMAGES > TEST * p / IMAGES;
    }
    (0..labels.len()).partition(|&i| !is_test[i])
}
