//! The header of a .npy file, exactly as NumPy writes it: a dictionary of three entries, each of which is there once.
//!
//! Read here and not by a general reader of Python values: such a reader believes the last of two shapes, reserves what a header says it
//! is long, and goes as deep as brackets are nested.

/// How one number is stored.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Number {
    size: usize,
    big_endian: bool,
}

impl Number {
    fn named(descr: &str) -> Option<Number> {
        let size = match descr.get(1..)? {
            "f8" => 8,
            "f4" => 4,
            _ => return None,
        };
        match &descr[..1] {
            "<" => Some(Number { size, big_endian: false }),
            ">" => Some(Number { size, big_endian: true }),
            _ => None,
        }
    }

    /// In bytes.
    pub fn size(self) -> usize {
        self.size
    }

    /// The number in this place; there must be one.
    pub fn at(self, data: &[u8], place: usize) -> f64 {
        match (self.size, self.big_endian) {
            (8, false) => f64::from_le_bytes(data.as_chunks().0[place]),
            (8, true) => f64::from_be_bytes(data.as_chunks().0[place]),
            (_, false) => f32::from_le_bytes(data.as_chunks().0[place]).into(),
            (_, true) => f32::from_be_bytes(data.as_chunks().0[place]).into(),
        }
    }
}

/// What a header says.
#[derive(Debug, PartialEq)]
pub struct Header {
    pub number: Number,
    pub fortran_order: bool,
    pub rows: usize,
    pub columns: usize,
}

/// The header, and the bytes behind it.
pub fn parse(bytes: &[u8]) -> Result<(Header, &[u8]), String> {
    let rest = bytes.strip_prefix(b"\x93NUMPY").ok_or("it does not begin as such a file does")?;
    let cut = || "the header is cut off".to_string();
    let (length, rest) = match rest {
        [1, 0, rest @ ..] => {
            let (length, rest) = rest.split_first_chunk().ok_or_else(cut)?;
            (u32::from(u16::from_le_bytes(*length)), rest)
        }
        [2 | 3, 0, rest @ ..] => {
            let (length, rest) = rest.split_first_chunk().ok_or_else(cut)?;
            (u32::from_le_bytes(*length), rest)
        }
        [major, minor, ..] => {
            return Err(format!("the version must be 1.0, 2.0 or 3.0, got {major}.{minor}"));
        }
        _ => return Err(cut()),
    };
    let (text, data) = rest.split_at_checked(length as usize).ok_or_else(cut)?;
    let text = std::str::from_utf8(text).map_err(|_| "the header is no text")?;
    Ok((dictionary(text)?, data))
}

fn dictionary(text: &str) -> Result<Header, String> {
    let (mut number, mut fortran_order, mut shape) = (None, None, None);
    let inside = text.trim().strip_prefix('{').and_then(|text| text.strip_suffix('}'));
    let mut rest = inside.ok_or("the header is no dictionary")?.trim();
    while !rest.is_empty() {
        let (key, after) = quoted(rest)?;
        let value = after.strip_prefix(':').ok_or("the header is no dictionary")?.trim_start();
        let twice = match key {
            "descr" => {
                let (descr, after) = quoted(value)?;
                let known = Number::named(descr)
                    .ok_or_else(|| format!("descr must be <f8, <f4, >f8 or >f4, got {}", shown(descr)))?;
                rest = after;
                number.replace(known).is_some()
            }
            "fortran_order" => {
                let word = |word, is| value.strip_prefix(word).map(|after| (is, after));
                let (is, after) = word("True", true)
                    .or_else(|| word("False", false))
                    .ok_or("fortran_order must be True or False")?;
                rest = after;
                fortran_order.replace(is).is_some()
            }
            "shape" => {
                let tuple = value.strip_prefix('(').and_then(|value| value.split_once(')'));
                let (sizes, after) = tuple.ok_or("shape must be two whole numbers in brackets")?;
                rest = after;
                shape.replace(two(sizes)?).is_some()
            }
            other => return Err(format!("there is no entry named {}", shown(other))),
        };
        if twice {
            return Err(format!("{key} is there twice"));
        }
        rest = rest.trim_start();
        rest = match rest.strip_prefix(',') {
            Some(after) => after.trim_start(),
            None if rest.is_empty() => rest,
            None => return Err("the header is no dictionary".into()),
        };
    }
    let (rows, columns) = shape.ok_or("shape is missing")?;
    let fortran_order = fortran_order.ok_or("fortran_order is missing")?;
    Ok(Header { number: number.ok_or("descr is missing")?, fortran_order, rows, columns })
}

/// A text in quotation marks, and what follows it.
fn quoted(text: &str) -> Result<(&str, &str), String> {
    let inside = ['\'', '"'].into_iter().find_map(|mark| text.strip_prefix(mark)?.split_once(mark));
    let (inside, after) = inside.ok_or("a text in quotation marks is missing")?;
    Ok((inside, after.trim_start()))
}

fn two(sizes: &str) -> Result<(usize, usize), String> {
    let wrong = || format!("shape must be two whole numbers in brackets, got ({})", shown(sizes));
    let sizes = sizes.trim().strip_suffix(',').unwrap_or(sizes);
    let (rows, columns) = sizes.split_once(',').ok_or_else(wrong)?;
    let [rows, columns] = [rows, columns].map(|size| {
        // `parse` takes a sign.
        let size = size.trim();
        size.bytes().all(|digit| digit.is_ascii_digit()).then(|| size.parse().ok()).flatten()
    });
    rows.zip(columns).ok_or_else(wrong)
}

/// The beginning of a text from a file, for a message.
fn shown(text: &str) -> String {
    text.chars().take(60).collect()
}
