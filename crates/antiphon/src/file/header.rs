//! The safetensors header and the tensors behind it: sizes, types and the checksum.

use crate::error::{Error, Result};
use crate::tensors::framed;
use safetensors::Dtype;
use safetensors::tensor::{Metadata as Layout, TensorInfo};
use serde::de::{MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

pub const FORMAT: &str = "antiphon-mechanism";
/// The version that is written; the one before it is read too.
pub const FORMAT_VERSION: &str = "2";
pub const FORMER_VERSION: &str = "1";
/// Largest header that is written or read, in bytes. Only a list of patterns makes a header long.
pub const MAX_HEADER: u64 = 64 << 20;
/// What stands for the checksum while the checksum is computed.
pub const NO_CHECKSUM: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// Why some bytes are not a mechanism file.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(pub(super) String);

impl From<Error> for Malformed {
    fn from(error: Error) -> Self {
        Malformed(error.to_string())
    }
}

pub type Reading<T> = std::result::Result<T, Malformed>;

pub fn refuse<T>(reason: impl Into<String>) -> Reading<T> {
    Err(Malformed(reason.into()))
}

/// The string metadata. The checksum comes first, so that the first occurrence of its value in the file is itself.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Metadata {
    pub checksum: String,
    pub format: String,
    pub format_version: String,
    pub kind: String,
    pub schema: String,
    pub workload: String,
    pub loss: String,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub bound: Option<String>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub bound_schema: Option<String>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub lower_bound: Option<String>,
    pub sensitivity: String,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub squared_sensitivity: Option<String>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub structured: Option<String>,
    pub id: String,
    pub written_by: String,
}

/// The JSON header of the safetensors file.
#[derive(Default)]
pub struct Header {
    pub metadata: Metadata,
    /// By name; they are stored in this order.
    pub tensors: BTreeMap<String, TensorInfo>,
}

const METADATA: &str = "__metadata__";

impl Serialize for Header {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(1 + self.tensors.len()))?;
        map.serialize_entry(METADATA, &self.metadata)?;
        self.tensors.iter().try_for_each(|(name, info)| map.serialize_entry(name, info))?;
        map.end()
    }
}

impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        deserializer.deserialize_map(Keys)
    }
}

/// Reads the keys one by one: a map would forget that a key occurs twice.
struct Keys;

impl<'de> Visitor<'de> for Keys {
    type Value = Header;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object with metadata and tensors")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Header, A::Error> {
        let (mut metadata, mut tensors) = (None, BTreeMap::new());
        while let Some(key) = map.next_key::<String>()? {
            let twice = match key == METADATA {
                true => metadata.replace(map.next_value()?).is_some(),
                false => tensors.insert(key.clone(), map.next_value()?).is_some(),
            };
            if twice {
                return Err(serde::de::Error::custom(format!("duplicate field `{}`", shown(&key))));
            }
        }
        let metadata = metadata.ok_or_else(|| serde::de::Error::missing_field(METADATA))?;
        Ok(Header { metadata, tensors })
    }
}

impl Header {
    /// Gives every tensor its place behind the header.
    pub fn place<'a>(&mut self, tensors: impl Iterator<Item = (&'a String, usize)>) {
        let mut end = 0;
        for (name, n) in tensors {
            let start = end;
            end += 8 * n;
            let info = TensorInfo { dtype: Dtype::F64, shape: vec![n], data_offsets: (start, end) };
            self.tensors.insert(name.clone(), info);
        }
    }

    /// The beginning of the file: the length of the header, and the header.
    pub fn to_bytes(&self) -> Vec<u8> {
        framed(&to_json(self))
    }

    /// Reads the header, after a look at the format and its version.
    pub fn parse(text: &[u8]) -> Reading<Self> {
        let foreign = |error: &dyn std::fmt::Display| Malformed(format!("not a mechanism file: {error}"));
        let text = std::str::from_utf8(text).map_err(|error| foreign(&error))?;
        let preamble: Preamble = serde_json::from_str(text).map_err(|error| foreign(&error))?;
        let Format { format, format_version } = preamble.metadata;
        if format != FORMAT {
            return Err(foreign(&Error::argument("format", FORMAT, shown(&format))));
        }
        if ![FORMER_VERSION, FORMAT_VERSION].contains(&format_version.as_str()) {
            let allowed = format!("{FORMER_VERSION} or {FORMAT_VERSION}");
            return Err(Error::argument("format_version", allowed, shown(&format_version)).into());
        }
        serde_json::from_str(text).map_err(|error| Malformed(format!("the header: {error}")))
    }
}

/// An optional key is there or it is not; `null` is not a third way.
fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> std::result::Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// What must be known before the rest of the header can be judged.
#[derive(Deserialize)]
struct Preamble {
    #[serde(rename = "__metadata__")]
    metadata: Format,
}

#[derive(Deserialize)]
struct Format {
    format: String,
    format_version: String,
}

