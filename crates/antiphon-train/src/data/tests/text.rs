//! Text of users: tokens, lines, vocabularies, the split, and files of every wrong form.

use super::complains;
use crate::data::checked::Sum;
use crate::data::text::split::Part;
use crate::data::text::*;
use std::fs;
use std::path::PathBuf;
use tempfile::TempDir;

fn words(tokens: Tokens, line: &str) -> Vec<String> {
    tokens.split(&tokens.prepare(line)).map(String::from).collect()
}

/// A file of so many users, `user0`, `user1` and so on, who all write this.
fn crowd(users: usize, text: &str) -> String {
    (0..users)
        .map(|i| format!("{}\n", serde_json::json!({ "user": format!("user{i}"), "text": text })))
        .collect()
}

struct File {
    folder: TempDir,
    name: TextName,
}

impl File {
    fn new(content: impl AsRef<[u8]>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mine.jsonl");
        fs::write(&path, content).unwrap();
        File { folder, name: TextName::File(path) }
    }

    fn beside(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::write(&path, content).unwrap();
        path
    }

    fn load(&self, change: impl FnOnce(&mut TextOptions)) -> antiphon::Result<TextData> {
        let mut options = TextOptions::usual(&self.name, None);
        change(&mut options);
        load_text(&self.name, "nowhere".as_ref(), &options)
    }
}

fn line<'a>(data: &'a TextData, corpus: &Corpus, user: usize, line: usize) -> Vec<&'a str> {
    corpus.line(user, line).iter().map(|&id| data.vocabulary.word(id)).collect()
}

#[test]
fn words_are_split_as_documented() {
    for (text, expected) in [
        ("Don't STOP, please!", "don't|stop|,|please|!"),
        ("it’s 5 o'clock...", "it's|5|o'clock|.|.|."),
        ("'quoted' words' ' '' end'", "quoted|words|end"),
        ("naïve Ünïcode—dash; why?", "naïve|ünïcode|dash|;|why|?"),
        ("a@b #tag :) (x)", "a|b|tag|x"),
        (" \t\u{a0} ''", ""),
        ("", ""),
    ] {
        assert_eq!(words(Tokens::Words, text).join("|"), expected, "{text}");
    }
}

#[test]
fn characters_are_split_as_documented() {
    assert_eq!(
        words(Tokens::Characters, " 床前，\t𡾼A\u{7}\u{a0}b "),
        ["床", "前", "，", " ", "𡾼", "A", " ", "b"]
    );
    assert!(words(Tokens::Characters, " \u{3000} ").is_empty());
}

#[test]
fn lines_are_cut_and_end_only_if_they_are_shorter() {
    let text = File::new(crowd(60, "a b c\n\na b c d\r\n...\na b c d e f"));
    let data = text.load(|options| options.line_length = 4).unwrap();
    for corpus in [&data.train, &data.validation, &data.test] {
        for user in 0..corpus.users() {
            assert_eq!((corpus.lines(user), corpus.tokens(user)), (4, 16));
            assert_eq!(line(&data, corpus, user, 0), ["a", "b", "c", "<end>"]);
            // TensorFlow Federated: END only where there are fewer tokens than the length, although nothing is cut here.
            assert_eq!(line(&data, corpus, user, 1), ["a", "b", "c", "d"]);
            assert_eq!(line(&data, corpus, user, 2), [".", ".", ".", "<end>"]);
            assert_eq!(line(&data, corpus, user, 3), ["a", "b", "c", "d"]);
        }
    }
    assert_eq!(data.train.all_tokens(), 16 * data.train.users());
    assert!(data.train.line(0, 0).iter().all(|&id| id != BEGIN));
}

#[test]
fn a_line_of_a_million_tokens_is_cut() {
    let long = serde_json::json!({ "user": "long", "text": "word ".repeat(1_000_000) });
    let text = File::new(format!("{}{long}\n", crowd(60, "a b")));
    let data = text.load(|_| ()).unwrap();
    assert_eq!(Part::of("long"), Part::Train);
    let longest = (0..data.train.users()).map(|user| data.train.tokens(user)).max();
    assert_eq!(longest, Some(20));
    assert!(data.train.bytes() < 10_000, "{} bytes", data.train.bytes());
}

