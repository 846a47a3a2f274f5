//! Layers, each in a file of its own: forward, and backward by hand.
//!
//! Images lie in memory row by row, pixel by pixel, the channels of a pixel side by side, inside a border of zeros one pixel
//! wide. The border is what a convolution reads outside the image; nothing ever writes to it.

pub mod activation;
pub mod conv;
pub mod dense;
pub mod exp;
pub mod pool;
pub mod softmax;
pub mod tanh;
pub mod tiles;

/// The size of an image, without its border.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Image {
    /// Rows.
    pub height: usize,
    /// Pixels in a row.
    pub width: usize,
    /// Numbers per pixel.
    pub channels: usize,
}

impl Image {
    /// An image of this size.
    pub fn new(height: usize, width: usize, channels: usize) -> Self {
        Image { height, width, channels }
    }

    /// Numbers in the image.
    pub fn values(self) -> usize {
        self.height * self.width * self.channels
    }

    /// Numbers in memory from one row to the next.
    pub fn row(self) -> usize {
        (self.width + 2) * self.channels
    }

    /// Numbers in memory, with the border.
    pub fn stored(self) -> usize {
        (self.height + 2) * self.row()
    }

    /// Where pixel (y, x) begins.
    pub fn at(self, y: usize, x: usize) -> usize {
        (y + 1) * self.row() + (x + 1) * self.channels
    }

    /// Copies an image that is stored plane by plane, without a border, as data sets have it.
    pub fn take<T: Copy, U>(self, planes: &[U], out: &mut [T], convert: impl Fn(&U) -> T) {
        for (i, value) in planes.iter().enumerate() {
            let (plane, pixel) = (i / (self.height * self.width), i % (self.height * self.width));
            out[self.at(pixel / self.width, pixel % self.width) + plane] = convert(value);
        }
    }
}
