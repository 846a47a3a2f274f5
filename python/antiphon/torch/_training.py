"""Private training of a PyTorch model: `make_private`, and the training that it makes."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_map
from torch.utils.data import DataLoader

from .. import Clip, Key, Mechanism, PrivacyError, PrivateRun, Schema, Verified, _antiphon, make
from .._progress import Progress
from ._gradients import PerExampleGradients, add_clipped, leading, of_pairs
from ._order import Batch, Collate, FixedOrderBatches, WithIndices, whole
from ._refuse import (
    Memory,
    layout_of,
    refuse_data,
    refuse_modules,
    refuse_optimizer,
    refuse_used,
    trainable_of,
)

#: Mechanisms that are made here, for the order of the run.
_NAMES = _antiphon.names()


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
    noise_memory         bytes for noise while training
    num_workers          of the DataLoader
    collate_fn           makes a batch of one example, for data that PyTorch's default_collate cannot put together. It sees one example at
                         a time: pad to a fixed length

    All epochs come in one loop. For what happens once per epoch: `if private.run.step % private.order.steps_per_epoch == 0`.
    """
    refuse_data(dataset)
    order = FixedOrderBatches(len(dataset), batch_size, epochs, seed=whole("shuffle_seed", shuffle_seed, (1 << 63) - 1, least=0))
    if order.batch_size > Clip.MOST_EXAMPLES:
        raise ValueError(f"batch_size must be in 1..={Clip.MOST_EXAMPLES}, got {batch_size}")
    if physical_batch_size is not None:
        physical_batch_size = whole("physical_batch_size", physical_batch_size)
    noise_memory = whole("noise_memory", noise_memory, (1 << 63) - 1)
    if not (isinstance(max_grad_norm, (int, float)) and 1e-30 <= max_grad_norm <= 1e30):
        raise ValueError(f"max_grad_norm must be a number in [1e-30, 1e30], got {max_grad_norm!r}")
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
    _check_budget(epsilon, noise_multiplier, delta)
    name, made = _mechanism(mechanism, order, optimizer, in_workload, learning_rates, stamps, progress)
    run = PrivateRun(
        made,
        epsilon=epsilon,
        noise_multiplier=noise_multiplier,
        delta=delta,
        clip_norm=max_grad_norm,
        params=params,
        key=key,
        units=order.examples,
        adjacency=adjacency,
        layout=layout_of(parameters),
        memory=noise_memory,
        log=log,
    )
    if mechanism not in _NAMES:
        run.rehearse(order.batch)  # refused now, not in the middle of the run
    loader = DataLoader(
        WithIndices(dataset),
        batch_sampler=order,
        num_workers=num_workers,
        collate_fn=Collate(collate_fn),
        # Of its own, so that making an iterator takes no number from the generator that a model draws from.
        generator=torch.Generator().manual_seed(shuffle_seed),
    )
    return PrivateTraining(model, optimizer, run, order, loader, gradients, clip, name)


