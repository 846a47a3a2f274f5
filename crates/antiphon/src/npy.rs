//! Matrices of other programs: NumPy's .npy and .npz files.

mod header;

use crate::error::{Error, Result};
use crate::linalg::dense::{self, Matrix};
use header::Header;
use ndarray::{Array2, Ix2, OwnedRepr, ShapeBuilder};
use ndarray_npy::{NpzReader, WriteNpyExt};
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
    let matrix = if bytes.starts_with(b"PK") { only_array(&bytes) } else { from_bytes(&bytes) };
    matrix.map_err(bad)
}

/// The matrix in the bytes of a .npy file, or why there is none. Never panics, and takes memory in proportion to the bytes,
/// whatever shape they name.
pub fn from_bytes(bytes: &[u8]) -> std::result::Result<Matrix, String> {
    let (Header { number, fortran_order, rows, columns }, data) = header::parse(bytes).map_err(explain)?;
    // In 128 bits, where two sizes of 64 bits cannot overflow; all of them together can.
    let promised = (rows as u128 * columns as u128).checked_mul(number.size() as u128);
    if promised != Some(data.len() as u128) {
        let promised = promised.map_or("too many".into(), |bytes| bytes.to_string());
        let there = data.len();
        return Err(explain(format!(
            "{rows}×{columns} numbers take {promised} bytes, but {there} follow the header"
        )));
    }
    not_empty(rows, columns)?;
    let place = |i: usize, j: usize| if fortran_order { j * rows + i } else { i * columns + j };
    Ok(dense::from_fn(rows, columns, |i, j| number.at(data, place(i, j))))
}

/// The only array of a .npz file.
fn only_array(bytes: &[u8]) -> std::result::Result<Matrix, String> {
    let mut archive = NpzReader::new(Cursor::new(bytes)).map_err(|error| error.to_string())?;
    let names = archive.names().map_err(|error| error.to_string())?;
    let [name] = names.as_slice() else {
        return Err(format!("must hold exactly one array, got {}: {}", names.len(), names.join(", ")));
    };
    let wide = archive.by_name::<OwnedRepr<f64>, Ix2>(name);
    let array = match wide {
        Ok(array) => array,
        Err(first) => archive
            .by_name::<OwnedRepr<f32>, Ix2>(name)
            .map(|array| array.mapv(f64::from))
            .map_err(|_| explain(first.to_string()))?,
    };
    let (rows, columns) = array.dim();
    not_empty(rows, columns)?;
    Ok(dense::from_fn(rows, columns, |i, j| array[(i, j)]))
}

fn not_empty(rows: usize, columns: usize) -> std::result::Result<(), String> {
    match rows == 0 || columns == 0 {
        true => Err(format!("must be a matrix that is not empty, got {rows}×{columns}")),
        false => Ok(()),
    }
}

