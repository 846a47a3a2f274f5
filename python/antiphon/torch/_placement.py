"""Which coordinates of the model this process adds noise to, where their gradients go, and whole parameters to compute with.

| model | noise of a process | gradients |
|---|---|---|
| one process | all coordinates | as they are |
| replicated in several processes | an equal share of the coordinates | the shares of all, put together |
| sharded by `fully_shard` | the coordinates of its shards | of its shards |

A coordinate has the same number, and so the same noise, in all of them: parameters in the order of `named_parameters()`, one that has two
names once, each row by row.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeGuard

import torch
from torch import nn

from ._ranks import Ranks

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor


def in_parts(tensor: object) -> TypeGuard[DTensor]:
    """Whether a tensor is one of which every process holds a part. Where nobody imported them, which takes long, there are none."""
    kind = getattr(sys.modules.get("torch.distributed.tensor"), "DTensor", None)
    return kind is not None and isinstance(tensor, kind)


class Placement:
    """One process, which holds all coordinates."""

    def __init__(self, model: nn.Module, parameters: dict[str, nn.Parameter], ranks: Ranks) -> None:
        self.model, self.ranks = model, ranks
        self._parameters = list(parameters.values())
        self._sizes = [parameter.numel() for parameter in self._parameters]
        #: Coordinates that this process adds noise to; None for all.
        self.ranges: list[tuple[int, int]] | None = None

    def own(self, total: torch.Tensor) -> torch.Tensor:
        """The sums over the examples of all processes, for the coordinates that this process adds noise to."""
        return total

    def gradients(self, own: torch.Tensor) -> list[torch.Tensor]:
        """A gradient for every trainable parameter, from what `own` gave and noise was added to."""
        return [
            part.reshape(parameter.shape).to(device=parameter.device, dtype=parameter.dtype)
            for parameter, part in zip(self._parameters, torch.split(own, self._sizes))
        ]

    def whole(self) -> dict[str, torch.Tensor] | None:
        """All parameters by name, where the model itself does not hold them. All processes must call it."""
        return None

    def settle(self) -> None:
        """Puts a model back into the form that it had when training began, after it was used for something else."""

    @contextmanager
    def computing(self) -> Iterator[None]:
        """While gradients are computed."""
        yield

    def describe(self) -> dict[str, Any]:
        """What must be the same in all processes."""
        return {"the kind of model": type(self).__name__.lower()}


class Replicated(Placement):
    """The whole model in each of several processes."""

    def __init__(self, model: nn.Module, parameters: dict[str, nn.Parameter], ranks: Ranks) -> None:
        super().__init__(model, parameters, ranks)
        self._all = sum(self._sizes)
        self._share = -(-self._all // ranks.size)
        first = min(ranks.rank * self._share, self._all)
        self._mine = slice(first, min(first + self._share, self._all))
        self.ranges = [(self._mine.start, self._mine.stop)]

    def own(self, total: torch.Tensor) -> torch.Tensor:
        # Contributions are on a grid on which float64 adds exactly, so neither the order nor the number of processes matters.
        self.ranks.add_up(total)
        return total[self._mine].clone()

    def gradients(self, own: torch.Tensor) -> list[torch.Tensor]:
        share = own.new_zeros(self._share)
        share[: len(own)] = own
        return super().gradients(self.ranks.joined(share)[: self._all])


class Sharded(Placement):
    """Parameters that are DTensors: every process holds a part of each."""

    def __init__(self, model: nn.Module, parameters: dict[str, nn.Parameter], ranks: Ranks) -> None:
        super().__init__(model, parameters, ranks)
        self._sharding = [module for module in model.modules() if _is_fsdp(module)]
        self._boxes = [_box(name, parameter, ranks) for name, parameter in parameters.items()]
        firsts = itertools.accumulate(self._sizes, initial=0)
        found = [_ranges(first, p.shape, box) for first, p, box in zip(firsts, self._parameters, self._boxes)]
        self.ranges = [one for ranges in found for one in ranges]
        self._lengths = [math.prod(part.stop - part.start for part in box) for box in self._boxes]
        for name, parameter in model.named_parameters():
            if in_parts(parameter) and not parameter.requires_grad:
                _box(name, parameter, ranks)

    def own(self, total: torch.Tensor) -> torch.Tensor:
        self.ranks.add_up(total)
        whole = zip(self._parameters, self._boxes, torch.split(total, self._sizes))
        return torch.cat([part.reshape(parameter.shape)[box].reshape(-1) for parameter, box, part in whole])

    def gradients(self, own: torch.Tensor) -> list[torch.Tensor]:
        made: list[torch.Tensor] = []
        for parameter, box, part in zip(self._parameters, self._boxes, torch.split(own, self._lengths)):
            local = part.reshape([side.stop - side.start for side in box]).to(device=parameter.device, dtype=parameter.dtype)
            if in_parts(parameter):
                from torch.distributed.tensor import DTensor

                local = DTensor.from_local(
                    local, parameter.device_mesh, parameter.placements, run_check=False, shape=parameter.shape, stride=parameter.stride()
                )
            made.append(local)
        return made

    def whole(self) -> dict[str, torch.Tensor]:
        self.ranks.exchange("begin")
        with self.ranks.speaking():
            return {
                name: parameter.full_tensor().detach() if in_parts(parameter) else parameter.detach()
                for name, parameter in self.model.named_parameters()
            }

    def settle(self) -> None:
        # The forward pass of an evaluation leaves whole parameters in some modules.
        for module in self._sharding:
            module.reshard()  # type: ignore[operator]

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Without the hooks of fully_shard: parameters are whole already, and gradients are not taken by backward()."""
        hooks = [hooks for module in self._sharding for hooks in (module._forward_pre_hooks, module._forward_hooks)]
        before = [dict(one) for one in hooks]
        try:
            for one in hooks:
                for number, hook in list(one.items()):
                    if _of_fsdp(hook):
                        del one[number]
            yield
        finally:
            for one, old in zip(hooks, before):
                one.clear()
                one.update(old)

    def describe(self) -> dict[str, Any]:
        placed = [(str(p.placements), p.device_mesh.mesh.tolist()) if in_parts(p) else "whole" for p in self._parameters]
        return {**super().describe(), "the placements of parameters": placed}


