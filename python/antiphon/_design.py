"""Mechanisms for a training run: the best one, any other, all of them side by side, and which one to take."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from . import _antiphon
from ._antiphon import Mechanism, Schema, Workload
from ._progress import Progress, shown


def optimize(
    schema: Schema,
    *,
    momentum: float = 0.0,
    learning_rates: Sequence[float] | None = None,
    cooldown: tuple[float, float] | None = None,
    workload: npt.ArrayLike | None = None,
    gap: float = 1e-3,
    max_iterations: int = 1000,
    implicit: bool = False,
    progress: Progress = None,
) -> Mechanism:
    """The best mechanism for a training run, proven to be within `gap` of the least possible loss. Ctrl-C stops it.

    schema          who takes part when
    momentum        of SGD, in [0, 1)
    learning_rates  one positive rate per step; only their ratios matter
    cooldown        (fraction, end): the rate falls linearly to `end` over the last `fraction` of the steps
    workload        any lower triangular matrix, instead of the three above
    implicit        the certificate and a description of linear size only, for more than 12,000 steps; no noise can be
                    drawn from it
    progress        None: a bar on a terminal if tqdm is installed; True or False; or a function that is told in words

    >>> import antiphon
    >>> mechanism = antiphon.optimize(antiphon.Schema.epochs(4, 10), momentum=0.9)
    >>> mechanism.gap <= 1e-3
    True
    >>> mechanism.C.shape
    (40, 40)
    """
    with shown("optimizing", progress) as tell:
        training = _workload(schema, momentum, learning_rates, cooldown, workload)
        return _antiphon.optimize(schema, training, gap, max_iterations, implicit, tell)


def make(
    name: str,
    schema: Schema,
    *,
    stamps: int = 1,
    buffers: int | None = None,
    over_optimum: float | None = None,
    momentum: float = 0.0,
    learning_rates: Sequence[float] | None = None,
    cooldown: tuple[float, float] | None = None,
    workload: npt.ArrayLike | None = None,
    gap: float = 1e-3,
    progress: Progress = None,
) -> Mechanism:
    """A mechanism by its name, with a proof of how far from the optimum it is.

    name          "identity" (independent noise), "tree-online" (log n rows of memory), "tree-optimal", "fft",
                  "fft-optimal", "single-epoch" (the optimum for one epoch, used for several), "per-epoch" (the best whose
                  noise is independent between epochs: for `Schema.reshuffled`), "comb-blt" (near the optimum in a few rows
                  of memory, for any number of steps in fixed epoch order), "blt" (a few rows of memory and nothing drawn
                  twice; for minimum separation too) or "optimal"
    stamps        cuts the run into so many equal parts and restarts the mechanism in each
    buffers       for "comb-blt" and "blt": rows of noise that are kept between steps, in 1..=16; None: as few as
                  `over_optimum` needs
    over_optimum  for "comb-blt" and "blt": how far above the least possible loss the mechanism may be, in (0, 1]; None:
                  0.015. Where it cannot be reached the mechanism is made all the same: see its `gap`

    The other arguments are those of `optimize`.

    >>> import antiphon
    >>> antiphon.make("tree-online", antiphon.Schema.epochs(4, 8), stamps=4).kind
    'structured'
    >>> antiphon.make("comb-blt", antiphon.Schema.epochs(4, 8), buffers=2).buffers
    2
    """
    with shown(f"making {name}", progress) as tell:
        training = _workload(schema, momentum, learning_rates, cooldown, workload)
        return _antiphon.make(name, schema, training, stamps, buffers, over_optimum, gap, tell)


def from_encoder(
    encoder: Mechanism | npt.ArrayLike,
    schema: Schema,
    *,
    stamps: int | None = None,
    momentum: float = 0.0,
    learning_rates: Sequence[float] | None = None,
    cooldown: tuple[float, float] | None = None,
    workload: npt.ArrayLike | None = None,
    gap: float = 1e-3,
    progress: Progress = None,
) -> Mechanism:
    """A mechanism from an encoder that somebody has, whatever it was made for, with its optimal decoder.

    encoder  the matrix C, one column per step, or a mechanism
    stamps   how often it is repeated; None: as often as it fits into the steps of the schema

    The other arguments are those of `optimize`.

    >>> import antiphon
    >>> one = antiphon.optimize(antiphon.Schema.single(8))
    >>> antiphon.from_encoder(one, antiphon.Schema.epochs(2, 8)).steps
    16
    """
    with shown("evaluating the encoder", progress) as tell:
        training = _workload(schema, momentum, learning_rates, cooldown, workload)
        return _antiphon.from_encoder(encoder, schema, training, stamps, gap, tell)


@dataclass(frozen=True)
class Candidate:
    """One mechanism under the schema and the workload of a run."""

    name: str
    stamps: int
    #: The total squared error of all iterates, per coordinate, at noise multiplier 1 and clip norm 1.
    loss: float
    #: The error of one iterate: √(loss / steps).
    rmse: float
    #: Of C, the upper end of what is known.
    sensitivity: float
    #: Whether that is exact.
    sensitivity_exact: bool
    #: loss / lower bound − 1: at most so far above the least possible. None where no bound is known.
    over_optimum: float | None
    #: Rows of noise that are kept while training; None where no noise can be drawn.
    stream_memory_rows: int | None
    #: Buffers that its noise has; None where the family has none.
    buffers: int | None
    #: Seconds to make and evaluate it.
    seconds: float
    #: The variance of every iterate at noise multiplier 1.
    variances: npt.NDArray[np.float64] = field(repr=False, compare=False)


@dataclass(frozen=True)
class Comparison:
    """All mechanisms for one run, the least loss first. Print it for a table."""

    schema: Schema
    workload: str
    #: No mechanism has a smaller loss; None where no bound is known.
    lower_bound: float | None
    #: The loss of the optimum if examples came in a fixed order; None for schemas that are one.
    fixed_order_loss: float | None
    candidates: list[Candidate]
    #: Names of what was not compared, and why.
    left_out: dict[str, str]

    def __str__(self) -> str:
        head = ("mechanism", "loss", "error", "over best", "sensitivity", "memory")
        rows = [head]
        for one in self.candidates:
            over = "-"
            if one.over_optimum is not None:
                over = f"{100 * one.over_optimum:.2f}%" if one.over_optimum < 1 else f"×{1 + one.over_optimum:.2f}"
            rows_kept = one.stream_memory_rows
            memory = "-" if rows_kept is None else f"{rows_kept} row{'' if rows_kept == 1 else 's'}"
            title = one.name if one.stamps == 1 else f"{one.name} ×{one.stamps}"
            at_most = "" if one.sensitivity_exact else " (≤)"
            rows.append((title, f"{one.loss:.4e}", f"{one.rmse:.5f}", over, f"{one.sensitivity:.5f}{at_most}", memory))
        widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
        lines = [f"{self.schema}; {self.workload}"]
        for row in rows:
            cells = [row[0].ljust(widths[0])] + [cell.rjust(width) for cell, width in zip(row[1:], widths[1:])]
            lines.append("  ".join(cells))
        if self.fixed_order_loss is not None:
            lines.append(f"In a fixed order the optimum has a loss of {self.fixed_order_loss:.4e}.")
        lines += [f"Not compared: {name}, {reason}." for name, reason in self.left_out.items()]
        return "\n".join(lines)


@dataclass(frozen=True)
class Plan:
    """Which mechanism to take for a run."""

    comparison: Comparison
    #: The least loss of those whose noise fits into the memory.
    chosen: Candidate
    #: Bytes that its noise takes while training.
    stream_bytes: int
    _workload: Workload = field(repr=False)
    _gap: float = field(repr=False)

    def make(self, *, progress: Progress = None) -> Mechanism:
        """The mechanism that was chosen."""
        chosen = self.chosen
        with shown(f"making {chosen.name}", progress) as tell:
            schema, stamps = self.comparison.schema, chosen.stamps
            return _antiphon.make(chosen.name, schema, self._workload, stamps, None, None, self._gap, tell)


def compare(
    schema: Schema,
    *,
    momentum: float = 0.0,
    learning_rates: Sequence[float] | None = None,
    cooldown: tuple[float, float] | None = None,
    workload: npt.ArrayLike | None = None,
    stamps: int | None = None,
    without: Sequence[str] = (),
    gap: float = 1e-3,
    progress: Progress = None,
) -> Comparison:
    """All mechanisms for a training run side by side, each with its best number of stamps (or with `stamps`).

    without   names to leave out; single-epoch and optimal take the longest, and without optimal there is no lower bound

    >>> import antiphon
    >>> antiphon.compare(antiphon.Schema.epochs(2, 8)).candidates[0].name
    'optimal'
    """
    training = _workload(schema, momentum, learning_rates, cooldown, workload)
    with shown("comparing", progress) as tell:
        text = _antiphon.compare(schema, training, stamps, list(without), gap, None, None, tell)
    return _comparison(schema, json.loads(text))


def plan(
    schema: Schema,
    *,
    params: int,
    memory: int | None = None,
    momentum: float = 0.0,
    learning_rates: Sequence[float] | None = None,
    cooldown: tuple[float, float] | None = None,
    workload: npt.ArrayLike | None = None,
    stamps: int | None = None,
    without: Sequence[str] = (),
    gap: float = 1e-3,
    progress: Progress = None,
) -> Plan:
    """The mechanism with the least loss whose noise, for a model of `params` parameters, fits into `memory` bytes.

    >>> import antiphon
    >>> plan = antiphon.plan(antiphon.Schema.epochs(2, 8), params=1000)
    >>> plan.chosen.name
    'optimal'
    >>> mechanism = plan.make()
    """
    training = _workload(schema, momentum, learning_rates, cooldown, workload)
    with shown("planning", progress) as tell:
        text = _antiphon.compare(schema, training, stamps, list(without), gap, params, memory, tell)
    found = json.loads(text)
    comparison = _comparison(schema, found)
    return Plan(comparison, comparison.candidates[found["chosen"]], found["stream_bytes"], training, gap)


def _workload(
    schema: Schema,
    momentum: float,
    learning_rates: Sequence[float] | None,
    cooldown: tuple[float, float] | None,
    matrix: npt.ArrayLike | None,
) -> Workload:
    rates = None if learning_rates is None else [float(rate) for rate in learning_rates]
    return Workload(schema.steps, momentum, rates, cooldown, matrix)


def _comparison(schema: Schema, found: dict[str, Any]) -> Comparison:
    candidates = [
        Candidate(
            name=one["name"],
            stamps=one["stamps"],
            loss=one["loss"],
            rmse=one["rmse"],
            sensitivity=one["sensitivity"],
            sensitivity_exact=one["sensitivity_kind"] == "exact",
            over_optimum=one["over_optimum"],
            stream_memory_rows=one.get("stream_memory_rows"),
            buffers=one["buffers"],
            seconds=one["seconds"],
            variances=np.array(variances, dtype=np.float64),
        )
        for one, variances in zip(found["candidates"], found["variances"])
    ]
    left_out = {one["name"]: one["reason"] or "as asked" for one in found["left_out"]}
    return Comparison(schema, found["workload"], found["lower_bound"], found["fixed_order_loss"], candidates, left_out)
