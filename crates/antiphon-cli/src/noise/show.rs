//! What `antiphon noise` says.

use super::about::{About, Description};
use super::job::Done;
use super::keys::Keys;
use crate::output::{print_json, program, quoted};
use antiphon::noise::Key;
use antiphon::noise::self_test::{self, SelfTest};
use std::path::Path;

/// Where no file is to be written.
pub fn plan(about: &About, json: bool) -> anyhow::Result<()> {
    if json {
        return print_json(about);
    }
    about.lines().iter().for_each(|line| say!("{line}"));
    let line: Vec<String> = std::env::args_os().skip(1).map(|word| quoted(&word)).collect();
    say!("Nothing was written. To have the noise in a file:");
    say!("  {} {} --output noise.npy", program(), line.join(" "));
    Ok(())
}

/// The file is there.
pub fn done(
    description: &Description,
    keys: &Keys,
    output: &Path,
    done: &Done,
    json: bool,
) -> anyhow::Result<()> {
    let about = &description.about;
    if json {
        let mut value = serde_json::to_value(description)?;
        value["file"] = output.to_string_lossy().into();
        value["key_file"] = keys.path.as_ref().map(|path| path.to_string_lossy()).into();
        value["resumed_at"] = done.resumed_at.into();
        value["seconds"] = done.seconds.into();
        return print_json(&value);
    }
    say!("{}", output.display());
    about.lines().iter().for_each(|line| say!("{line}"));
    match &keys.path {
        Some(path) => {
            say!("  key           {}, {}", path.display(), keys.key.cipher());
            say!(
                "                keep key and noise as secret as the data: with either of them the noise can"
            );
            say!("                be subtracted. Use this noise in one training run only");
        }
        None => say!("  key           from a seed, {}", keys.key.cipher()),
    }
    if let Some(column) = done.resumed_at {
        say!("  resumed       at coordinate {column}");
    }
    let name = serde_json::to_string(&output.to_string_lossy())?;
    say!("Written in {:.1} s. To read it:", done.seconds);
    match description.offset {
        0 => {
            let [rows, columns] = about.shape();
            say!("  numpy.memmap({name}, \"<f4\", \"r\", shape=({rows}, {columns}))");
        }
        _ => say!("  numpy.load({name}, mmap_mode=\"r\")"),
    }
    Ok(())
}

/// A remark that goes with every seeded run.
pub fn remark_on_seed(keys: &Keys) {
    if keys.seeded {
        eprintln!("antiphon: a seeded run is not private against anyone who knows or guesses the seed");
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
        "  {field} independent normals ({}), {stream} numbers of the mechanism's noise ({coordinates} coordinates)",
        key.cipher()
    );
    say!("         {:<46} {:>10} {:>10}", "test", "statistic", "p");
    for test in &result.tests {
        let mark = if result.accepts(test) { "ok    " } else { "FAILED" };
        say!("  {mark} {:<46} {:>10.3} {:>10.2e}", test.name, test.statistic, test.p_value);
    }
    say!(
        "{} A correct generator fails with probability {:.0e}. The run fails if any of {} tests has p below {:.1e}.",
        if result.passed() { "Passed." } else { "FAILED." },
        self_test::ALPHA,
        result.tests.len(),
        result.threshold
    );
    Ok(())
}