#[test]
fn the_text_is_flat_in_memory() {
    let text = File::new(crowd(1000, "one two three\nfour"));
    let data = text.load(|_| ()).unwrap();
    let users = data.train.users();
    assert_eq!(data.train.bytes(), users * 6 * 4 + (2 * users + users) * 8);
    let some = data.train.select(&[3, 1]);
    assert_eq!((some.users(), some.bytes()), (2, 2 * 6 * 4 + 6 * 8));
    assert_eq!(some.line(1, 1), data.train.line(1, 1));
}

#[test]
fn a_user_without_tokens_is_a_user() {
    let silent: String = (0..60).map(|i| format!("{{\"user\": {i}, \"text\": \" \\n\"}}\n")).collect();
    let text = File::new(silent.clone() + &crowd(60, "a"));
    let data = text.load(|_| ()).unwrap();
    assert_eq!(data.train.users() + data.validation.users() + data.test.users(), 120);
    // Sorted by name: the numbers come first.
    assert_eq!((data.train.lines(0), data.train.tokens(0)), (0, 0));
    assert_eq!((data.train.lines(data.train.users() - 1), data.train.tokens(data.train.users() - 1)), (1, 2));
    complains(
        File::new(silent).load(|_| ()),
        &[
            "vocabulary must be at least one token (words), got none from the text to train on in",
            "mine.jsonl",
        ],
    );
}

#[test]
fn the_split_is_by_the_name_alone() {
    // Python: int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") % 10 is 8 for validation, 9 for testing.
    let parts = ["6", "7", "tang 李白", "tang 杜甫", "user7"].map(Part::of);
    use Part::{Test, Train, Validation};
    assert_eq!(parts, [Test, Train, Test, Train, Validation]);
    let counts = (0..10_000).map(|i| Part::of(&format!("user{i}")));
    let (train, rest): (Vec<Part>, Vec<Part>) = counts.partition(|&part| part == Train);
    let test = rest.iter().filter(|&&part| part == Test).count();
    let validation = rest.iter().filter(|&&part| part == Validation).count();
    // Four standard deviations: 160 of 8,000, 120 of 1,000.
    assert!(train.len().abs_diff(8000) < 160 && test.abs_diff(1000) < 120 && validation.abs_diff(1000) < 120);

    // Neither the order of lines nor other users change anything for a user.
    let mine: Vec<String> =
        (0..90).map(|i| format!("{{\"user\": \"u{i}\", \"text\": \"w{i}\"}}\n")).collect();
    let all = File::new(mine.concat()).load(|_| ()).unwrap();
    let reversed = File::new(mine.iter().rev().cloned().collect::<String>()).load(|_| ()).unwrap();
    assert_eq!((&all.train, all.fingerprint()), (&reversed.train, reversed.fingerprint()));
    let fewer = File::new(mine[1..].concat()).load(|_| ()).unwrap();
    assert_eq!(all.train.users() + all.validation.users() + all.test.users(), 90);
    let moved = [(&all.train, &fewer.train), (&all.validation, &fewer.validation), (&all.test, &fewer.test)];
    assert_eq!(moved.iter().map(|(a, b)| a.users() - b.users()).sum::<usize>(), 1);
}

