//! Files of lines `{"user": …, "text": …}`, perhaps with a `"conversation": …`.

use crate::data::checked::Checked;
use serde::Serialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value};

/// A line of a file.
#[derive(Debug, PartialEq, Serialize)]
pub struct Record {
    /// The user, as text: the number 7 and the text "7" are one user.
    pub user: String,
    /// The conversation, where lines have one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conversation: Option<String>,
    /// What the user wrote; it may have several lines.
    pub text: String,
}

/// Reads all lines of a file. Empty lines are skipped; any other line that is not of the form is an error with its number.
pub fn parse(bytes: &[u8]) -> Checked<Vec<Record>> {
    // Some editors put a mark before UTF-8.
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let lines = bytes.split(|&byte| byte == b'\n').enumerate();
    let filled = lines.filter(|(_, line)| !line.trim_ascii().is_empty());
    let records: Vec<Record> = filled
        .map(|(i, line)| record(line).map_err(|reason| format!("line {}: {reason}", i + 1)))
        .collect::<Checked<_>>()?;
    match records.is_empty() {
        false => Ok(records),
        true => Err(format!("expected lines {FORM}, found none")),
    }
}

const FORM: &str = r#"{"user": …, "text": …}"#;

fn record(line: &[u8]) -> Checked<Record> {
    let line =
        str::from_utf8(line).map_err(|error| format!("expected UTF-8, found something else: {error}"))?;
    let found = |error: serde_json::Error| format!("expected an object {FORM}, found {error}");
    let value: Value = serde_json::from_str(line).map_err(found)?;
    let Value::Object(mut fields) = value else {
        return Err(format!("expected an object {FORM}, found {}", kind(&value)));
    };
    // A map keeps the last of two fields of one name, and text would be another user's.
    serde_json::from_str::<Once>(line).map_err(found)?;
    let user = identifier(&mut fields, "user")?.ok_or(format!("expected {FORM}, found no field \"user\""))?;
    let conversation = identifier(&mut fields, "conversation")?;
    match fields.remove("text") {
        Some(Value::String(text)) => Ok(Record { user, conversation, text }),
        Some(other) => Err(format!("expected a string as \"text\", found {}", kind(&other))),
        None => Err(format!("expected {FORM}, found no field \"text\"")),
    }
}

/// Refuses a field that is there twice.
#[derive(serde::Deserialize)]
struct Once {
    #[serde(rename = "user")]
    _user: Option<IgnoredAny>,
    #[serde(rename = "text")]
    _text: Option<IgnoredAny>,
    #[serde(rename = "conversation")]
    _conversation: Option<IgnoredAny>,
}

/// The name of a user or a conversation. No fractions: the same one could be written in several ways, and would be several users.
fn identifier(fields: &mut Map<String, Value>, field: &str) -> Checked<Option<String>> {
    match fields.remove(field) {
        None => Ok(None),
        Some(Value::String(name)) if !name.is_empty() => Ok(Some(name)),
        Some(Value::Number(number)) if number.is_i64() || number.is_u64() => Ok(Some(number.to_string())),
        Some(other) => Err(format!(
            "expected a string that is not empty or a whole number of 64 bits as \"{field}\", found {}",
            kind(&other)
        )),
    }
}

fn kind(value: &Value) -> String {
    match value {
        Value::Object(_) => "an object".into(),
        Value::Array(_) => "an array".into(),
        Value::String(text) if text.is_empty() => "an empty string".into(),
        Value::String(_) => "a string".into(),
        other => other.to_string(),
    }
}
