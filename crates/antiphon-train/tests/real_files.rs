//! The data sets that have to be fetched, where they have been:
//!
//! ```sh
//! for name in fashion-mnist cifar10 poetry chitchat; do antiphon data fetch $name; done
//! cargo test -p antiphon-train --test real_files -- --ignored
//! ```

use antiphon_train::data::text::{Source, TextData, TextName, TextOptions, TextUnit, load_text};
use antiphon_train::data::{Dataset, Images, Name, State, default_folder, inspect_text, load};

fn fetched(name: Name) -> Dataset {
    load(name, &default_folder().unwrap()).unwrap_or_else(|error| panic!("{error}"))
}

fn balanced(images: &Images, each: usize) -> bool {
    let count = |class| images.labels().iter().filter(|&&label| label == class).count();
    (0..10).all(|class| count(class) == each)
}

#[test]
#[ignore = "needs fetched files"]
fn fashion_mnist_is_balanced() {
    let set = fetched(Name::FashionMnist);
    assert_eq!((set.shape, set.train.size()), ((1, 28, 28), 784));
    assert!(balanced(&set.train, 6000) && balanced(&set.test, 1000));
}

#[test]
#[ignore = "needs fetched files"]
fn cifar10_is_balanced() {
    let set = fetched(Name::Cifar10);
    assert_eq!((set.shape, set.train.size()), ((3, 32, 32), 3072));
    assert!(balanced(&set.train, 5000) && balanced(&set.test, 1000));
}

fn fetched_text(name: &TextName, unit: TextUnit) -> TextData {
    let options = TextOptions { unit, ..TextOptions::usual(name, None) };
    load_text(name, &default_folder().unwrap(), &options).unwrap_or_else(|error| panic!("{error}"))
}

fn users(data: &TextData) -> [usize; 3] {
    [&data.train, &data.validation, &data.test].map(|corpus| corpus.users())
}

fn size(name: &TextName) -> [usize; 3] {
    match inspect_text(name, &default_folder().unwrap()).state {
        State::ValidText(size) => [size.users, size.lines, size.tokens],
        other => panic!("{other:?}"),
    }
}

#[test]
#[ignore = "needs fetched files"]
fn the_poets_of_the_bundled_text_are_those_of_the_poetry() {
    let all = fetched_text(&TextName::Poetry, TextUnit::User);
    let some = fetched_text(&TextName::Poets, TextUnit::User);
    assert_eq!(size(&TextName::Poetry), [12524, 1354338, 18770959]);
    assert_eq!(users(&all), users(&some));
    // The bundled lines of a poet are the first lines of that poet.
    for user in 0..some.train.users() {
        let lines = some.train.lines(user);
        assert!((0..lines).all(|line| some.train.line(user, line) == all.train.line(user, line)), "{user}");
    }
}

#[test]
#[ignore = "needs fetched files"]
fn chitchat_has_users_and_sides() {
    let (by_user, by_side) = (
        fetched_text(&TextName::Chitchat, TextUnit::User),
        fetched_text(&TextName::Chitchat, TextUnit::ConversationSide),
    );
    assert_eq!(size(&TextName::Chitchat), [1315, 257978, 2734016]);
    assert_eq!(users(&by_user), [1062, 137, 116]);
    assert_eq!(users(&by_side), [8426, 2207, 553]);
    assert!(matches!(by_side.vocabulary.source(), Source::Public(list) if list.contains("English")));
    assert_eq!(by_user.train.all_tokens(), by_side.train.all_tokens());
}
