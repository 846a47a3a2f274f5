//! Images with labels, and a network that tells them apart. The units are examples.

use crate::batches::permutation;
use crate::data::{Dataset, Images, Name};
use crate::description::Data;
use crate::engine::{Batch, PerExample, Totals};
use crate::layers::Image;
use crate::models;
use crate::network::{Initial, Network};
use crate::task::{Score, Task, Turn};
use antiphon::noise::{Cipher, Key};
use antiphon::run::Unit;
use antiphon::{Error, Result};
use sha2::{Digest, Sha256};

/// Images that are evaluated together.
const TOGETHER: usize = 1000;

/// The networks, as the command line names them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Model {
    /// One dense layer.
    Linear,
    /// Two convolutions and a hidden layer, for grey images.
    Small,
    /// The network of Kairouz et al. 2021 for CIFAR-10.
    Cifar10,
}

impl Model {
    /// What is usual for a data set.
    pub fn usual(name: Name) -> Model {
        match name {
            Name::Digits => Model::Linear,
            Name::FashionMnist => Model::Small,
            Name::Cifar10 => Model::Cifar10,
        }
    }

    /// The name.
    pub fn name(self) -> &'static str {
        match self {
            Model::Linear => "linear",
            Model::Small => "small",
            Model::Cifar10 => "cifar10",
        }
    }
}

/// Training images, test images, and the network that tells them apart.
pub struct Classification {
    /// What the data are called.
    pub name: Name,
    /// Private.
    pub train: Images,
    /// For the accuracy.
    pub test: Images,
    /// Whether the test images are training images that were held out, and private too.
    pub held_out: bool,
    /// Which network.
    pub model: Model,
    network: Network,
}

impl Classification {
    /// A data set and a network that fits it.
    pub fn new(dataset: Dataset, model: Model) -> Result<Classification> {
        let (channels, height, width) = dataset.shape;
        let image = Image::new(height, width, channels);
        let network = match model {
            Model::Linear => models::linear(image, dataset.classes),
            Model::Small if channels == 1 => models::small(height, width, dataset.classes),
            Model::Cifar10 if dataset.shape == (3, 32, 32) => models::cifar10(),
            _ => {
                let allowed = match channels {
                    1 => "linear or small for grey images".to_string(),
                    _ => "linear or cifar10 for images of 32×32 pixels in three colours".to_string(),
                };
                return Err(Error::argument("model", allowed, model.name()));
            }
        };
        Ok(Classification {
            name: dataset.name,
            train: dataset.train,
            test: dataset.test,
            held_out: false,
            model,
            network,
        })
    }

    /// Tests on a part of the training images instead, and trains on the others: for choosing learning rates. Which ones, a seed
    /// says.
    pub fn with_held_out(mut self, seed: u64, count: usize) -> Result<Classification> {
        let examples = self.train.len();
        if !(1..examples).contains(&count) {
            return Err(Error::argument("held_out", format!("in 1..{examples}"), count));
        }
        let [key] = Key::from_seed(seed, Cipher::Aes256Ctr).split(["held out"]);
        let order = permutation(examples, &key);
        let (train, test) = order.split_at(examples - count);
        (self.train, self.test) = (self.train.select(train), self.train.select(test));
        self.held_out = true;
        Ok(self)
    }

    /// The network.
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// The SHA-256 of all images and labels.
    pub fn fingerprint(&self) -> String {
        let mut hash = Sha256::new();
        for images in [&self.train, &self.test] {
            hash.update((images.len() as u64).to_le_bytes());
            hash.update(images.labels());
            (0..images.len()).for_each(|image| hash.update(images.bytes(image)));
        }
        hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}
impl Task for Classification {
    fn unit(&self) -> Unit {
        Unit::Example
    }

    fn units(&self) -> usize {
        self.train.len()
    }

    fn tested(&self) -> usize {
        self.test.len()
    }

    fn parameters(&self) -> usize {
        self.network.parameters()
    }

    fn initial(&self, initial: Initial, key: &Key) -> Vec<f32> {
        self.network.initial(initial, key)
    }

    fn clipped_sum(
        &self,
        _: Turn<'_>,
        parameters: &[f32],
        units: &[usize],
        clip: f64,
        sum: &mut [f64],
    ) -> Result<Totals> {
        let gathered = Gathered::new(&self.train, units.iter().copied());
        self.network.clipped_sum(parameters, gathered.batch(), clip, sum)
    }

    fn score(&self, parameters: &[f32]) -> Result<Score> {
        let (mut correct, mut loss) = (0, 0.0);
        for first in (0..self.test.len()).step_by(TOGETHER) {
            let gathered = Gathered::new(&self.test, first..(first + TOGETHER).min(self.test.len()));
            let totals = self.network.evaluate(parameters, gathered.batch())?;
            correct += totals.correct;
            loss += totals.loss;
        }
        let count = self.test.len() as f64;
        Ok(Score::new(correct as f64 / count, loss / count))
    }

    fn name(&self) -> String {
        self.name.to_string()
    }

    fn model(&self) -> String {
        self.model.name().into()
    }

    fn identity(&self) -> Data {
        Data { name: Task::name(self), sha256: self.fingerprint() }
    }

    fn tested_on(&self) -> &'static str {
        if self.held_out { "held-out" } else { "test" }
    }

    fn clipped(&self, clip_norm: f64) -> String {
        format!("The gradient of every example was clipped to norm {clip_norm}.")
    }

    fn shown(&self) -> String {
        let accuracy = if self.held_out { ", the accuracy on held-out training examples" } else { "" };
        format!("the training loss and the fraction of clipped gradients that are shown here{accuracy}")
    }
}

/// Some images as numbers, side by side.
struct Gathered {
    inputs: Vec<f32>,
    labels: Vec<u8>,
    all: Vec<usize>,
}

impl Gathered {
    fn new(images: &Images, examples: impl ExactSizeIterator<Item = usize>) -> Gathered {
        let count = examples.len();
        let mut inputs = vec![0.0; count * images.size()];
        let mut labels = Vec::with_capacity(count);
        for (place, example) in inputs.chunks_mut(images.size()).zip(examples) {
            images.fill(example, place);
            labels.push(images.labels()[example]);
        }
        Gathered { inputs, labels, all: (0..count).collect() }
    }

    fn batch(&self) -> Batch<'_> {
        Batch { inputs: &self.inputs, labels: &self.labels, examples: &self.all }
    }
}
