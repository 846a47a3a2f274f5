//! What is fetched, without fetching: pictures become records, archives give up some of their files, poems and messages become lines.

use super::{labels, noise};
use crate::data::checked::{self, Expected, Sum, hexadecimal};
use crate::data::fetch::cifar10::records_from_png;
use crate::data::fetch::poetry::clean;
use crate::data::fetch::programs::unpack;
use crate::data::fetch::{chitchat, poetry, write_text};
use crate::data::records;
use crate::data::text::{Record, parse};
use sha2::{Digest, Sha256};
use std::fs;
use std::io::Cursor;

fn picture(width: u32, rows: &[u8], kind: png::ColorType) -> Vec<u8> {
    let mut file = Vec::new();
    let mut encoder =
        png::Encoder::new(&mut file, width, (rows.len() / (width as usize * kind.samples())) as u32);
    encoder.set_color(kind);
    encoder.write_header().unwrap().write_image_data(rows).unwrap();
    file
}

#[test]
fn a_row_of_a_picture_becomes_a_record() {
    let (rows, labels) = (noise(3 * 3072, 9), labels(3, 10));
    let made = records_from_png(Cursor::new(picture(1024, &rows, png::ColorType::Rgb)), &labels).unwrap();
    let (pixels, found) = records::parse(&made, 3, 3072, 10).unwrap();
    assert_eq!(found, labels);
    for image in 0..3 {
        for place in 0..1024 {
            for colour in 0..3 {
                let expected = rows[image * 3072 + 3 * place + colour];
                assert_eq!(pixels[image * 3072 + colour * 1024 + place], expected);
            }
        }
    }
}

#[test]
fn other_pictures_are_refused() {
    let rows = noise(3 * 3072, 9);
    let right = picture(1024, &rows, png::ColorType::Rgb);
    for (file, labels, words) in [
        (
            picture(512, &rows, png::ColorType::Rgb),
            6,
            "expected 1024×6 pixels of RGB in 8 bits, found 512×6 of Rgb",
        ),
        (right.clone(), 2, "expected 1024×2 pixels of RGB in 8 bits, found 1024×3"),
        (picture(1024, &rows, png::ColorType::Grayscale), 9, "found 1024×9 of Grayscale in 8 bits"),
        (right[..right.len() / 2].to_vec(), 3, "found damage"),
        (b"GIF89a".to_vec(), 3, "found damage"),
    ] {
        let text = records_from_png(Cursor::new(file), &vec![0; labels]).unwrap_err();
        assert!(text.contains(words), "{text}");
    }
}

#[test]
fn only_what_is_wanted_comes_out_of_an_archive() {
    let mut archive = tar::Builder::new(Vec::new());
    for (name, text) in [("package/a", "first"), ("package/b", "second"), ("c", "third")] {
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        archive.append_data(&mut header, name, text.as_bytes()).unwrap();
    }
    let mut link = tar::Header::new_gnu();
    link.set_entry_type(tar::EntryType::Symlink);
    link.set_size(0);
    archive.append_link(&mut link, "d", "/etc/passwd").unwrap();
    let archive = archive.into_inner().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let missing = unpack(&archive[..], &["a", "c", "d", "e"], folder.path()).unwrap();
    assert_eq!((missing.contains(&"d"), missing.contains(&"e"), missing.len()), (true, true, 2));
    assert_eq!(fs::read_to_string(folder.path().join("a")).unwrap(), "first");
    assert_eq!(fs::read_to_string(folder.path().join("c")).unwrap(), "third");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    assert!(unpack(&archive[..700], &["b"], tempfile::tempdir().unwrap().path()).is_err(), "cut off");
}

#[test]
fn notes_and_other_signs_go_out_of_a_line() {
    for (line, expected) in [
        ("秦川雄帝宅，函谷壯皇居。", "秦川雄帝宅，函谷壯皇居。"),
        ("天（一作（地）人）下、「平」□○…𡾼！", "天下、平𡾼！"),
        ("一〖注〗二[校]三{說}四【按】五〔異〕六(a)七", "一二三四五六七"),
        ("）一（二", "一"),
        ("abc 123", ""),
    ] {
        assert_eq!(clean(line), expected, "{line}");
    }
}

