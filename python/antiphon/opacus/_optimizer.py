"""The optimizers: clipped sums of per-example gradients, who takes part in the step, and its noise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping
from torch import nn

from .. import Clip, PrivacyError, PrivateRun
from ..torch import FixedOrderBatches, add_clipped
from ..torch._refuse import layout_of, refuse_modules, refuse_optimizer
from ._ghost import MARGIN
from ._loader import Ledger


class CorrelatedOptimizer(DPOptimizer):  # type: ignore[misc]
    """Opacus' optimizer with the noise of a run. Per-example gradients come from Opacus; they are clipped and added up by `antiphon.Clip`,
    whose bound on what one example adds is exact."""

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        *,
        run: PrivateRun,
        order: FixedOrderBatches,
        ledger: Ledger,
        model: nn.Module,
        parameters: dict[str, nn.Parameter],
        norms: list[float] | None,
        loss_reduction: str,
    ) -> None:
        super().__init__(
            optimizer,
            noise_multiplier=run.noise_multiplier,
            max_grad_norm=run.clip_norm,
            expected_batch_size=order.batch_size,
            loss_reduction=loss_reduction,
        )
        self.run, self._order, self._ledger, self._model = run, order, ledger, model
        self._parameters, self._layout = parameters, layout_of(parameters)
        self._sizes = [parameter.numel() for parameter in parameters.values()]
        if norms is None:
            self._clips = [Clip(run.clip_norm, params=sum(self._sizes))]
        else:
            # Opacus has them in the order of the optimizer; coordinates are in the order of the model.
            of = {id(p): norm for p, norm in zip(self.params, norms)}
            self._clips = [Clip(of[id(p)], params=p.numel()) for p in parameters.values()]
        device = next(iter(parameters.values())).device
        self._total = torch.zeros(sum(self._sizes), dtype=torch.float64, device=device)
        #: Examples in that sum.
        self._counted = 0
        self._stepping = False
        self.remember_buffers()
        ledger.waiting, ledger.drop_parts = self.waiting, self._drop_parts
        optimizer.register_step_pre_hook(self._refuse_alone)

    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Clips the gradients, and takes the step with the noise that belongs to it; or raises PrivacyError, and nothing has happened then."""
        if closure is not None:
            with torch.enable_grad():
                closure()
        self._stepping = True
        try:
            found: float | None = super().step()
        finally:
            self._stepping = False
        return found

    def pre_step(self, closure: Callable[[], float] | None = None) -> bool:
        """As in Opacus. What fails leaves no sum behind."""
        try:
            # Here, because Opacus takes an ordinary step if nothing is trainable any more.
            self._check()
            return bool(super().pre_step())
        except BaseException:
            self._is_last_step_skipped = False
            self._forget()
            raise

    def clip_and_accumulate(self) -> None:
        """Adds the clipped gradients of the examples to the sum of the step."""
        parts = {name: _parts_of(p) for name, p in self._parameters.items()}
        sizes = {tuple(map(len, found)) for found in parts.values()}
        if len(sizes) != 1:
            raise PrivacyError(
                f"all parameters must have gradients of the same examples, got different numbers of them: {sorted(sizes)[:3]}. An example "
                "could not be clipped as a whole"
            )
        for name, found in parts.items():
            for part in found:
                if hasattr(part, "_processed"):
                    raise PrivacyError(
                        f"the gradients of {name} are in an earlier step already: call optimizer.zero_grad() after every step. An example takes "
                        "part once per epoch"
                    )
                if part.dtype not in (torch.float32, torch.float64):
                    raise PrivacyError(
                        f"per-example gradients must be float32 or float64, got {part.dtype} at {name}: train without autocast to lower precision"
                    )
        # Before they are added: whoever may be in the sum is counted, whatever happens.
        self._counted += sum(next(iter(sizes)))
        for gradients in zip(*parts.values()):
            self._add(list(gradients))
        for found in parts.values():
            for part in found:
                part._processed = True  # type: ignore[attr-defined]  # the mark that Opacus has for it

    def add_noise(self) -> None:
        """Admits those who take part, and puts the noisy sum into `p.grad`."""
        self._refuse_others()
        try:
            total = self._total.cpu()
            self.run.admit(self._ledger.handed)
            self.run.privatize(total)
            # Whatever else the optimizer holds has no gradient with noise: a frozen parameter may keep one from before.
            for group in self.param_groups:
                for parameter in group["params"]:
                    parameter.grad = None
            for parameter, part in zip(self._parameters.values(), torch.split(total, self._sizes)):
                # A copy in any case: the sum is used again for the next step.
                parameter.grad = part.reshape(parameter.shape).to(device=parameter.device, dtype=parameter.dtype, copy=True)
        finally:
            self._forget()

    @property
    def accumulated_iterations(self) -> int:
        """1: a step has one batch, in as many parts as it may come. So gradients are divided by the same number in every step."""
        return 1

    def zero_grad(self, set_to_none: bool = False) -> None:
        """As in Opacus: clears gradients, and the sum unless it waits for more parts of a batch."""
        super().zero_grad(set_to_none)
        if not self._is_last_step_skipped and self._counted:
            self._total.zero_()
            self._counted = 0

    def waiting(self) -> int:
        """Examples in gradients that no step has taken."""
        fresh = (sum(len(part) for part in _parts_of(p) if not hasattr(part, "_processed")) for p in self._parameters.values())
        return self._counted + max(fresh)

    def next_is_a_part(self, *, last: bool) -> None:
        """Of a batch that comes in parts: the step is taken with the last one."""
        self._step_skip_queue = [not last]

    def remember_buffers(self) -> None:
        """What the model holds beside its parameters. It must not change while it is trained."""
        self._buffers = self._look()

    def _look(self) -> list[tuple[torch.Tensor, torch.Tensor]]:
        # Their values: writes through `.data`, as moving averages are often made, are in no counter of writes.
        return [(buffer, buffer.detach().clone()) for buffer in self._model.buffers()]

    def _add(self, gradients: list[torch.Tensor]) -> None:
        if len(self._clips) == 1:
            add_clipped(self._clips[0], gradients, self._total)
            return
        for clip, gradient, total in zip(self._clips, gradients, torch.split(self._total, self._sizes)):
            add_clipped(clip, [gradient], total)

    def _forget(self) -> None:
        """Nobody is in the sum of the next step."""
        self._total.zero_()
        self._counted = 0
        self._ledger.forget()
        self._order.position = self.run.step

    def _drop_parts(self) -> None:
        self._step_skip_queue = []
        if self._is_last_step_skipped:
            self._is_last_step_skipped = False
            self._forget()

    def _refuse_others(self) -> None:
        """The step must be of its batch, and of nothing else."""
        step, handed = self.run.step, self._ledger.handed
        if step >= self.run.steps:
            return  # the run refuses it
        batch = self._order.batch(step)
        if self._ledger.mixed or self._counted != len(handed):
            raise PrivacyError(
                f"step {step} is refused: the loader handed out {len(handed)} examples since the last step, and there are gradients of {self._counted}. "
                "Every batch of the loader must be used once, for one step, with one gradient per example; use no other data"
            )
        if handed != batch:
            raise PrivacyError(
                f"step {step} is refused: it must be made of the batch that belongs to it ({len(batch)} examples), and the loader handed out "
                f"{'another one' if len(handed) == len(batch) else f'{len(handed)} examples'}. Do not skip, repeat or join batches, or "
                "read them ahead of the step; begin the loop over the loader anew to get the batch of this step. For large batches in parts use "
                "antiphon.opacus.BatchMemoryManager (Opacus' own reads ahead if num_workers > 0)"
            )

    def _check(self) -> None:
        """What was agreed when the run was made."""
        refuse_modules(self._model)
        refuse_optimizer(self.original_optimizer, self._parameters)
        if self.noise_multiplier != self.run.noise_multiplier or self.max_grad_norm != self.run.clip_norm:
            raise PrivacyError(
                "noise_multiplier and max_grad_norm of the optimizer changed after make_private: the noise of the whole run is made for "
                "those that were there then. Schedulers for them are not supported"
            )
        now = {name: p for name, p in self._model.named_parameters() if p.requires_grad}
        same = list(now) == list(self._parameters) and all(now[name] is p for name, p in self._parameters.items())
        if not same or layout_of(now) != self._layout:
            raise PrivacyError(
                "the trainable parameters of the model changed after make_private: the noise of the run is made for those that were there then. "
                "Freeze or add parameters before make_private"
            )
        self.check_buffers()

    def check_buffers(self) -> None:
        """That they are as they were when the run was made, or its checkpoint loaded."""
        buffers = list(self._model.buffers())
        if len(buffers) != len(self._buffers) or any(a is not b or not _equal(kept, b) for (a, kept), b in zip(self._buffers, buffers)):
            raise PrivacyError(
                "a buffer of the model changed since make_private: if it keeps something of the examples, no noise protects it. Such a "
                "model cannot be trained privately; remove the buffer"
            )

    def _refuse_alone(self, *_: Any) -> None:
        if not self._stepping:
            raise PrivacyError(
                "step() of the optimizer that was given to make_private is refused: its gradients have no noise. Call step() of the "
                "optimizer that make_private returned"
            )


