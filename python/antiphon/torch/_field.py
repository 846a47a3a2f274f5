"""The field of standard normals z(step, coordinate) of a ChaCha20 key in PyTorch operations: the bits of the Rust code, on any device.

The layout is in the documentation of `antiphon::noise`: groups of sixteen coordinates, two blocks of ChaCha20 each, Box and Muller's transform by
polynomials with fused multiply-adds in single precision. Numbers of single precision are kept here as float64, so that every operation of the
transform is one exact or correctly rounded float64 operation and a rounding to float32:

- A product of two float32 is exact in float64 (48 of 53 bits, and the exponent fits), so rounding it gives the float32 product.
- The square root of a float32, taken in float64 and rounded, is the float32 square root. A middle m between two float32 has 25 bits of which the last is set,
  so m² has 49 or 50 bits of which the last is set, and x with its 24 bits differs from it by at least 2⁻⁵⁰ of itself: √x differs from m by 2⁻⁵¹, and
  rounding to float64 moves it by 2⁻⁵³ at most, not to m or past it. (PyTorch's float32 square root on the CPU is not correctly rounded.)
- `_fma` is below.

Numbers below the normal range of float32 (2⁻¹²⁶) occur for y² and y⁴ alone, since y is at least 2⁻⁶⁵. There they meet sums of which they are less than
2⁻³⁰ parts, and rounding gives those sums. So a device that flushes them to zero makes the same normals.

PyTorch runs each operation by itself, so nothing is contracted or reordered. Do not compile these functions.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from .._antiphon import _polynomials

#: "expand 32-byte k".
_CONSTANTS = (0x61707865, 0x3320646E, 0x79622D32, 0x6B206574)
_LOG, _SIN, _COS = _polynomials()
_TWO_LN_2 = float(np.float32(2.0) * np.float32(np.log(2.0)))
_ANGLE = 1.0 / (1 << 29)


def normals(key: Sequence[int], step: int, groups: torch.Tensor) -> torch.Tensor:
    """z(step, 16g), …, z(step, 16g + 15) for all groups g, one after the other: float32.

    `key` has eight words of 32 bits, `step` up to 64 bits; `groups` is a flat tensor of int64, on the device of the result.
    """
    even, odd = _blocks(key, step, groups)
    radius = _radius(even[:8], even[8:])
    cosine, sine = _direction(odd[:8])
    return torch.cat([radius * cosine, radius * sine]).to(torch.float32).t().reshape(-1)


def _signed(word: int) -> int:
    """The same 32 bits as a number of int32: PyTorch has few operations for uint32, and those of int32 wrap around."""
    word &= 0xFFFF_FFFF
    return word - (1 << 32) if word >> 31 else word


def _blocks(key: Sequence[int], step: int, groups: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The words of the blocks 2g and 2g + 1 of a step: two tensors [16, groups] of int32."""
    if len(key) != 8:
        raise ValueError(f"key must have 8 words, got {len(key)}")
    if not 0 <= step < 1 << 64:
        raise ValueError(f"step must be in 0..={(1 << 64) - 1}, got {step}")
    numbers = torch.cat([2 * groups, 2 * groups + 1])
    start = torch.empty((16, len(numbers)), dtype=torch.int32, device=groups.device)
    for row, word in enumerate((*_CONSTANTS, *key)):
        start[row] = _signed(word)
    # The low 32 bits as a signed number, by arithmetic: a conversion out of range is not the same on all devices.
    start[12] = (((numbers & 0xFFFF_FFFF) ^ 0x8000_0000) - 0x8000_0000).to(torch.int32)
    start[13] = (numbers >> 32).to(torch.int32)
    start[14], start[15] = _signed(step), _signed(step >> 32)
    a, b, c, d = (start[row : row + 4].clone() for row in (0, 4, 8, 12))
    for _ in range(10):
        _quarter_rounds(a, b, c, d)
        # The diagonals become columns, and back.
        b, c, d = b.roll(-1, 0), c.roll(-2, 0), d.roll(-3, 0)
        _quarter_rounds(a, b, c, d)
        b, c, d = b.roll(1, 0), c.roll(2, 0), d.roll(3, 0)
    words = torch.cat([a, b, c, d]).add_(start)
    return words[:, : len(groups)], words[:, len(groups) :]


