//! The data sets that have to be fetched, where they have been:
//!
//! ```sh
//! antiphon data fetch fashion-mnist && antiphon data fetch cifar10
//! cargo test -p antiphon-train --test real_files -- --ignored
//! ```

use antiphon_train::data::{Dataset, Images, Name, default_folder, load};

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
