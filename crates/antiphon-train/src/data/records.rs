//! Records of one byte for the label and then the pixels: the binary format of CIFAR-10, which the digits share.

use super::checked::Checked;

/// Pixels and labels of records with so many pixels each; the number of records must be this one.
pub fn parse(bytes: &[u8], records: usize, pixels: usize, classes: usize) -> Checked<(Vec<u8>, Vec<u8>)> {
    let record = 1 + pixels;
    if bytes.len() != records * record {
        return Err(format!(
            "expected {} bytes ({records} records of {record}), found {}",
            records * record,
            // A reader stops one byte behind what it expects.
            if bytes.len() > records * record { "more".into() } else { bytes.len().to_string() }
        ));
    }
    let mut parsed = (Vec::with_capacity(records * pixels), Vec::with_capacity(records));
    for (i, record) in bytes.chunks_exact(record).enumerate() {
        if usize::from(record[0]) >= classes {
            return Err(format!("expected labels below {classes}, found {} in record {i}", record[0]));
        }
        parsed.0.extend_from_slice(&record[1..]);
        parsed.1.push(record[0]);
    }
    Ok(parsed)
}