#[test]
fn sides_of_a_conversation_are_split_by_person() {
    let lines: String = (0..200)
        .map(|i| {
            let (user, conversation) = (i % 40, i % 50);
            format!(
                "{{\"user\": {user}, \"conversation\": \"c{conversation}\", \"text\": \"person{user}\"}}\n"
            )
        })
        .collect();
    let text = File::new(lines);
    let by_user = text.load(|options| options.vocabulary_size = 100).unwrap();
    let by_side = text
        .load(|options| {
            options.vocabulary_size = 100;
            options.unit = TextUnit::ConversationSide;
        })
        .unwrap();
    let users = |data: &TextData| data.train.users() + data.validation.users() + data.test.users();
    assert_eq!((users(&by_user), users(&by_side)), (40, 200));
    // Every person of the training text is in the vocabulary, which is counted there; nobody else is.
    for corpus in [&by_side.validation, &by_side.test] {
        assert!((0..corpus.users()).all(|user| corpus.line(user, 0)[0] == UNKNOWN));
    }
    assert!((0..by_side.train.users()).all(|user| by_side.train.line(user, 0)[0] >= FIRST_WORD));
    assert_ne!(by_user.fingerprint(), by_side.fingerprint());
    complains(
        File::new(crowd(60, "a")).load(|options| options.unit = TextUnit::ConversationSide),
        &[
            "mine.jsonl: expected a field \"conversation\" on every line",
            "found none on a line of user \"user0\"",
        ],
    );
}

#[test]
fn files_of_a_wrong_form_are_refused_with_the_line() {
    let good = crowd(60, "a");
    for (bad, words) in [
        ("[1]", "line 61: expected an object {\"user\": …, \"text\": …}, found an array"),
        ("\"a\"", "line 61: expected an object {\"user\": …, \"text\": …}, found a string"),
        ("\n \r\n[1]", "line 63: expected an object"),
        ("{\"user\": \"a\"", "line 61: expected an object"),
        ("{\"text\": \"a\"}", "line 61: expected {\"user\": …, \"text\": …}, found no field \"user\""),
        (
            "{\"user\": null, \"text\": \"a\"}",
            "line 61: expected a string that is not empty or a whole number",
        ),
        ("{\"user\": \"\", \"text\": \"a\"}", "as \"user\", found an empty string"),
        ("{\"user\": 1.5, \"text\": \"a\"}", "as \"user\", found 1.5"),
        ("{\"user\": 1, \"text\": 7}", "line 61: expected a string as \"text\", found 7"),
        ("{\"user\": 1}", "line 61: expected {\"user\": …, \"text\": …}, found no field \"text\""),
    ] {
        complains(File::new(format!("{good}{bad}\n{good}")).load(|_| ()), &["mine.jsonl: ", words]);
    }
    let invalid = [good.as_bytes(), b"{\"user\": 1, \"text\": \"\xff\"}\n"].concat();
    complains(File::new(invalid).load(|_| ()), &["line 61: expected UTF-8"]);
    complains(
        File::new("").load(|_| ()),
        &["mine.jsonl: expected lines {\"user\": …, \"text\": …}, found none"],
    );
    complains(File::new("\n \r\n").load(|_| ()), &["mine.jsonl: expected lines", "found none"]);
    complains(
        File::new(crowd(2, "a")).load(|_| ()),
        &["expected users to train on", "there must be at least 3 users, and 50 are almost always enough"],
    );
    let missing = TextName::File("nowhere/mine.jsonl".into());
    complains(
        load_text(&missing, "nowhere".as_ref(), &TextOptions::usual(&missing, None)),
        &["nowhere/mine.jsonl"],
    );
}

#[test]
fn damaged_files_never_end_in_a_panic() {
    let good = crowd(60, "don’t 李 a,b\\n").into_bytes();
    for seed in 0..300 {
        let places = super::noise(12, seed);
        let mut bad = good.clone();
        for place in places.chunks(3) {
            let at = (usize::from(place[0]) << 8 | usize::from(place[1])) % bad.len();
            bad[at] = place[2];
        }
        // Some changes are only other text; none may panic.
        let _ = File::new(bad).load(|options| options.tokens = Some(Tokens::Characters));
    }
}

#[test]
fn a_number_and_its_text_are_one_user() {
    let text = File::new(format!(
        "{}{}",
        crowd(60, "a"),
        "{\"user\": 7, \"text\": \"a\"}\n{\"user\": \"7\", \"text\": \"b\"}\n"
    ));
    let data = text.load(|_| ()).unwrap();
    assert_eq!(data.train.users() + data.validation.users() + data.test.users(), 61);
}

