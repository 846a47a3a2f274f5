"""PrivateTrainer: the Trainer of transformers, with the order of the data and the gradients of `antiphon.torch`."""

from __future__ import annotations

import hashlib
import itertools
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Sampler
from transformers import Trainer, TrainingArguments
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR, TrainOutput, rotate_checkpoints

from .. import Key, Mechanism, PrivacyError, PrivateRun, Verified
from .._progress import Progress
from .._whole import write_whole
from ..torch import FixedOrderBatches, PrivateTraining, WithIndices, make_private
from ..torch._order import Collate
from ._attention import always_masked
from ._refuse import refuse_evaluation, refuse_files, refuse_hooks, refuse_settings

#: The state of the run in a checkpoint. Written last: a checkpoint with this file is whole.
STATE = "antiphon.pt"


class PrivateTrainer(Trainer):
    """A Trainer whose training is differentially private, with noise that is correlated across steps.

    model, args          as for Trainer. per_device_train_batch_size is the batch of a step, num_train_epochs the length of the run; data_seed
                         or else seed shuffles the data, once. args.max_grad_norm must be 0: it clips after the noise
    epsilon, delta       the privacy of the whole run; or noise_multiplier and delta. Choose delta well below one over the
                         number of examples
    max_grad_norm        the gradient of every example, over all trainable parameters together, is clipped to this norm
    key                  a file for the key of the noise: made with a fresh key, or read to resume a run. Or a Key. Not in output_dir
    mechanism, stamps, in_workload, learning_rates, physical_batch_size, per_example, adjacency, log, noise_memory, progress
                         as for antiphon.torch.make_private
    trainer              all other arguments of Trainer, such as train_dataset, eval_dataset, data_collator, callbacks

    What train_dataset gives for an index must come from one example alone. A data_collator sees one example at a time: pad to a fixed
    length. The loss of an example is `compute_loss` for a batch of this example: of a text, the mean over its own tokens.

    The loss on training examples is not private. It is not logged, saved or returned. Evaluation is on examples of your own choice: what is
    computed from eval_dataset has no noise, and the statement does not cover it.

    A checkpoint is saved before the first step too (unless save_strategy is "no"), because a key begins one run. To resume, make a new
    PrivateTrainer with the same arguments and the same key, and call train(resume_from_checkpoint=True). Keep checkpoints as private as
    the data: only the model in them is meant to be published.
    """

    def __init__(
        self,
        model: nn.Module,
        args: TrainingArguments,
        *,
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
        per_example: str = "vmap",
        adjacency: str = "zero-out",
        log: str | os.PathLike[str] | None = None,
        noise_memory: int = 1 << 30,
        progress: Progress = None,
        **trainer: Any,
    ) -> None:
        self._within_step = False
        if trainer.get("model_init") is not None:
            raise ValueError("model must be given, got model_init: the noise of the run is made for the parameters of one model")
        if not isinstance(model, nn.Module):
            raise ValueError(f"model must be a model, got {type(model).__name__}: load it first (from_pretrained)")
        super().__init__(model, args, **trainer)
        refuse_settings(self)
        refuse_files(args, key=key, log=log)
        if self.train_dataset is None:
            raise ValueError("train_dataset must be given, got None: the noise of the run is made for it")
        refuse_evaluation(self, self.eval_dataset)
        model.train()  # as in every step: a module that mixes examples in this mode is refused now
        optimizer = self.create_optimizer()
        self._private: PrivateTraining = make_private(
            model,
            optimizer,
            self.train_dataset,
            compute_loss=self._loss_of_one,
            batch_size=args.per_device_train_batch_size,
            epochs=int(args.num_train_epochs),
            delta=delta,
            max_grad_norm=max_grad_norm,
            key=key,
            epsilon=epsilon,
            noise_multiplier=noise_multiplier,
            mechanism=mechanism,
            stamps=stamps,
            in_workload=in_workload,
            learning_rates=learning_rates,
            physical_batch_size=physical_batch_size,
            per_example=per_example,
            shuffle_seed=args.seed if args.data_seed is None else args.data_seed,
            adjacency=adjacency,
            log=log,
            noise_memory=noise_memory,
            progress=progress,
        )
        self._private.optimizer = _LeftToTrainer(optimizer)
        self._data = self.train_dataset
        #: A digest of the parameters that a checkpoint must have brought back before the next step.
        self._expected: str | None = None
        self._save_first = False
        self._evaluated = False

    @property
    def run(self) -> PrivateRun:
        """The run: its ε, its steps, its audit."""
        return self._private.run

    def statement(self) -> str:
        """What ε means, what it does not cover, and what was not checked."""
        unchecked = "Not checked: that what the data set gives for an index comes from one example alone, and that every example has one index"
        if self.eval_dataset is not None or self._evaluated:
            unchecked += "; and that the examples of eval_dataset and of other evaluations, whose metrics get no noise, are not private"
        return self.run._statement_of_training(self._private._mechanism_name, unchecked + ".")

    def train(
        self, resume_from_checkpoint: str | bool | None = None, trial: Any = None, ignore_keys_for_eval: list[str] | None = None,
        *, repeat_noise: bool = False,
    ) -> TrainOutput:  # fmt: skip
        """Trains to the end of the run. The training loss of the result is NaN: it is not private.

        resume_from_checkpoint  a checkpoint, or True for the last whole one of output_dir. On the same machine, with the same number of threads and
                                data without random augmentation, the run ends with the same parameters bit for bit
        repeat_noise            go back to an earlier checkpoint than the last one, whose steps get the same noise again. Say so only if
                                the later one is lost and nothing that followed from it was published
        """
        if trial is not None:
            raise PrivacyError("hyperparameter search is refused: the privacy statement covers one run, not the choice of settings by several")
        if self.run.step:
            raise PrivacyError(f"train() is refused after {self.run.step} steps: a run is trained once. To resume it, make a new PrivateTrainer")
        refuse_settings(self)
        checkpoint = _checkpoint(resume_from_checkpoint, self.args)
        self._save_first = checkpoint is None and self.args.save_strategy != "no"
        if checkpoint is not None:
            self._load_run(checkpoint, repeat_noise)
        found = super().train(str(checkpoint) if checkpoint else None, ignore_keys_for_eval=ignore_keys_for_eval)
        return found._replace(training_loss=float("nan"))

    def hyperparameter_search(self, *args: Any, **kwargs: Any) -> Any:
        """Refused: the privacy statement covers one run."""
        raise PrivacyError("hyperparameter search is refused: the privacy statement covers one run, not the choice of settings by several")

    def get_train_dataloader(self) -> DataLoader[Any]:
        """The batches of one epoch, the same in every epoch."""
        if self.train_dataset is not self._data:
            raise PrivacyError("train_dataset was replaced after PrivateTrainer was made: the order of the data is made for the one that was there")
        args, seed = self.args, self._private.order.seed
        return DataLoader(
            WithIndices(self._data),
            batch_sampler=_Epoch(self._private.order),
            collate_fn=Collate(self._get_collator_with_removed_columns(self.data_collator, description="training")),
            num_workers=args.dataloader_num_workers,
            persistent_workers=args.dataloader_persistent_workers,
            prefetch_factor=args.dataloader_prefetch_factor,
            # Of its own, so that making an iterator takes no number from the generator that a model draws from.
            generator=torch.Generator().manual_seed(seed),
        )

    def get_batch_samples(self, epoch_iterator: Iterator[Any], num_batches: int, device: torch.device) -> tuple[list[Any], None]:
        """The batches of a step, without the number of their tokens: the loss of an example must not depend on the others."""
        return list(itertools.islice(epoch_iterator, num_batches)), None

    def training_step(self, model: nn.Module, inputs: Any, num_items_in_batch: Any = None) -> torch.Tensor:
        """Per-example gradients, clipped and added up, with the noise of the step. Gives zero: the loss is not private."""
        if model is not self._private.model:
            raise ValueError(f"model must be the one that PrivateTrainer was made with, got {type(model).__name__}: something wrapped it")
        refuse_hooks(model)
        if self._expected is not None and self._expected != _digest(model):
            raise ValueError(
                "the checkpoint did not bring back all trainable parameters. With peft, parameters outside the adapters must be named in modules_to_save"
            )
        self._expected = None
        if self._save_first:
            self._save_first = False
            self._save_checkpoint(model, None)
        model.train()
        into_training_mode = getattr(self.optimizer, "train", None)  # schedule-free optimizers have it
        if callable(into_training_mode):
            into_training_mode()
        self._within_step = True
        try:
            with always_masked(model):
                self._private.step(inputs)
        finally:
            self._within_step = False
        return torch.zeros((), device=self.args.device)

    def _loss_of_one(self, model: nn.Module, batch: Any) -> torch.Tensor:
        if not isinstance(batch, dict):
            raise ValueError(f"data_collator must make a dict of the arguments of the model, got {type(batch).__name__}")
        loss = self.compute_loss(model, dict(batch))
        assert isinstance(loss, torch.Tensor)
        return loss

    def floating_point_ops(self, inputs: Any) -> int:
        """Not counted: it is read from the data."""
        return 0

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """As Trainer, without the loss on training examples."""
        if self._within_step:
            raise PrivacyError(
                f"log() within a step is refused, as from compute_loss, got {', '.join(logs)}: what is computed from training examples has no noise"
            )
        for name in ("loss", "train_loss"):
            logs.pop(name, None)
        super().log(logs, start_time)

    def get_eval_dataloader(self, eval_dataset: Any = None) -> DataLoader[Any]:
        """As Trainer. The training examples are refused: their metrics are not private."""
        refuse_evaluation(self, eval_dataset)
        refuse_evaluation(self, self.eval_dataset)
        self._evaluated = True
        return super().get_eval_dataloader(eval_dataset)

    def get_test_dataloader(self, test_dataset: Any) -> DataLoader[Any]:
        """As Trainer. The training examples are refused: their predictions are not private."""
        refuse_evaluation(self, test_dataset)
        self._evaluated = True
        return super().get_test_dataloader(test_dataset)

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        if self.state.global_step != self.run.step:
            raise PrivacyError(f"a checkpoint within a step is refused: the run is at step {self.run.step}, the Trainer at {self.state.global_step}")
        # Old checkpoints are deleted when the new one is on disk, not before.
        limit, self.args.save_total_limit = self.args.save_total_limit, None
        try:
            super()._save_checkpoint(model, trial)
        finally:
            self.args.save_total_limit = limit
        parent = str(self.args.output_dir)
        folder = Path(parent) / f"{PREFIX_CHECKPOINT_DIR}-{self.run.step}"
        torch.save(self.args, folder / "training_args.bin")
        if not self.args.save_only_model:
            self._save_run(model, folder)
        rotate_checkpoints(parent, save_total_limit=limit, best_model_checkpoint=self.state.best_model_checkpoint, use_mtime=True)

    def _save_run(self, model: nn.Module, folder: Path) -> None:
        for path in folder.rglob("*"):
            if path.is_file():
                with open(path, "rb+") as written:
                    os.fsync(written.fileno())
        state = {
            "antiphon_hf": 1,
            "run": self.run.state_dict(),
            "order": self._private.order.state_dict(),
            "gradients": self._private._gradient_settings(),
            "parameters": _digest(model),
        }
        write_whole(folder / STATE, lambda file: torch.save(state, file))
        self.run.state_is_kept()

    def _load_run(self, checkpoint: Path, repeat_noise: bool) -> None:
        state = torch.load(checkpoint / STATE, map_location="cpu", weights_only=True)
        settings = self._private._gradient_settings()
        if state.get("antiphon_hf") != 1 or state["gradients"] != settings:
            raise ValueError(f"the checkpoint must be of a PrivateTrainer, version 1, with the same settings, got {state.get('gradients')}, and they are {settings}")
        if state["order"]["position"] != state["run"]["step"]:
            raise ValueError("the checkpoint must have the same number of steps for the order of the data and for the run")
        self._private.order.load_state_dict(state["order"])
        self.run.load_state_dict(state["run"], repeat_noise=repeat_noise)
        self._expected = state["parameters"]


