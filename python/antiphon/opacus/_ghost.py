"""Ghost clipping: norms of per-example gradients in double precision, and losses that say how many examples were clipped."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from opacus.grad_sample import GradSampleHooksFastGradientClipping, GradSampleModuleFastGradientClipping
from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping, DPTensorFastGradientClipping

from .. import PrivacyError

#: Ghost clipping never has the gradient of an example alone, so that what it adds up cannot be measured. Opacus clips to a norm that is
#: smaller than the clip norm of the run by this part, for the rounding of norms and sums in single precision.
MARGIN = 2.0**-10


class _InDouble(Mapping[type, Callable[..., Any]]):
    """Opacus' norm samplers and gradient samplers, so that norms are computed in double precision.

    For sequences a norm sampler adds up terms that cancel: in single precision the rest may be too small by far. And PyTorch adds up the squares of
    a large layer in single precision one by one: the norm of ten million equal numbers is too small by 0.8 %. Examples would be clipped too little.
    """

    def __init__(self, samplers: Mapping[type, Callable[..., Any]], *, inputs: bool) -> None:
        self._samplers, self._inputs = samplers, inputs

    def __getitem__(self, kind: type) -> Callable[..., Any]:
        sampler = self._samplers[kind]

        def in_double(layer: Any, activations: list[torch.Tensor], backprops: torch.Tensor) -> dict[Any, torch.Tensor]:
            if self._inputs:
                activations = [a.double() if a.is_floating_point() else a for a in activations]
                backprops = backprops.double()
            return {parameter: found.double() for parameter, found in sampler(layer, activations, backprops).items()}

        return in_double

    def __iter__(self) -> Iterator[type]:
        return iter(self._samplers)

    def __len__(self) -> int:
        return len(self._samplers)


_NORMS = _InDouble(GradSampleHooksFastGradientClipping.NORM_SAMPLERS, inputs=True)
#: The gradients themselves are those of single precision; their norms are computed of them.
_GRADIENTS = _InDouble(GradSampleHooksFastGradientClipping.GRAD_SAMPLERS, inputs=False)


class _AllMeasured:
    """Every parameter must have norms of this batch."""

    trainable_parameters: list[torch.nn.Parameter]

    def get_norm_sample(self) -> torch.Tensor:
        """As in Opacus."""
        missing = sum(getattr(parameter, "_norm_sample", None) is None for parameter in self.trainable_parameters)
        if missing:
            raise PrivacyError(
                f"all trainable parameters must have a part in the loss of every example in ghost mode, got {missing} without: Opacus did not "
                "measure their gradients. Freeze what is not used before make_private, and call backward() for every forward pass of training"
            )
        found: torch.Tensor = super().get_norm_sample()  # type: ignore[misc]
        return found


class GhostHooks(_AllMeasured, GradSampleHooksFastGradientClipping):  # type: ignore[misc]
    """Opacus' hooks for a model that is not wrapped."""

    NORM_SAMPLERS, GRAD_SAMPLERS = _NORMS, _GRADIENTS


class GhostModule(_AllMeasured, GradSampleModuleFastGradientClipping):  # type: ignore[misc]
    """Opacus' wrapper of a model."""

    NORM_SAMPLERS, GRAD_SAMPLERS = _NORMS, _GRADIENTS


