#!/usr/bin/env python3
"""The field once more, from its documentation, in 60 digits: the table of known_values.rs, without our own figures.

Usage: pip install mpmath==1.4.1 cryptography==50.0.2, then reference.py
"""

import hashlib

import mpmath as mp
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

mp.mp.dps = 60


def stream(cipher, secret, step, word):
    """One word of 16 bytes."""
    if cipher == "aes256-ctr":
        block = step.to_bytes(8, "little") + word.to_bytes(8, "little")
        return Cipher(algorithms.AES(secret), modes.ECB()).encryptor().update(block)
    nonce = (word // 4).to_bytes(8, "little") + step.to_bytes(8, "little")
    block = Cipher(algorithms.ChaCha20(secret, nonce), None).encryptor().update(bytes(64))
    return block[16 * (word % 4) :][:16]


def normal(cipher, secret, step, coordinate):
    group, place = divmod(coordinate, 16)
    data = b"".join(stream(cipher, secret, step, 8 * group + i) for i in range(8))
    lane = place % 8
    row = [int.from_bytes(data[32 * r + 4 * lane :][:4], "little") for r in range(4)]
    radius, angle = row[0] << 32 | row[1], row[2] << 32 | row[3]
    v = (mp.mpf(radius % 2**63) + mp.mpf(1) / 2) / 2**64
    u = 1 - v if radius >> 63 else v
    theta = mp.pi / 4 * (mp.mpf(angle % 2**61) + mp.mpf(1) / 2) / 2**61
    pair = [mp.cos(theta), mp.sin(theta)]
    if angle >> 61 & 1:
        pair.reverse()
    sign = (-1) ** (angle >> 63) if place < 8 else (-1) ** (angle >> 62 & 1)
    return mp.sqrt(-2 * mp.log(u)) * sign * pair[place // 8]


secret = hashlib.sha256(b"antiphon noise key v1" + (42).to_bytes(8, "little")).digest()
for cipher in ["aes256-ctr", "chacha20"]:
    for step in [0, 7, 2**64 - 1]:
        for coordinate in [0, 13, 1_000_000, 2**36 + 5, 2**64 - 1]:
            print(f'("{cipher}", {step}, {coordinate}, {float(normal(cipher, secret, step, coordinate))!r})')