class PrivateTraining:
    """Private training of a model: what `make_private` makes."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        run: PrivateRun,
        order: FixedOrderBatches,
        loader: DataLoader[Any],
        gradients: PerExampleGradients,
        clip: Clip,
        mechanism_name: str,
    ) -> None:
        self.model, self.optimizer, self.run, self.order = model, optimizer, run, order
        #: Yields a Batch for every step that is left, over all epochs.
        self.loader = loader
        self._gradients, self._clip, self._mechanism_name = gradients, clip, mechanism_name
        self._parameters = trainable_of(model)
        self._layout = layout_of(self._parameters)
        self._sizes = [parameter.numel() for parameter in self._parameters.values()]
        device = next(iter(self._parameters.values())).device
        self._total = torch.zeros(sum(self._sizes), dtype=torch.float64, device=device)
        #: Those whose clipped gradients are in the sum of the next step.
        self._indices: list[int] = []
        self._own_indices = False

    def step(self, batch: Any = None, *, indices: Any = None) -> None:
        """One step: per-example gradients, clipped and added up, the noise of the step, and optimizer.step().

        `batch` is what the loader yields; or any data, with the `indices` of its examples. Without a batch, the step is taken
        with what was given to `accumulate`. Nothing is returned: the loss on private examples is not private.
        """
        if batch is not None:
            if self._indices:
                raise ValueError("step() must be called without a batch after accumulate(): pass the last part to accumulate() too")
            self.accumulate(batch, indices=indices)
        elif not self._indices:
            raise ValueError("batch must be given, or accumulate() called before, got neither")
        try:
            self.run.admit(self._indices)
            total = self._total.cpu()
            self.run.privatize(total)
            means = [
                (part / self.order.batch_size).reshape(parameter.shape).to(device=parameter.device, dtype=parameter.dtype)
                for parameter, part in zip(self._parameters.values(), torch.split(total, self._sizes))
            ]
        finally:
            self._forget()
            self.order.position = self.run.step
        # Whatever else the optimizer holds has no gradient with noise.
        for group in self.optimizer.param_groups:
            for parameter in group["params"]:
                parameter.grad = None
        for parameter, mean in zip(self._parameters.values(), means):
            parameter.grad = mean
        self.optimizer.step()

    def accumulate(self, batch: Any, *, indices: Any = None) -> None:
        """Adds the clipped gradients of a part of a batch; `step()` without a batch takes the step then."""
        indices, data = self._taken_apart(batch, indices)
        self._check_parameters()
        lengths = leading(data)
        if lengths != {len(indices)}:
            raise ValueError(f"data must have {len(indices)} examples, one per index, got {sorted(lengths)}")
        if len(self._indices) + len(indices) > Clip.MOST_EXAMPLES:
            raise ValueError(f"a step must have at most {Clip.MOST_EXAMPLES} examples, got {len(self._indices) + len(indices)}")
        data = tree_map(lambda leaf: leaf.to(self._total.device), data)
        if not self._indices:
            self._total.zero_()
        # Before their gradients are added: whoever may be in the sum is among those who are to be admitted, whatever happens.
        self._indices = self._indices + indices
        memory = Memory(self.model, values=self._gradients.method == "loop")
        try:
            for gradients in self._gradients.chunks(data, len(indices)):
                add_clipped(self._clip, gradients, self._total)
            memory.refuse_changes()
        except BaseException:
            self._forget()
            raise

    def _forget(self) -> None:
        """Nobody is in the sum of the next step."""
        self._total.zero_()
        self._indices = []

    def statement(self) -> str:
        """What ε means, what it does not cover, and what was not checked."""
        unchecked = "Not checked: that what the data set gives for an index comes from one example alone, and that every example has one index"
        if self._own_indices:
            unchecked += "; and that the indices given to step() or accumulate() belong to the data given with them"
        return self.run._statement_of_training(self._mechanism_name, unchecked + ".")

    @property
    def epsilon(self) -> float:
        """An upper bound on ε for the whole run."""
        return self.run.epsilon

    def state_dict(self) -> dict[str, Any]:
        """Model, optimizer, run, order and the state of PyTorch's random numbers: all that is needed to go on, except the key."""
        return {
            "antiphon_torch": 1,
            "run": self.run.state_dict(),
            "order": self.order.state_dict(),
            "gradients": self._gradient_settings(),
            "own_indices": self._own_indices,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "random": torch.get_rng_state(),
        }

    def load_state_dict(self, state: dict[str, Any], *, repeat_noise: bool = False) -> None:
        """Goes on after the last step of a state. The run must be the same: mechanism, noise, clip norm, layout, order and key
        are compared. On the same machine, with the same number of threads and data without random augmentation, it ends with the same
        parameters bit for bit.

        A state is for going on after a crash. Steps after it that were already made get the same noise again: do not go back to a state to
        try other settings, the difference of two such runs has no noise. Once `save` has written a later state, an earlier one is refused,
        unless repeat_noise=True says that the later one is lost and that nothing that followed from it was published.
        """
        if not isinstance(state, dict) or state.get("antiphon_torch") != 1:
            raise ValueError("state must be what state_dict() of a PrivateTraining gave, version 1")
        if state["gradients"] != self._gradient_settings():
            raise ValueError(
                f"the state must be of training with the same settings, got {state['gradients']}, and they are {self._gradient_settings()}"
            )
        position = self.order.position
        self.order.load_state_dict(state["order"])
        try:
            if state["order"]["position"] != state["run"]["step"]:
                raise ValueError("the state must have the same number of steps for the order of the data and for the run")
            self.run.load_state_dict(state["run"], repeat_noise=repeat_noise)
        except BaseException:
            self.order.position = position
            raise
        self._own_indices = bool(state["own_indices"])
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["random"])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the state to a file, whole or not at all: a kill leaves the old file or the new one.

        Save once before the first step too: a key begins one run, so a run that is killed before its first state is saved needs a
        new key. Keep the file as private as the data.
        """
        path = Path(path)
        handle, sibling = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                torch.save(self.state_dict(), file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(sibling, path)
            self.run.state_is_kept()
        except BaseException:
            Path(sibling).unlink(missing_ok=True)
            raise

    def load(self, path: str | os.PathLike[str], *, repeat_noise: bool = False) -> None:
        """Goes on from a file that `save` wrote, as `load_state_dict` does."""
        self.load_state_dict(torch.load(path, map_location="cpu", weights_only=True), repeat_noise=repeat_noise)

    def _gradient_settings(self) -> dict[str, Any]:
        return {"physical_batch_size": self._gradients.physical_batch_size, "per_example": self._gradients.method}

    def _taken_apart(self, batch: Any, indices: Any) -> tuple[list[int], Any]:
        if indices is None:
            if not isinstance(batch, Batch):
                raise PrivacyError(
                    "a batch without indices is refused: the privacy statement holds for who takes part when. Use the loader of "
                    "make_private, or call step(data, indices=indices) with the indices of the examples"
                )
            indices, batch = batch
        elif isinstance(batch, Batch):
            raise ValueError("indices must be given for other data only: a Batch has its own")
        else:
            self._own_indices = True
        listed = torch.as_tensor(indices)
        if listed.ndim != 1 or listed.is_floating_point() or listed.is_complex() or listed.dtype == torch.bool:
            got = f"a tensor of {listed.dtype} and shape {tuple(listed.shape)}"
            raise ValueError(f"indices must be whole numbers, one per example, got {got}")
        return listed.tolist(), batch

    def _check_parameters(self) -> None:
        refuse_modules(self.model)
        refuse_optimizer(self.optimizer, self._parameters)
        now = {name: p for name, p in self.model.named_parameters() if p.requires_grad}
        same = list(now) == list(self._parameters) and all(now[name] is p for name, p in self._parameters.items())
        if not same or layout_of(now) != self._layout:
            differ = sorted(set(now) ^ set(self._parameters)) or [n for n in now if now[n] is not self._parameters[n]]
            raise PrivacyError(
                "the trainable parameters of the model changed after make_private: the noise of the run is made for those that "
                f"were there then ({', '.join(differ[:5]) or 'a shape or type differs'}). Freeze or add parameters before make_private"
            )


def _check_budget(epsilon: float | None, noise_multiplier: float | None, delta: float) -> None:
    from .. import epsilon as epsilon_of
    from .. import noise_multiplier as multiplier_of

    if (epsilon is None) == (noise_multiplier is None):
        raise ValueError(f"epsilon or noise_multiplier must be given, one of them, got {'neither' if epsilon is None else 'both'}")
    if epsilon is not None:
        multiplier_of(epsilon, delta)
    elif noise_multiplier is not None:
        epsilon_of(noise_multiplier, delta)


def _mechanism(
    mechanism: Any,
    order: FixedOrderBatches,
    optimizer: torch.optim.Optimizer,
    in_workload: bool,
    learning_rates: Sequence[float] | None,
    stamps: int,
    progress: Progress,
) -> tuple[str, Any]:
    """The name of the mechanism and the mechanism, or its file."""
    if mechanism not in _NAMES:
        if in_workload or learning_rates is not None or stamps != 1:
            raise ValueError("in_workload, learning_rates and stamps must be given for a mechanism that is made here, got a mechanism that exists")
        if isinstance(mechanism, str) and not Path(mechanism).exists():
            raise ValueError(f"mechanism must be one of {', '.join(_NAMES)}, a Mechanism, or an existing file, got {mechanism!r}")
        found = Mechanism.load(mechanism) if isinstance(mechanism, (str, os.PathLike)) else mechanism
        inner = found.mechanism if isinstance(found, Verified) else found
        if not isinstance(inner, Mechanism):
            raise ValueError(f"mechanism must be one of {', '.join(_NAMES)}, a Mechanism, or a file, got {type(mechanism).__name__}")
        if inner.steps != order.steps:
            raise ValueError(
                f"mechanism must be for {order.steps} steps ({order.epochs} epochs of {order.steps_per_epoch}), got one for {inner.steps}: {inner.schema}"
            )
        return inner.kind, found
    if mechanism == "optimal" and order.steps > _antiphon.MAX_DENSE_STEPS:
        raise ValueError(
            f"the run must have at most {_antiphon.MAX_DENSE_STEPS} steps for the optimal mechanism, got {order.steps}: take a larger batch_size, fewer "
            'epochs, or mechanism="comb-blt", whose noise needs few rows of memory for any number of steps'
        )
    momentum = 0.0
    if in_workload:
        momentum = _momentum_of(optimizer)
    elif learning_rates is not None:
        raise ValueError("learning_rates must be given with in_workload=True: otherwise the noise does not depend on them")
    schema = Schema.epochs(order.epochs, order.steps_per_epoch)
    made = make(mechanism, schema, stamps=stamps, momentum=momentum, learning_rates=learning_rates, progress=progress)
    return mechanism, made


def _momentum_of(optimizer: torch.optim.Optimizer) -> float:
    if not isinstance(optimizer, torch.optim.SGD):
        raise ValueError(f"optimizer must be torch.optim.SGD for in_workload=True, whose steps are linear in the gradients, got {type(optimizer).__name__}")
    found = {(group["momentum"], group["dampening"], group["nesterov"]) for group in optimizer.param_groups}
    if len(found) != 1:
        raise ValueError(f"momentum must be the same in all parameter groups for in_workload=True, got {sorted(found)}")
    momentum, dampening, nesterov = found.pop()
    if nesterov or (momentum and dampening):
        raise ValueError("momentum must be plain for in_workload=True (no Nesterov, no dampening): the noise is optimized for that")
    return float(momentum)