#[test]
fn options_out_of_range_are_named() {
    let text = File::new(crowd(60, "a b"));
    complains(
        text.load(|options| options.vocabulary_size = 3),
        &["vocabulary_size must be at least 4", "got 3"],
    );
    complains(text.load(|options| options.line_length = 0), &["line_length must be at least 1, got 0"]);
    let usual = TextOptions::usual(&TextName::Poets, None);
    let sides = TextOptions { unit: TextUnit::ConversationSide, ..usual.clone() };
    complains(
        load_text(&TextName::Poets, "nowhere".as_ref(), &sides),
        &["unit must be user for poets, got conversation-side"],
    );
    let words = TextOptions { tokens: Some(Tokens::Words), ..usual };
    complains(
        load_text(&TextName::Poets, "nowhere".as_ref(), &words),
        &["tokens must be characters for poets, got words"],
    );
}

#[test]
fn a_vocabulary_from_the_text_says_so_and_counts_only_training() {
    // Users of the other parts write words of their own, and most of all text.
    let lines: String = (0..60)
        .map(|i| {
            let user = format!("user{i}");
            let text =
                if Part::of(&user) == Part::Train { "b b a a c" } else { "secret secret secret secret" };
            format!("{}\n", serde_json::json!({ "user": user, "text": text }))
        })
        .collect();
    let text = File::new(lines);
    let data = text.load(|_| ()).unwrap();
    assert_eq!(*data.vocabulary.source(), Source::Data);
    // The most frequent first, among equals in the order of the characters; takes what is there.
    assert_eq!((3..6).map(|id| data.vocabulary.word(id)).collect::<Vec<_>>(), ["a", "b", "c"]);
    assert_eq!((data.vocabulary.len(), data.vocabulary.id("secret")), (6, UNKNOWN));
    let small = text.load(|options| options.vocabulary_size = 5).unwrap();
    assert_eq!((small.vocabulary.len(), small.vocabulary.id("c")), (5, UNKNOWN));
    assert_eq!(line(&small, &small.train, 0, 0), ["b", "b", "a", "a", "<unknown>", "<end>"]);
    assert_ne!(data.fingerprint(), small.fingerprint());
}

#[test]
fn a_vocabulary_from_a_file_is_public() {
    let text = File::new(crowd(60, "The cat isn't here."));
    let list = text.beside("list.txt", "The\r\n\n.\nISN’T\nthe\ncat\n");
    let data = text.load(|options| options.vocabulary = VocabularyChoice::File(list.clone())).unwrap();
    assert_eq!(*data.vocabulary.source(), Source::Named("list.txt".into()));
    assert_eq!((3..7).map(|id| data.vocabulary.word(id)).collect::<Vec<_>>(), ["the", ".", "isn't", "cat"]);
    assert_eq!(line(&data, &data.train, 0, 0), ["the", "cat", "isn't", "<unknown>", ".", "<end>"]);
    assert!(data.vocabulary.is_punctuation(4) && !data.vocabulary.is_punctuation(5));
    assert!(![BEGIN, END, UNKNOWN].iter().any(|&id| data.vocabulary.is_punctuation(id)));
    for (content, words) in [
        (&b"good\nice-cream\n"[..], "list.txt: line 2: expected one token (words), found \"ice-cream\""),
        (b"\n \n", "vocabulary must be at least one token (words), got none from"),
        (b"\xff", "list.txt: expected UTF-8"),
    ] {
        let list = text.beside("list.txt", content);
        complains(text.load(|options| options.vocabulary = VocabularyChoice::File(list)), &[words]);
    }
}