class _LeftToTrainer(torch.optim.Optimizer):
    """The optimizer as PrivateTraining sees it: the gradients of a step are put there, and the Trainer takes the step."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer = optimizer

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_optimizer"], name)

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Nothing."""


class _Epoch(Sampler[list[int]]):
    """The batches of one epoch. A resumed Trainer skips those that are done; the guard of the run refuses any other place."""

    def __init__(self, order: FixedOrderBatches) -> None:
        self._order = order

    def __iter__(self) -> Iterator[list[int]]:
        return (self._order.batch(step) for step in range(len(self)))

    def __len__(self) -> int:
        return self._order.steps_per_epoch


def _checkpoint(wanted: str | os.PathLike[str] | bool | None, args: TrainingArguments) -> Path | None:
    """The checkpoint to resume from. One without our file was being written when the process ended."""
    whole = {file.parent for file in Path(str(args.output_dir)).glob(f"{PREFIX_CHECKPOINT_DIR}-*/{STATE}")}
    if wanted is None or wanted is False:
        if whole and args.save_strategy != "no":
            raise ValueError(
                f"output_dir must have no checkpoints of another run, got {args.output_dir} with {len(whole)} of them: call "
                "train(resume_from_checkpoint=True) to go on with that run, or take another folder"
            )
        return None
    if wanted is not True:
        if not (Path(wanted) / STATE).is_file():
            raise ValueError(f"resume_from_checkpoint must be a whole checkpoint of a PrivateTrainer, got {os.fspath(wanted)}, which has no {STATE}")
        return Path(wanted)
    if not whole:
        raise ValueError(f"resume_from_checkpoint must be None where no whole checkpoint is in output_dir, got True for {args.output_dir}")
    return max(whole, key=lambda folder: int(folder.name.rpartition("-")[2]))


def _digest(model: nn.Module) -> str:
    """Of the trainable parameters."""
    digest = hashlib.sha256()
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            digest.update(name.encode() + parameter.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
