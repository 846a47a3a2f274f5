"""Runs, and what the noise on a device is compared with: the field by exact fractions, one number at a time, and the Rust code."""

from fractions import Fraction

import numpy as np

import antiphon
from antiphon import Key, PrivateRun, Schema
from antiphon._antiphon import _polynomials

#: Odd offsets, one number alone, ranges that touch, and coordinates whose block numbers have more than 32 bits. Not in order.
FAR = [(3, 20), (20, 37), (2**40 + 5, 2**40 + 300), (2**33 + 1, 2**33 + 2), (2**61 + 7, 2**61 + 150)]


def run_of(mechanism, *, params=None, ranges=None, seed=1, **changed):
    params = params or max(end for _, end in ranges)
    settings = dict(noise_multiplier=0.7, delta=1e-5, clip_norm=1.0, key=Key.from_seed(seed, cipher="chacha20"))
    return PrivateRun(mechanism, params=params, ranges=ranges, **{**settings, **changed})


def plain_normals(params, steps=2):
    """A run whose rows are the rows of Z: sigma is one but for its last bits, which single precision does not see."""
    run = run_of(antiphon.make("identity", Schema.epochs(1, steps), progress=False), params=params, noise_multiplier=1.0)
    assert abs(run.stddev - 1.0) < 1e-14
    return run


def bits(x):
    x = np.ascontiguousarray(x)
    assert x.dtype == np.float32
    return x.view(np.uint32)


def rounded(x):
    """A fraction to float32, half to even."""
    if x == 0:
        return np.float32(0.0)
    size = abs(x)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= size < Fraction(2) ** exponent
    unit = Fraction(2) ** (max(exponent, -126) - 23)
    return np.float32(float(round(x / unit) * unit))  # round() of a Fraction is half to even


def exact_fma(a, b, c):
    a, b, c = (Fraction(float(x)) for x in (a, b, c))
    return rounded(a * b + c)


def fma_cases():
    """Products next to the middle between two float32, sums that cancel, results below the normal range, and any numbers: float32 [n, 3]."""
    random = np.random.default_rng(7)
    first = random.integers(1 << 23, 1 << 24, 12000)
    second = np.rint(2.0**47 / first)
    # Together 2⁴⁷ + r: below the last bit of float64 for |r| < 2¹⁸, next to a sum that is 2²⁴ times as large.
    near = np.abs(first.astype(object) * second.astype(np.int64).astype(object) - (1 << 47)) < 1 << 18
    a, b = first[near.astype(bool)] * 2.0**-47, second[near.astype(bool)] * 2.0**-24
    c = random.integers(1 << 23, 1 << 24, len(a)) * 2.0**-23 * random.choice([1.0, -1.0], len(a))
    scale = 2.0 ** random.integers(-30, 31, len(a))
    middles = np.stack([a * scale * random.choice([1.0, -1.0], len(a)), b, c * scale], 1)
    x = random.standard_normal((400, 2)).astype(np.float32)
    cancel = np.stack([x[:, 0], x[:, 1], -(x[:, 0] * x[:, 1])], 1)
    zero = np.array([[1.5, 2.0, -3.0], [0.0, 1.0, 0.0], [0.0, -1.0, 1.0], [1.0, 1.0, 0.0]])
    any_size = random.standard_normal((800, 3)) * 2.0 ** random.integers(-40, 41, (800, 3))
    tiny = random.standard_normal((300, 3)) * np.array([2.0**-70, 2.0**-70, 2.0**-141])
    return np.concatenate([middles, cancel, zero, any_size, tiny]).astype(np.float32)


def chacha20(key, step, block):
    """The words of a block, by the definition: counter and nonce of 64 bits."""
    low = (1 << 32) - 1
    start = [0x61707865, 0x3320646E, 0x79622D32, 0x6B206574, *key, block & low, block >> 32, step & low, step >> 32]
    x = list(start)

    def quarter(a, b, c, d):
        for left, right in ((16, 12), (8, 7)):
            x[a] = (x[a] + x[b]) & low
            x[d] ^= x[a]
            x[d] = (x[d] << left | x[d] >> (32 - left)) & low
            x[c] = (x[c] + x[d]) & low
            x[b] ^= x[c]
            x[b] = (x[b] << right | x[b] >> (32 - right)) & low

    for _ in range(10):
        for column in range(4):
            quarter(column, 4 + column, 8 + column, 12 + column)
        for column in range(4):
            quarter(column, 4 + (column + 1) % 4, 8 + (column + 2) % 4, 12 + (column + 3) % 4)
    return [(a + b) & low for a, b in zip(x, start)]


def slow_group(key, step, group):
    """The sixteen normals of a group: transform.rs, with exact fractions for the fused multiply-adds."""
    f = np.float32
    log, sin, cos = ([f(c) for c in coefficients] for coefficients in _polynomials())
    even, odd = chacha20(key, step, 2 * group), chacha20(key, step, 2 * group + 1)
    cosines, sines = [], []
    for high, low, angle in zip(even[:8], even[8:], odd[:8]):
        signed = low - (1 << 32) if low >> 31 else low
        carried = (high & 0x7FFF_FFFF) + (low >> 31)
        scaled = exact_fma(f(carried), f(4294967296.0), f(signed) + f(0.5))
        exponent = int(scaled.view(np.uint32)) >> 23
        mantissa = f(float(scaled) * 2.0 ** (126 - exponent))
        y, k = (f(float(scaled) * 2.0**-64), f(0.0)) if high >> 31 else (f(1.0) - mantissa, f(190 - exponent))
        y2 = y * y
        y4 = y2 * y2
        pairs = [exact_fma(log[i + 1], y, log[i]) for i in (1, 3, 5, 7)]
        q = exact_fma(exact_fma(pairs[3], y2, pairs[2]), y4, exact_fma(pairs[1], y2, pairs[0]))
        radius = np.sqrt(exact_fma(k, f(2.0) * f(np.log(2.0)), exact_fma(q, y2, y + y)))
        x = exact_fma(f(angle & 0x1FFF_FFFF), f(2.0**-29), f(2.0**-30))
        s = x * x
        sine = cosine = None
        for c in reversed(sin):
            sine = c if sine is None else exact_fma(sine, s, c)
        for c in reversed(cos):
            cosine = c if cosine is None else exact_fma(cosine, s, c)
        sine = x * sine
        first, second = (sine, cosine) if angle >> 29 & 1 else (cosine, sine)
        cosines.append(radius * (-first if angle >> 31 else first))
        sines.append(radius * (-second if angle >> 30 & 1 else second))
    return np.array(cosines + sines, dtype=np.float32)


#: Steps and groups with 32 bits and with more, at either side of where words carry.
PLACES = [
    (0, 0),
    (1, 2**31 - 1),
    (2**31, 2**31),
    (2**32 - 1, 2**32 - 1),
    (2**32, 2**32),
    (2**32 + 5, 2**33 + 1),
    (2**63 + 2**31 + 9, 2**59 + 2**31 + 3),
    (2**64 - 1, 2**59 - 1),
]
