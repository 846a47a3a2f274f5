//! What `antiphon noise` says.

use super::Keys;
use super::job::Done;
use crate::output::{figure, print_json, program, quoted, size};
use antiphon::file;
use antiphon::mechanism::Mechanism;
use antiphon::noise::self_test::{self, SelfTest};
use antiphon::noise::{Key, Table};
use std::ops::Range;
use std::path::Path;

/// The table in question.
pub struct About<'a> {
    pub mechanism: &'a Mechanism,
    pub stddev: f64,
    pub rows: Range<usize>,
    pub coords: Range<u64>,
}

impl About<'_> {
    fn json(&self, table: &Table) -> serde_json::Value {
        serde_json::json!({
            "dtype": "<f4",
            "shape": [self.rows.len(), self.coords.end - self.coords.start],
            "rows": [self.rows.start, self.rows.end],
            "coordinates": [self.coords.start, self.coords.end],
            "stddev": self.stddev,
            "id": file::id(self.mechanism),
            "noise_id": table.id(),
            "bytes": table.bytes(),
        })
    }

    fn print(&self, table: &Table) {
        let width = self.coords.end - self.coords.start;
        say!("  rows          {} (steps {}:{})", self.rows.len(), self.rows.start, self.rows.end);
        say!("  columns       {width} (coordinates {}:{})", self.coords.start, self.coords.end);
        say!("  stddev        {} of Z", figure(self.stddev));
        say!("  size          {}", table.bytes().map_or("too much".into(), size));
    }

    /// Where no file is to be written.
    pub fn show_plan(&self, table: &Table, json: bool) -> anyhow::Result<()> {
        if json {
            return print_json(&self.json(table));
        }
        self.print(table);
        let line: Vec<String> = std::env::args_os().skip(1).map(|word| quoted(&word)).collect();
        say!("Nothing was written. To have the noise in a file:");
        say!("  {} {} --output noise.bin", program(), line.join(" "));
        Ok(())
    }

    /// The file is there.
    pub fn show_done(
        &self,
        table: &Table,
        keys: &Keys,
        output: &Path,
        done: &Done,
        json: bool,
    ) -> anyhow::Result<()> {
        if keys.seeded {
            eprintln!("antiphon: a seeded run is not private against anyone who knows or guesses the seed");
        }
        if json {
            let mut value = self.json(table);
            value["file"] = output.to_string_lossy().into();
            value["cipher"] = keys.key.cipher().name().into();
            value["key_fingerprint"] = keys.key.fingerprint().into();
            value["key_file"] = keys.path.as_ref().map(|path| path.to_string_lossy()).into();
            value["seeded"] = keys.seeded.into();
            value["resumed_at"] = done.resumed_at.into();
            value["seconds"] = done.seconds.into();
            return print_json(&value);
        }
        say!("{}", output.display());
        self.print(table);
        match &keys.path {
            Some(path) => {
                say!("  key           {}, {}", path.display(), keys.key.cipher());
                say!(
                    "                who has it, or the noise, has the gradients: keep both as secret as the data"
                );
            }
            None => say!("  key           from a seed, {}", keys.key.cipher()),
        }
        if let Some(column) = done.resumed_at {
            say!("  resumed       at coordinate {column}");
        }
        let name = serde_json::to_string(&output.to_string_lossy())?;
        let shape = (self.rows.len(), self.coords.end - self.coords.start);
        say!("Written in {:.1} s. To read it:", done.seconds);
        say!("  numpy.memmap({name}, \"<f4\", \"r\", shape=({}, {}))", shape.0, shape.1);
        Ok(())
    }
}

/// The result of a self-test.
pub fn self_test(
    path: &Path,
    key: &Key,
    coordinates: usize,
    result: &SelfTest,
    json: bool,
) -> anyhow::Result<()> {
    if json {
        return print_json(&serde_json::json!({
            "passed": result.passed(),
            "alpha": self_test::ALPHA,
            "threshold": result.threshold,
            "cipher": key.cipher().name(),
            "coordinates": coordinates,
            "samples": result.samples,
            "tests": result.tests,
        }));
    }
    let [field, stream] = result.samples;
    say!("{}", path.display());
    say!(
        "  {field} normals of the field ({}), {stream} numbers of the stream ({coordinates} coordinates)",
        key.cipher()
    );
    say!("         {:<46} {:>10} {:>10}", "test", "statistic", "p");
    for test in &result.tests {
        let mark = if result.accepts(test) { "ok    " } else { "FAILED" };
        say!("  {mark} {:<46} {:>10.3} {:>10.2e}", test.name, test.statistic, test.p_value);
    }
    say!(
        "{} A correct generator fails with probability {:.0e}: one of {} tests with p below {:.1e}.",
        if result.passed() { "Passed." } else { "FAILED." },
        self_test::ALPHA,
        result.tests.len(),
        result.threshold
    );
    Ok(())
}
