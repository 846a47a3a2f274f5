"""States of runs in several processes: a folder, whole or not at all, that any number of processes can go on from.

    folder/current              the name of the state that counts: replaced at once, when the state is complete
    folder/step-12-x7c2/        parameters, buffers and what the optimizer holds, by torch.distributed.checkpoint
    folder/step-12-x7c2/rest    everything else, of all processes

There is no key in it. Every process must see the folder: several machines need a file system in common.
"""

from __future__ import annotations

import shutil
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from .._whole import write_whole
from ._agreement import digest
from ._placement import in_parts
from ._ranks import Ranks

_CURRENT, _REST = "current", "rest"


def save_folder(folder: Path, ranks: Ranks, model: nn.Module, optimizer: torch.optim.Optimizer, rest: dict[str, Any]) -> None:
    """Writes the state of all processes. What was there before counts until all of them are done."""
    ranks.agree("the state of a replica", {"the digest of parameters and buffers": digest(model)})
    name = None
    if ranks.rank == 0:
        if folder.exists() and not folder.is_dir():
            raise ValueError(f"path must be a folder for the state of {ranks.size} processes, got the file {folder}")
        folder.mkdir(parents=True, exist_ok=True)
        name = Path(tempfile.mkdtemp(prefix=f"step-{rest['run']['step']}-", dir=folder)).name
    made = folder / str(ranks.exchange("the folder of the state", name)[0])
    if not made.is_dir():
        raise FileNotFoundError(f"rank {ranks.rank} does not see {made}, which rank 0 made: all processes need the same file system")
    everywhere = ranks.exchange("random numbers", torch.get_rng_state())
    tensors, others = _tensors(model, optimizer)
    ranks.exchange("tensors")
    with _checkpointing(ranks):
        save(tensors, storage_writer=FileSystemWriter(made, overwrite=True), process_group=ranks.group)
    if ranks.rank == 0:
        write_whole(made / _REST, lambda file: torch.save({**rest, "others": others, "random": everywhere}, file))
    ranks.exchange("the state is written")
    if ranks.rank == 0:
        write_whole(folder / _CURRENT, lambda file: file.write(made.name.encode()))


def clean(folder: Path) -> None:
    """Removes states that no longer count, and what is left of those that never did."""
    current = (folder / _CURRENT).read_text()
    for old in folder.glob("step-*"):
        if old.name != current:
            shutil.rmtree(old, ignore_errors=True)
    for left in folder.glob(".current.*"):
        left.unlink(missing_ok=True)


def read_rest(folder: Path, ranks: Ranks) -> tuple[Path, dict[str, Any]]:
    """Where the state is that counts, and all of it but the tensors."""
    if not (folder / _CURRENT).is_file():
        raise FileNotFoundError(f"rank {ranks.rank} finds no state in {folder}: save() writes one, and all processes need the same file system")
    made = folder / (folder / _CURRENT).read_text()
    ranks.agree("the state that counts", {"the state in the folder": made.name})
    rest = torch.load(made / _REST, map_location="cpu", weights_only=True)
    if not isinstance(rest, dict):
        raise ValueError(f"{made / _REST} must hold a state that save() wrote")
    return made, rest


def load_tensors(made: Path, ranks: Ranks, model: nn.Module, optimizer: torch.optim.Optimizer, others: dict[str, Any]) -> None:
    """Loads parameters, buffers and what the optimizer holds into this process's parts of them, however they were divided when they were saved."""
    found = FileSystemReader(made).read_metadata().state_dict_metadata
    named = _named(model)
    state: dict[str, dict[str, Any]] = {name: dict(parts) for name, parts in others["optimizer"].items()}
    tensors: dict[str, Any] = {}
    for key, about in found.items():
        if key.startswith("optimizer/") and isinstance(about, TensorStorageMetadata):
            name, part = key.removeprefix("optimizer/").rsplit("/", 1)
            if name not in named:
                raise ValueError(f"the state must be of the same model, got one with {name}")
            tensors[key] = state.setdefault(name, {})[part] = _room(named[name], part, about)
    inside = model.state_dict()
    tensors.update({f"model/{name}": value for name, value in inside.items() if isinstance(value, torch.Tensor)})
    if wrong := sorted(set(tensors) ^ set(found)):
        raise ValueError(f"the state must be of the same model, got one that differs in {', '.join(wrong[:5])}")
    ranks.exchange("tensors")
    with _checkpointing(ranks):
        load(tensors, storage_reader=FileSystemReader(made), process_group=ranks.group)
    model.load_state_dict({**inside, **others["model"]})
    numbers = _numbers(optimizer)
    by_number = {numbers[id(named[name])]: parts for name, parts in state.items()}
    optimizer.load_state_dict({"state": by_number, "param_groups": others["groups"]})


def _tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[dict[str, Any], dict[str, Any]]:
    """All tensors by name, and all else that model and optimizer hold.

    Not by torch.distributed.checkpoint.state_dict: for an optimizer that is new that takes a step without gradients, which moves the counters of
    Adam and leaves weight decay in the momentum of SGD.
    """
    inside = model.state_dict()
    tensors = {f"model/{name}": value for name, value in inside.items() if isinstance(value, torch.Tensor)}
    others: dict[str, Any] = {
        "model": {name: value for name, value in inside.items() if not isinstance(value, torch.Tensor)},
        "optimizer": {},
        "groups": optimizer.state_dict()["param_groups"],
    }
    names = {id(parameter): name for name, parameter in _named(model).items()}
    for parameter, parts in optimizer.state.items():
        name = names.get(id(parameter))
        if name is None:
            continue  # a parameter outside the model, which has no gradients
        for part, value in parts.items():
            if in_parts(value) and value.shape != parameter.shape:
                raise ValueError(
                    "optimizer must hold tensors of the shape of their parameters to be saved from several processes, got "
                    f"{part} of {name} with {tuple(value.shape)} for {tuple(parameter.shape)}"
                )
            if isinstance(value, torch.Tensor):
                tensors[f"optimizer/{name}/{part}"] = value
            else:
                others["optimizer"].setdefault(name, {})[part] = value
    return tensors, others


@contextmanager
def _checkpointing(ranks: Ranks) -> Iterator[None]:
    """Errors of torch.distributed.checkpoint, which raises in all processes what failed in one, as errors that a program can handle."""
    try:
        with ranks.speaking(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "torch.distributed is disabled", UserWarning)  # one process is what is wanted then
            yield
    except CheckpointException as error:
        failed = "; ".join(f"rank {rank}: {what[0] if isinstance(what, tuple) else what}" for rank, what in error.failures.items())
        raise OSError(f"torch.distributed.checkpoint failed ({failed})") from error


def _room(parameter: nn.Parameter, part: str, about: TensorStorageMetadata) -> torch.Tensor:
    """Memory for what an optimizer holds of a parameter: divided as the parameter is, if it has its shape."""
    if part != "step" and about.size == parameter.shape:
        return torch.zeros_like(parameter, dtype=about.properties.dtype, requires_grad=False)
    return torch.zeros(about.size, dtype=about.properties.dtype, device="cpu" if part == "step" else parameter.device)


def _named(model: nn.Module) -> dict[str, nn.Parameter]:
    return dict(model.named_parameters())


def _numbers(optimizer: torch.optim.Optimizer) -> dict[int, int]:
    """The numbers that an optimizer gives to parameters in its state_dict()."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    return {id(parameter): number for number, parameter in enumerate(parameters)}
