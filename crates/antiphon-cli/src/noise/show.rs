//! What `antiphon noise` says.

use crate::output::{bound, figure, print_json, program, quoted, size};
use antiphon::noise::file::{About, Amount, Description, Done, Keys};
use antiphon::noise::self_test::{self, SelfTest};
use antiphon::noise::{Key, Origin};
use std::path::Path;

/// What noise is, for people.
pub fn lines(about: &About) -> Vec<String> {
    let ([rows, width], Amount { stddev, noise_multiplier, clip_norm, sensitivity, epsilon, delta }) =
        (about.shape, about.amount);
    let mut lines = vec![
        format!("  rows          {rows} (steps {}:{})", about.rows[0], about.rows[1]),
        format!("  columns       {width} (coordinates {}:{})", about.coordinates[0], about.coordinates[1]),
        format!("  stddev        {} of Z", figure(stddev)),
    ];
    if let (Some(multiplier), Some(clip_norm), Some(sensitivity)) = (noise_multiplier, clip_norm, sensitivity)
    {
        lines.push(format!("                = noise multiplier {multiplier} · clip norm {clip_norm}"));
        lines.push(format!("                · sensitivity {} (derived)", bound(sensitivity, true)));
    }
    if let (Some(epsilon), Some(delta)) = (epsilon, delta) {
        lines.push(format!(
            "  privacy       ε = {epsilon} at δ = {delta:e} for all steps together, under zero-out neighbours;"
        ));
        lines.push("                `antiphon account` states the conditions".into());
    }
    lines.push(format!("  size          {}", about.bytes.map_or("too much".into(), size)));
    lines
}

/// Where no file is to be written.
pub fn plan(about: &About, json: bool) -> anyhow::Result<()> {
    if json {
        return print_json(about);
    }
    lines(about).iter().for_each(|line| say!("{line}"));
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
    lines(about).iter().for_each(|line| say!("{line}"));
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
            let [rows, columns] = about.shape;
            say!("  numpy.memmap({name}, \"<f4\", \"r\", shape=({rows}, {columns}))");
        }
        _ => say!("  numpy.load({name}, mmap_mode=\"r\")"),
    }
    Ok(())
}

/// A remark that goes with every seeded run.
pub fn remark_on_seed(keys: &Keys) {
    if keys.key.origin() == Origin::Seed {
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
