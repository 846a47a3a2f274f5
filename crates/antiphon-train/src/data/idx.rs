//! The IDX format of MNIST and its relatives: two zero bytes, the type (8: unsigned bytes), the number of dimensions, each
//! dimension as four bytes with the highest first, and then the values.

use super::checked::Checked;

/// The values of an IDX file of unsigned bytes, which must have these dimensions.
pub fn parse<'a>(bytes: &'a [u8], dimensions: &[usize]) -> Checked<&'a [u8]> {
    let magic = [0, 0, 8, dimensions.len() as u8];
    let header = 4 * (1 + dimensions.len());
    let Some((head, values)) = bytes.split_at_checked(header) else {
        return Err(format!("expected a header of {header} bytes, found {} bytes in all", bytes.len()));
    };
    if head[..4] != magic {
        return Err(format!(
            "expected an IDX file of bytes in {} dimensions (it starts with {magic:02x?}), found {:02x?}",
            dimensions.len(),
            &head[..4]
        ));
    }
    let found: Vec<usize> = head[4..]
        .chunks_exact(4)
        .map(|word| word.iter().fold(0, |value, &byte| value << 8 | usize::from(byte)))
        .collect();
    if found != dimensions {
        return Err(format!("expected the dimensions {dimensions:?}, found {found:?}"));
    }
    let expected: usize = dimensions.iter().product();
    if values.len() != expected {
        // A reader stops one byte behind what it expects.
        let found = if values.len() > expected { "more".into() } else { values.len().to_string() };
        return Err(format!("expected {expected} bytes behind the header, found {found}"));
    }
    Ok(values)
}
