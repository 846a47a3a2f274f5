"""The order of the data as PyTorch's loaders take it, and examples with their indices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch.utils._pytree import tree_map
from torch.utils.data import Dataset, Sampler, default_collate

from .._order import FixedOrderBatches as Fixed


class Batch(NamedTuple):
    """What a loader of `make_private` yields: who takes part, and their examples."""

    indices: torch.Tensor
    data: Any


class FixedOrderBatches(Fixed, Sampler[list[int]]):
    """A batch sampler for a whole run: `antiphon.FixedOrderBatches` for a DataLoader, shuffled by PyTorch."""

    def _shuffled(self) -> npt.NDArray[np.int64]:
        shuffled: npt.NDArray[np.int64] = torch.randperm(self.examples, generator=torch.Generator().manual_seed(self.seed)).numpy()
        return shuffled


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
        if not examples:  # a process that has no part in a small batch
            return Batch(indices, None)
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