def _quarter_rounds(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, d: torch.Tensor) -> None:
    """Those of four columns at once, in place."""
    for left, right in ((16, 12), (8, 7)):
        _rotate(d.bitwise_xor_(a.add_(b)), left)
        _rotate(b.bitwise_xor_(c.add_(d)), right)


def _rotate(x: torch.Tensor, by: int) -> None:
    high = x << by
    # The shift to the right repeats the sign, so its bits are cut off.
    x.bitwise_right_shift_(32 - by).bitwise_and_((1 << by) - 1).bitwise_or_(high)


def _single(x: torch.Tensor) -> torch.Tensor:
    """Rounded to float32."""
    return x.to(torch.float32).to(torch.float64)


def _fma(a: torch.Tensor | float, b: torch.Tensor, c: torch.Tensor | float) -> torch.Tensor:
    """a·b + c, rounded to float32 once, for numbers of float32 that are kept as float64.

    The product p is exact in float64. The sum p + c is rounded to odd in float64: to the neighbour towards zero, whose last bit is then set if anything
    was cut off. Rounding that to float32 is rounding p + c: the 53 bits are more than 24 + 2, so a middle between two float32 (or a float32), which
    ends with a zero there, is met only by the exact sum, and on either side of it an inexact sum stays where it is (Boldo and Melquiond, 2008). Below the
    normal range of float32 even fewer bits are kept. Rounding to nearest instead would be wrong where the first rounding meets such a middle, about once
    in 2²⁹ times.

    Knuth's TwoSum gives s = p + c rounded to nearest and the exact rest e, with p + c = s + e and no conditions: nothing overflows. Where e has the
    other sign than s, s lies further from zero than the sum; its predecessor, one less as a number of 64 bits, is the neighbour towards zero. (s = 0 only
    if the sum is 0, and then e = 0.)
    """
    p = b * a
    s = p + c
    of_c = s - p
    rest = (p - (s - of_c)).add_(c - of_c)
    inexact = (rest != 0).to(torch.int64)
    bits = s.view(torch.int64)
    away = ((bits ^ rest.view(torch.int64)) >> 63).mul_(inexact)  # −1 or 0
    return _single((bits + away).bitwise_or_(inexact).view(torch.float64))


def _radius(high: torch.Tensor, low: torch.Tensor) -> torch.Tensor:
    """√(−2 ln u) from the two halves of the radius words, as in transform.rs."""
    upper_half = high < 0
    # The carry is bit 31 of `low`; the sum may be 2³¹, which wraps around to −2³¹ and has the same absolute value.
    carried = (high & 0x7FFF_FFFF) - (low >> 31)
    scaled = _fma(4294967296.0, _single(carried.to(torch.float64).abs()), _single(_single(low.to(torch.float64)) + 0.5))
    bits = scaled.to(torch.float32).view(torch.int32)
    mantissa = ((bits & 0x007F_FFFF) | 0x3F00_0000).view(torch.float32).to(torch.float64)
    y = torch.where(upper_half, scaled * 2.0**-64, 1.0 - mantissa)  # both exact
    k = torch.where(upper_half, 0, 190 - (bits >> 23)).to(torch.float64)
    _, c1, c2, c3, c4, c5, c6, c7, c8 = _LOG
    y2 = _single(y * y)
    y4 = _single(y2 * y2)
    upper = _fma(_fma(c8, y, c7), y2, _fma(c6, y, c5))
    q = _fma(upper, y4, _fma(_fma(c4, y, c3), y2, _fma(c2, y, c1)))
    return _single(_fma(_TWO_LN_2, k, _fma(q, y2, y + y)).sqrt_())


def _direction(angle: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosine and sine from the upper halves of the angle words, as in transform.rs."""
    x = _fma(_ANGLE, _single((angle & 0x1FFF_FFFF).to(torch.float64)), 0.5 * _ANGLE)
    s = _single(x * x)
    c0, c1, c2, c3 = _SIN
    sine = _single(x * _fma(_fma(_fma(c3, s, c2), s, c1), s, c0))
    c0, c1, c2, c3, c4 = _COS
    cosine = _fma(_fma(_fma(_fma(c4, s, c3), s, c2), s, c1), s, c0)
    swap = (angle & 0x2000_0000) != 0
    first, second = torch.where(swap, sine, cosine), torch.where(swap, cosine, sine)
    return torch.where(angle < 0, -first, first), torch.where((angle & 0x4000_0000) != 0, -second, second)