class GhostOptimizer(CorrelatedOptimizer, DPOptimizerFastGradientClipping):  # type: ignore[misc]
    """For ghost clipping, where backward() leaves the clipped sum in `p.grad`, by Opacus in single precision."""

    #: How many examples backward() clipped, and the gradients that it left.
    _left: tuple[int, list[tuple[torch.Tensor, int]]] | None = None
    #: Examples of the first batch whose norms were compared with those of PyTorch alone.
    compared = 0
    #: Opacus' wrapper or hooks, which clip.
    clipper: Any = None

    def clipped(self, examples: int) -> None:
        """Told by backward()."""
        self._left = (examples, self._gradients())

    def accumulate(self) -> None:
        """Adds what backward() left to the sum of the step."""
        left, self._left = self._left, None
        if left is None:
            raise PrivacyError(
                "the gradients were not clipped: in ghost mode the loss must come from the criterion that make_private returned, and "
                "backward() be called on it once for every step"
            )
        if self.clipper.max_grad_norm != self.run.clip_norm * (1 - MARGIN):
            raise PrivacyError("max_grad_norm of the model changed after make_private: the noise of the run is made for the one that was there then")
        gradients = self._gradients()
        if len(gradients) != len(self._sizes) or _changed(left[1], gradients):
            raise PrivacyError(
                "the gradients changed after backward(): in ghost mode they are the clipped sum already. Remove other calls of backward() "
                "and what clips or scales gradients, or take another grad_sample_mode"
            )
        total = torch.cat([g.detach().reshape(-1).to(torch.float64) for g, _ in gradients])
        if not bool(total.isfinite().all()):
            raise PrivacyError(
                "the sum of the clipped gradients is not finite: ghost clipping cannot leave out the example to blame. Other modes of "
                "grad_sample_mode do that"
            )
        self._counted += left[0]
        self._total += total

    def zero_grad(self, set_to_none: bool = False) -> None:
        """As in Opacus."""
        super().zero_grad(set_to_none)
        self._left = None

    def waiting(self) -> int:
        """Examples in gradients that no step has taken."""
        return self._counted + (self._left[0] if self._left else 0)

    def _gradients(self) -> list[tuple[torch.Tensor, int]]:
        return [(p.grad, p.grad._version) for p in self._parameters.values() if p.grad is not None]


def _parts_of(parameter: nn.Parameter) -> list[torch.Tensor]:
    """The per-example gradients of a parameter, one tensor per backward()."""
    found: Any = getattr(parameter, "grad_sample", None)
    if found is None:
        return []
    return list(found) if isinstance(found, list) else [found]


def _changed(before: list[tuple[torch.Tensor, int]], now: list[tuple[torch.Tensor, int]]) -> bool:
    """Whether tensors were replaced or written to, by the counters of writes that PyTorch has."""
    return len(before) != len(now) or any(a is not b or m != n for (a, m), (b, n) in zip(before, now))


def _equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether all numbers are the same; NaN is the same as NaN."""
    return a.shape == b.shape and a.dtype == b.dtype and bool(((a == b.to(a.device)) | ((a != a) & (b != b).to(a.device))).all())
