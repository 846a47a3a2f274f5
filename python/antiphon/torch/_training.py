"""Private training of a PyTorch model: one step after the other, and its states."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_map
from torch.utils.data import DataLoader

from .. import Clip, PrivacyError, PrivateRun
from .._elsewhere import made_on
from .._whole import write_whole
from ._agreement import check_runs
from ._device import DeviceRows
from ._gradients import PerExampleGradients, add_clipped, leading
from ._order import Batch, FixedOrderBatches
from ._placement import Placement
from ._refuse import Memory, layout_of, refuse_modules, refuse_optimizer, trainable_of


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
        placement: Placement,
        rows: DeviceRows | None = None,
    ) -> None:
        self.model, self.optimizer, self.run, self.order = model, optimizer, run, order
        #: Yields a Batch for every step that is left, over all epochs: in several processes, the part of it that this one computes.
        self.loader = loader
        self._placement, self._ranks = placement, placement.ranks
        self._gradients, self._clip, self._mechanism_name = gradients, clip, mechanism_name
        #: Noise that is made on the device; otherwise the run makes it.
        self._rows = rows
        self._parameters = trainable_of(model)
        self._layout = layout_of(self._parameters)
        self._sizes = [parameter.numel() for parameter in self._parameters.values()]
        device = next(iter(self._parameters.values())).device
        self._total = torch.zeros(sum(self._sizes), dtype=torch.float64, device=device)
        #: Those whose clipped gradients are in the sum of the next step.
        self._indices: list[int] = []
        #: Whether the next step has begun, with nobody perhaps: in several processes, all begin it together.
        self._begun = False
        self._own_indices = False
        #: A part of its fingerprint: two trainings in the same processes are not taken for each other.
        self._key = run.state_dict()["key_fingerprint"][:8]
        #: Whether the run went on from a state of which model and optimizer got nothing, or a part.
        self._in_part = False
        #: Whether steps of this run were taken in another process.
        self._continued = False

    def step(self, batch: Any = None, *, indices: Any = None) -> None:
        """One step: per-example gradients, clipped and added up, the noise of the step, and optimizer.step().

        `batch` is what the loader yields; or any data, with the `indices` of its examples. Without a batch, the step is taken
        with what was given to `accumulate`. Nothing is returned: the loss on private examples is not private.
        """
        try:
            with self._ranks.together(self._where()):
                self._step(batch, indices)
        except BaseException:
            if self._ranks.size > 1:
                self._forget()
            raise

    def _step(self, batch: Any, indices: Any) -> None:
        if batch is not None:
            if self._indices:
                raise ValueError("step() must be called without a batch after accumulate(): pass the last part to accumulate() too")
            self.accumulate(batch, indices=indices)
        elif not self._begun or (self._ranks.size == 1 and not self._indices):
            raise ValueError("batch must be given, or accumulate() called before, got neither")
        try:
            participants = self._participants()
            own = self._placement.own(self._total)
            self.run.admit(participants)
            own = self._with_noise(own)
            self._ranks.exchange("noise")
            means = self._placement.gradients(own / self.order.batch_size)
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

    def _participants(self) -> list[int]:
        """Those who are in the sums of all processes."""
        everywhere = self._ranks.exchange("participants", (self._indices, self._own_indices))
        self._own_indices = any(own for _, own in everywhere)
        together = [index for indices, _ in everywhere for index in indices]
        if len(together) > Clip.MOST_EXAMPLES:
            raise ValueError(f"a step must have at most {Clip.MOST_EXAMPLES} examples, got {len(together)}")
        return together

    def _with_noise(self, own: torch.Tensor) -> torch.Tensor:
        """Sums, of the coordinates in the `ranges` of the run, with the noise of the step, which is done then. Noise is added nowhere else."""
        if self._rows is not None:
            return own + self._rows.row()  # in float64, as privatize does
        own = own.cpu()
        self.run.privatize(own)
        return own

    def _where(self) -> str:
        return f"run with the key {self._key}, step {self.run.step}"

    def accumulate(self, batch: Any, *, indices: Any = None) -> None:
        """Adds the clipped gradients of a part of a batch; `step()` without a batch takes the step then.

        In several processes, each of them calls it at least once per step: with `indices=[]` and `()` if it has no example of the batch.
        """
        try:
            with self._ranks.together(self._where(), ends=False):
                self._accumulate(*self._taken_apart(batch, indices))
        except BaseException:
            if self._ranks.size > 1:
                self._forget()
            raise

    def _accumulate(self, indices: list[int], data: Any) -> None:
        self._refuse_part_of_a_state()
        self._placement.settle()
        self._check_parameters()
        lengths = set() if data is None else leading(data)
        if lengths != {len(indices)} and (indices or lengths):  # a process may have no part in a small batch, and nothing for it
            raise ValueError(f"data must have {len(indices)} examples, one per index, got {sorted(lengths)}")
        if len(self._indices) + len(indices) > Clip.MOST_EXAMPLES:
            raise ValueError(f"a step must have at most {Clip.MOST_EXAMPLES} examples, got {len(self._indices) + len(indices)}")
        data = tree_map(lambda leaf: leaf.to(self._total.device), data) if indices else ()
        if not self._begun:
            self._gradients.whole = self._placement.whole()
            self._total.zero_()
            self._begun = True
        # Before their gradients are added: whoever may be in the sum is among those who are to be admitted, whatever happens.
        self._indices = self._indices + indices
        memory = Memory(self.model, values=self._gradients.method == "loop", whole=self._gradients.whole)
        try:
            with self._placement.computing():
                for gradients in self._gradients.chunks(data, len(indices)):
                    add_clipped(self._clip, gradients, self._total)
            memory.refuse_changes()
        except BaseException:
            self._forget()
            raise

    def _forget(self) -> None:
        """Nobody is in the sum of the next step."""
        self._total.zero_()
        self._indices, self._begun = [], False
        self._gradients.whole = None

    def statement(self) -> str:
        """What ε means, what it does not cover, and what was not checked."""
        unchecked = "Not checked: that what the data set gives for an index comes from one example alone, and that every example has one index"
        if self._own_indices:
            unchecked += "; and that the indices given to step() or accumulate() belong to the data given with them"
        if self._ranks.size > 1:
            unchecked += f"; and that the {self._ranks.size} processes of the run have the same data set"
        if self._continued:
            unchecked += "; and that the data set gives the same examples for the same indices as it did before the run was continued"
        unchecked += "."
        if self._rows is not None:
            unchecked += f" {made_on(self._rows.device)}"
        return self.run._statement_of_training(self._mechanism_name, unchecked)

    @property
    def epsilon(self) -> float:
        """An upper bound on ε for the whole run."""
        return self.run.epsilon

    def state_dict(self) -> dict[str, Any]:
        """Model, optimizer, run, order and the state of PyTorch's random numbers: all that is needed to go on, except the key.

        For one process: what several hold is written by `save`.
        """
        self._refuse_parts("state_dict")
        return {
            **self._rest(),
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
        self._refuse_parts("load_state_dict")
        self._load_rest(state, repeat_noise)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["random"])
        self._in_part = False

    def _rest(self) -> dict[str, Any]:
        """All of a state but what the model, the optimizer and the generator of random numbers hold."""
        self._refuse_part_of_a_state()
        return {
            "antiphon_torch": 1,
            "run": self.run.state_dict(),
            "order": self.order.state_dict(),
            "gradients": self._gradient_settings(),
            "own_indices": self._own_indices,
        }

    def _load_rest(self, state: dict[str, Any], repeat_noise: bool) -> None:
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
        self._continued = self.run.step > 0
        self._in_part = True  # until model and optimizer have theirs

    def _refuse_part_of_a_state(self) -> None:
        if self._in_part:
            raise PrivacyError(
                f"training is refused: the run was loaded from a state, and goes on at step {self.run.step}, but loading model and optimizer from it failed. "
                "Steps from other parameters would get noise that may have been used before. Call make_private again and load the state"
            )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the state to a file, whole or not at all: a kill leaves the old file or the new one.

        Save once before the first step too: a key begins one run, so a run that is killed before its first state is saved needs a
        new key. Keep the file as private as the data.

        Several processes write a folder, by torch.distributed.checkpoint, on a file system that all of them see.
        """
        path = Path(path)
        if self._in_parts() or (path / "current").is_file():  # one process that goes on from a folder
            self._save_folder(path)
            return
        write_whole(path, lambda file: torch.save(self.state_dict(), file))
        self.run.state_is_kept()

    def load(self, path: str | os.PathLike[str], *, repeat_noise: bool = False) -> None:
        """Goes on from a file or a folder that `save` wrote, as `load_state_dict` does.

        From a folder any number of processes can go on, one too, with the same noise. With another number than before, gradients can
        differ in their last bits, and dropout takes other random numbers: steps that are repeated have other sums and the same noise, so
        nothing of the first ones may have been published.
        """
        path = Path(path)
        if self._in_parts() or path.is_dir():
            self._load_folder(path, repeat_noise)
            return
        self.load_state_dict(torch.load(path, map_location="cpu", weights_only=True), repeat_noise=repeat_noise)

    def _in_parts(self) -> bool:
        return self._ranks.size > 1 or type(self._placement) is not Placement

    def _refuse_parts(self, method: str) -> None:
        if self._in_parts():
            raise ValueError(f"{method} must be called for a model that is whole in one process: use save(folder) and load(folder) for others")

    def _save_folder(self, path: Path) -> None:
        from ._checkpoint import clean, save_folder

        with self._ranks.together(f"save after step {self.run.step}"):
            self._placement.settle()
            save_folder(path, self._ranks, self.model, self.optimizer, self._rest())
            if self._ranks.rank == 0:
                self.run.state_is_kept()
                clean(path)

    def _load_folder(self, path: Path, repeat_noise: bool) -> None:
        from ._checkpoint import load_tensors, read_rest

        with self._ranks.together("load"):
            self._placement.settle()
            made, rest = read_rest(path, self._ranks)
            self._ranks.exchange("the state is read")
            self._load_rest(rest, repeat_noise)
            self._ranks.exchange("the state is of this run")
            load_tensors(made, self._ranks, self.model, self.optimizer, rest["others"])
            if len(rest["random"]) == self._ranks.size:
                torch.set_rng_state(rest["random"][self._ranks.rank])
            check_runs(self._ranks, self.run)
            self._in_part = False

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
        listed = torch.as_tensor(indices if len(indices) else torch.empty(0, dtype=torch.int64))
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
