"""`make_private`: all that is decided, compared and refused before the first step."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader

from .. import Clip, Key, Mechanism, PrivateRun, Verified
from .._arguments import check_budget, check_norm, whole
from .._choice import NAMES, mechanism_for
from .._elsewhere import refuse_mechanism
from .._progress import Progress
from ._agreement import Slices, check_agreement, check_runs, key_of_all, mechanism_of_all, module_of, seed_apart
from ._device import DeviceRows
from ._gradients import PerExampleGradients, of_pairs
from ._order import Collate, FixedOrderBatches, WithIndices
from ._placement import placement_of
from ._ranks import all_together, processes
from ._refuse import layout_of, refuse_data, refuse_optimizer, refuse_used, trainable_of
from ._training import PrivateTraining


@all_together("make_private")
def make_private(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    dataset: Any,
    loss_fn: Callable[[Any, Any], torch.Tensor] | None = None,
    *,
    batch_size: int,
    epochs: int,
    delta: float,
    max_grad_norm: float,
    key: Key | str | os.PathLike[str],
    epsilon: float | None = None,
    noise_multiplier: float | None = None,
    mechanism: str | os.PathLike[str] | Mechanism | Verified = "optimal",
    stamps: int = 1,
    in_workload: bool = False,
    learning_rates: Sequence[float] | None = None,
    physical_batch_size: int | None = None,
    compute_loss: Callable[[nn.Module, Any], torch.Tensor] | None = None,
    per_example: str = "vmap",
    shuffle_seed: int = 0,
    adjacency: str = "zero-out",
    log: str | os.PathLike[str] | None = None,
    noise: str = "host",
    noise_memory: int = 1 << 30,
    num_workers: int = 0,
    collate_fn: Callable[[list[Any]], Any] | None = None,
    progress: Progress = None,
) -> PrivateTraining:
    """Makes the training of a model differentially private, with noise that is correlated across steps.

    model, optimizer     any torch.nn.Module without modules that mix examples, and any torch.optim optimizer that takes one
                         gradient per step. Neither is wrapped or changed
    dataset              a data set with a length and examples by index. What it gives for an index must come from one example alone, and
                         every example must be there once: no oversampling, no mixing of examples
    loss_fn              loss_fn(output, target), for a data set of (input, target). For any other: compute_loss(model, batch)
    batch_size, epochs   the data are shuffled once (`shuffle_seed`) and come in the same batches in every epoch. Sums are
                         divided by batch_size
    epsilon, delta       the privacy of the whole run; or noise_multiplier and delta. Choose delta well below one over the
                         number of examples
    max_grad_norm        the gradient of every example, over all parameters together, is clipped to this norm
    key                  a file for the key of the noise: made with a fresh key, or read to resume a run. Or a Key
    mechanism            "optimal", another name that `antiphon.make` knows (with `stamps`), a Mechanism, or a mechanism file. For
                         thousands of steps "comb-blt" takes far less time: the optimum draws half as many normals as there
                         are steps for each number of noise
    in_workload          optimize the noise for the optimizer's momentum (torch.optim.SGD) and for `learning_rates`, one per
                         step, of which only the ratios matter. Otherwise both are post-processing. The privacy is the same
    physical_batch_size  examples whose gradients are in memory at a time (default: about 36 MiB of gradients)
    per_example          "vmap" or, for modules that torch.func.vmap cannot handle, "loop"
    log                  a file for who took part when, for antiphon.audit. Keep it as private as the data
    noise                where it is made: "host", or "device", on the device of the model by PyTorch operations with the same bits, so that sum and noise
                         never leave it. "device" needs the mechanism comb-blt, blt or identity and a key of ChaCha20, which a new file gets; the device is
                         compared with the host first, and refused if a bit differs. See DeviceRows
    noise_memory         bytes for noise on the host while training
    num_workers          of the DataLoader
    collate_fn           makes a batch of one example, for data that PyTorch's default_collate cannot put together. It sees one example at
                         a time: pad to a fixed length

    All epochs come in one loop. For what happens once per epoch: `if private.run.step % private.order.steps_per_epoch == 0`.

    Several processes train one model together after torch.distributed.init_process_group: all of them call this, and every method of
    what it returns, in the same way. The model is the module itself (or in a DistributedDataParallel) with the same weights in all, or a
    module on which torch.distributed.fsdp.fully_shard was called over all of them. Every process gets its part of every batch from its
    loader; batches and privacy are those of one process, and so is the noise, to the last bit. `key` and `mechanism` are read by rank 0,
    which sends them to the others, and sums without noise go between all: the network between the processes must be trusted. The log is
    written by rank 0. Clipping needs the whole gradient of an example: during a step every process has all parameters of a sharded model
    in memory, and the gradients of physical_batch_size examples; between steps its shards. It always has a sum of one float64 per
    coordinate. Processes that are seeded alike, as they must be to make the same model, get random numbers of their own here, for dropout.
    """
    ranks = processes()
    model = module_of(model, ranks)
    refuse_data(dataset)
    order = FixedOrderBatches(len(dataset), batch_size, epochs, seed=whole("shuffle_seed", shuffle_seed, (1 << 63) - 1, least=0))
    if order.batch_size > Clip.MOST_EXAMPLES:
        raise ValueError(f"batch_size must be in 1..={Clip.MOST_EXAMPLES}, got {batch_size}")
    if physical_batch_size is not None:
        physical_batch_size = whole("physical_batch_size", physical_batch_size)
    noise_memory = whole("noise_memory", noise_memory, (1 << 63) - 1)
    max_grad_norm = check_norm("max_grad_norm", max_grad_norm)
    for name, function in (("loss_fn", loss_fn), ("compute_loss", compute_loss), ("collate_fn", collate_fn)):
        if function is not None and not callable(function):
            raise ValueError(f"{name} must be a function, got {function!r}")
    parameters = trainable_of(model)
    refuse_optimizer(optimizer, parameters)
    refuse_used(optimizer)
    if (loss_fn is None) == (compute_loss is None):
        raise ValueError(f"loss_fn or compute_loss must be given, one of them, got {'neither' if loss_fn is None else 'both'}")
    if compute_loss is None:
        assert loss_fn is not None
        compute_loss = of_pairs(loss_fn)
    params = sum(parameter.numel() for parameter in parameters.values())
    clip = Clip(max_grad_norm, params=params)
    gradients = PerExampleGradients(model, compute_loss, physical_batch_size=physical_batch_size, method=per_example)
    # The budget before the work of the optimizer: a wrong epsilon is found at once.
    check_budget(epsilon, noise_multiplier, delta)
    if noise not in ("host", "device"):
        raise ValueError(f'noise must be "host" or "device", got {noise!r}')
    if noise == "device":
        refuse_mechanism(mechanism)
    momentum = (lambda: momentum_of(optimizer)) if in_workload else None
    placement = placement_of(model, parameters, ranks)
    made_here = mechanism if mechanism in NAMES else "a mechanism that exists"
    settings = {
        "the layout of parameters": layout_of(parameters),
        "the order of the data": order.state_dict(),
        "the privacy": (epsilon, noise_multiplier, delta, max_grad_norm, adjacency),
        "the mechanism": (made_here, stamps, in_workload, None if learning_rates is None else list(learning_rates)),
        "noise": noise,
        "per_example and physical_batch_size": (per_example, gradients.physical_batch_size),
    }
    check_agreement(ranks, placement, optimizer, settings)
    name, made = mechanism_of_all(
        ranks,
        lambda: mechanism_for(order, mechanism, momentum=momentum, learning_rates=learning_rates, stamps=stamps, progress=progress),
    )
    run = PrivateRun(
        made,
        epsilon=epsilon,
        noise_multiplier=noise_multiplier,
        delta=delta,
        clip_norm=max_grad_norm,
        params=params,
        key=key_of_all(ranks, key, on_device=noise == "device"),
        units=order.examples,
        adjacency=adjacency,
        ranges=placement.ranges,
        layout=layout_of(parameters),
        memory=noise_memory,
        log=log if ranks.rank == 0 else None,
    )
    check_runs(ranks, run)
    if mechanism not in NAMES:
        run.rehearse(order.batch)  # refused now, not in the middle of the run
    loader = DataLoader(
        WithIndices(dataset),
        batch_sampler=order if ranks.size == 1 else Slices(order, ranks),
        num_workers=num_workers,
        collate_fn=Collate(collate_fn),
        # Of its own, so that making an iterator takes no number from the generator that a model draws from.
        generator=torch.Generator().manual_seed(shuffle_seed),
    )
    seed_apart(ranks)
    rows = DeviceRows(run, next(iter(parameters.values())).device) if noise == "device" else None
    return PrivateTraining(model, optimizer, run, order, loader, gradients, clip, name, placement, rows)


def momentum_of(optimizer: torch.optim.Optimizer) -> float:
    if not isinstance(optimizer, torch.optim.SGD):
        raise ValueError(f"optimizer must be torch.optim.SGD for in_workload=True, whose steps are linear in the gradients, got {type(optimizer).__name__}")
    found = {(group["momentum"], group["dampening"], group["nesterov"]) for group in optimizer.param_groups}
    if len(found) != 1:
        raise ValueError(f"momentum must be the same in all parameter groups for in_workload=True, got {sorted(found)}")
    momentum, dampening, nesterov = found.pop()
    if nesterov or (momentum and dampening):
        raise ValueError("momentum must be plain for in_workload=True (no Nesterov, no dampening): the noise is optimized for that")
    return float(momentum)