#[test]
fn the_fingerprint_is_bound_to_everything() {
    let base = File::new(crowd(60, "a b c"));
    let print = |data: antiphon::Result<TextData>| data.unwrap().fingerprint().to_string();
    let same = print(File::new(crowd(60, "a b c")).load(|_| ()));
    assert_eq!(print(base.load(|_| ())), same, "the name of the file does not count");
    assert_eq!(same.len(), 64);
    let list = base.beside("list.txt", "a\nb\nc\n");
    for other in [
        print(File::new(crowd(60, "a b d")).load(|_| ())),
        print(File::new(crowd(61, "a b c")).load(|_| ())),
        print(File::new(crowd(60, "a\nb c")).load(|_| ())),
        print(base.load(|options| options.line_length = 2)),
        print(base.load(|options| options.line_length = 21)),
        print(base.load(|options| options.vocabulary_size = 4)),
        print(base.load(|options| options.tokens = Some(Tokens::Characters))),
        print(base.load(|options| options.vocabulary = VocabularyChoice::File(list))),
    ] {
        assert_ne!(other, same);
    }
}

#[test]
fn the_poets_are_what_the_script_made() {
    // poets/poets.py prints this.
    let sum = "7ad70898bc888d38433589adfa9bfa21c7cf15439bec370fb89371d515a9ba83";
    Sum::Sha256(sum).check(&poets::unpacked().unwrap()).unwrap();
    let data =
        load_text(&TextName::Poets, "nowhere".as_ref(), &TextOptions::usual(&TextName::Poets, None)).unwrap();
    assert_eq!((data.train.users(), data.validation.users(), data.test.users()), (10028, 1208, 1288));
    assert_eq!(data.vocabulary.len(), 1000);
    assert!(matches!(data.vocabulary.source(), Source::Public(list) if list.contains("Ming")));
    assert!(
        (0..data.train.users())
            .all(|user| (1..=96 + data.train.lines(user)).contains(&data.train.tokens(user)))
    );
    let ids =
        (0..data.train.users()).flat_map(|user| (0..data.train.lines(user)).map(move |line| (user, line)));
    let unknown: usize =
        ids.map(|(user, line)| data.train.line(user, line).iter().filter(|&&id| id == UNKNOWN).count()).sum();
    // lists/README.md: about 21 % of the characters of the poems are not in a vocabulary of 1,000; ends of lines are not unknown.
    let share = unknown as f64 / data.train.all_tokens() as f64;
    assert!((0.18..0.21).contains(&share), "{share}");
}

#[test]
fn the_lists_are_what_the_scripts_made() {
    // lists/characters.py and lists/words.py print these.
    for (list, tokens, count, sum) in [
        (
            vocabulary::CHARACTERS,
            Tokens::Characters,
            2000,
            "ee9998c3f141885c6de11be8271b746f286013302c90d9c8578fa9d8cba4c7a3",
        ),
        (
            vocabulary::WORDS,
            Tokens::Words,
            4000,
            "f5f5f3e390dfe650c68a3bf29faae347f530b7915fc7b2a2a0c85251b388eb46",
        ),
    ] {
        Sum::Sha256(sum).check(list.as_bytes()).unwrap();
        assert_eq!(list.lines().count(), count);
        // Every entry is one token, as a text would give it.
        assert!(list.lines().all(|word| words(tokens, word) == [word]));
        let different: std::collections::HashSet<&str> = list.lines().collect();
        assert_eq!(different.len(), count);
    }
}

#[test]
fn names_are_read() {
    for (text, name) in [
        ("poets", TextName::Poets),
        ("poetry", TextName::Poetry),
        ("chitchat", TextName::Chitchat),
        ("not/there.jsonl", TextName::File("not/there.jsonl".into())),
    ] {
        assert_eq!(text.parse::<TextName>().unwrap(), name);
        assert_eq!(name.to_string(), text);
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lines");
    complains(
        path.to_str().unwrap().parse::<TextName>(),
        &["dataset must be poets, poetry, chitchat or a file"],
    );
    fs::write(&path, "").unwrap();
    assert_eq!(path.to_str().unwrap().parse::<TextName>().unwrap(), TextName::File(path.clone()));
    complains("group".parse::<TextUnit>(), &["unit must be user or conversation-side, got group"]);
    complains("bytes".parse::<Tokens>(), &["tokens must be words or characters, got bytes"]);
}