fn tar(files: &[(&str, &str)]) -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    for (name, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        archive.append_data(&mut header, name, content.as_bytes()).unwrap();
    }
    archive.into_inner().unwrap()
}

fn record(user: &str, conversation: Option<&str>, text: &str) -> Record {
    Record { user: user.into(), conversation: conversation.map(String::from), text: text.into() }
}

#[test]
fn poems_are_put_in_order_by_poet() {
    let poem = |author: &str, lines: &str| {
        format!("{{\"author\": \"{author}\", \"paragraphs\": [{lines}], \"title\": \"t\"}}")
    };
    let first = format!("[{}, {}]", poem("乙", "\"三。\", \"（注）\", \"四。\""), poem("甲", "\"五。\""));
    let nobody = ["不詳", "無名氏", "佚名", "釋某", "魏徵、褚亮", " "]
        .map(|author| poem(author, "\"零。\""))
        .join(",");
    let second = format!("[{}, {nobody}, {}]", poem(" 乙 ", "\"六。\""), poem("丙", "\"（空）\""));
    let folder = "package/dist/quantangshi";
    let archive = tar(&[
        (&format!("{folder}/poet.tang.10000.json"), &second),
        (&format!("{folder}/poet.tang.9000.json"), &first),
        (&format!("{folder}/poet.song.0.json"), &format!("[{}]", poem("乙", "\"一。\""))),
        (&format!("{folder}/error/poet.tang.0.json"), "another copy"),
        (&format!("{folder}/authors.tang.json"), "no poems"),
        ("package/dist/songci/poet.song.0.json", "elsewhere"),
    ]);
    let expected = [
        record("song 乙", None, "一。"),
        record("tang 乙", None, "三。\n四。"),
        record("tang 乙", None, "六。"),
        record("tang 甲", None, "五。"),
    ];
    assert_eq!(poetry::poems(&archive[..]).unwrap(), expected);
    let damaged = tar(&[(&format!("{folder}/poet.tang.0.json"), "[{}]")]);
    let reason = poetry::poems(&damaged[..]).unwrap_err();
    assert!(reason.contains("poet.tang.0.json: expected poems, found missing field `author`"), "{reason}");
    assert!(poetry::poems(&b"no archive"[..]).unwrap_err().contains("expected a tar archive"));
}

#[test]
fn messages_are_put_in_order_by_conversation() {
    let json = r#"{"b": {"messages": [[{"text": "Hi", "timestamp": "t", "sender": "x"}], [{"text": "", "sender": "y"}]]},
        "a": {"messages": [[{"text": "1", "sender": "y"}, {"text": "2\n3", "sender": "y"}]], "ratings": {}}}"#;
    let expected = [
        record("y", Some("a"), "1"),
        record("y", Some("a"), "2\n3"),
        record("x", Some("b"), "Hi"),
        record("y", Some("b"), ""),
    ];
    assert_eq!(chitchat::messages(json.as_bytes()).unwrap(), expected);
    assert!(
        chitchat::messages(b"{\"a\": {}}")
            .unwrap_err()
            .contains("expected conversations, found missing field")
    );
}

#[test]
fn a_text_is_written_only_if_it_is_the_right_one() {
    let records = [record("x", None, "一。\n二。"), record("y", Some("c"), "\"quoted\"")];
    let content = "{\"user\":\"x\",\"text\":\"一。\\n二。\"}\n{\"user\":\"y\",\"conversation\":\"c\",\"text\":\"\\\"quoted\\\"\"}\n";
    let sum = hexadecimal(&Sha256::digest(content));
    let expected = Expected { name: "some.jsonl", bytes: content.len(), sum: Sum::Sha256(&sum) };
    let folder = tempfile::tempdir().unwrap();
    let inside = folder.path().join("some");
    let error = write_text(&inside, &expected, &records[..1]).unwrap_err().to_string();
    assert!(error.contains("expected content with the SHA-256 sum") && !inside.exists(), "{error}");
    write_text(&inside, &expected, &records).unwrap();
    assert_eq!(fs::read_dir(&inside).unwrap().count(), 1);
    assert_eq!(checked::read(&inside, &expected, parse).unwrap(), records);
}
