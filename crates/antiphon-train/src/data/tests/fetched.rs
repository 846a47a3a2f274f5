//! What is fetched, without fetching: pictures become records, archives give up some of their files.

use super::{labels, noise};
use crate::data::fetch::cifar10::records_from_png;
use crate::data::fetch::programs::unpack;
use crate::data::records;
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
