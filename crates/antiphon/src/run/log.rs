//! The participation log: which units took part in which step.
//!
//! One line of JSON per step, `{"step":3,"units":[0,7,12]}`, with steps counted from 0 and strictly increasing. A unit is whatever
//! privacy protects, an example or a user, and has a whole number as its name. The log is written while training and read by
//! [`audit`](super::audit). It tells who is in the data: only its owner may read it.

mod writer;

pub use writer::Writer;

use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

/// One step and who took part in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Line {
    /// Counted from 0.
    pub step: usize,
    /// In any order. A unit that is listed twice contributed twice.
    pub units: Vec<u64>,
}

/// What a log may contain.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Steps must be in 0..steps.
    pub steps: usize,
    /// Units must be in 0..units, where that is known.
    pub units: Option<u64>,
}

/// Reads a log line by line; stops after the first error.
pub struct Reader<R> {
    input: R,
    path: PathBuf,
    limits: Limits,
    /// Of the line that was read last, counted from 1.
    number: usize,
    last_step: Option<usize>,
    failed: bool,
    /// Bytes up to the end of that line.
    consumed: u64,
    buffer: Vec<u8>,
}

/// What comes next in a log.
enum Next {
    Line(Line),
    /// The last line has no line end and cannot be parsed: its writer was killed.
    CutOff,
    End,
}

impl Reader<BufReader<File>> {
    /// Opens a log.
    pub fn open(path: &Path, limits: Limits) -> Result<Self> {
        let file = File::open(path).map_err(|source| Error::Io { path: path.into(), source })?;
        Ok(Reader::new(BufReader::new(file), path, limits))
    }
}

impl<R: BufRead> Reader<R> {
    /// Reads from any source. The path is for messages.
    pub fn new(input: R, path: &Path, limits: Limits) -> Self {
        let (path, buffer) = (path.into(), Vec::new());
        Reader { input, path, limits, number: 0, last_step: None, failed: false, consumed: 0, buffer }
    }

    fn read(&mut self) -> Result<Next> {
        loop {
            self.buffer.clear();
            let read = self.input.read_until(b'\n', &mut self.buffer);
            match read.map_err(|source| Error::Io { path: self.path.clone(), source })? {
                0 => return Ok(Next::End),
                read => self.consumed += read as u64,
            }
            self.number += 1;
            if !self.buffer.iter().all(u8::is_ascii_whitespace) {
                break;
            }
        }
        match serde_json::from_slice(&self.buffer) {
            Ok(line) => self.checked(line).map(Next::Line),
            Err(_) if !self.ended() => Ok(Next::CutOff),
            Err(error) => Err(self.malformed(&error)),
        }
    }

    /// Whether the line that was read last has its line end.
    fn ended(&self) -> bool {
        self.buffer.last() == Some(&b'\n')
    }

    fn checked(&mut self, line: Line) -> Result<Line> {
        let Limits { steps, units } = self.limits;
        if line.step >= steps {
            return Err(self.wrong(format!("step must be in 0..{steps}, got {}", line.step)));
        }
        if let Some(last) = self.last_step.filter(|last| line.step <= *last) {
            let step = line.step;
            return Err(
                self.wrong(format!("steps must be strictly increasing, got step {step} after step {last}"))
            );
        }
        let unknown = |count: u64| line.units.iter().find(|unit| **unit >= count).zip(Some(count));
        if let Some((unit, count)) = units.and_then(unknown) {
            return Err(self.wrong(format!("every unit must be in 0..{count}, got {unit}")));
        }
        self.last_step = Some(line.step);
        Ok(line)
    }

    fn malformed(&self, error: &serde_json::Error) -> Error {
        // Each line is a document of its own, whose line number would only confuse.
        let text = error.to_string();
        let what = text.split(" at line ").next().unwrap_or_default();
        self.wrong(format!(
            r#"must be JSON such as {{"step":3,"units":[0,7]}}, with whole numbers of at least 0 and no other fields: {what} (column {})"#,
            error.column()
        ))
    }

