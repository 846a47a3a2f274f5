"""Rows drawn by a compiled function itself, through a callback to the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import io_callback

from ._mean import NoiseRow
from ._noise import Noise
from ._rows import HostRows


def callback_noise(noise: Noise) -> Callable[..., NoiseRow]:
    """A function for use inside jax.jit: draw(indices) admits the examples of a step and gives its NoiseRow, whenever the compiled
    function runs. draw(indices, present) admits those of which `present` is true, for batches filled up to one shape.

    For convenience: rows as arguments (`for indices, row in noise`) do the same, can be placed on any device, and raise PrivacyError
    itself. Here what the guard refuses, and a step past the end, becomes the error of the compiled function, with the same message.

    Every call takes a step of the run, whatever becomes of the result. The callback is ordered: rows are neither exchanged nor dropped nor drawn
    twice. JAX refuses ordered callbacks under vmap, under jax.checkpoint (which would draw again), and on several devices. Do not read
    anything from `noise` while a compiled function may still run: call jax.block_until_ready on its results first.
    """
    if not isinstance(noise, Noise):
        raise ValueError(f"noise must be a Noise, got {type(noise).__name__}")
    if not isinstance(noise._rows, HostRows):
        raise ValueError("noise must have rows that are made on the host, got another source: a callback cannot wait for a device")
    described: Any = jax.ShapeDtypeStruct
    shape = described((noise.layout.size,), jnp.float32)

    def taken(indices: Any, present: Any) -> Any:
        return noise._draw(np.asarray(indices)[np.asarray(present)])

    def draw(indices: Any, present: Any = None) -> NoiseRow:
        indices = jnp.asarray(indices)
        if indices.ndim != 1 or not jnp.issubdtype(indices.dtype, jnp.integer):
            raise ValueError(f"indices must be whole numbers, one per example, got {indices.dtype} of shape {indices.shape}")
        filled = present is not None
        present = jnp.ones(indices.shape, bool) if present is None else jnp.asarray(present)
        if present.shape != indices.shape or present.dtype != jnp.bool_:
            raise ValueError(f"present must be {indices.size} truth values, one per index, got {present.dtype} of shape {present.shape}")
        flat = io_callback(taken, shape, indices, present, ordered=True)
        return noise._row_of(flat, filled=filled)

    return draw
