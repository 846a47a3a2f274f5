"""What all processes of a run must have in common: compared, or sent by the first of them."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import Sampler

from .. import Key, Mechanism, PrivateRun, Verified, __version__
from .._elsewhere import device_key
from ._order import FixedOrderBatches
from ._placement import Placement, in_parts
from ._ranks import Ranks


class Slices(Sampler[list[int]]):
    """The part of every batch that one of several processes computes: neighbours in the batch, some with one more than others, maybe none.

    Nobody is there twice and nobody is left out, so the batches, and the privacy statement, are those of one process.
    """

    def __init__(self, order: FixedOrderBatches, ranks: Ranks) -> None:
        self._order, self._rank, self._size = order, ranks.rank, ranks.size

    def __iter__(self) -> Iterator[list[int]]:
        for batch in self._order:
            yield batch[self._rank * len(batch) // self._size : (self._rank + 1) * len(batch) // self._size]

    def __len__(self) -> int:
        return len(self._order)


def module_of(model: Any, ranks: Ranks) -> Any:
    """The module in a DistributedDataParallel. What that does in backward() is not used: it averages gradients of batches, and noise needs the
    sum of clipped gradients of examples, which are taken by torch.func and added up here."""
    if not torch.distributed.is_available() or not isinstance(model, nn.parallel.DistributedDataParallel):
        return model
    there = torch.distributed.get_process_group_ranks(model.process_group)
    if sorted(there) != list(range(ranks.size)):
        raise ValueError(
            f"model must be in all {ranks.size} processes of the default group, got a DistributedDataParallel of the ranks {sorted(there)}"
        )
    return model.module


def check_agreement(ranks: Ranks, placement: Placement, optimizer: torch.optim.Optimizer, settings: dict[str, Any]) -> None:
    """Refuses processes that would not train the same model in the same way."""
    if ranks.size == 1:
        return
    if any(kind.__name__ == "ZeroRedundancyOptimizer" for kind in type(optimizer).__mro__):
        reason = "optimizer must hold the state of all parameters in this process, got ZeroRedundancyOptimizer: shard the model by fully_shard"
        raise ValueError(f"{reason} instead")
    groups = [{name: str(value) for name, value in group.items() if name != "params"} for group in optimizer.param_groups]
    ranks.agree(
        "what is the same everywhere",
        {
            "the version": f"antiphon {__version__}, torch {torch.__version__}",
            **placement.describe(),
            **settings,
            "optimizer": (type(optimizer).__name__, [len(group["params"]) for group in optimizer.param_groups], groups),
            "the digest of parameters and buffers (seed every process alike before the model is made, or load the same weights)": digest(
                placement.model
            ),
        },
    )


def digest(model: nn.Module) -> str:
    """Of all tensors of a model that every process has as a whole."""
    hashed = hashlib.sha256()
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if not in_parts(tensor):
            hashed.update(f"{name} {tuple(tensor.shape)} {tensor.dtype} ".encode())
            hashed.update(tensor.detach().cpu().reshape(-1).contiguous().view(torch.uint8).numpy().tobytes())
    return hashed.hexdigest()


def mechanism_of_all(ranks: Ranks, found: Callable[[], tuple[str, Mechanism | Verified]]) -> tuple[str, Mechanism | Verified]:
    """The mechanism that the first process makes or reads, and its name. The others get the file, which their runs verify like any other."""
    if ranks.size == 1:
        return found()
    name, content = None, None
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "mechanism.safetensors"
        if ranks.rank == 0:
            name, made = found()
            (made.mechanism if isinstance(made, Verified) else made).save(file)
            content = file.read_bytes()
        name = ranks.exchange("the name of the mechanism", name)[0]
        content = ranks.from_first("the mechanism", content)
        if ranks.rank:
            file.write_bytes(content)
            made = Mechanism.load(file)
    return name, made


def key_of_all(ranks: Ranks, key: Key | str | os.PathLike[str], *, on_device: bool) -> Key | str | os.PathLike[str]:
    """The key of the first process, whose file records what it is used for; for noise on the device one of ChaCha20."""
    secret = None
    if ranks.rank == 0:
        if on_device:
            key = device_key(key)
        if ranks.size == 1:
            return key
        if not isinstance(key, Key):
            key = Key.load(key) if Path(key).exists() else Key.fresh(key)
        secret = key._shared()
    # Only after rank 0 is known to have one: nobody else reads or makes a file.
    secret = ranks.exchange("the key", secret)[0]
    return key if ranks.rank == 0 else Key._from_shared(secret)


def check_runs(ranks: Ranks, run: PrivateRun) -> None:
    """Refuses processes with other noise, or at another step. The seal of a state is of all that is in it, by the key."""
    if ranks.size > 1:
        state = {name: value for name, value in run.state_dict().items() if name != "participation"}
        ranks.agree("the run", {f"{name} of the run": value for name, value in state.items()})


def seed_apart(ranks: Ranks) -> None:
    """Gives every process random numbers of its own where all were seeded alike, as they must be to make the same model: otherwise dropout would
    take the same numbers for different examples. Noise does not come from there."""
    seeds = ranks.exchange("seeds", torch.initial_seed())
    if ranks.rank and len(set(seeds)) < ranks.size:
        own = hashlib.sha256(f"antiphon rank {ranks.rank} {seeds[ranks.rank]}".encode()).digest()
        torch.manual_seed(int.from_bytes(own[:8], "little") >> 1)
