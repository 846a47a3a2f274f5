"""Noise that is made outside the Rust code, on a device: which coordinates, which steps, and what its bits are compared with.

Wrong bits would be wrong noise, and the privacy statement would not hold. So a device is compared with the Rust code before it makes the first row.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt

from ._antiphon import Key, PrivacyError, PrivateRun
from ._choice import NAMES

#: What `PrivateRun._recurrence` gives: rows of Z with weights; what is taken and kept of each buffer; the scale; whether the buffers are zero before.
Recurrence = tuple[list[tuple[int, float]], list[tuple[float, float]], float, bool]

#: Mechanisms whose noise is a recurrence with a few buffers.
MECHANISMS = ("comb-blt", "blt", "identity")

#: Normals that are made together.
GROUP = 16
#: Steps from the beginning that are compared.
STEPS = 3
#: The least standard deviation of Z: a number of noise is then not below the normal range of float32, which some devices flush to zero.
_LEAST = 1e-15
#: Coordinates of each place that is compared.
_WINDOW = 1008

_U = 2.0**-23
_A, _B = 8392705 * 2.0**-47, 16769026 * 2.0**-24  # their product is 2⁻²⁴ + 2⁻⁷⁰
#: Fused multiply-adds a·b + c of float32 that rounding twice, to float64 and to float32, gets wrong, with their results. Random numbers meet such a case
#: about once in 2²⁹ times.
FMA_CASES = [
    (sign * a, b, sign * c, sign * result)
    for sign in (1.0, -1.0)
    for a, b, c, result in (
        (_A, _B, 1.0, 1.0 + _U),  # just above the middle, which would be rounded down
        (2.0**-24 * (1.0 + _U), 1.0 - _U, 1.0 + _U, 1.0 + _U),  # just below the middle, which would be rounded up
    )
]


class Places(NamedTuple):
    """Ranges of coordinates as groups of the field: whole groups are drawn, and the row is made of slices of them."""

    groups: npt.NDArray[np.int64]
    slices: list[tuple[int, int]]

    @staticmethod
    def of(ranges: Sequence[tuple[int, int]]) -> Places:
        """The groups of all ranges, one after the other."""
        groups: list[npt.NDArray[np.int64]] = [np.zeros(0, np.int64)]
        slices, drawn = [], 0
        for first, end in ranges:
            start = first // GROUP
            groups.append(np.arange(start, -(-end // GROUP), dtype=np.int64))
            slices.append((drawn + first - GROUP * start, drawn + end - GROUP * start))
            drawn += GROUP * len(groups[-1])
        return Places(np.concatenate(groups), slices)


def refuse_mechanism(mechanism: Any) -> None:
    """Refuses a name of a mechanism that no device can make, before any work is done. Mechanisms that exist are refused by their run."""
    if isinstance(mechanism, str) and mechanism in NAMES and mechanism not in MECHANISMS:
        raise ValueError(f'mechanism must be one of {", ".join(MECHANISMS)} for noise="device", got {mechanism!r}: others need more than a few buffers')


def device_key(key: Key | str | os.PathLike[str]) -> Key:
    """The key of a run whose noise is made on the device: of ChaCha20, as is one in a file that is made here."""
    if not isinstance(key, Key):
        key = Key.load(key) if Path(key).exists() else Key.fresh(key, cipher="chacha20")
    if key.cipher != "chacha20":
        raise ValueError(
            'key must be one of chacha20 for noise="device": name a new file, or make it by Key.fresh(path, cipher="chacha20"), '
            f"got one of {key.cipher}"
        )
    return key


def refuse_small(run: PrivateRun) -> None:
    """Refuses noise that is too small for a device."""
    if run.stddev < _LEAST:
        raise ValueError(
            f"clip_norm must be larger for noise on a device, so that stddev is at least {_LEAST}, got {run.stddev}: devices may flush small numbers to zero"
        )


def first_of_stamp(run: PrivateRun, step: int) -> int:
    """The last step up to this one before which all buffers are zero."""
    while not run._recurrence(step)[3]:
        step -= 1
    return step


def sampled(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Some coordinates, whole groups: the first ones of the first range, those from the middle of the middle one, the last ones of the last."""
    if not ranges:
        return []
    middle = ranges[len(ranges) // 2]
    half = (middle[0] + middle[1]) // 2
    windows = [
        (ranges[0][0], min(ranges[0][0] + _WINDOW, ranges[0][1])),
        (half, min(half + _WINDOW, middle[1])),
        (max(ranges[-1][1] - _WINDOW, ranges[-1][0]), ranges[-1][1]),
    ]
    # In the order of coordinates, each once.
    found: list[tuple[int, int]] = []
    for first, end in sorted((first // GROUP * GROUP, min(-(-end // GROUP) * GROUP, (1 << 63) - GROUP)) for first, end in windows):
        first = max(first, found[-1][1]) if found else first
        if first < end:
            found.append((first, end))
    return found


def rows_by_rust(run: PrivateRun, ranges: Sequence[tuple[int, int]], steps: int) -> npt.NDArray[np.float32]:
    """The first rows of the noise of a run, made by a second one with the same key that nothing is added to."""
    secret = np.array(run._field_key(), dtype="<u4").tobytes() + bytes([1, 1])
    second = PrivateRun(
        run.mechanism,
        noise_multiplier=run.noise_multiplier,
        delta=run.delta,
        clip_norm=run.clip_norm,
        params=max(end for _, end in ranges),
        ranges=ranges,
        key=Key._from_shared(secret),
    )
    if second.noise_id != run.noise_id:
        raise RuntimeError("the noise of the run could not be made a second time to compare with")
    rows = []
    for _ in range(steps):
        second.admit([])
        rows.append(second.row())
    return np.array(rows, dtype=np.float32)


def row_by_numpy(
    recurrence: Recurrence, rows: Sequence[npt.NDArray[np.float32]], buffers: npt.NDArray[np.float64]
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float64]]:
    """A row and the buffers after it, from the rows of Z: every product and every sum by itself, in this order."""
    inputs, factors, scale, _ = recurrence
    mixed = np.zeros(buffers.shape[1])
    for (_, weight), z in zip(inputs, rows):
        mixed = mixed + weight * z.astype(np.float64)
    row, after = mixed, np.empty_like(buffers)
    for q, (taken, kept) in enumerate(factors):
        row = row - taken * buffers[q]
        after[q] = kept * buffers[q] + mixed
    return (scale * row).astype(np.float32), after


def hard_buffers(recurrence: Recurrence, rows: Sequence[npt.NDArray[np.float32]]) -> npt.NDArray[np.float64]:
    """Buffers for which a row shows every rounding: what is taken of the first cancels the rows of Z but for the last bits, and the others are as small."""
    factors = recurrence[1]
    mixed = row_by_numpy((recurrence[0], [(0.0, 0.0)], 1.0, False), rows, np.zeros((1, len(rows[0]))))[1][0]
    buffers = np.zeros((len(factors), len(mixed)))
    for q, (taken, _) in enumerate(factors):
        buffers[q] = np.roll(mixed, q) / (taken or 1.0) * 2.0 ** (-52 * (q > 0))
    return buffers


def made_on(device: object) -> str:
    """What a statement says about noise that a device made."""
    return (
        f"The noise was made on the device {device}. It was compared with that of the host for a sample of coordinates and steps before the first step, and "
        "not checked for all others."
    )


def same(one: Any, other: Any) -> bool:
    """Whether two arrays have the same bits."""
    one, other = np.ascontiguousarray(one), np.ascontiguousarray(other)
    return bool(one.shape == other.shape and one.dtype == other.dtype and one.tobytes() == other.tobytes())


def refuse(device: object, what: str) -> NoReturn:
    """The device does not compute the noise of the run."""
    raise PrivacyError(
        f"noise on the device {device} is refused: {what}. The privacy statement holds for the noise of the run, bit for bit. Make the noise on "
        'the host: noise="host" of make_private, or row() of the PrivateRun'
    )