def placement_of(model: nn.Module, parameters: dict[str, nn.Parameter], ranks: Ranks) -> Placement:
    """How a model lies in the processes that train it."""
    _refuse_hooks(model)
    _refuse_policies(model)
    if any(in_parts(parameter) for parameter in model.parameters()) or any(map(_is_fsdp, model.modules())):
        return Sharded(model, parameters, ranks)
    return Replicated(model, parameters, ranks) if ranks.size > 1 else Placement(model, parameters, ranks)


def _is_fsdp(module: nn.Module) -> bool:
    """Whether fully_shard was called on it, which mixes a class into that of the module."""
    return any(kind.__name__ == "FSDPModule" for kind in type(module).__mro__)


def _of_fsdp(hook: Any) -> bool:
    return str(getattr(hook, "__module__", "")).startswith("torch.distributed.fsdp")


def _refuse_hooks(model: nn.Module) -> None:
    """Modules that do something else between processes while they compute."""
    for name, module in model.named_modules():
        for hook in [*module._forward_pre_hooks.values(), *module._forward_hooks.values()]:
            if str(getattr(hook, "__module__", "")).startswith("torch.distributed.") and not _of_fsdp(hook):
                raise ValueError(
                    f"model must be replicated, or sharded by fully_shard alone, got hooks of {hook.__module__} on {type(module).__name__} at "
                    f"{name or 'its root'}: the gradients of examples are taken of whole parameters in each process, so tensor parallelism and "
                    "the like are not supported"
                )


