"""Per-example gradients, clipped and added up, in JAX operations.

`antiphon.Clip` adds contributions exactly, on a grid. Sums in XLA are not exact: each addition rounds, in float32, by an amount that
depends on the other examples. What can be had here is that no contribution by itself is longer than the clip norm:

    n² = computed sum of squares + d·2⁻¹²⁴     squares that underflow are less than d·2⁻¹²⁵ in all
    s = target/n if n > target, else 1; 0 if n is not finite
    contribution = s·g, rounded

The sum of squares is taken over blocks of 64 and then over blocks of their sums, with a barrier between, so that its relative error is at
most 64·levels·u for any order that XLA takes inside a block (u: half the distance of numbers at 1). Square root, division and products
round by a few u more; some devices have square roots and divisions that are off by several. The target is below the clip norm by all of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from .._arguments import check_norm, whole
from ._layout import shape_of
from ._mean import ClippedSum

BLOCK = 64
#: What is behind it is computed once, as it is written.
_barrier: Any = jax.lax.optimization_barrier
#: Other roundings, in units of u, with room to spare: squares, square root, division, products, and the target itself in the type of the gradients.
OTHERS = 64


def clipped_sum(
    loss_fn: Callable[[Any, Any], Any],
    params: Any,
    batch: Any,
    clip_norm: float,
    *,
    present: Any = None,
    microbatch_size: int | None = None,
) -> ClippedSum:
    """The sum of the gradients of all examples of a batch, each clipped as a whole to norm at most `clip_norm`.

    loss_fn          loss_fn(params, example): a number, for ONE example, without the axis of the batch
    batch            a tree of arrays whose first axis is that of the examples
    clip_norm        a number in [1e-12, 1e12], that of the run
    present          who takes part, a truth value for each example; the others count as zero. For batches filled up to one shape
    microbatch_size  examples whose gradients are in memory at a time (default: all)

    A gradient with an entry that is not finite, or a norm above about 1e19 in float32, counts as zero. Gradients are clipped and added up in
    float32, or in float64 if a parameter has that type. Unlike the sums of antiphon.Clip, these are not exact: see the note on rounding in the
    statement of the run. Works inside jax.jit and jax.lax.scan; nothing here mixes examples before they are clipped.
    """
    clip_norm = _norm(clip_norm)
    lengths = {(shape_of(leaf) or (None,))[0] for leaf in jax.tree_util.tree_leaves(batch)}
    if len(lengths) != 1 or None in lengths:
        raise ValueError(f"batch must have arrays with one first axis, that of the examples, got lengths {sorted(map(str, lengths))}")
    (examples,) = lengths
    assert isinstance(examples, int)
    masked = present is not None
    present = jnp.ones(examples, bool) if present is None else jnp.asarray(present)
    if present.shape != (examples,) or present.dtype != jnp.bool_:
        raise ValueError(f"present must be {examples} truth values, one per example, got {present.dtype} of shape {present.shape}")
    leaves = jax.tree_util.tree_leaves(params)
    dtype = jnp.dtype(jnp.result_type(jnp.float32, *leaves))
    target = _target(clip_norm, [math.prod(shape_of(leaf)) for leaf in leaves], double=dtype == jnp.float64)
    gradient = jax.grad(loss_fn)

    def part(batch: Any, present: jax.Array) -> Any:
        gradients = jax.vmap(gradient, in_axes=(None, 0))(params, batch)
        return jax.vmap(lambda tree, there: _clipped(tree, there, target, dtype))(gradients, present)

    def added(batch: Any, present: jax.Array) -> Any:
        return jax.tree_util.tree_map(lambda leaf: leaf.sum(axis=0), part(batch, present))

    size = examples if microbatch_size is None else min(whole("microbatch_size", microbatch_size), examples)
    if examples == 0:
        total = jax.tree_util.tree_map(lambda leaf: jnp.zeros(shape_of(leaf), dtype), params)
    elif size == examples:
        total = added(batch, present)
    else:
        pieces = -(-examples // size)
        filled = jax.tree_util.tree_map(lambda leaf: _in_pieces(jnp.asarray(leaf), pieces, size), (batch, present))
        start = jax.tree_util.tree_map(lambda leaf: jnp.zeros(shape_of(leaf), dtype), params)
        total, _ = jax.lax.scan(lambda sums, piece: (jax.tree_util.tree_map(jnp.add, sums, added(*piece)), None), start, filled)
    return ClippedSum(total, bound=clip_norm, masked=masked)


def _target(clip_norm: float, sizes: list[int], *, double: bool) -> float:
    """Computed norms above this are scaled down to it: below the clip norm by all that rounding can add, as the module says."""
    levels = max(_levels(size) for size in sizes) + _levels(len(sizes))
    return clip_norm * (1 - (BLOCK * levels + OTHERS) * 2.0 ** (-53 if double else -24))


def _levels(numbers: int) -> int:
    """How often `_sum` goes over that many numbers."""
    count = 0
    while numbers > 1:
        numbers, count = -(-numbers // BLOCK), count + 1
    return count


def _in_pieces(leaf: jax.Array, pieces: int, size: int) -> jax.Array:
    """With more examples at the end, to fill the last piece: copies of the first for data, nobody for `present`."""
    missing = pieces * size - leaf.shape[0]
    more = jnp.zeros(missing, bool) if leaf.dtype == jnp.bool_ and leaf.ndim == 1 else jnp.repeat(leaf[:1], missing, axis=0)
    return jnp.concatenate([leaf, more]).reshape(pieces, size, *leaf.shape[1:])


def _clipped(tree: Any, present: jax.Array, target: float, dtype: Any) -> Any:
    """The contribution of one example."""
    # The barrier: otherwise XLA may compute an entry twice, once for the norm and once for the sum, and round it differently.
    tree = _barrier(jax.tree_util.tree_map(lambda leaf: leaf.astype(dtype), tree))
    leaves = jax.tree_util.tree_leaves(tree)
    lost = sum(leaf.size for leaf in leaves) * 2.0**-124
    norm = jnp.sqrt(_sum(jnp.stack([_sum((leaf * leaf).ravel()) for leaf in leaves])) + jnp.asarray(lost, dtype))
    bound = jnp.asarray(target, dtype)
    factor = jnp.where(norm > bound, bound / norm, jnp.ones((), dtype))
    counts = present & jnp.isfinite(norm)
    return jax.tree_util.tree_map(lambda leaf: jnp.where(counts, factor * leaf, jnp.zeros((), dtype)), tree)


def _sum(numbers: jax.Array) -> jax.Array:
    """The sum of numbers that are not negative, block by block: no order of additions can lose more than the module says."""
    while numbers.size > 1:
        blocks = -(-numbers.size // BLOCK)
        numbers = jnp.pad(numbers, (0, blocks * BLOCK - numbers.size)).reshape(blocks, BLOCK).sum(axis=1)
        numbers = _barrier(numbers)  # otherwise XLA may join the sums of two levels into one of any order
    return numbers.reshape(()) if numbers.size else jnp.zeros((), numbers.dtype)


def _norm(norm: object) -> float:
    checked = check_norm("clip_norm", norm)
    if not 1e-12 <= checked <= 1e12:
        raise ValueError(f"clip_norm must be in [1e-12, 1e12], where squares of float32 neither vanish nor overflow, got {norm!r}")
    return checked
