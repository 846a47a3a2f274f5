"""The order of the data: shuffled once, the same batches in every epoch."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from ._arguments import whole


class FixedOrderBatches:
    """The batches of a whole run: examples are shuffled once, and every epoch has the same batches in the same order.

    This order is what the privacy analysis of correlated noise assumes. Where `batch_size` does not divide the number of
    examples, the last batch of every epoch is smaller.

    `position` is the number of steps that are done. Iteration begins there and goes on to the end of the last epoch, and
    `len()` is the number of steps that are left. Whoever takes the steps sets it, as a loader may read ahead.

    >>> order = antiphon.FixedOrderBatches(10, batch_size=4, epochs=2)
    >>> order.steps_per_epoch, order.steps, [len(batch) for batch in order]
    (3, 6, [4, 4, 2, 4, 4, 2])
    >>> order.batch(0) == order.batch(3)
    True
    """

    def __init__(self, examples: int, batch_size: int, epochs: int, *, seed: int = 0, shuffle: bool = True) -> None:
        self.examples = whole("examples", examples)
        self.batch_size = whole("batch_size", batch_size, self.examples)
        self.epochs = whole("epochs", epochs)
        self.seed, self.shuffle = whole("seed", seed, (1 << 63) - 1, least=0), bool(shuffle)
        self._order = self._shuffled() if self.shuffle else np.arange(self.examples)
        self.position = 0

    def _shuffled(self) -> npt.NDArray[np.int64]:
        return np.random.default_rng(self.seed).permutation(self.examples)

    @property
    def steps_per_epoch(self) -> int:
        """The last one may have a smaller batch."""
        return -(-self.examples // self.batch_size)

    @property
    def steps(self) -> int:
        """Of all epochs."""
        return self.epochs * self.steps_per_epoch

    def batch(self, step: int) -> list[int]:
        """Who takes part in a step."""
        if not 0 <= step < self.steps:
            raise ValueError(f"step must be in 0..={self.steps - 1}, got {step}")
        first = step % self.steps_per_epoch * self.batch_size
        indices: list[int] = self._order[first : first + self.batch_size].tolist()
        return indices

    def __iter__(self) -> Iterator[list[int]]:
        for step in range(self.position, self.steps):
            yield self.batch(step)

    def __len__(self) -> int:
        return self.steps - self.position

    def state_dict(self) -> dict[str, Any]:
        """The position, and what the order is."""
        return {"position": self.position, **self._description()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on at the position of a state, which must be of the same order."""
        ours = self._description()
        differ = [f"{name} was {state.get(name)} and is {value}" for name, value in ours.items() if state.get(name) != value]
        if differ:
            raise ValueError(f"the state must be of the same order of the data: {'; '.join(differ)}")
        position = state["position"]
        if not isinstance(position, int) or not 0 <= position <= self.steps:
            raise ValueError(f"position must be in 0..={self.steps}, got {position}")
        self.position = position

    def _description(self) -> dict[str, Any]:
        digest = hashlib.sha256(self._order.astype("<i8").tobytes()).hexdigest()
        return {
            "examples": self.examples,
            "batch_size": self.batch_size,
            "epochs": self.epochs,
            "seed": self.seed,
            "shuffle": self.shuffle,
            "order": digest,
        }
