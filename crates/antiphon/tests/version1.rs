//! Files of version 1, as the program wrote them that was released before version 2: they are read, verified, and kept as version 2.

use antiphon::file;
use antiphon::verify;
use safetensors::SafeTensors;
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

fn fixtures() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/version1");
    let mut all: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    all.sort();
    all
}

fn metadata(bytes: &[u8]) -> HashMap<String, String> {
    SafeTensors::read_metadata(bytes).unwrap().1.metadata().clone().unwrap()
}

fn tensors(bytes: &[u8]) -> Vec<(String, Vec<u8>)> {
    let all = SafeTensors::deserialize(bytes).unwrap();
    let mut all: Vec<_> =
        all.tensors().into_iter().map(|(name, view)| (name, view.data().to_vec())).collect();
    all.sort();
    all
}

#[test]
fn they_read_verify_and_are_the_same_in_version_2() {
    let folder = tempfile::tempdir().unwrap();
    let mut kinds = Vec::new();
    for path in fixtures() {
        let old = fs::read(&path).unwrap();
        let before = metadata(&old);
        assert_eq!(before["format_version"], "1");
        let mechanism = file::read(&path).unwrap();
        let report = verify::mechanism(&mechanism).unwrap();
        assert!(report.ok(), "{}: {:?}", path.display(), report.checks);

        let copy = folder.path().join(path.file_name().unwrap());
        file::write(&copy, &mechanism, false).unwrap();
        let new = fs::read(&copy).unwrap();
        assert_eq!(file::read(&copy).unwrap(), mechanism);
        assert_eq!(file::to_bytes(&mechanism).unwrap(), new);
        // Every entry of the old header, to the letter, but for what says that it is another file.
        let after = metadata(&new);
        for (name, value) in &before {
            match name.as_str() {
                "format_version" => assert_eq!(after[name], "2"),
                "checksum" => assert_ne!(&after[name], value),
                "written_by" => assert!(after[name].starts_with("antiphon ")),
                _ => assert_eq!(&after[name], value, "{name} of {}", path.display()),
            }
        }
        assert_eq!((after["bound"].as_str(), after.get("bound_schema")), ("all", None));
        assert_eq!(after.len(), before.len() + 1);
        assert_eq!(tensors(&new), tensors(&old));
        assert_eq!(file::id(&mechanism), before["id"]);
        let claims = mechanism.claims();
        let claimed = |name: &str| before[name].parse::<f64>().unwrap();
        assert_eq!((claims.loss, claims.sensitivity), (claimed("loss"), claimed("sensitivity")));
        assert_eq!(claims.lower_bound, Some(claimed("lower_bound")));
        kinds.push(mechanism.noise().kind());
    }
    assert_eq!(kinds.len(), 8);
    for kind in ["dense", "implicit", "structured"] {
        assert!(kinds.contains(&kind), "{kind}");
    }
}

/// What version 2 added is no part of a file that says it is version 1.
#[test]
fn entries_of_version_2_are_refused() {
    for path in fixtures() {
        let bytes = fs::read(&path).unwrap();
        for (entry, expected) in [
            (r#""bound":"all","#, "a file of version 1 has no entry named bound"),
            (r#""bound_schema":"{}","#, "a file of version 1 has no entry named bound_schema"),
        ] {
            let length = u64::from_le_bytes(*bytes.first_chunk().unwrap()) as usize;
            let text = std::str::from_utf8(&bytes[8..8 + length]).unwrap();
            let text = text.replacen(r#""lower_bound""#, &format!(r#"{entry}"lower_bound""#), 1);
            let forged =
                [&(text.len() as u64).to_le_bytes()[..], text.as_bytes(), &bytes[8 + length..]].concat();
            assert_eq!(file::from_bytes(&forged).unwrap_err().to_string(), expected);
        }
    }
}
