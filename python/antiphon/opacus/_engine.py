"""The engine that users of Opacus know: make_private, checkpoints, and what ε means."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import opacus
import torch
from torch import nn
from torch.utils.data import DataLoader

from .. import Key, Mechanism, PrivacyError, PrivateRun, Verified
from .._arguments import check_budget, whole
from .._choice import NAMES, mechanism_for
from .._progress import Progress
from .._whole import write_whole
from ..torch import FixedOrderBatches
from ..torch._refuse import layout_of, refuse_optimizer, refuse_used, trainable_of
from ..torch._make import momentum_of
from . import _accountant
from ._checkpoint import Training, refuse_schedulers
from ._ghost import MARGIN, ClippedLoss, GhostHooks, GhostModule
from ._loader import FixedOrderLoader, Ledger
from ._optimizer import CorrelatedOptimizer, GhostOptimizer
from ._refuse import check_clipping, check_loader, check_optimizer, refuse_module, refuse_noise, refuse_precision, refuse_sampling


class PrivacyEngine(opacus.PrivacyEngine):  # type: ignore[misc]
    """Opacus' PrivacyEngine with noise that is correlated across steps. One engine makes one run."""

    def __init__(self, *, accountant: str = _accountant.NAME, secure_mode: bool = False) -> None:
        if accountant != _accountant.NAME:
            raise ValueError(f'accountant must be "{_accountant.NAME}", got {accountant!r}: those of Opacus account for independent noise')
        if secure_mode:
            raise ValueError(
                "secure_mode must be False, got True: all noise of a run is made from its key by a cipher in any case, and attacks on "
                "floating-point noise are not covered"
            )
        with warnings.catch_warnings():
            # That its secure generator is off: there is no noise of that generator here.
            warnings.filterwarnings("ignore", message="Secure RNG turned off")
            super().__init__(accountant=accountant)
        self._training: Training | None = None

    def make_private(
        self,
        *,
        module: nn.Module,
        optimizer: torch.optim.Optimizer,
        criterion: Any = None,
        data_loader: DataLoader[Any],
        noise_multiplier: float,
        max_grad_norm: float | list[float],
        epochs: int,
        delta: float,
        key: Key | str | os.PathLike[str],
        **settings: Any,
    ) -> Any:
        """Makes the training of a model private, for a noise multiplier. For all arguments see `make_private_with_epsilon`.

        noise_multiplier    of the whole run: the standard deviation divided by the sensitivity of all steps together. It is not that of a step,
                            as in Opacus, so take no value over from there; give ε to make_private_with_epsilon instead
        epochs, delta       ε is computed for all epochs, at this δ
        """
        return self._make(module, optimizer, criterion, data_loader, (None, noise_multiplier, delta), max_grad_norm, epochs, key, **settings)

    def make_private_with_epsilon(
        self,
        *,
        module: nn.Module,
        optimizer: torch.optim.Optimizer,
        criterion: Any = None,
        data_loader: DataLoader[Any],
        target_epsilon: float,
        target_delta: float,
        epochs: int,
        max_grad_norm: float | list[float],
        key: Key | str | os.PathLike[str],
        **settings: Any,
    ) -> Any:
        """Makes the training of a model private, for a privacy level: (model, optimizer, loader), as Opacus does, and for ghost clipping
        (model, optimizer, criterion, loader).

        data_loader          its data, batch size and workers are taken. The order is made here: shuffled once, the same batches in every epoch
        target_epsilon, target_delta    of the whole run, all epochs
        epochs               no step is taken after them
        max_grad_norm        to which every example is clipped; a list of norms, one per trainable parameter, for clipping="per_layer"
        key                  an antiphon.Key, or the path of a key file, made if it is not there. A key serves one run. It is the secret
        criterion            for ghost clipping (default: nn.CrossEntropyLoss())

        Further arguments of Opacus: batch_first, loss_reduction, clipping ("flat" or "per_layer"), grad_sample_mode ("hooks", "functorch", "ew" or
        "ghost"), wrap_model. poisson_sampling is False here.

        Further arguments of antiphon, as in antiphon.torch.make_private: mechanism, stamps, in_workload, learning_rates, shuffle_seed, adjacency,
        log, noise_memory, progress; and shuffle=False, which leaves the examples in the order of the data set.
        """
        budget = (target_epsilon, None, target_delta)
        return self._make(module, optimizer, criterion, data_loader, budget, max_grad_norm, epochs, key, **settings)

    def _make(
        self,
        module: nn.Module,
        optimizer: torch.optim.Optimizer,
        criterion: Any,
        data_loader: DataLoader[Any],
        budget: tuple[float | None, float | None, float],
        max_grad_norm: float | list[float],
        epochs: int,
        key: Key | str | os.PathLike[str],
        *,
        batch_first: bool = True,
        loss_reduction: str = "mean",
        poisson_sampling: bool = False,
        clipping: str = "flat",
        noise_generator: Any = None,
        grad_sample_mode: str = "hooks",
        wrap_model: bool = True,
        rand_on_empty: bool = False,
        mechanism: str | os.PathLike[str] | Mechanism | Verified = "optimal",
        stamps: int = 1,
        in_workload: bool = False,
        learning_rates: Sequence[float] | None = None,
        shuffle: bool = True,
        shuffle_seed: int = 0,
        adjacency: str = "zero-out",
        log: str | os.PathLike[str] | None = None,
        noise_memory: int = 1 << 30,
        progress: Progress = None,
    ) -> Any:
        if self._training is not None:
            raise PrivacyError("make_private was called on this engine already: an engine has one run, with one key. Make a new engine for a new run")
        refuse_sampling(poisson_sampling, rand_on_empty)
        refuse_noise(noise_generator)
        refuse_module(module, grad_sample_mode)
        check_optimizer(optimizer)
        batch_size = check_loader(data_loader)
        if loss_reduction not in ("mean", "sum"):
            raise ValueError(f'loss_reduction must be "mean" or "sum", got {loss_reduction!r}')
        if grad_sample_mode == "ew" and not (wrap_model and batch_first):
            raise ValueError('wrap_model and batch_first must be True for grad_sample_mode="ew": Opacus does not have it otherwise')
        criterion = nn.CrossEntropyLoss(reduction=loss_reduction) if criterion is None else criterion
        if grad_sample_mode == "ghost" and getattr(criterion, "reduction", loss_reduction) != loss_reduction:
            raise ValueError(f"loss_reduction must be that of criterion, {criterion.reduction!r}, in ghost mode, got {loss_reduction!r}")
        if data_loader.drop_last and len(data_loader.dataset) % batch_size:  # type: ignore[arg-type]
            warnings.warn("drop_last of the data loader is ignored, as in Opacus: the last batch of every epoch is smaller", stacklevel=3)
        self.validate(module=module, optimizer=None, data_loader=None)
        parameters = trainable_of(module)
        refuse_precision(parameters)
        refuse_optimizer(optimizer, parameters)
        refuse_used(optimizer)
        clip_norm, norms = check_clipping(clipping, max_grad_norm, grad_sample_mode, len(parameters))
        epsilon, noise_multiplier, delta = budget
        check_budget(epsilon, noise_multiplier, delta)
        noise_memory = whole("noise_memory", noise_memory, (1 << 63) - 1)
        order = FixedOrderBatches(
            len(data_loader.dataset),  # type: ignore[arg-type]
            batch_size,
            epochs,
            seed=whole("shuffle_seed", shuffle_seed, (1 << 63) - 1, least=0),
            shuffle=shuffle,
        )
        momentum: Callable[[], float] | None = (lambda: momentum_of(optimizer)) if in_workload else None
        name, made = mechanism_for(order, mechanism, momentum=momentum, learning_rates=learning_rates, stamps=stamps, progress=progress)
        run = PrivateRun(
            made,
            epsilon=epsilon,
            noise_multiplier=noise_multiplier,
            delta=delta,
            clip_norm=clip_norm,
            params=sum(parameter.numel() for parameter in parameters.values()),
            key=key,
            units=order.examples,
            adjacency=adjacency,
            layout=layout_of(parameters),
            memory=noise_memory,
            log=log,
        )
        if mechanism not in NAMES:
            run.rehearse(order.batch)  # refused now, not in the middle of the run
        self._training = Training(run, order, Ledger(), module, parameters, norms, name, grad_sample_mode, clipping, loss_reduction)
        try:
            made_private = super().make_private(
                module=module,
                optimizer=optimizer,
                criterion=criterion,
                data_loader=data_loader,
                noise_multiplier=run.noise_multiplier,
                max_grad_norm=clip_norm,
                batch_first=batch_first,
                loss_reduction=loss_reduction,
                poisson_sampling=False,
                clipping=clipping,
                grad_sample_mode=grad_sample_mode,
                wrap_model=wrap_model,
            )
        except BaseException:
            self._training = None
            raise
        self.accountant.begin(run.event)
        return made_private

    # What Opacus' make_private is made of.

    def _prepare_model(
        self,
        module: nn.Module,
        *,
        max_grad_norm: float | list[float] = 1.0,
        grad_sample_mode: str = "hooks",
        batch_first: bool = True,
        loss_reduction: str = "mean",
        wrap_model: bool = True,
    ) -> Any:
        if grad_sample_mode == "ghost":
            kind = GhostModule if wrap_model else GhostHooks
            return kind(module, batch_first=batch_first, loss_reduction=loss_reduction, max_grad_norm=self._running().run.clip_norm * (1 - MARGIN))
        return super()._prepare_model(
            module, batch_first=batch_first, loss_reduction=loss_reduction, grad_sample_mode=grad_sample_mode, wrap_model=wrap_model
        )

    def _prepare_data_loader(self, data_loader: DataLoader[Any], **_: Any) -> FixedOrderLoader:
        training = self._running()
        self.dataset = data_loader.dataset
        return FixedOrderLoader(data_loader, training.order, training.ledger)

    def _prepare_optimizer(self, *, optimizer: torch.optim.Optimizer, **_: Any) -> CorrelatedOptimizer:
        training = self._running()
        kind = GhostOptimizer if training.mode == "ghost" else CorrelatedOptimizer
        training.optimizer = kind(
            optimizer,
            run=training.run,
            order=training.order,
            ledger=training.ledger,
            model=training.model,
            parameters=training.parameters,
            norms=training.norms,
            loss_reduction=training.loss_reduction,
        )
        return training.optimizer

    def _prepare_criterion(self, *, module: Any, optimizer: GhostOptimizer, criterion: Any, loss_reduction: str = "mean", **_: Any) -> ClippedLoss:
        optimizer.clipper = module
        return ClippedLoss(module, optimizer, criterion, loss_reduction)

    # What there is to know about the run.

    @property
    def run(self) -> PrivateRun:
        """The run: steps, ε, δ, noise."""
        return self._running().run

    def get_epsilon(self, delta: float) -> float:
        """An upper bound on ε of the whole run at δ: of all epochs, from the first step on."""
        found: float = self.accountant.get_epsilon(delta)
        return found

    def statement(self) -> str:
        """What ε means, what it does not cover, and what was not checked."""
        training = self._running()
        unchecked = (
            "The statement holds for the parameters after every step. It does not hold for losses and other metrics of the training examples, "
            "which get no noise. Not checked: that the examples of a step are those that the loader handed out for it, each once (their number "
            "was compared); that what the data set and collate_fn give for an index comes from one example alone, and that every example has one index; that the "
            "model treats every example by itself and keeps nothing of it outside its buffers; and that Opacus computes the gradient of every "
            "example right"
        )
        if training.mode == "ghost":
            unchecked += (
                ". Ghost clipping by Opacus adds up in single precision, and never has the gradient of one example: the norms of a few "
                "examples of the first batch were compared with those of PyTorch. It clips to a norm "
                "that is smaller by a part of 1/1024, and that rounding stays below this is not checked"
            )
        return training.run._statement_of_training(training.name, unchecked + ".")

    # Checkpoints.

    def save_checkpoint(
        self,
        *,
        path: Any,
        module: Any,
        optimizer: Any = None,
        noise_scheduler: Any = None,
        grad_clip_scheduler: Any = None,
        checkpoint_dict: dict[str, Any] | None = None,
        module_state_dict_kwargs: dict[str, Any] | None = None,
        torch_save_kwargs: dict[str, Any] | None = None,
    ) -> None:
        """Writes model, optimizer, accountant, run, order and the state of PyTorch's random numbers: all that is needed to go on, except the key.

        A file that is named is written whole or not at all: a kill leaves the old one or the new one. After that no earlier checkpoint is loaded. If
        `path` is an open file, call `engine.run.state_is_kept()` once it is safe.

        Save once before the first step too: a key begins one run, so a run that is killed before its first checkpoint needs a new key. Keep the
        file as private as the data.
        """
        refuse_schedulers(noise_scheduler, grad_clip_scheduler)
        training = self._running()
        if checkpoint_dict is not None and "antiphon" in checkpoint_dict:
            raise ValueError('checkpoint_dict must not have the name "antiphon", which is for the state of the run')
        assert training.optimizer is not None
        training.optimizer.check_buffers()  # whoever loads the checkpoint takes the buffers as they are
        content = {**(checkpoint_dict or {}), "antiphon": training.state_dict()}

        def write(file: Any) -> None:
            super(PrivacyEngine, self).save_checkpoint(
                path=file,
                module=module,
                optimizer=optimizer,
                checkpoint_dict=content,
                module_state_dict_kwargs=module_state_dict_kwargs,
                torch_save_kwargs=torch_save_kwargs,
            )

        if isinstance(path, (str, os.PathLike)):
            write_whole(path, write)
            training.run.state_is_kept()
        else:
            write(path)

    def load_checkpoint(
        self,
        *,
        path: Any,
        module: Any,
        optimizer: Any = None,
        noise_scheduler: Any = None,
        grad_clip_scheduler: Any = None,
        module_load_dict_kwargs: dict[str, Any] | None = None,
        torch_load_kwargs: dict[str, Any] | None = None,
        repeat_noise: bool = False,
    ) -> dict[str, Any]:
        """Goes on after the last step of a checkpoint, after make_private with the same arguments and key. The loader goes on within the epoch;
        its `epoch` says which one that is. On the same machine, with the same number of threads and data without random augmentation, the run
        ends with the same parameters bit for bit.

        A checkpoint is for going on after a crash. Steps after it that were already made get the same noise again: do not go back to one to try other
        settings, the difference of two such runs has no noise. Once a later one is written, an earlier one is refused, unless repeat_noise=True says
        that the later one is lost and that nothing that followed from it was published.

        Unlike in Opacus, only tensors and plain values are read by default: torch_load_kwargs={"weights_only": False} reads any object.
        """
        refuse_schedulers(noise_scheduler, grad_clip_scheduler)
        training = self._running()
        checkpoint = torch.load(path, **{"weights_only": True, **(torch_load_kwargs or {})})
        if not isinstance(checkpoint, dict) or "antiphon" not in checkpoint:
            raise ValueError("path must be a checkpoint that save_checkpoint of antiphon.opacus.PrivacyEngine wrote")
        if (optimizer is None) != ("optimizer_state_dict" not in checkpoint):
            raise ValueError("optimizer must be given if it was given to save_checkpoint, and only then")
        training.load_state_dict(checkpoint["antiphon"], repeat_noise=repeat_noise)
        module.load_state_dict(checkpoint["module_state_dict"], **(module_load_dict_kwargs or {}))
        self.accountant.load_state_dict(checkpoint["privacy_accountant_state_dict"])
        if optimizer is not None:
            optimizer.load_state_dict(checkpoint.pop("optimizer_state_dict"))
        assert training.optimizer is not None
        training.optimizer.remember_buffers()
        torch.set_rng_state(checkpoint["antiphon"]["random"].cpu())
        return dict(checkpoint)

    def _running(self) -> Training:
        if self._training is None:
            raise ValueError("make_private must be called first: it makes the run")
        return self._training