    fn cut_off(&self) -> Error {
        self.wrong(
            "the last line is cut off: it has no line end and is not complete JSON, as after a kill of the program that \
             wrote it. Let that run resume, or remove this line"
                .into(),
        )
    }

    fn wrong(&self, what: String) -> Error {
        Error::File { path: self.path.clone(), reason: format!("line {}: {what}", self.number) }
    }
}

impl<R: BufRead> Iterator for Reader<R> {
    type Item = Result<Line>;

    fn next(&mut self) -> Option<Result<Line>> {
        if self.failed {
            return None;
        }
        let next = match self.read() {
            Ok(Next::End) => return None,
            Ok(Next::Line(line)) => Ok(line),
            Ok(Next::CutOff) => Err(self.cut_off()),
            Err(error) => Err(error),
        };
        self.failed = next.is_err();
        Some(next)
    }
}

/// One line as bytes, with its line end.
fn bytes(step: usize, units: &[u64]) -> io::Result<Vec<u8>> {
    #[derive(Serialize)]
    struct Borrowed<'a> {
        step: usize,
        units: &'a [u64],
    }
    let mut bytes = serde_json::to_vec(&Borrowed { step, units })?;
    bytes.push(b'\n');
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<Line>> {
        let limits = Limits { steps: 10, units: Some(100) };
        Reader::new(text.as_bytes(), Path::new("log"), limits).collect()
    }

    fn message(text: &str) -> String {
        read(text).unwrap_err().to_string()
    }

    #[test]
    fn lines_in_order_with_gaps_and_blank_lines() {
        let lines = read(" \n{\"step\": 0, \"units\": [5, 3, 5]}\r\n\n{\"units\":[],\"step\":7}").unwrap();
        assert_eq!(lines, [Line { step: 0, units: vec![5, 3, 5] }, Line { step: 7, units: vec![] }]);
        assert_eq!(read("").unwrap(), []);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        let good = "{\"step\":4,\"units\":[1]}\n";
        for (line, part) in [
            (
                "{\"step\":4,\"units\":[1]}\n",
                "log: line 2: steps must be strictly increasing, got step 4 after step 4",
            ),
            ("{\"step\":2,\"units\":[1]}\n", "steps must be strictly increasing, got step 2 after step 4"),
            ("{\"step\":10,\"units\":[1]}\n", "line 2: step must be in 0..10, got 10"),
            ("{\"step\":5,\"units\":[1,100]}\n", "line 2: every unit must be in 0..100, got 100"),
            (
                "rubbish\n",
                "line 2: must be JSON such as {\"step\":3,\"units\":[0,7]}, with whole numbers of at least 0",
            ),
            ("{\"step\":5,\"units\":[-1]}\n", "integer `-1`"),
            ("{\"step\":5,\"units\":[1.5]}\n", "floating point `1.5`"),
            ("{\"step\":5,\"units\":[\"a\"]}\n", "string \"a\""),
            ("{\"step\":5,\"units\":[18446744073709551616]}\n", "floating point"),
            ("{\"step\":-5,\"units\":[]}\n", "integer `-5`"),
            ("{\"step\":5,\"units\":[],\"x\":1}\n", "unknown field `x`"),
            ("{\"step\":5,\"step\":6,\"units\":[]}\n", "duplicate field `step`"),
            ("{\"step\":5}\n", "missing field `units`"),
            ("{\"step\":5,\"units\":[1]} {\"step\":6,\"units\":[1]}\n", "trailing characters (column 24)"),
            ("{\"step\":5,\"units\":[1]\n", "EOF"),
            ("{\"step\":5,\"units\":[1]", "line 2: the last line is cut off"),
        ] {
            let found = message(&format!("{good}{line}"));
            assert!(found.contains(part) && !found.contains("at line 1"), "{line}: {found}");
        }
    }

    #[test]
    fn nothing_follows_an_error() {
        let text = "nonsense\n{\"step\":5,\"units\":[1]}\n";
        let limits = Limits { steps: 10, units: None };
        let lines: Vec<Result<Line>> = Reader::new(text.as_bytes(), Path::new("log"), limits).collect();
        assert_eq!(lines.len(), 1);
    }
}
