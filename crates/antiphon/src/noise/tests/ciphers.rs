//! Both key streams against published vectors, and the layout of the field on top of them.

use super::super::stream::Stream;
use super::super::transform::{Bytes, LANES};
use super::*;

/// Words of a step as hexadecimal digits.
fn words(secret: [u8; 32], cipher: Cipher, step: u64, first: u64, quads: usize) -> String {
    let mut out = vec![[0; 64]; quads];
    Key::from_bytes(secret, cipher).stream.words(step, first, &mut out);
    out.as_flattened().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex<const N: usize>(text: &str) -> [u8; N] {
    std::array::from_fn(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap())
}

/// A block as step and counter.
fn block(text: &str) -> (u64, u64) {
    let bytes: [u8; 16] = unhex(text);
    let (step, counter) = bytes.split_at(8);
    (u64::from_le_bytes(step.try_into().unwrap()), u64::from_le_bytes(counter.try_into().unwrap()))
}

/// FIPS 197, appendix C.3: the plaintext block is read as step and counter. (A counter that is no multiple of four is what
/// fields never use, but the cipher does not mind.)
#[test]
fn aes_gives_the_block_of_fips_197() {
    let (step, counter) = block("00112233445566778899aabbccddeeff");
    let secret = std::array::from_fn(|i| i as u8);
    let found = words(secret, Cipher::Aes256Ctr, step, counter - counter % 4, 1);
    let at = 32 * (counter % 4) as usize;
    assert_eq!(found[at..at + 32], *"8ea2b7ca516745bfeafc49904b496089");
}

/// NIST SP 800-38A, F.1.5: ECB-AES256.Encrypt, four blocks.
#[test]
fn aes_gives_the_blocks_of_sp_800_38a() {
    let secret = unhex("603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4");
    for (plain, cipher) in [
        ("6bc1bee22e409f96e93d7e117393172a", "f3eed1bdb5d2a03c064b5a7e3db181f8"),
        ("ae2d8a571e03ac9c9eb76fac45af8e51", "591ccb10d410ed26dc5ba74a31362870"),
        ("30c81c46a35ce411e5fbc1191a0a52ef", "b6ed21b99ca6f4f9f153e7b1beafed1d"),
        ("f69f2445df4f9b17ad2b417be66c3710", "23304b7a39f9f3ff067d8d8f9e24ecc7"),
    ] {
        let (step, counter) = block(plain);
        // 33 times four words: batches of the vector unit, and a rest.
        let first = counter - counter % 4;
        let found = words(secret, Cipher::Aes256Ctr, step, first - 64, 33);
        let at = 32 * (64 + (counter % 4) as usize);
        assert_eq!(found[at..at + 32], *cipher);
    }
}

/// RFC 8439, section 2.3.2. Its nonce has 96 bits, of which the first 32 are the upper half of our counter.
#[test]
fn chacha20_gives_the_block_of_rfc_8439() {
    let secret = std::array::from_fn(|i| i as u8);
    let found = words(secret, Cipher::ChaCha20, 0x4a00_0000, (0x0900_0000 << 32 | 1) * 4, 1);
    let expected = "10f1e7e4d13b5915500fdd1fa32071c4c7d1f4c733c068030422aa9ac3d46c4e\
                    d2826446079faa0914c2d705d98b02a2b5129cd1de164eb9cbd083e8a2503c4e";
    assert_eq!(found, expected);
}

/// The layout, written out once more: rows of the group's words, lanes eight coordinates apart.
#[test]
fn the_field_reads_the_stream_as_documented() {
    for cipher in Cipher::ALL {
        let (key, step, group) = (Key::from_seed(8, cipher), 77, 1_000_003);
        let mut quads = [[0; 64]; 2];
        match &key.stream {
            Stream::Aes256Ctr(_) => key.stream.words(step, 8 * group, &mut quads),
            Stream::ChaCha20(_) => {
                let (low, high) = quads.split_at_mut(1);
                key.stream.words(step, 8 * group, low);
                key.stream.words(step, 8 * group + 4, high);
            }
        }
        let bytes: Bytes = quads.as_flattened().try_into().unwrap();
        let number = |row: usize, l: usize| {
            u64::from(u32::from_le_bytes(bytes[32 * row + 4 * l..][..4].try_into().unwrap()))
        };
        let drawn: Vec<f64> = drawn(&key, step, 16 * group, 16);
        for l in 0..LANES {
            let (radius, angle) = (number(0, l) << 32 | number(1, l), number(2, l) << 32 | number(3, l));
            let [cosine, sine] = oracle::plain_pair(radius, angle);
            assert!((drawn[l] - cosine).abs() < 1e-13 && (drawn[8 + l] - sine).abs() < 1e-13);
        }
    }
}
