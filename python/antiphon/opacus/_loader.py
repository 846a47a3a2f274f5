"""The data in a fixed order, one epoch per loop, and who was handed out since the last step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from opacus.utils.batch_memory_manager import BatchMemoryManager as _OfOpacus
from torch.utils.data import DataLoader, Sampler

from .. import PrivacyError
from .._arguments import whole
from ..torch import FixedOrderBatches

if TYPE_CHECKING:
    from ._optimizer import CorrelatedOptimizer


class Ledger:
    """Who was handed out since the last step. Indices travel here, so that batches look as they did."""

    def __init__(self) -> None:
        self.handed: list[int] = []
        #: Whether something else than what was handed out is in the gradients, or not all of it.
        self.mixed = False
        #: How many examples are in gradients that no step has taken. Set by the optimizer.
        self.waiting: Callable[[], int] = lambda: 0
        #: Drops a sum that waits for more parts of a batch. Set by the optimizer.
        self.drop_parts: Callable[[], None] = lambda: None

    def hand_out(self, indices: list[int]) -> None:
        """Before a batch, or a part of one, is given away."""
        waiting = self.waiting()
        if waiting == 0:
            # Whatever was handed out before is in no gradient: it was looked at, or skipped.
            self.handed, self.mixed = list(indices), False
        else:
            self.mixed = self.mixed or waiting != len(self.handed)
            self.handed = self.handed + indices

    def forget(self) -> None:
        """After a step, or a refused one."""
        self.handed, self.mixed = [], False


def _steps_of_epoch(order: FixedOrderBatches) -> range:
    """From the next step to the end of its epoch. After the last step the first epoch again, to look at: a step is refused then."""
    first = order.position if order.position < order.steps else 0
    return range(first, (first // order.steps_per_epoch + 1) * order.steps_per_epoch)


class _Drawn(Sampler[list[int]]):
    """The order for loaders that are not ours, as Opacus' BatchMemoryManager makes one: what they draw counts as handed out. With worker
    processes they draw ahead, and the step is refused then."""

    def __init__(self, order: FixedOrderBatches, ledger: Ledger) -> None:
        self._order, self._ledger = order, ledger

    def __iter__(self) -> Iterator[list[int]]:
        self._ledger.drop_parts()
        for step in _steps_of_epoch(self._order):
            batch = self._order.batch(step)
            self._ledger.hand_out(batch)
            yield batch

    def __len__(self) -> int:
        return self._order.steps_per_epoch


class _Listed(Sampler[list[int]]):
    """Batches that are set before an iteration."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []

    def __iter__(self) -> Iterator[list[int]]:
        return iter(self.batches)

    def __len__(self) -> int:
        return len(self.batches)


class FixedOrderLoader(DataLoader[Any]):
    """The loader that `make_private` returns: the user's data, shuffled once, the same batches in every epoch.

    One loop over it is one epoch. A loop begins with the batch of the next step of the run: after a `break`, and after a checkpoint
    was loaded, it gives the rest of the epoch. `epoch` is the number of epochs that are done.
    """

    def __init__(self, like: DataLoader[Any], order: FixedOrderBatches, ledger: Ledger) -> None:
        # The generator is one of its own, so that making an iterator takes no number from the one that a model draws from.
        settings: dict[str, Any] = dict(
            generator=torch.Generator().manual_seed(order.seed),
            num_workers=like.num_workers,
            collate_fn=like.collate_fn,
            pin_memory=like.pin_memory,
            timeout=like.timeout,
            worker_init_fn=like.worker_init_fn,
            multiprocessing_context=like.multiprocessing_context,
            prefetch_factor=like.prefetch_factor,
            persistent_workers=like.persistent_workers,
        )
        super().__init__(like.dataset, batch_sampler=_Drawn(order, ledger), **settings)
        self.order, self._ledger = order, ledger
        self._listed = _Listed()
        #: The loop that was begun last.
        self._loop = object()
        self._inner: DataLoader[Any] = DataLoader(like.dataset, batch_sampler=self._listed, **settings)

    @property
    def epoch(self) -> int:
        """Epochs that are done."""
        return self.order.position // self.order.steps_per_epoch

    def __len__(self) -> int:
        return self.order.steps_per_epoch

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        return self._handed_out([(self.order.batch(step), True) for step in _steps_of_epoch(self.order)], None)

    def _in_parts(self, most: int, optimizer: CorrelatedOptimizer) -> Iterator[Any]:
        parts: list[tuple[list[int], bool]] = []
        for step in _steps_of_epoch(self.order):
            batch = self.order.batch(step)
            split = [part.tolist() for part in np.array_split(batch, -(-len(batch) // most))]
            parts += [(part, number == len(split)) for number, part in enumerate(split, 1)]
        return self._handed_out(parts, optimizer)

    def _handed_out(self, parts: list[tuple[list[int], bool]], optimizer: CorrelatedOptimizer | None) -> Iterator[Any]:
        # A loop that was left in the middle of a batch: the batch comes again, whole.
        self._ledger.drop_parts()
        self._listed.batches = [indices for indices, _ in parts]
        self._loop = loop = object()
        # At once, so that worker processes begin now, and the batches are those of this moment.
        batches = iter(self._inner)

        def each() -> Iterator[Any]:
            for (indices, last), data in zip(parts, batches):
                if self.persistent_workers and self._loop is not loop:
                    # PyTorch has one iterator then: this loop would get the batches of the other one.
                    raise PrivacyError(
                        "a loop over the loader was begun within another one, which cannot go on: with persistent_workers=True both would get "
                        "batches of the other. Leave persistent_workers out, or begin the loop anew"
                    )
                self._ledger.hand_out(indices)
                if optimizer is not None:
                    optimizer.next_is_a_part(last=last)
                yield data

        return each()


class _InParts:
    """What a BatchMemoryManager gives."""

    def __init__(self, loader: FixedOrderLoader, most: int, optimizer: CorrelatedOptimizer) -> None:
        self._loader, self._most, self._optimizer = loader, most, optimizer
        self.dataset = loader.dataset

    def __iter__(self) -> Iterator[Any]:
        return self._loader._in_parts(self._most, self._optimizer)

    def __len__(self) -> int:
        """Parts of a whole epoch."""
        order = self._loader.order
        return sum(-(-len(order.batch(step)) // self._most) for step in range(order.steps_per_epoch))


class BatchMemoryManager(_OfOpacus):  # type: ignore[misc]
    """Opacus' BatchMemoryManager for the loader of `make_private`, with any number of worker processes: batches come in parts of at most
    `max_physical_batch_size` examples, and the optimizer takes the step with the last part.

    Opacus' own works too, without worker processes: with them it draws batches before they are used, and the step is refused then.
    """

    def __enter__(self) -> _InParts:
        from ._optimizer import CorrelatedOptimizer

        if not isinstance(self.data_loader, FixedOrderLoader) or not isinstance(self.optimizer, CorrelatedOptimizer):
            got = f"{type(self.data_loader).__name__} and {type(self.optimizer).__name__}"
            raise ValueError(f"data_loader and optimizer must be those that antiphon.opacus' make_private returned, got {got}")
        return _InParts(self.data_loader, whole("max_physical_batch_size", self.max_physical_batch_size), self.optimizer)