/// The metadata entry `workload`. Numbers that are not integers are strings: a JSON reader might round them.
#[derive(Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum WorkloadEntry {
    Training { momentum: String, learning_rates: bool },
    Dense {},
}

/// The metadata entry `structured`.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StructuredEntry {
    pub family: String,
    pub stamps: usize,
}

/// What the names of parameters begin with.
pub const PARAMETER: &str = "parameter.";

/// The tensors of a file that were not yet asked for.
pub struct Tensors<'a> {
    pub data: &'a [u8],
    pub infos: BTreeMap<String, TensorInfo>,
}

impl<'a> Tensors<'a> {
    /// Checks that the tensors fill the data section without holes or overlaps.
    pub fn new(infos: BTreeMap<String, TensorInfo>, data: &'a [u8]) -> Reading<Self> {
        let mut sorted: Vec<_> = infos.iter().map(|(n, i)| (n.clone(), i.clone())).collect();
        sorted.sort_by_key(|(_, info)| info.data_offsets);
        let layout = Layout::new(None, sorted).map_err(|error| Malformed(error.to_string()))?;
        if layout.data_len() != data.len() {
            let (announced, there) = (layout.data_len(), data.len());
            return refuse(format!(
                "the tensors take {announced} bytes, but {there} follow the header: the file was cut or extended"
            ));
        }
        Ok(Tensors { data, infos })
    }

    /// How many numbers a vector has; none where it is missing or no vector.
    pub fn length(&self, name: &str) -> usize {
        match self.infos.get(name).map(|info| &info.shape[..]) {
            Some([length]) => *length,
            _ => 0,
        }
    }

    /// The numbers of a vector with `length` entries, or any number of them.
    pub fn take(&mut self, name: &str, length: Option<u128>) -> Reading<Vec<f64>> {
        let Some(TensorInfo { dtype, shape, data_offsets }) = self.infos.remove(name) else {
            return refuse(format!("the tensor {name} is missing"));
        };
        let fits = matches!(shape[..], [n] if length.is_none_or(|length| length == n as u128));
        if dtype != Dtype::F64 || !fits {
            let length = length.map_or("N".into(), |length| length.to_string());
            let value = format!("{dtype} {}", shown(&format!("{shape:?}")));
            return Err(
                Error::argument(format!("the tensor {name}"), format!("F64 [{length}]"), value).into()
            );
        }
        let bytes = &self.data[data_offsets.0..data_offsets.1];
        let numbers: Vec<f64> = bytes.as_chunks().0.iter().map(|bytes| f64::from_le_bytes(*bytes)).collect();
        match numbers.iter().position(|x| !x.is_finite()) {
            Some(i) => Err(Error::argument(format!("{name}[{i}]"), "finite", numbers[i]).into()),
            None => Ok(numbers),
        }
    }
}

/// The length of the header from the first eight bytes of a file of `size` bytes.
pub fn length(bytes: &[u8], size: u64) -> Reading<usize> {
    let Some(first) = bytes.first_chunk() else {
        return refuse("not a mechanism file: it has fewer than 8 bytes");
    };
    let length = u64::from_le_bytes(*first);
    if length > MAX_HEADER {
        return refuse(format!(
            "not a mechanism file: the length of the header must be at most {MAX_HEADER} bytes, got {length}"
        ));
    }
    let rest = size.saturating_sub(8);
    if length > rest {
        return refuse(format!(
            "the header should have {length} bytes, but only {rest} follow: the file was cut"
        ));
    }
    Ok(length as usize)
}

pub fn json<'a, T: Deserialize<'a>>(name: &str, text: &'a str) -> Reading<T> {
    serde_json::from_str(text).map_err(|error| Malformed(format!("{name}: {error}")))
}

pub fn number(name: &str, text: &str) -> Result<f64> {
    text.parse().map_err(|_| Error::argument(name, "a decimal number", shown(text)))
}

/// Plain data as JSON.
pub fn to_json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("plain data with string keys has a JSON form")
}

/// The beginning of a text from a file, for a message.
pub fn shown(text: &str) -> String {
    text.chars().take(60).collect()
}

/// The SHA-256 of the file with zeros in place of the checksum's first occurrence, if it occurs in the header.
pub fn checksum(bytes: &[u8], header_length: usize, value: &str) -> Option<String> {
    let start = 8 + std::str::from_utf8(&bytes[8..8 + header_length]).ok()?.find(value)?;
    let mut hash = Sha256::new();
    hash.update(&bytes[..start]);
    hash.update(NO_CHECKSUM);
    hash.update(&bytes[start + value.len()..]);
    Some(hexadecimal(hash))
}

pub fn hexadecimal(hash: Sha256) -> String {
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Numbers as little-endian bytes, in pieces.
pub fn blocks(numbers: &[f64]) -> impl Iterator<Item = Vec<u8>> {
    numbers.chunks(1 << 13).map(|chunk| chunk.iter().flat_map(|x| x.to_le_bytes()).collect())
}
