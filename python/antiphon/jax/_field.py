"""The field of standard normals z(step, coordinate) of a ChaCha20 key in JAX operations: the bits of the Rust code, on any device, within jit and scan.

The layout is in the documentation of `antiphon::noise`: groups of sixteen coordinates, two blocks of ChaCha20 each, Box and Muller's transform by
polynomials with fused multiply-adds in single precision.

XLA compiles many operations to one loop, and may then compute a·b + c by one instruction that rounds once (it does on the CPU; optimization_barrier and
reduce_precision do not keep it from that), or leave out a rounding to float32 between two operations in float64. Where that would change bits, the number
passes through `kept`, which the compiler cannot see through.

Numbers below the normal range of float32 (2⁻¹²⁶), which XLA flushes to zero on the CPU, occur for y² and y⁴ alone, since y is at least 2⁻⁶⁵. There they meet
sums of which they are less than 2⁻³⁰ parts, and rounding gives those sums: the normals are the same.

Float64 is needed: everything here is traced within `jax.enable_x64(True)`, whatever the global flag, and what goes in and out is uint32 or float32, which
the flag does not touch.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from .._antiphon import _polynomials

#: "expand 32-byte k".
_CONSTANTS = np.array([0x61707865, 0x3320646E, 0x79622D32, 0x6B206574], dtype=np.uint32)
_LOG, _SIN, _COS = ([np.float32(c) for c in coefficients] for coefficients in _polynomials())
_TWO_LN_2 = np.float32(2.0) * np.float32(np.log(2.0))
_ANGLE = np.float32(1.0 / (1 << 29))
_SIGN = np.uint32(0x8000_0000)


def normals(key: Array, step: Array, groups: Array) -> Array:
    """z(step, 16g), …, z(step, 16g + 15) for all groups g, one after the other: float32.

    `key` has eight words of uint32; a `step` and the `groups` are low and high words of uint32, shaped [2] and [2, groups].
    """
    with jax.enable_x64(True):
        low, high = groups[0] << 1, groups[1] << 1 | groups[0] >> 31
        words = _blocks(key, step, jnp.concatenate([low, low | 1]), jnp.concatenate([high, high]))
        even, odd = words[:, : groups.shape[1]], words[:, groups.shape[1] :]

        def lane(words: tuple[Array, Array, Array]) -> tuple[Array, Array]:
            high, low, angle = words
            zero = never(high)
            radius = _radius(high, low, zero)
            cosine, sine = _direction(angle, zero)
            return radius * cosine, radius * sine

        # One lane after the other: at once, XLA would fuse the transform with the transposition below and compute it again for each of its numbers.
        cosines, sines = lax.map(lane, (even[:8], even[8:], odd[:8]))
        return jnp.concatenate([cosines, sines]).T.reshape(-1)


def never(words: Array) -> Array:
    """Zeros, made from words of uint32 in a way that a compiler does not see through: no square is 5 modulo 8."""
    return (words * words & np.uint32(7) == np.uint32(5)).astype(jnp.uint32)


def kept(x: Array, zero: Array) -> Array:
    """The same number of float32 or float64, computed and rounded as it is: its bits pass through an operation with `never`."""
    bits = jnp.uint32 if x.dtype == jnp.float32 else jnp.uint64
    return lax.bitcast_convert_type(lax.bitcast_convert_type(x, bits) ^ zero.astype(bits), x.dtype)


def _blocks(key: Array, step: Array, low: Array, high: Array) -> Array:
    """The words of blocks: [16, blocks]."""
    shape = low.shape
    rows = [*jnp.asarray(_CONSTANTS), *key]
    start = jnp.stack([*(jnp.broadcast_to(row, shape) for row in rows), low, high, *(jnp.broadcast_to(row, shape) for row in step)])

    def double_round(_: int, state: tuple[Array, ...]) -> tuple[Array, ...]:
        a, b, c, d = _quarter_rounds(*state)
        # The diagonals become columns, and back.
        a, b, c, d = _quarter_rounds(a, jnp.roll(b, -1, 0), jnp.roll(c, -2, 0), jnp.roll(d, -3, 0))
        return a, jnp.roll(b, 1, 0), jnp.roll(c, 2, 0), jnp.roll(d, 3, 0)

    rounds: tuple[Array, ...] = lax.fori_loop(0, 10, double_round, tuple(start[row : row + 4] for row in (0, 4, 8, 12)))
    return jnp.concatenate(rounds) + start


def _quarter_rounds(a: Array, b: Array, c: Array, d: Array) -> tuple[Array, Array, Array, Array]:
    """Those of four columns at once."""
    for left, right in ((16, 12), (8, 7)):
        a = a + b
        d = _rotated(d ^ a, left)
        c = c + d
        b = _rotated(b ^ c, right)
    return a, b, c, d


def _rotated(x: Array, by: int) -> Array:
    return x << np.uint32(by) | x >> np.uint32(32 - by)


def fma(a: Array | np.float32, b: Array, c: Array | np.float32, zero: Array) -> Array:
    """a·b + c of float32, rounded once.

    The product p is exact in float64 (48 of 53 bits, and the exponent fits). The sum p + c is rounded to odd in float64: to the neighbour towards zero,
    whose last bit is then set if anything was cut off. Rounding that to float32 is rounding p + c: the 53 bits are more than 24 + 2, so a middle between two
    float32 (or a float32), which ends with a zero there, is met only by the exact sum, and on either side of it an inexact sum stays where it is (Boldo and
    Melquiond, 2008). Rounding to nearest instead would be wrong where the first rounding meets such a middle, about once in 2²⁹ times.

    Knuth's TwoSum gives s = p + c rounded to nearest and the exact rest e, with p + c = s + e and no conditions: nothing overflows. Where e has the
    other sign than s, s lies further from zero than the sum; its predecessor, one less as a number of 64 bits, is the neighbour towards zero. (s = 0 only
    if the sum is 0, and then e = 0.) Since p is exact, a product that is contracted with a sum changes nothing here.
    """
    p = lax.convert_element_type(a, jnp.float64) * lax.convert_element_type(b, jnp.float64)
    c = lax.convert_element_type(c, jnp.float64)
    s = p + c
    of_c = s - p
    rest = (p - (s - of_c)) + (c - of_c)
    inexact = (rest != 0).astype(jnp.int64)
    bits = lax.bitcast_convert_type(s, jnp.int64)
    away = (bits ^ lax.bitcast_convert_type(rest, jnp.int64)) >> 63 & -inexact  # −1 or 0
    odd = lax.bitcast_convert_type(bits + away | inexact, jnp.float64)
    return kept(odd.astype(jnp.float32), zero)


def _radius(high: Array, low: Array, zero: Array) -> Array:
    """√(−2 ln u) from the two halves of the radius words, as in transform.rs."""
    upper_half = high >= _SIGN
    # The sum may be 2³¹, which is −2³¹ as a signed number and has the same absolute value.
    carried = (high & np.uint32(0x7FFF_FFFF)) + (low >> np.uint32(31))
    rest = _signed(low).astype(jnp.float32) + np.float32(0.5)
    scaled = fma(np.float32(4294967296.0), jnp.abs(_signed(carried).astype(jnp.float32)), rest, zero)
    bits = lax.bitcast_convert_type(scaled, jnp.uint32)
    mantissa = lax.bitcast_convert_type(bits & np.uint32(0x007F_FFFF) | np.uint32(0x3F00_0000), jnp.float32)
    y = jnp.where(upper_half, scaled * np.float32(2.0**-64), np.float32(1.0) - mantissa)  # both exact
    k = jnp.where(upper_half, np.int32(0), np.int32(190) - _signed(bits >> np.uint32(23))).astype(jnp.float32)
    _, c1, c2, c3, c4, c5, c6, c7, c8 = _LOG
    y2 = kept(y * y, zero)
    y4 = kept(y2 * y2, zero)
    upper = fma(fma(c8, y, c7, zero), y2, fma(c6, y, c5, zero), zero)
    q = fma(upper, y4, fma(fma(c4, y, c3, zero), y2, fma(c2, y, c1, zero), zero), zero)
    square = fma(_TWO_LN_2, k, fma(q, y2, y + y, zero), zero)
    # In float64 and rounded, for devices whose float32 root is not correctly rounded; _field.py of antiphon.torch says why that is the float32 root.
    return kept(jnp.sqrt(square.astype(jnp.float64)).astype(jnp.float32), zero)


def _direction(angle: Array, zero: Array) -> tuple[Array, Array]:
    """Cosine and sine from the upper halves of the angle words, as in transform.rs."""
    x = fma(_ANGLE, _signed(angle & np.uint32(0x1FFF_FFFF)).astype(jnp.float32), np.float32(0.5) * _ANGLE, zero)
    s = kept(x * x, zero)
    c0, c1, c2, c3 = _SIN
    sine = kept(x * fma(fma(fma(c3, s, c2, zero), s, c1, zero), s, c0, zero), zero)
    c0, c1, c2, c3, c4 = _COS
    cosine = fma(fma(fma(fma(c4, s, c3, zero), s, c2, zero), s, c1, zero), s, c0, zero)
    swap = angle & np.uint32(0x2000_0000) != 0
    first, second = jnp.where(swap, sine, cosine), jnp.where(swap, cosine, sine)
    return _with_sign(first, angle), _with_sign(second, angle << np.uint32(1))


def _signed(x: Array) -> Array:
    return lax.bitcast_convert_type(x, jnp.int32)


def _with_sign(x: Array, sign: Array) -> Array:
    return lax.bitcast_convert_type(lax.bitcast_convert_type(x, jnp.uint32) ^ sign & _SIGN, jnp.float32)