class ClippedTensor(DPTensorFastGradientClipping):  # type: ignore[misc]
    """The losses of a batch, whose backward() leaves the sum of clipped gradients, and tells the optimizer of how many."""

    loss_per_sample: torch.Tensor

    def backward(self) -> None:
        """Two passes, as in Opacus: the norms, then the clipped sum."""
        losses = self.loss_per_sample
        if losses.ndim != 1:
            # Opacus would multiply a column of losses by a row of factors: no example would be clipped.
            if losses.ndim == 0 or losses.numel() != len(losses):
                raise PrivacyError(
                    f"criterion must give one loss per example in ghost mode, got losses of shape {tuple(losses.shape)}: the gradients "
                    "would not be clipped per example. For sequences pass shape= as Opacus documents, or take another grad_sample_mode"
                )
            self.loss_per_sample = losses = losses.reshape(-1)
        self._refuse_stale()
        samples = self._norms_of_some(losses) if self.optimizer.compared == 0 else {}
        super().backward()
        norms = self.module.per_sample_gradient_norms
        if norms.shape != losses.shape or norms.dtype not in (torch.float32, torch.float64):
            self.optimizer.zero_grad()
            raise PrivacyError(
                f"ghost clipping must have one norm per example in float32 or float64, got {norms.dtype} of shape {tuple(norms.shape)} for "
                f"{len(losses)} losses: the gradients are not clipped per example"
            )
        for example, norm in samples.items():
            # Rounding stays within the margin; a use of a parameter that Opacus does not see does not.
            if not norm <= float(norms[example]) * (1 + MARGIN) + MARGIN * self.module.max_grad_norm:
                self.optimizer.zero_grad()
                raise PrivacyError(
                    "ghost clipping does not see all of the gradient of an example, which would add more than the clip norm: a parameter is used "
                    "outside its own module (weights that are shared or used by a function, a penalty on weights in the criterion), or the "
                    "examples are not treated alone. Take another grad_sample_mode; for a penalty on weights, weight_decay of the optimizer"
                )
        self.optimizer.compared = self.optimizer.compared or len(samples)
        self.optimizer.clipped(len(losses))

    def _refuse_stale(self) -> None:
        """Norms of an earlier batch, which are left where the hooks of Opacus do not see this one."""
        for name, module in self.optimizer._model.named_modules():
            if not module.training and any(p.requires_grad for p in module.parameters(recurse=False)):
                raise PrivacyError(
                    f"the model must be in training mode in ghost mode, got {name or type(module).__name__} in eval mode: Opacus does not "
                    "measure the gradients of its parameters then. Call model.train()"
                )
        for parameter in self.module.trainable_parameters:
            parameter._norm_sample = None

    def _norms_of_some(self, losses: torch.Tensor) -> dict[int, float]:
        """Norms of the gradients of a few examples, by PyTorch alone."""
        examples = sorted({round(part * (len(losses) - 1) / 3) for part in range(4)})
        self.module.disable_hooks()
        try:
            found = {i: torch.autograd.grad(losses[i], self.module.trainable_parameters, retain_graph=True, allow_unused=True) for i in examples}
        finally:
            self.module.enable_hooks()
        norms = {i: sum(float(g.double().square().sum()) for g in gradients if g is not None) ** 0.5 for i, gradients in found.items()}
        return {i: norm for i, norm in norms.items() if math.isfinite(norm)}  # the optimizer refuses all else


def _kept_ours(name: str) -> Callable[..., ClippedTensor]:
    operation = getattr(DPTensorFastGradientClipping, name)

    def method(self: ClippedTensor, *other: Any) -> ClippedTensor:
        if any(isinstance(one, torch.Tensor) and one.requires_grad for one in other):
            raise PrivacyError(
                "what is added to or multiplied with the loss must not depend on parameters in ghost mode: its gradient would be added once per "
                "example without being clipped. For a penalty on weights use weight_decay of the optimizer"
            )
        found = operation(self, *other)
        return ClippedTensor(found.module, found.optimizer, found.loss_per_sample, found.loss_reduction)

    return method


# What Opacus computes with losses gives its own class, whose backward() does not tell the optimizer.
for _name in ("__truediv__", "__mul__", "__rmul__", "__add__", "__radd__", "__sub__", "__rsub__", "__neg__"):
    setattr(ClippedTensor, _name, _kept_ours(_name))


class ClippedLoss(DPLossFastGradientClipping):  # type: ignore[misc]
    """The criterion that make_private returns in ghost mode."""

    def __call__(self, *args: Any, shape: Any = None, **kwargs: Any) -> ClippedTensor:
        found = super().__call__(*args, shape=shape, **kwargs)
        return ClippedTensor(found.module, found.optimizer, found.loss_per_sample, found.loss_reduction)
