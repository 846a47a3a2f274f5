"""The order of the data: shuffled once, the same batches in every epoch."""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch.utils._pytree import tree_map
from torch.utils.data import Dataset, Sampler, default_collate


class Batch(NamedTuple):
    """What a loader of `make_private` yields: who takes part, and their examples."""

    indices: torch.Tensor
    data: Any


class FixedOrderBatches(Sampler[list[int]]):
    """A batch sampler for a whole run: examples are shuffled once, and every epoch has the same batches in the same order.

    This order is what the privacy analysis of correlated noise assumes. Where `batch_size` does not divide the number of
    examples, the last batch of every epoch is smaller.

    `position` is the number of steps that are done. Iteration begins there and goes on to the end of the last epoch, and
    `len()` is the number of steps that are left. Whoever takes the steps sets it, as a loader may read ahead.

    >>> order = FixedOrderBatches(10, batch_size=4, epochs=2)
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
        if shuffle:
            self._order = torch.randperm(self.examples, generator=torch.Generator().manual_seed(self.seed))
        else:
            self._order = torch.arange(self.examples)
        self.position = 0

    @property
    def steps_per_epoch(self) -> int:
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
        digest = hashlib.sha256(self._order.numpy().astype("<i8").tobytes()).hexdigest()
        return {
            "examples": self.examples,
            "batch_size": self.batch_size,
            "epochs": self.epochs,
            "seed": self.seed,
            "shuffle": self.shuffle,
            "order": digest,
        }


def whole(name: str, value: object, most: int | None = None, *, least: int = 1) -> int:
    """A whole number of any type that is one, within its range."""
    allowed = f"a whole number, at least {least}" if most is None else f"a whole number in {least}..={most}"
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = least - 1
    if isinstance(value, bool) or number < least or (most is not None and number > most):
        raise ValueError(f"{name} must be {allowed}, got {value!r}")
    return number


class WithIndices(Dataset[tuple[int, Any]]):
    """A data set whose examples come with their indices, for a loader of one's own.

    >>> WithIndices(["a", "b"])[1]
    (1, 'b')
    """

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> tuple[int, Any]:
        return index, self.dataset[index]


class Collate:
    """Puts examples with indices together. A class, so that it can be sent to worker processes.

    A `collate` of the user's sees one example at a time: where it saw a batch, as for padding to the longest text, what is computed for
    one example would depend on the others.
    """

    def __init__(self, collate: Callable[[list[Any]], Any] | None) -> None:
        self.collate = collate

    def __call__(self, examples: Sequence[tuple[int, Any]]) -> Batch:
        indices = torch.tensor([index for index, _ in examples], dtype=torch.int64)
        if self.collate is None:
            return Batch(indices, default_collate([example for _, example in examples]))
        alone = [self.collate([example]) for _, example in examples]
        alone = [dict(one) if isinstance(one, Mapping) else one for one in alone]
        try:
            return Batch(indices, tree_map(lambda *parts: torch.cat(parts), alone[0], *alone[1:]))
        except (RuntimeError, TypeError, ValueError) as error:
            raise ValueError(
                "collate_fn must make tensors of the same shape of every example alone, with a first dimension of 1: pad to a fixed length, "
                f"because the longest example of a batch is private ({error})"
            ) from error
