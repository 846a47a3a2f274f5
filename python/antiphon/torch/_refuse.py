"""Models, optimizers and data for which the privacy statement would not hold, or nothing would work: refused with the reason."""

from __future__ import annotations

import hashlib
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm
from torch.nn.parameter import is_lazy

from .. import PrivacyError


def refuse_modules(model: nn.Module) -> None:
    """Modules that mix examples, or keep statistics of them that no noise protects. In eval mode they do neither."""
    for name, module in model.named_modules():
        kind = type(module).__name__
        if isinstance(module, _BatchNorm) and module.training:
            raise ValueError(
                f"model must have no module that mixes the examples of a batch, got {kind} at {name or 'its root'}: its statistics "
                "make the gradient of one example depend on all others. Use GroupNorm or LayerNorm instead, or put it into eval "
                "mode (statistics from public data)"
            )
        if isinstance(module, _InstanceNorm) and module.training and module.track_running_stats:
            raise ValueError(
                f"model must keep no statistics of private examples, got {kind} with track_running_stats at {name or 'its root'}: "
                "no noise protects them. Pass track_running_stats=False"
            )
        if isinstance(module, (nn.Embedding, nn.EmbeddingBag)) and module.max_norm is not None:
            raise ValueError(
                f"model must not write to its weights while it computes, got {kind} with max_norm at {name or 'its root'}: no noise protects "
                "which rows it changes. Pass max_norm=None"
            )
        if isinstance(module, (nn.Embedding, nn.EmbeddingBag)) and module.sparse:
            raise ValueError(f"model must have dense gradients, got {kind} with sparse=True at {name}: noise is added to every coordinate")
        if isinstance(module, nn.DataParallel) or kind in ("DistributedDataParallel", "FullyShardedDataParallel"):
            raise ValueError(
                f"model must be the module itself, got {kind} at {name or 'its root'}: per-example gradients are taken by torch.func, and added "
                "up by antiphon. For several processes call torch.distributed.init_process_group, then make_private in every process with the "
                "module itself, with a DistributedDataParallel, or with a module on which torch.distributed.fsdp.fully_shard was called"
            )


