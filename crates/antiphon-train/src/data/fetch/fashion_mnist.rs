//! Fashion-MNIST from Debian's package: the files of the installed one, or else of one that is downloaded, without root.

use super::programs::{Ran, run, unpack};
use super::{Observer, Tasks, temporary, write};
use crate::data::fashion_mnist::{FILES, load_files};
use antiphon::error::{Error, Result};
use std::fs;
use std::path::{Path, PathBuf};

const PACKAGE: &str = "dataset-fashion-mnist";

/// Gets the four files.
pub fn fetch(folder: &Path, observe: Observer<'_>) -> Result<()> {
    let mut tasks = Tasks::start(observe, 3, "looking for Debian's package")?;
    let names = FILES.map(|(name, ..)| format!("{name}.gz"));
    let names = names.each_ref().map(String::as_str);
    let temporary = temporary()?;
    let source = match installed(&temporary, names[0], &tasks)? {
        Some(source) => source,
        None => {
            tasks.next("downloading Debian's package")?;
            download(temporary.path(), &names, folder, &tasks)?;
            temporary.path().into()
        }
    };
    tasks.next("checking")?;
    load_files(&source, &FILES)?;
    for name in names {
        let path = source.join(name);
        let bytes = fs::read(&path).map_err(|source| Error::Io { path, source })?;
        write(folder, name, &bytes)?;
    }
    Ok(())
}

/// The folder where the package is installed, if it is.
fn installed(temporary: &tempfile::TempDir, name: &str, tasks: &Tasks<'_>) -> Result<Option<PathBuf>> {
    let Ran::Well(list) = run("dpkg", &["-L", PACKAGE], temporary.path(), tasks)? else { return Ok(None) };
    let list = String::from_utf8_lossy(&list);
    let folder = list.lines().map(Path::new).find(|path| path.ends_with(name)).and_then(Path::parent);
    Ok(folder.map(Path::to_path_buf))
}

/// Downloads the package and takes the files out of it.
fn download(temporary: &Path, names: &[&str], folder: &Path, tasks: &Tasks<'_>) -> Result<()> {
    let other_ways = format!(
        "Or put {} into {}, as published by Zalando, with or without .gz",
        names.join(", "),
        folder.display()
    );
    let fail = |reason: String| Err(Error::Unsupported(format!("{reason}\n{other_ways}")));
    match run("apt-get", &["download", PACKAGE], temporary, tasks)? {
        Ran::Well(_) => {}
        Ran::Badly(said) => return fail(format!("{said}\nPerhaps `apt-get update` has to run first.")),
        Ran::NotFound => {
            return fail(format!(
                "fashion-mnist is in Debian's package {PACKAGE}, but apt-get was not found."
            ));
        }
    }
    let files = fs::read_dir(temporary).map_err(|source| Error::Io { path: temporary.into(), source })?;
    let package = files.filter_map(|file| file.ok()?.file_name().into_string().ok());
    let Some(package) = package.into_iter().find(|name| name.ends_with(".deb")) else {
        return fail(format!("apt-get succeeded, but did not write {PACKAGE}_….deb."));
    };
    let archive = match run("dpkg-deb", &["--fsys-tarfile", &package], temporary, tasks)? {
        Ran::Well(archive) => archive,
        Ran::Badly(said) => return fail(said),
        Ran::NotFound => return fail("apt-get was found, but dpkg-deb was not: install dpkg.".into()),
    };
    match unpack(&archive[..], names, temporary) {
        Ok(missing) if missing.is_empty() => Ok(()),
        Ok(missing) => fail(format!("{package} has no {}.", missing.join(", "))),
        Err(error) => fail(format!("{package} cannot be unpacked: {error}.")),
    }
}