def _refuse_policies(model: nn.Module) -> None:
    """What fully_shard was told and would not be done here."""
    for name, module in model.named_modules():
        if not _is_fsdp(module):
            continue
        state: Any = module._get_fsdp_state()
        name = name or "its root"
        policy = state._mp_policy
        if any(getattr(policy, dtype, None) is not None for dtype in ("param_dtype", "reduce_dtype", "output_dtype")):
            raise ValueError(
                f"model must be sharded without a mixed precision policy, got {policy} at {name}: per-example gradients are taken of whole "
                "parameters as they are, so the policy would not be followed. Convert the model, or use torch.autocast in compute_loss"
            )
        groups = getattr(state, "_fsdp_param_groups", None) or [group for group in [getattr(state, "_fsdp_param_group", None)] if group]
        if any(type(group.offload_policy).__name__ == "CPUOffloadPolicy" for group in groups):
            raise ValueError(
                f"model must be sharded without offloading to the CPU, got CPUOffloadPolicy at {name}: all parameters are on the device "
                "during a step"
            )
        if not any(map(_of_fsdp, module._forward_pre_hooks.values())) or not any(map(_of_fsdp, module._forward_hooks.values())):
            raise ValueError(
                f"model must be sharded by fully_shard of a PyTorch whose hooks are known, got {torch.__version__} with none at {name}"
            )


def _box(name: str, parameter: torch.Tensor, ranks: Ranks) -> tuple[slice, ...]:
    """The part of a parameter that this process holds: all that it holds of each dimension."""
    starts, sizes = [0] * parameter.ndim, list(parameter.shape)
    if in_parts(parameter):
        from torch.distributed.tensor import Replicate, Shard

        mesh = parameter.device_mesh
        there = sorted(mesh.mesh.flatten().tolist())
        place = mesh.get_coordinate()
        if there != list(range(ranks.size)) or place is None:
            raise ValueError(
                f"model must be sharded over all {ranks.size} processes of the default group, got a mesh of the ranks {there} for {name}: "
                "the sums of gradients are added up over all processes"
            )
        for kind, parts, at in zip(parameter.placements, mesh.mesh.shape, place):
            if type(kind) is Shard:
                # As torch.chunk divides.
                side = kind.dim % parameter.ndim
                share = -(-sizes[side] // parts)
                first = min(at * share, sizes[side])
                starts[side] += first
                sizes[side] = min(share, sizes[side] - first)
            elif type(kind) is not Replicate:
                raise ValueError(
                    f"parameters must be placed by Shard or Replicate, got {kind} for {name}: the coordinates of this process are not known. "
                    "Tensor parallelism together with fully_shard is not supported"
                )
        if tuple(sizes) != tuple(parameter.to_local().shape):
            local = tuple(parameter.to_local().shape)
            raise ValueError(f"parameters must be sharded as torch.chunk divides, got {local} and not {tuple(sizes)} for {name}")
    return tuple(slice(start, start + size) for start, size in zip(starts, sizes))


def _ranges(first: int, shape: Sequence[int], box: tuple[slice, ...]) -> list[tuple[int, int]]:
    """The coordinates of a box in a tensor whose first coordinate is given, in the order of the elements of the box."""
    sizes = [part.stop - part.start for part in box]
    if 0 in sizes:
        return []
    whole = len(shape)  # from here on, all of a dimension is there
    while whole and sizes[whole - 1] == shape[whole - 1]:
        whole -= 1
    outer = max(whole - 1, 0)
    strides = [math.prod(shape[side + 1 :]) for side in range(len(shape))]
    inner = sum(part.start * stride for part, stride in zip(box[outer:], strides[outer:]))
    length = math.prod(sizes[outer:])
    found: list[tuple[int, int]] = []
    for place in itertools.product(*(range(part.start, part.stop) for part in box[:outer])):
        start = first + inner + sum(at * stride for at, stride in zip(place, strides))
        if found and found[-1][1] == start:
            found[-1] = (found[-1][0], start + length)
        else:
            found.append((start, start + length))
    return found
