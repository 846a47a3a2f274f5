"""What the privacy statement does not cover, or is not known here: refused with the reason."""

from __future__ import annotations

import math
from typing import Any

import torch
from opacus.grad_sample import AbstractGradSampleModule
from opacus.optimizers import DPOptimizer
from torch import nn
from torch.utils.data import DataLoader, RandomSampler, SequentialSampler

from .. import Clip
from .._arguments import check_norm, whole
from ..torch._refuse import refuse_data

MODES = ("hooks", "functorch", "ew", "ghost")


def refuse_sampling(poisson_sampling: bool, rand_on_empty: bool) -> None:
    """Poisson sampling, which Opacus does by default."""
    if poisson_sampling:
        raise ValueError(
            "poisson_sampling must be False, got True: correlated noise is accounted for examples that return at their own step of every "
            "epoch, and those of sampled batches do not. No amplification by sampling is used here"
        )
    if rand_on_empty:
        raise ValueError("rand_on_empty must be False, got True: no batch of a fixed order is empty")


def refuse_noise(noise_generator: Any) -> None:
    """Noise that is not of the key."""
    if noise_generator is not None:
        raise ValueError(
            "noise_generator must be left out: all noise of a run is made from its key by a cipher. For experiments that are to be repeated pass "
            "key=antiphon.Key.from_seed(seed), which is not private"
        )


def refuse_module(module: Any, grad_sample_mode: str) -> None:
    """Models that are wrapped already, or run in several processes."""
    if grad_sample_mode not in MODES:
        raise ValueError(f"grad_sample_mode must be one of {', '.join(MODES)}, got {grad_sample_mode!r}")
    if not isinstance(module, nn.Module):
        raise ValueError(f"module must be a torch.nn.Module, got {type(module).__name__}")
    if isinstance(module, AbstractGradSampleModule) or hasattr(module, "autograd_grad_sample_hooks"):
        raise ValueError(
            f"module must be the model itself, got {type(module).__name__} with the hooks of an earlier make_private: call "
            "to_standard_module() or cleanup() first, as Opacus documents"
        )
    kinds = {kind.__name__ for kind in type(module).__mro__}
    if kinds & {"DistributedDataParallel", "DifferentiallyPrivateDistributedDataParallel", "FSDPModule", "DataParallel"}:
        raise ValueError(
            f"module must be the model itself, got {type(module).__name__}: training runs in one process here. Opacus adds the noise of "
            "every process before the gradients are added up over processes, and the noise of a run must be added once"
        )


def refuse_precision(parameters: dict[str, nn.Parameter]) -> None:
    """Parameters whose gradients are too coarse to be clipped to a norm."""
    for name, parameter in parameters.items():
        if parameter.dtype not in (torch.float32, torch.float64):
            raise ValueError(f"parameters must be float32 or float64, got {parameter.dtype} at {name}")


def check_optimizer(optimizer: Any) -> None:
    """Optimizers that are private already."""
    if isinstance(optimizer, DPOptimizer):
        raise ValueError(
            f"optimizer must be the optimizer itself, got {type(optimizer).__name__}, which make_private has returned: make a new one for a new run"
        )


def check_loader(data_loader: Any) -> int:
    """The batch size of a loader. Its data are taken, not its order."""
    if not isinstance(data_loader, DataLoader):
        raise ValueError(f"data_loader must be a torch.utils.data.DataLoader, got {type(data_loader).__name__}")
    refuse_data(data_loader.dataset)
    if data_loader.batch_size is None:
        raise ValueError(
            "data_loader must have a batch_size, got one with a batch_sampler, or without batches: the order of the data decides about "
            "privacy, so make_private makes it"
        )
    sampler = data_loader.sampler
    plain = isinstance(sampler, SequentialSampler) or (isinstance(sampler, RandomSampler) and not sampler.replacement)
    if not plain or len(sampler) != len(data_loader.dataset):  # type: ignore[arg-type]
        raise ValueError(
            f"data_loader must give every example once per epoch, got the sampler {type(sampler).__name__}: take a torch.utils.data.Subset "
            "of the data, and leave the sampler out"
        )
    # A loader with few examples may name a larger batch.
    size = min(data_loader.batch_size, len(data_loader.dataset))  # type: ignore[arg-type]
    return whole("batch_size of data_loader", size, Clip.MOST_EXAMPLES)


def check_clipping(clipping: str, max_grad_norm: Any, grad_sample_mode: str, parameters: int) -> tuple[float, list[float] | None]:
    """The clip norm of a whole example, and those of its parts if parameters are clipped one by one."""
    if clipping == "adaptive":
        raise ValueError(
            'clipping must be "flat" or "per_layer", got "adaptive": its clip norm follows the data, and the noise of all steps is made for one clip '
            "norm"
        )
    if clipping == "flat":
        return check_norm("max_grad_norm", max_grad_norm), None
    if clipping != "per_layer":
        raise ValueError(f'clipping must be "flat" or "per_layer", got {clipping!r}')
    if grad_sample_mode == "ghost":
        raise ValueError('clipping must be "flat" for grad_sample_mode="ghost", got "per_layer": Opacus does not have it')
    if not isinstance(max_grad_norm, (list, tuple)) or len(max_grad_norm) != parameters:
        got = f"{len(max_grad_norm)} of them" if isinstance(max_grad_norm, (list, tuple)) else repr(max_grad_norm)
        raise ValueError(f'max_grad_norm must be a list of {parameters} norms, one per trainable parameter, for clipping="per_layer", got {got}')
    norms = [check_norm("max_grad_norm", norm) for norm in max_grad_norm]
    # Rounded up: an example adds at most the root of the sum of squares.
    return math.hypot(*norms) * (1 + 2.0**-50), norms
