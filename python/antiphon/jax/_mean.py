"""The noise meets the sum of clipped gradients: as a function, and as a transformation of optax."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import optax

from .. import PrivacyError
from ._layout import Layout

#: How much smaller than the clip norm, relative to it, a bound may be: room for making up for rounding, and none for a sum that was divided.
SMALLER = 1e-2


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class NoiseRow:
    """The noise of one step for the SUM of clipped gradients, and what it is made for. A tree of JAX: an argument of a compiled step.

    It belongs to one step: added to two different sums, it protects neither. Use `private_mean` or `add_noise`, which add it to the sum
    before anything is divided.
    """

    #: float32, a number for every coordinate. A chunk of steps has one more axis in front, for `jax.lax.scan`.
    flat: Any
    layout: Layout = dataclasses.field(metadata={"static": True})
    clip_norm: float = dataclasses.field(metadata={"static": True})
    batch_size: int = dataclasses.field(metadata={"static": True})
    #: Whether the indices of the step may have been filled up with others, who do not take part.
    filled: bool = dataclasses.field(default=False, metadata={"static": True})

    def tree(self) -> Any:
        """The noise in the shapes of the parameters, float32: per sum of clipped gradients. Whoever divides the sum divides it too."""
        return self.layout.tree(self.flat)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class ClippedSum:
    """A sum of gradients, each clipped as a whole to norm at most `bound`: what `clipped_sum` gives.

    For sums of another origin say it yourself. With jax-privacy: `ClippedSum(gradients, bound=function.l2_norm_bound)`, where function is
    what `jax_privacy.clipped_grad(..., normalize_by=1.0)` gave. It must be the sum, not a mean: `private_mean` divides.
    """

    #: A tree like the parameters.
    total: Any
    bound: float = dataclasses.field(metadata={"static": True})
    #: Whether those who only fill up a batch were left out, by present=; None: nobody knows.
    masked: bool | None = dataclasses.field(default=None, metadata={"static": True})


def private_mean(total: ClippedSum, row: NoiseRow) -> Any:
    """(sum of clipped gradients + noise of the step) / batch size, in the types of the parameters.

    The batch size is the fixed one of the run, also for the smaller last batch of an epoch: how much an example counts must not depend
    on how many others there are. Added in float32, or in the type of the sum if that is wider. Works inside jax.jit and jax.lax.scan.
    """
    if not isinstance(row, NoiseRow):
        raise ValueError(f"row must be a NoiseRow, as Noise gives it, got {type(row).__name__}")
    if not isinstance(total, ClippedSum):
        raise ValueError(
            f"total must be a ClippedSum, got {type(total).__name__}: use clipped_sum, or say what a contribution is clipped to by "
            "ClippedSum(sum_of_clipped_gradients, bound=clip_norm)"
        )
    if not isinstance(total.bound, (int, float)) or isinstance(total.bound, bool) or math.isnan(total.bound):
        raise ValueError(f"bound must be a number, known when the step is compiled, got {total.bound!r}")
    if total.bound > row.clip_norm:
        raise PrivacyError(f"a sum of gradients clipped to {total.bound} is refused: the noise is made for contributions of norm at most {row.clip_norm}")
    if total.bound < row.clip_norm * (1 - SMALLER):
        raise ValueError(
            f"bound must be the clip norm of the noise, {row.clip_norm}, got {total.bound}: pass the sum of clipped gradients, not their mean (in "
            "jax-privacy normalize_by=1.0); private_mean divides by the batch size after the noise is added"
        )
    if row.filled and total.masked is False:
        raise PrivacyError(
            "a sum over a batch that is filled up is refused: those who fill it up were not admitted, and would be in the sum without a limit on how "
            "often. Pass clipped_sum(..., present=present) with the `present` of the chunk or of the callback"
        )
    if jnp.ndim(row.flat) != 1:
        raise ValueError(f"row must be that of one step, got an array of shape {jnp.shape(row.flat)}: scan over a chunk by jax.lax.scan")
    sums = row.layout.check("total", total.total, types=False)
    noisy = _added([jnp.asarray(leaf) for leaf in sums], jax.tree_util.tree_leaves(row.tree()))
    means = [(leaf / row.batch_size).astype(dtype) for leaf, dtype in zip(noisy, row.layout.dtypes)]
    return jax.tree_util.tree_unflatten(row.layout.structure, means)


def _plain(sums: list[jax.Array], noises: list[jax.Array]) -> list[jax.Array]:
    """Added in float32 at least."""
    return [leaf.astype(jnp.promote_types(leaf.dtype, jnp.float32)) + noise for leaf, noise in zip(sums, noises)]


#: The same, which vmap asks before it gives one row to several sums.
_added: Any = jax.custom_batching.custom_vmap(_plain)


@_added.def_vmap  # type: ignore[untyped-decorator]
def _added_many(axis_size: int, batched: Any, sums: Any, noises: Any) -> tuple[Any, Any]:
    del axis_size
    if any(several and not own for several, own in zip(*batched)):
        raise PrivacyError(
            "one row of noise for several sums under vmap is refused: the difference of two of them would have no noise. Every model needs a run "
            "and a key of its own"
        )
    # Number by number: a sum without the new axis, which is the first, goes with every row. Asked again by a vmap around this one.
    return _added(sums, noises), [own for own in batched[1]]


def add_noise() -> optax.GradientTransformationExtraArgs:
    """`private_mean` as a transformation of optax: `update(clipped_sum, state, params, noise=row)`.

    It comes first in a chain: `optax.chain(antiphon.jax.add_noise(), optax.sgd(0.1, momentum=0.9))`. What follows it is
    post-processing and costs no privacy. An update without noise= is refused.
    """

    def init(params: Any) -> optax.EmptyState:
        del params
        return optax.EmptyState()

    def update(updates: Any, state: Any, params: Any = None, *, noise: NoiseRow | None = None, **extra: Any) -> tuple[Any, Any]:
        del extra
        if noise is None:
            raise PrivacyError("an update without noise is refused: call update(clipped_sum, state, params, noise=row) with the row of the step")
        means = private_mean(updates, noise)
        if params is not None:
            noise.layout.check("params", params, types=True)
        return means, state

    return optax.GradientTransformationExtraArgs(init, update)