fn explain(reason: String) -> String {
    format!("must be a NumPy file with a two-dimensional array of float64 or float32: {reason}")
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

    /// A file of version 1.0 with this header and so many zeros behind it.
    fn with_header(header: &str, zeros: usize) -> Vec<u8> {
        let length = (header.len() as u16).to_le_bytes();
        [b"\x93NUMPY\x01\x00", &length[..], header.as_bytes(), &vec![0; zeros]].concat()
    }

    #[test]
    fn orders_types_and_versions_of_numpy() {
        // What numpy 2.4.6 writes for numpy.arange(6.0).reshape(2, 3), in both orders, as four types.
        let numbers = [0.0f64, 1.0, 2.0, 3.0, 4.0, 5.0];
        let fortran = [0.0f64, 3.0, 1.0, 4.0, 2.0, 5.0];
        let expected = dense::from_fn(2, 3, |i, j| (3 * i + j) as f64);
        type Store = fn(f64) -> Vec<u8>;
        let stores: [(&str, Store); 4] = [
            ("<f8", |x| x.to_le_bytes().to_vec()),
            (">f8", |x| x.to_be_bytes().to_vec()),
            ("<f4", |x| (x as f32).to_le_bytes().to_vec()),
            (">f4", |x| (x as f32).to_be_bytes().to_vec()),
        ];
        for (descr, store) in stores {
            for (order, numbers) in [("False", numbers), ("True", fortran)] {
                let header = format!(
                    "{{'descr': '{descr}', 'fortran_order': {order}, 'shape': (2, 3), }}          \n"
                );
                let data: Vec<u8> = numbers.into_iter().flat_map(store).collect();
                let first = [&with_header(&header, 0)[..], &data].concat();
                assert_eq!(from_bytes(&first).unwrap(), expected, "{descr} {order}");
                for version in [2, 3] {
                    let length = (header.len() as u32).to_le_bytes();
                    let later = [b"\x93NUMPY", &[version, 0][..], &length, header.as_bytes(), &data].concat();
                    assert_eq!(from_bytes(&later).unwrap(), expected, "{descr} {order} {version}");
                }
            }
        }
    }

    #[test]
    fn headers_that_lie_are_refused_before_anything_is_allocated() {
        let of = |entries: &str| from_bytes(&with_header(&format!("{{{entries}}}\n"), 48)).unwrap_err();
        let shape = |shape: &str| of(&format!("'descr': '<f8', 'fortran_order': False, 'shape': {shape}"));
        for (size, promised) in [
            ("(3, 3)", "3×3 numbers take 72 bytes, but 48 follow"),
            ("(1, 2)", "1×2 numbers take 16 bytes, but 48 follow"),
            ("(18446744073709551615, 18446744073709551615)", "take too many bytes, but 48 follow"),
            ("(4294967296, 536870912)", "take 18446744073709551616 bytes"), // 2⁶⁴, which is 0 in 64 bits
            ("(0, 18446744073709551615)", "take 0 bytes"),
            ("(18446744073709551616, 1)", "shape must be two whole numbers in brackets, got (184"),
            ("(-2, -3)", "shape must be two whole numbers in brackets, got (-2, -3)"),
            ("(+2, 3)", "shape must be two whole numbers"),
            ("(2.0, 3)", "shape must be two whole numbers"),
            ("(6,)", "shape must be two whole numbers"),
            ("(1, 2, 3)", "shape must be two whole numbers"),
            ("()", "shape must be two whole numbers"),
            ("(2, 3", "shape must be two whole numbers"),
        ] {
            assert!(shape(size).contains(promised), "{size}: {}", shape(size));
        }
        // Of two shapes, none is believed.
        let twice = shape("(2, 3), 'shape': (99999999999, 1)");
        assert!(twice.ends_with("shape is there twice"), "{twice}");
        let nested = of(&"[".repeat(60_000));
        assert!(nested.contains("quotation marks") && nested.len() < 200, "{nested}");
        for (entries, expected) in [
            ("'descr': '<i8', 'fortran_order': False, 'shape': (2, 3)", "<f8, <f4, >f8 or >f4, got <i8"),
            ("'descr': '|O', 'fortran_order': False, 'shape': (2, 3)", "got |O"),
            ("'descr': [('a', '<f8')], 'fortran_order': False, 'shape': (2, 3)", "quotation marks"),
            ("'descr': '<f8', 'fortran_order': 0, 'shape': (2, 3)", "fortran_order must be True or False"),
            ("'descr': '<f8', 'shape': (2, 3)", "fortran_order is missing"),
            ("'descr': '<f8', 'fortran_order': False, 'shape': (2, 3), 'x': 1", "no entry named x"),
            ("'descr': 'é8', 'fortran_order': False, 'shape': (2, 3)", "got é8"),
        ] {
            assert!(of(entries).contains(expected), "{entries}: {}", of(entries));
        }
        // A header that says it is longer than the file.
        let long = [&b"\x93NUMPY\x02\x00\xff\xff\xff\xff"[..], b"{}"].concat();
        assert!(from_bytes(&long).unwrap_err().ends_with("the header is cut off"));
        assert!(from_bytes(b"\x93NUMPY\x01").unwrap_err().ends_with("the header is cut off"));
        assert!(from_bytes(b"\x93NUMPY\x09\x00").unwrap_err().contains("1.0, 2.0 or 3.0, got 9.0"));
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
