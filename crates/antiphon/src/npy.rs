//! Matrices of other programs: NumPy's .npy and .npz files.

use crate::error::{Error, Result};
use crate::linalg::dense::{self, Matrix};
use ndarray::{Array2, Ix2, OwnedRepr, ShapeBuilder};
use ndarray_npy::{NpzReader, ReadNpyExt, WriteNpyExt};
use std::fs::File;
use std::io::{BufReader, BufWriter, Cursor, Read, Write};
use std::path::Path;

/// Larger files are refused before they are read.
const MAX_BYTES: u64 = 1 << 34;

/// Reads a two-dimensional array of `f64` or `f32` from a .npy file, or the only one of a .npz file.
pub fn read(path: &Path) -> Result<Matrix> {
    let io = |source| Error::Io { path: path.into(), source };
    let bad = |reason: String| Error::File { path: path.into(), reason };
    let file = File::open(path).map_err(io)?;
    let length = file.metadata().map_err(io)?.len();
    if length > MAX_BYTES {
        return Err(bad(format!("{length} bytes are too many (at most {MAX_BYTES})")));
    }
    let mut bytes = Vec::new();
    BufReader::new(file).read_to_end(&mut bytes).map_err(io)?;
    let array = if bytes.starts_with(b"PK") {
        let mut archive = NpzReader::new(Cursor::new(&bytes)).map_err(|e| bad(e.to_string()))?;
        let names = archive.names().map_err(|e| bad(e.to_string()))?;
        let [name] = names.as_slice() else {
            return Err(bad(format!(
                "must hold exactly one array, got {}: {}",
                names.len(),
                names.join(", ")
            )));
        };
        let wide = archive.by_name::<OwnedRepr<f64>, Ix2>(name);
        match wide {
            Ok(array) => array,
            Err(first) => archive
                .by_name::<OwnedRepr<f32>, Ix2>(name)
                .map(|array| array.mapv(f64::from))
                .map_err(|_| bad(explain(&first.to_string())))?,
        }
    } else {
        check_length(&bytes).map_err(bad)?;
        match Array2::<f64>::read_npy(Cursor::new(&bytes)) {
            Ok(array) => array,
            Err(first) => Array2::<f32>::read_npy(Cursor::new(&bytes))
                .map(|array| array.mapv(f64::from))
                .map_err(|_| bad(explain(&first.to_string())))?,
        }
    };
    let (rows, columns) = array.dim();
    if rows == 0 || columns == 0 {
        return Err(bad(format!("must be a matrix that is not empty, got {rows}×{columns}")));
    }
    Ok(dense::from_fn(rows, columns, |i, j| array[(i, j)]))
}

fn explain(reason: &str) -> String {
    format!("must be a NumPy file with a two-dimensional array of float64 or float32: {reason}")
}

/// Refuses a header that promises more numbers than the file has bytes for, before anything is allocated.
fn check_length(bytes: &[u8]) -> std::result::Result<(), String> {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(1024)]);
    let Some(shape) = text.split_once("'shape':").and_then(|(_, rest)| {
        rest.split_once('(').and_then(|(_, rest)| rest.split_once(')')).map(|(inside, _)| inside)
    }) else {
        return Err(explain("no array header"));
    };
    let promised = shape
        .split(',')
        .filter(|part| !part.trim().is_empty())
        .try_fold(4u64, |product, part| product.checked_mul(part.trim().parse().ok()?));
    match promised {
        // 4 bytes times an empty shape is nothing, whatever the other side says.
        Some(least) if least > 0 && least <= bytes.len() as u64 => Ok(()),
        _ => Err(format!("has no array of shape ({shape}) with at least one entry: is it too short?")),
    }
}

/// Writes a matrix as a .npy file of `f64`, in C order, through a sibling that is renamed at the end.
pub fn write(path: &Path, m: &Matrix, replace: bool) -> Result<()> {
    crate::atomic::write(path, replace, |file| {
        let columns: Vec<f64> = (0..m.ncols()).flat_map(|j| m.col(j).iter().copied()).collect();
        let array =
            Array2::from_shape_vec((m.nrows(), m.ncols()).f(), columns).map_err(std::io::Error::other)?;
        let mut out = BufWriter::new(file);
        array.as_standard_layout().write_npy(&mut out).map_err(std::io::Error::other)?;
        out.flush()
    })
}

/// The first bytes of a .npy file with this many rows and columns of `f32`, which follow in C order. A multiple of 64 bytes, so
/// that the numbers are aligned where the file is mapped.
pub fn header_f32(rows: u64, columns: u64) -> Vec<u8> {
    const BEFORE: usize = 10; // magic, version, length
    let mut text = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, {columns}), }}");
    let length = (BEFORE + text.len() + 1).next_multiple_of(64) - BEFORE;
    text.extend(std::iter::repeat_n(' ', length - 1 - text.len()));
    // Two numbers of at most 20 digits: always far below 2¹⁶.
    [b"\x93NUMPY\x01\x00", &(length as u16).to_le_bytes()[..], text.as_bytes(), b"\n"].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_after_the_header_are_an_array() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.npy");
        let header = header_f32(3, 2);
        // Byte for byte what numpy 2.4.6 writes for numpy.zeros((3, 2), "<f4").
        let expected = format!("{:<117}\n", "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2), }");
        assert_eq!(header, [b"\x93NUMPY\x01\x00v\x00", expected.as_bytes()].concat());
        let numbers = (0..6u8).flat_map(|x| f32::from(x).to_le_bytes());
        std::fs::write(&path, header.into_iter().chain(numbers).collect::<Vec<u8>>()).unwrap();
        assert_eq!(read(&path).unwrap(), dense::from_fn(3, 2, |i, j| (2 * i + j) as f64));
        for (rows, columns) in [(1, 1), (u64::MAX, u64::MAX), (2000, 1_000_000)] {
            let header = header_f32(rows, columns);
            assert_eq!((header.len() % 64, header.last()), (0, Some(&b'\n')));
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.npy");
        let m = dense::from_fn(3, 2, |i, j| i as f64 - 10.0 * j as f64);
        write(&path, &m, false).unwrap();
        assert_eq!(read(&path).unwrap(), m);
        let message = write(&path, &m, false).unwrap_err().to_string();
        assert!(message.contains("only if that is asked for"), "{message}");
        write(&path, &m, true).unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn broken_and_lying_files_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.npy");
        write(&path, &dense::identity(4), false).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let mut variants = vec![Vec::new(), b"hello".to_vec(), bytes[..bytes.len() - 8].to_vec()];
        let text = String::from_utf8_lossy(&bytes[..128]).replace("(4, 4)", "(9999999, 9999999)");
        let lying = [text.as_bytes(), &bytes[128..]].concat();
        variants.push(lying);
        for bytes in variants {
            std::fs::write(&path, &bytes).unwrap();
            assert!(matches!(read(&path), Err(Error::File { .. })));
        }
    }
}
