"""Per-example gradients, and their clipped sums."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.func import functional_call, grad, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._pytree import tree_leaves, tree_map

from .. import Clip

#: Bytes of per-example gradients that are kept at a time, where nobody says how many examples.
_BYTES = 36 << 20


class _Loss(nn.Module):
    """The loss of a batch of one example, as a module, so that parameters can be put in its place."""

    def __init__(self, model: nn.Module, compute_loss: Callable[[nn.Module, Any], torch.Tensor]) -> None:
        super().__init__()
        self.model = model
        self._compute_loss = compute_loss

    def forward(self, batch: Any) -> torch.Tensor:
        loss = self._compute_loss(self.model, batch)
        if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
            got = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, torch.Tensor) else type(loss).__name__
            raise ValueError(f"the loss of a batch of one example must be one number, got {got}")
        return loss.reshape(())


def of_pairs(loss_fn: Callable[[Any, Any], torch.Tensor]) -> Callable[[nn.Module, Any], torch.Tensor]:
    """The loss for data sets of (input, target). An input that is a dict is passed by name."""

    def compute_loss(model: nn.Module, batch: Any) -> torch.Tensor:
        if not isinstance(batch, (tuple, list)) or len(batch) != 2:
            raise ValueError(
                "examples must be pairs (input, target) for a loss_fn(output, target), got "
                f"{type(batch).__name__}; for anything else pass compute_loss=function(model, batch)"
            )
        inputs, target = batch
        output = model(**inputs) if isinstance(inputs, dict) else model(inputs)
        return loss_fn(output, target)

    return compute_loss


class PerExampleGradients:
    """The gradients of a loss with respect to the trainable parameters of a model, for every example alone.

    `method` is "vmap" (torch.func, all examples of a chunk at once) or "loop" (one example after the other, for modules
    that vmap cannot handle; the slow obvious way).
    """

    def __init__(
        self,
        model: nn.Module,
        compute_loss: Callable[[nn.Module, Any], torch.Tensor],
        *,
        physical_batch_size: int | None = None,
        method: str = "vmap",
    ) -> None:
        if method not in ("vmap", "loop"):
            raise ValueError(f'per_example must be "vmap" or "loop", got {method!r}')
        self.model, self.method = model, method
        #: All parameters by name, where the model does not hold them itself: one whose parts lie in several processes.
        self.whole: dict[str, torch.Tensor] | None = None
        self._loss = _Loss(model, compute_loss)
        trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
        bytes_per_example = sum(parameter.numel() * parameter.element_size() for parameter in trainable)
        self.physical_batch_size = physical_batch_size or max(1, min(1024, _BYTES // max(1, bytes_per_example)))

        def of_one(parameters: dict[str, torch.Tensor], example: Any) -> torch.Tensor:
            batch = tree_map(lambda leaf: leaf.unsqueeze(0), example)
            loss: torch.Tensor = functional_call(self._loss, {**parameters, **self._frozen()}, (batch,))
            return loss

        self._vmapped = vmap(grad(of_one), in_dims=(None, 0), randomness="different")

    def chunks(self, data: Any, examples: int) -> Iterator[list[torch.Tensor]]:
        """The gradients of a batch, at most `physical_batch_size` examples at a time: one tensor per trainable parameter,
        in the order of `named_parameters()`, whose first dimension are the examples."""
        most = 1 if self.method == "loop" else self.physical_batch_size
        size = -(-examples // -(-examples // most)) if examples else 1  # equal parts
        for first in range(0, examples, size):
            chunk = tree_map(lambda leaf: leaf[first : first + size], data)
            yield self._one_by_one(chunk) if self.method == "loop" else self._at_once(chunk)

    def _parameters(self) -> dict[str, torch.Tensor]:
        whole = self.whole
        return {f"model.{name}": p if whole is None else whole[name] for name, p in self.model.named_parameters() if p.requires_grad}

    def _frozen(self) -> dict[str, torch.Tensor]:
        """Parameters that are not trained and that the model does not hold itself."""
        if self.whole is None:
            return {}
        return {f"model.{name}": self.whole[name] for name, p in self.model.named_parameters() if not p.requires_grad}

    def _at_once(self, chunk: Any) -> list[torch.Tensor]:
        parameters = {name: parameter.detach() for name, parameter in self._parameters().items()}
        try:
            # The only form of attention that vmap can handle.
            with sdpa_kernel(SDPBackend.MATH):
                gradients = self._vmapped(parameters, chunk)
        except RuntimeError as error:
            if "vmap" in str(error) or self._works_alone(chunk):
                error.add_note(
                    "antiphon computes per-example gradients with torch.func.vmap. If the model writes to its own weights or buffers, it cannot "
                    "be trained privately: no noise protects what it writes. If it does something else that vmap cannot handle "
                    '(as GRU does), pass per_example="loop" to make_private (slower).'
                )
            raise
        return [gradients[name] for name in parameters]

    def _works_alone(self, chunk: Any) -> bool:
        """Whether one example without vmap raises nothing: then vmap is to blame, and not the model."""
        try:
            self._one_by_one(tree_map(lambda leaf: leaf[:1], chunk))
        except Exception:
            return False
        return True

    def _one_by_one(self, chunk: Any) -> list[torch.Tensor]:
        parameters = self._parameters()
        with torch.enable_grad():
            if self.whole is None:
                loss = self._loss(chunk)
            else:
                parameters = {name: parameter.detach().requires_grad_() for name, parameter in parameters.items()}
                loss = functional_call(self._loss, {**parameters, **self._frozen()}, (chunk,))
            found = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True)
        zero = [torch.zeros_like(p) if g is None else g for g, p in zip(found, parameters.values())]
        return [gradient.unsqueeze(0) for gradient in zero]


def leading(data: Any) -> set[int]:
    """The lengths of the first dimension of all tensors of a batch."""
    leaves = tree_leaves(data)
    wrong = [type(leaf).__name__ for leaf in leaves if not isinstance(leaf, torch.Tensor)]
    if wrong:
        raise ValueError(f"a batch must consist of tensors (pass a collate_fn that makes them), got {', '.join(sorted(set(wrong)))}")
    return {leaf.shape[0] if leaf.ndim else 0 for leaf in leaves}


def add_clipped(clip: Clip, gradients: list[torch.Tensor], total: torch.Tensor) -> None:
    """Adds the contributions of the examples of a chunk to `total`, a flat tensor of float64: every example is clipped as a
    whole, contributions are rounded to the grid of `clip`, and the sum is exact. On an accelerator by PyTorch, with the
    same result."""
    dtype = torch.float64 if any(g.dtype == torch.float64 for g in gradients) else torch.float32
    gradients = [g.detach().to(dtype).contiguous() for g in gradients]
    if total.device.type == "cpu":
        clip.add(gradients, total)
    else:
        add_clipped_by_torch(clip, gradients, total)


def add_clipped_by_torch(clip: Clip, gradients: list[torch.Tensor], total: torch.Tensor) -> None:
    """The same in PyTorch alone: what accelerators use, and what the Rust code is compared with."""
    flat = torch.cat([g.reshape(len(g), -1).to(torch.float64) for g in gradients], dim=1)
    norms = flat.square().sum(1).sqrt()
    factors = torch.where(norms <= clip.target, torch.ones_like(norms), clip.target / norms)
    finite = norms.isfinite()
    flat = torch.where(finite[:, None], flat, torch.zeros_like(flat)) * torch.where(finite, factors, torch.zeros_like(factors))[:, None]
    # Numbers near 1.5·2⁵² units count by units.
    near = 1.5 * 2.0**52 * clip.unit
    total += ((flat + near) - near).sum(0)
