//! The key stream: random words of 128 bits, at any place, from either cipher.
//!
//! ```text
//! aes256-ctr   word i of step t is the AES-256 encryption of [t, i], two little-endian numbers of 64 bits
//! chacha20     word i of step t is bytes 16·(i mod 4) .. 16·(i mod 4) + 16 of block i/4, with the nonce t
//! ```
//!
//! ChaCha20 is Bernstein's original form, with a counter and a nonce of 64 bits each; RFC 8439 moves 32 bits from the
//! first to the second.

use aes::Aes256;
use aes::cipher::consts::U16;
use aes::cipher::{
    Array, BlockCipherEncBackend, BlockCipherEncClosure, BlockCipherEncrypt, BlockSizeUser, KeyInit,
};
use chacha20::ChaCha20Rng;
use chacha20::rand_core::{Rng, SeedableRng};

/// Bytes of four words: a block of ChaCha20.
pub const QUAD: usize = 64;

/// A cipher with its key.
#[derive(Clone)]
pub enum Stream {
    /// With all round keys, which are made once.
    Aes256Ctr(Box<Aes256>),
    /// The key.
    ChaCha20([u8; 32]),
}

impl Stream {
    /// AES-256 under a key.
    pub fn aes(secret: [u8; 32]) -> Stream {
        Stream::Aes256Ctr(Box::new(Aes256::new(&Array(secret))))
    }

    /// Writes the words first, first + 1, … of a step. `first` and their number are multiples of four.
    pub fn words(&self, step: u64, first: u64, out: &mut [[u8; QUAD]]) {
        debug_assert!(first.is_multiple_of(4));
        match self {
            Stream::Aes256Ctr(aes) => aes.encrypt_with_backend(Counters { step, first, out }),
            Stream::ChaCha20(secret) => {
                let mut blocks = ChaCha20Rng::from_seed(*secret);
                blocks.set_stream(step);
                blocks.set_block_pos(first / 4);
                blocks.fill_bytes(out.as_flattened_mut());
            }
        }
    }
}

/// Counters are written and encrypted within code that is compiled for the vector unit.
struct Counters<'a> {
    step: u64,
    first: u64,
    out: &'a mut [[u8; QUAD]],
}

impl BlockSizeUser for Counters<'_> {
    type BlockSize = U16;
}

impl BlockCipherEncClosure for Counters<'_> {
    #[inline(always)]
    fn call<B: BlockCipherEncBackend<BlockSize = U16>>(self, backend: &B) {
        let Counters { step, first, out } = self;
        // By numbers of 64 bits and without branches, so that vectors of them are made and stored.
        for (i, number) in out.as_flattened_mut().as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let counter = first + (i / 2) as u64;
            *number = (if i % 2 == 0 { step } else { counter }).to_le_bytes();
        }
        let blocks = Array::cast_slice_from_core_mut(out.as_flattened_mut().as_chunks_mut::<16>().0);
        let (batches, rest) = Array::<aes::Block, B::ParBlocksSize>::slice_as_chunks_mut(blocks);
        for batch in batches {
            backend.encrypt_par_blocks(batch.into());
        }
        backend.encrypt_tail_blocks(rest.into());
    }
}
