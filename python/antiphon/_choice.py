"""Which mechanism a run takes: one that is made for its order, or one that exists."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ._antiphon import MAX_DENSE_STEPS, Mechanism, Schema, Verified, names
from ._design import make
from ._order import FixedOrderBatches
from ._progress import Progress

#: Mechanisms that are made by name.
NAMES = names()


def mechanism_for(
    order: FixedOrderBatches,
    mechanism: Any,
    *,
    momentum: Callable[[], float] | None = None,
    learning_rates: Sequence[float] | None = None,
    stamps: int = 1,
    progress: Progress = None,
) -> tuple[str, Mechanism | Verified]:
    """The name of a mechanism for this order of the data, and the mechanism: made, if a name of a family is given, or found.

    `momentum` gives the momentum that the noise is optimized for; without it neither momentum nor learning rates count.
    """
    in_workload = momentum is not None
    if mechanism not in NAMES:
        if in_workload or learning_rates is not None or stamps != 1:
            raise ValueError("in_workload, learning_rates and stamps must be given for a mechanism that is made here, got a mechanism that exists")
        if isinstance(mechanism, str) and not Path(mechanism).exists():
            raise ValueError(f"mechanism must be one of {', '.join(NAMES)}, a Mechanism, or an existing file, got {mechanism!r}")
        found = Mechanism.load(mechanism) if isinstance(mechanism, (str, os.PathLike)) else mechanism
        inner = found.mechanism if isinstance(found, Verified) else found
        if not isinstance(inner, Mechanism):
            raise ValueError(f"mechanism must be one of {', '.join(NAMES)}, a Mechanism, or a file, got {type(mechanism).__name__}")
        if inner.steps != order.steps:
            raise ValueError(
                f"mechanism must be for {order.steps} steps ({order.epochs} epochs of {order.steps_per_epoch}), got one for {inner.steps}: {inner.schema}"
            )
        return inner.kind, found
    if mechanism == "optimal" and order.steps > MAX_DENSE_STEPS:
        raise ValueError(
            f"the run must have at most {MAX_DENSE_STEPS} steps for the optimal mechanism, got {order.steps}: take a larger batch_size, fewer "
            'epochs, or mechanism="comb-blt", whose noise needs few rows of memory for any number of steps'
        )
    if learning_rates is not None and not in_workload:
        raise ValueError("learning_rates must be given with in_workload=True: otherwise the noise does not depend on them")
    schema = Schema.epochs(order.epochs, order.steps_per_epoch)
    made = make(mechanism, schema, stamps=stamps, momentum=momentum() if momentum else 0.0, learning_rates=learning_rates, progress=progress)
    return mechanism, made