def trainable_of(model: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that are trained, in the order of the coordinates. One that has two names is there once."""
    if not isinstance(model, nn.Module):
        raise ValueError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    refuse_modules(model)
    parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
    if not parameters:
        raise ValueError("model must have at least one parameter that requires a gradient, got none")
    for name, parameter in parameters.items():
        if is_lazy(parameter):
            raise ValueError(f"model must be initialized, got the lazy parameter {name}: run it once on a public input")
        if not parameter.is_floating_point():
            raise ValueError(f"parameters must be real floating-point numbers, got {parameter.dtype} at {name}")
    devices = {parameter.device for parameter in parameters.values()}
    if len(devices) > 1:
        raise ValueError(f"model must be on one device, got {', '.join(sorted(map(str, devices)))}")
    if devices.pop().type == "mps":
        raise ValueError("model must be on a device with double precision, in which gradients are added up, got mps: move it to the CPU")
    return parameters


class Memory:
    """All tensors that a model holds: parameters, buffers and any other attributes of its modules, each with a counter of changes.

    With `values` also what is in them: writes through `.data` are not counted. Under vmap these raise an error by themselves.
    `whole` are parameters that are put in the place of those of the model.
    """

    def __init__(self, model: nn.Module, *, values: bool, whole: dict[str, torch.Tensor] | None = None) -> None:
        self._model, self._values, self._whole = model, values, whole or {}
        self._found = self._look()

    def refuse_changes(self) -> None:
        """What a model keeps of the examples that it saw: no noise protects it, and it would reach later examples."""
        now = self._look()
        for path in self._found.keys() | now.keys():
            if path not in self._found or path not in now or not _same(self._found[path], now[path]):
                raise PrivacyError(
                    f"the model kept something of the examples that it saw, at {path.strip('.')}: no noise protects it, and it would reach "
                    "the gradients of later examples. Such a model cannot be trained privately; remove what it keeps"
                )

    def _look(self) -> dict[str, tuple[torch.Tensor, int, torch.Tensor | None]]:
        found: dict[str, tuple[torch.Tensor, int, torch.Tensor | None]] = {}

        def look(path: str, thing: Any, depth: int) -> None:
            if isinstance(thing, torch.Tensor):
                # Of a tensor whose parts lie in several processes, the part that is here: nothing waits for the others.
                here = thing.to_local() if self._values and hasattr(thing, "to_local") else thing
                found[path] = (thing, thing._version, here.detach().clone() if self._values else None)
            elif depth and isinstance(thing, dict):
                for name, part in thing.items():
                    look(f"{path}.{name}", part, depth - 1)
            elif depth and isinstance(thing, (list, tuple, set)):
                for number, part in enumerate(thing):
                    look(f"{path}.{number}", part, depth - 1)

        for name, module in self._model.named_modules():
            for attribute, thing in vars(module).items():
                if attribute != "_modules":
                    path = f"{name}.{attribute}".removesuffix("._buffers").removesuffix("._parameters")
                    look(path, thing, 3)
        for name, tensor in self._whole.items():
            look(f"{name} (whole)", tensor, 0)
        return found


def _same(old: tuple[torch.Tensor, int, torch.Tensor | None], new: tuple[torch.Tensor, int, torch.Tensor | None]) -> bool:
    if old[0] is not new[0] or old[1] != new[1]:
        return False
    a, b = old[2], new[2]
    if a is None or b is None:
        return True
    return a.shape == b.shape and bool(((a == b) | ((a != a) & (b != b))).all())


def refuse_optimizer(optimizer: torch.optim.Optimizer, parameters: dict[str, nn.Parameter]) -> None:
    """Optimizers that want more than one gradient per step, or that train something else."""
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise ValueError(f"optimizer must be a torch.optim.Optimizer, got {type(optimizer).__name__}")
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ValueError("optimizer must take one gradient per step, got LBFGS: it evaluates the loss several times per step")
    there = {id(p) for group in optimizer.param_groups for p in group["params"]}
    missing = [name for name, p in parameters.items() if id(p) not in there]
    if missing:
        raise ValueError(f"optimizer must have all trainable parameters of the model, got one without {', '.join(missing[:5])}")
    ours = {id(p) for p in parameters.values()}
    others = sum(id(p) not in ours and p.requires_grad for group in optimizer.param_groups for p in group["params"])
    if others:
        raise ValueError(f"optimizer must have no trainable parameters outside the model, got {others}: their gradients get no noise")


def refuse_used(optimizer: torch.optim.Optimizer) -> None:
    """What an optimizer remembers of gradients without noise."""
    # Some have a state from the start, with no step in it.
    used = [one for one in optimizer.state.values() if any(part is not None for part in one.values()) and one.get("step", 1) > 0]
    if used:
        raise ValueError(
            f"optimizer must be new, got one with a state of {len(used)} parameters: it remembers gradients that no noise protects. "
            "Make it after any training without privacy; to resume a private run, call load_state_dict"
        )


def refuse_data(dataset: Any) -> None:
    """Loaders that are not ours, data without indices, and examples that are there several times."""
    if isinstance(dataset, torch.utils.data.DataLoader):
        raise ValueError(
            "dataset must be a data set, got a DataLoader: the order of the data decides about privacy, so make_private makes the "
            "loader. To use your own, let it yield the indices of the examples and call step(data, indices=indices)"
        )
    if isinstance(dataset, torch.utils.data.IterableDataset) or not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")):
        raise ValueError(
            f"dataset must have a length and examples by index, got {type(dataset).__name__}: every example must return at its own step "
            "in every epoch"
        )
    if len(dataset) == 0:
        raise ValueError("dataset must have at least one example, got none")
    repeated = isinstance(dataset, torch.utils.data.Subset) and len(set(dataset.indices)) < len(dataset.indices)
    if isinstance(dataset, torch.utils.data.ConcatDataset):
        repeated = len({id(part) for part in dataset.datasets}) < len(dataset.datasets)
    if repeated:
        raise ValueError(
            f"dataset must have every example once, got a {type(dataset).__name__} that repeats some: an example that takes part under "
            "several indices is protected less than the statement says"
        )


def layout_of(parameters: dict[str, nn.Parameter]) -> str:
    """A name for how the coordinates are numbered."""
    lines = [f"{name} {tuple(p.shape)} {p.dtype}" for name, p in parameters.items()]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
