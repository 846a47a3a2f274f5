"""What belongs to the one run of an engine, and what a checkpoint keeps of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from .. import PrivateRun
from ..torch import FixedOrderBatches
from ._loader import Ledger
from ._optimizer import CorrelatedOptimizer


@dataclass
class Training:
    """What belongs to the one run of an engine."""

    run: PrivateRun
    order: FixedOrderBatches
    ledger: Ledger
    model: nn.Module
    parameters: dict[str, nn.Parameter]
    norms: list[float] | None
    name: str
    mode: str
    clipping: str
    loss_reduction: str
    optimizer: CorrelatedOptimizer | None = None

    def settings(self) -> dict[str, Any]:
        """What a checkpoint must agree with, beside run and order."""
        return {"grad_sample_mode": self.mode, "clipping": self.clipping, "norms": self.norms, "loss_reduction": self.loss_reduction}

    def state_dict(self) -> dict[str, Any]:
        """All that is needed to go on, beside model, optimizer and key."""
        self.order.position = self.run.step
        return {
            "version": 1,
            "run": self.run.state_dict(),
            "order": self.order.state_dict(),
            "settings": self.settings(),
            "random": torch.get_rng_state(),
        }

    def load_state_dict(self, state: Any, *, repeat_noise: bool) -> None:
        """Goes on after the last step of a state. The run must be the same."""
        if not isinstance(state, dict) or state.get("version") != 1:
            raise ValueError("path must be a checkpoint that save_checkpoint of antiphon.opacus.PrivacyEngine wrote, version 1")
        if state["settings"] != self.settings():
            raise ValueError(f"the checkpoint must be of training with the same settings, got {state['settings']}, and they are {self.settings()}")
        try:
            self.order.load_state_dict(state["order"])
            if state["order"]["position"] != state["run"]["step"]:
                raise ValueError("the checkpoint must have the same number of steps for the order of the data and for the run")
            self.run.load_state_dict(state["run"], repeat_noise=repeat_noise)
        finally:
            self.order.position = self.run.step


def refuse_schedulers(noise_scheduler: Any, grad_clip_scheduler: Any) -> None:
    """Noise and clip norms that change in the run."""
    if noise_scheduler is not None or grad_clip_scheduler is not None:
        raise ValueError(
            "noise_scheduler and grad_clip_scheduler must be left out: the noise of all steps is made for one clip norm and one noise multiplier"
        )
