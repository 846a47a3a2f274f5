"""Settings of the Trainer for which the privacy statement would not hold, or nothing would work: refused with the reason."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import Trainer, TrainingArguments

from .. import Key, PrivacyError

#: Key files are smaller.
_KEY_BYTES = 1 << 20
#: Name in TrainingArguments, the only value that is allowed, and why.
_SETTINGS: list[tuple[str, Any, str]] = [
    ("max_grad_norm", 0, "it would clip after the noise, and noise that is clipped does not cancel across steps. Every example is clipped "
     "to the max_grad_norm of PrivateTrainer"),
    ("gradient_accumulation_steps", 1, "per_device_train_batch_size is the batch of a step. physical_batch_size of PrivateTrainer says how "
     "many gradients are in memory at a time"),
    ("max_steps", -1, "the length of the run is num_train_epochs: every example returns at its own place of every epoch"),
    ("train_sampling_strategy", "random", "the data are shuffled once and come in the same batches in every epoch; their order must not "
     "depend on what is in them"),
    ("dataloader_drop_last", False, "the last batch of an epoch is smaller instead"),
    ("dataloader_in_order", True, "every batch has its own step"),
    ("ignore_data_skip", False, "a resumed run must go on at its own place in the order of the data"),
    ("auto_find_batch_size", False, "the noise is made for one batch size"),
    ("fp16", False, "the Trainer would divide gradients by a factor that they never got, and skip steps. Load the model with the dtype that "
     "it is to have"),
    ("bf16", False, "autocast was not tested with per-example gradients. Load the model with the dtype that it is to have"),
    ("torch_compile", False, "per-example gradients are those of the model itself"),
    ("use_liger_kernel", False, "torch.func.vmap cannot handle its kernels"),
    ("activation_checkpointing", False, "torch.func cannot handle it. Take a smaller physical_batch_size"),
    ("gradient_checkpointing", False, "torch.func cannot handle it. Take a smaller physical_batch_size"),
    ("enable_jit_checkpoint", False, "it may save between the noise and the update of a step"),
    ("include_num_input_tokens_seen", "no", "how many tokens the private examples have is private"),
    ("debug", [], "what is computed from private examples would be printed"),
    ("deepspeed", None, "training runs in one process here"),
    ("parallelism_config", None, "training runs in one process here"),
]  # fmt: skip


def refuse_settings(trainer: Trainer) -> None:
    """Settings of TrainingArguments and of accelerate."""
    args: TrainingArguments = trainer.args
    for name, allowed, reason in _SETTINGS:
        # Not every version has all of them; "off" is False, None or an empty list.
        value = getattr(args, name, allowed)
        if value != allowed and (value or allowed):
            raise ValueError(f"TrainingArguments.{name} must be {allowed!r} for private training, got {value!r}: {reason}")
    if args.fsdp or args.world_size > 1:
        raise ValueError(f"training must run in one process, got {args.world_size} processes{' with fsdp' if args.fsdp else ''}")
    if args.n_gpu > 1 or trainer.is_model_parallel:
        raise ValueError(f"training must run on one device, got {max(args.n_gpu, 2)}: set CUDA_VISIBLE_DEVICES to one of them")
    if trainer.accelerator.mixed_precision != "no":
        raise ValueError(f"mixed precision must be off, got {trainer.accelerator.mixed_precision} from the settings of accelerate")
    if str(getattr(args.optim, "value", args.optim)) in ("lomo", "adalomo"):
        raise ValueError(f"TrainingArguments.optim must take the gradients of a step, got {args.optim}: it updates within the backward pass")
    if args.num_train_epochs < 1 or args.num_train_epochs != int(args.num_train_epochs):
        raise ValueError(f"TrainingArguments.num_train_epochs must be a whole number, at least 1, got {args.num_train_epochs}")
    if args.push_to_hub and str(getattr(args.hub_strategy, "value", args.hub_strategy)) in ("checkpoint", "all_checkpoints"):
        raise PrivacyError(
            'TrainingArguments.hub_strategy must be "end" or "every_save": a checkpoint has the state of the run and of the random numbers, '
            "which are to be kept as private as the data"
        )


def refuse_files(args: TrainingArguments, **files: Any) -> None:
    """Secret files in the folder that push_to_hub publishes."""
    folder = Path(str(args.output_dir)).resolve()
    for name, file in files.items():
        if isinstance(file, (str, os.PathLike)) and Path(file).resolve().is_relative_to(folder):
            raise PrivacyError(f"{name} must be a file outside {args.output_dir}, which push_to_hub publishes, got {os.fspath(file)}")
        for found in folder.rglob("*") if isinstance(file, Key) else ():
            if found.is_file() and found.stat().st_size < _KEY_BYTES and _holds(found, file):
                raise PrivacyError(f"{name} must be in a file outside {args.output_dir}, which push_to_hub publishes, got one in {found}")


def _holds(file: Path, key: Key) -> bool:
    """Whether a file is a key file with this key."""
    try:
        return Key.load(file).fingerprint == key.fingerprint
    except Exception:  # any other file
        return False


def refuse_hooks(model: nn.Module) -> None:
    """Hooks on parameters, as wandb.watch sets them: they see gradients without noise."""
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and (parameter._backward_hooks or getattr(parameter, "_post_accumulate_grad_hooks", None)):
            raise PrivacyError(f"a hook on the parameter {name} is refused: it sees the gradients of examples without noise. Remove it")


def refuse_evaluation(trainer: Trainer, dataset: Any) -> None:
    """Evaluation on the examples that the run protects."""
    private = _parts_of(trainer.train_dataset)
    if any(_overlap(one, other) for one in private for other in _parts_of(dataset)):
        raise PrivacyError(
            "evaluation on train_dataset is refused: metrics of the training examples get no noise, and the privacy statement does not "
            "cover them. Evaluate on examples that are not private"
        )


def _parts_of(dataset: Any) -> list[tuple[Any, set[int] | None]]:
    """The data sets that one is made of, each with the indices that are used; None: all of them."""
    if dataset is None:
        return []
    if isinstance(dataset, (dict, torch.utils.data.ConcatDataset)):
        joined = dataset.values() if isinstance(dataset, dict) else dataset.datasets
        return [(dataset, None), *(part for one in joined for part in _parts_of(one))]
    indices: Any = None
    while isinstance(dataset, torch.utils.data.Subset):
        indices = [dataset.indices[i] for i in (range(len(dataset)) if indices is None else indices)]
        dataset = dataset.dataset
    return [(dataset, None if indices is None else {int(i) for i in indices})]


def _overlap(one: tuple[Any, set[int] | None], other: tuple[Any, set[int] | None]) -> bool:
    """Whether two parts have examples in common."""
    return one[0] is other[0] and (one[1] is None or other[1] is None or not one[1].isdisjoint(other[1]))
