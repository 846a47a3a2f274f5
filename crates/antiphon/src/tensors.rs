//! Safetensors files whose bytes depend on their content alone.
//!
//! The safetensors crate writes metadata in the order of a hash table, which is another one in every process. Here metadata and
//! tensors are sorted by name, so equal content gives equal bytes, and files can be compared by their checksums.

use safetensors::Dtype;
use safetensors::tensor::TensorInfo;
use serde::Serialize;
use std::collections::BTreeMap;

/// The beginning of a safetensors file: the length of the header in eight bytes, then the header, padded with spaces so that the
/// numbers after it are aligned.
pub fn framed(header: &str) -> Vec<u8> {
    let mut bytes = vec![0; 8];
    bytes.extend(header.as_bytes());
    bytes.resize(bytes.len().next_multiple_of(8), b' ');
    let length = bytes.len() as u64 - 8;
    bytes[..8].copy_from_slice(&length.to_le_bytes());
    bytes
}

/// A whole file of vectors in single precision, with metadata.
pub fn single_precision(vectors: &BTreeMap<&str, &[f32]>, metadata: &BTreeMap<&str, String>) -> Vec<u8> {
    #[derive(Serialize)]
    struct Header<'a> {
        #[serde(rename = "__metadata__")]
        metadata: &'a BTreeMap<&'a str, String>,
        #[serde(flatten)]
        tensors: BTreeMap<&'a str, TensorInfo>,
    }
    let mut tensors = BTreeMap::new();
    let mut start = 0;
    for (name, vector) in vectors {
        let end = start + 4 * vector.len();
        let shape = vec![vector.len()];
        tensors.insert(*name, TensorInfo { dtype: Dtype::F32, shape, data_offsets: (start, end) });
        start = end;
    }
    let header = serde_json::to_string(&Header { metadata, tensors }).expect("plain data with string keys");
    let mut bytes = framed(&header);
    bytes.extend(vectors.values().flat_map(|vector| vector.iter()).flat_map(|x| x.to_le_bytes()));
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use safetensors::SafeTensors;

    #[test]
    fn equal_content_gives_equal_bytes_that_others_read() {
        let (a, b) = ([1.5f32, -2.0, 3.0], [0.25f32]);
        let vectors = BTreeMap::from([("velocity", &a[..]), ("parameters", &b[..])]);
        let names = ["run", "accuracy", "statement", "description", "noise", "sha256", "progress"];
        let metadata: BTreeMap<&str, String> =
            names.iter().map(|name| (*name, format!("“{name}”\n"))).collect();
        let reversed = names.iter().rev().map(|name| (*name, format!("“{name}”\n"))).collect();
        let bytes = single_precision(&vectors, &metadata);
        assert_eq!(bytes, single_precision(&vectors, &reversed));
        // Sorted by name: what a hash table does only by chance, once in 5,040 times for seven names.
        let text = String::from_utf8_lossy(&bytes);
        let places: Vec<usize> = metadata
            .keys()
            .map(|name| text.find(&format!("\"{name}\":")).unwrap())
            .chain(vectors.keys().map(|name| text.find(&format!("\"{name}\":")).unwrap()))
            .collect();
        assert!(places.is_sorted(), "{text}");
        // The crate reads them back.
        let read = SafeTensors::deserialize(&bytes).unwrap();
        let (_, header) = SafeTensors::read_metadata(&bytes).unwrap();
        assert_eq!(header.metadata().as_ref().unwrap()["run"], "“run”\n");
        assert_eq!(read.tensor("velocity").unwrap().shape(), [3]);
        assert_eq!(read.tensor("parameters").unwrap().data(), 0.25f32.to_le_bytes());
        assert_eq!(read.tensor("velocity").unwrap().data()[4..8], (-2.0f32).to_le_bytes());
        assert_eq!(bytes.len() % 8, 0);
    }
}
