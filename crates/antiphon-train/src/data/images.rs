//! Images as they are kept, and as a model sees them.
//!
//! Images are kept as bytes, a quarter of what numbers would take, and become numbers one at a time. A pixel x of 0..=top
//! becomes (2x − top)/top, so black is −1 and the brightest value 1: top is 16 for the digits and 255 for the other data sets,
//! for every channel. The formula is fixed beforehand and looks at no data. Standardizing by the mean and the variance of the
//! training images, as is usual, would publish two figures of private data outside of the accounting.

use antiphon::error::{Error, Result};

/// Images with labels. An image is one run of bytes: all of the first channel, row by row, then the next channel.
#[derive(Clone, PartialEq, Eq)]
pub struct Images {
    pixels: Vec<u8>,
    labels: Vec<u8>,
    /// Bytes per image: channels · height · width.
    size: usize,
    /// The largest value a pixel can have.
    top: u8,
}

impl Images {
    /// Images of `size` pixels each, with values in `0..=top`, and a label for each of them.
    pub fn new(pixels: Vec<u8>, labels: Vec<u8>, size: usize, top: u8) -> Result<Self> {
        if size == 0 || top == 0 {
            let (argument, value) = if size == 0 { ("size", size) } else { ("top", top.into()) };
            return Err(Error::argument(argument, "at least 1", value));
        }
        if labels.len().checked_mul(size) != Some(pixels.len()) {
            let allowed = format!("{size} for each of the {} labels", labels.len());
            return Err(Error::argument("number of pixels", allowed, pixels.len()));
        }
        if let Some(place) = pixels.iter().position(|&x| x > top) {
            let allowed = format!("in 0..={top}");
            return Err(Error::argument(
                format!("pixel {} of image {}", place % size, place / size),
                allowed,
                pixels[place],
            ));
        }
        Ok(Images { pixels, labels, size, top })
    }

    /// How many images there are.
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// Pixels per image, all channels together.
    pub fn size(&self) -> usize {
        self.size
    }

    /// The labels of all images.
    pub fn labels(&self) -> &[u8] {
        &self.labels
    }

    /// An image as it is kept.
    pub fn bytes(&self, image: usize) -> &[u8] {
        &self.pixels[image * self.size..][..self.size]
    }

    /// Writes an image as numbers in [−1, 1]; `out` has [`size`](Self::size) places. The same bits everywhere: the difference
    /// is exact and IEEE 754 fixes the quotient.
    pub fn fill(&self, image: usize, out: &mut [f32]) {
        assert_eq!(out.len(), self.size, "a place for each pixel");
        let top = f32::from(self.top);
        for (out, &x) in out.iter_mut().zip(self.bytes(image)) {
            *out = (2.0 * f32::from(x) - top) / top;
        }
    }

    /// Some of the images, in this order.
    pub fn select(&self, images: &[usize]) -> Images {
        Images {
            pixels: images.iter().flat_map(|&i| self.bytes(i)).copied().collect(),
            labels: images.iter().map(|&i| self.labels[i]).collect(),
            ..*self
        }
    }
}

/// Says how many, not which: images may be private.
impl std::fmt::Debug for Images {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} images of {} pixels", self.len(), self.size)
    }
}
