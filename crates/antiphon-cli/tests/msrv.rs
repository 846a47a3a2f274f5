//! The oldest Rust that the workspace promises to build with (`rust-version` in Cargo.toml) is not older than what any of its
//! dependencies on this platform says it needs. Dependencies that say nothing are not judged. Which functions of the standard
//! library are too new is clippy's matter (`incompatible_msrv`).

use serde_json::Value;
use std::process::Command;

/// 1.89 or 1.89.0.
fn version(text: &str) -> (u32, u32, u32) {
    let mut parts = text.split('.').map(|part| part.parse().unwrap());
    (parts.next().unwrap(), parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}

fn output(program: &str, arguments: &[&str]) -> String {
    let output =
        Command::new(program).current_dir(env!("CARGO_MANIFEST_DIR")).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn no_dependency_needs_a_newer_rust_than_the_workspace() {
    // Another platform's dependencies need not be on this machine.
    let compiler = output("rustc", &["-vV"]);
    let host = compiler.lines().find_map(|line| line.strip_prefix("host: ")).unwrap();
    let metadata = output(
        env!("CARGO"),
        &["metadata", "--format-version", "1", "--locked", "--offline", "--filter-platform", host],
    );
    let metadata: Value = serde_json::from_str(&metadata).unwrap();
    let used: Vec<&Value> =
        metadata["resolve"]["nodes"].as_array().unwrap().iter().map(|n| &n["id"]).collect();
    let packages = metadata["packages"].as_array().unwrap().iter().filter(|p| used.contains(&&p["id"]));
    let ours = version(env!("CARGO_PKG_RUST_VERSION"));
    let stated: Vec<(&str, &str)> = packages
        .filter_map(|package| Some((package["name"].as_str()?, package["rust_version"].as_str()?)))
        .collect();
    assert!(stated.len() > 50, "only {} packages say what they need", stated.len());
    let newer: Vec<_> = stated.iter().filter(|(_, needed)| version(needed) > ours).collect();
    assert!(newer.is_empty(), "newer than {}: {newer:?}", env!("CARGO_PKG_RUST_VERSION"));
}
