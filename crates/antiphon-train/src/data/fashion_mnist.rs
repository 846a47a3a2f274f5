//! Fashion-MNIST: 70,000 grey pictures of clothes, 28×28, as four IDX files, compressed or not.
//!
//! H. Xiao, K. Rasul and R. Vollgraf, Fashion-MNIST (2017), © Zalando SE, MIT licence. The files have the same names as MNIST's;
//! only the sums tell them apart. Those are SHA-256 sums of the IDX files, not of the .gz files around them, of which several
//! versions are about: Debian's package `dataset-fashion-mnist` 0.0~git20200523.55506a9-1 has no names and other times in their headers
//! than what Zalando published. `fashion_mnist.py` shows that there is no other difference, and prints the sums.

use super::checked::{self, Expected, Sum};
use super::{Dataset, Images, Name, folder, idx};
use antiphon::error::Result;
use std::path::Path;

/// Names, numbers of images and sums: images and labels to train on, images and labels to test on.
pub(super) const FILES: [(&str, usize, &str); 4] = [
    ("train-images-idx3-ubyte", 60_000, "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888"),
    ("train-labels-idx1-ubyte", 60_000, "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9"),
    ("t10k-images-idx3-ubyte", 10_000, "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b"),
    ("t10k-labels-idx1-ubyte", 10_000, "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34"),
];

const SIDE: usize = 28;
const CLASSES: u8 = 10;

/// Reads the data set from a folder (see [`folder::locate`]).
pub fn load(data: &Path) -> Result<Dataset> {
    load_files(&folder::locate(Name::FashionMnist, data), &FILES)
        .map_err(|error| folder::with_command(error, Name::FashionMnist, data))
}

/// The same from exactly this folder. The numbers of images and the sums are arguments because tests have other ones.
pub(super) fn load_files(folder: &Path, files: &[(&str, usize, &str); 4]) -> Result<Dataset> {
    let part = |images, labels| {
        let pixels = read(folder, images, &[SIDE, SIDE])?;
        Images::new(pixels, read(folder, labels, &[])?, SIDE * SIDE, 255)
    };
    Ok(Dataset {
        name: Name::FashionMnist,
        shape: (1, SIDE, SIDE),
        classes: CLASSES.into(),
        train: part(&files[0], &files[1])?,
        test: part(&files[2], &files[3])?,
    })
}

/// The values of a file with this shape for each image; no shape: labels.
fn read(folder: &Path, &(name, images, sum): &(&str, usize, &str), shape: &[usize]) -> Result<Vec<u8>> {
    let dimensions: Vec<usize> = std::iter::once(images).chain(shape.iter().copied()).collect();
    let bytes = 4 * (1 + dimensions.len()) + dimensions.iter().product::<usize>();
    let expected = Expected { name, bytes, sum: Sum::Sha256(sum) };
    checked::read(folder, &expected, |bytes| {
        let values = idx::parse(bytes, &dimensions)?;
        match values.iter().position(|&label| shape.is_empty() && label >= CLASSES) {
            Some(i) => Err(format!("expected labels below {CLASSES}, found {} for image {i}", values[i])),
            None => Ok(values.to_vec()),
        }
    })
}
