//! Files of lines `{"user": …, "text": …}`, perhaps with a `"conversation": …`.

use crate::data::checked::Checked;
use serde::Serialize;
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
    let value: Value =
        serde_json::from_str(line).map_err(|error| format!("expected an object {FORM}, found {error}"))?;
    let Value::Object(mut fields) = value else {
        return Err(format!("expected an object {FORM}, found {}", kind(&value)));
    };
    let user = identifier(&mut fields, "user")?.ok_or(format!("expected {FORM}, found no field \"user\""))?;
    let conversation = identifier(&mut fields, "conversation")?;
    match fields.remove("text") {
        Some(Value::String(text)) => Ok(Record { user, conversation, text }),
        Some(other) => Err(format!("expected a string as \"text\", found {}", kind(&other))),
        None => Err(format!("expected {FORM}, found no field \"text\"")),
    }
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
