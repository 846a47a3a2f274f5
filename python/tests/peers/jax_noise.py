"""Stands in for jax_privacy.noise_addition: the noise is that of `antiphon.PrivateRun.privatize`.

Their privatizers are functions of a state that the caller keeps. The stand-in's state is the number of the step: every
update makes the run again from the same seed and takes it to that step.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax_privacy.matrix_factorization import streaming_matrix

import antiphon
from antiphon import Key, PrivateRun, Schema

ANSWERS = ["matrix_factorization_privatizer", "gaussian_privatizer"]
ABSENT = {"": "not asked by their tests"}
NOT_APPLICABLE = {
    "PrivatizerTest.test_mf_privatizer_raises_non_matrix_arg": "the words of an error message; antiphon.from_encoder refuses it"
    " too, in its own words",
    "PrivatizerTest.test_mf_privatizer_matches_explicit_matmul": "compares sample by sample for a full matrix, whose first row"
    " needs the noise of later steps; antiphon draws noise of the same law from the lower triangular matrix with the same Gram"
    " matrix. Sample by sample for lower triangular matrices: test_against_jax_privacy.py",
    "PrivatizerTest.test_matrix_multiply_zero_matrix": "no noise at all; antiphon refuses a matrix that has no inverse",
}
DIFFERS: dict[str, str] = {}
#: Steps of a run for a matrix without end; their tests take three.
_STEPS = 4


def _materialized(matrix: Any) -> Any:
    """Row by row, because their `materialize` asks for the same type of numbers in and out, which some of them do not have."""
    state = matrix.init_multiply(jnp.zeros(_STEPS, jnp.float32))
    rows = []
    for one in jnp.eye(_STEPS, dtype=jnp.float32):
        row, state = matrix.multiply_next(one, state)
        rows.append(np.asarray(row, np.float64))
    return np.stack(rows)


def _run(noising: Any, stddev: float, seed: int, params: int) -> PrivateRun:
    n = noising.shape[0]
    mechanism = antiphon.from_encoder(np.linalg.inv(noising), Schema.single(n), stamps=1)
    # The row of a step is stddev · C⁻¹ Z with stddev = noise multiplier · clip norm · sensitivity.
    return PrivateRun(
        mechanism, noise_multiplier=stddev / mechanism.sensitivity, delta=1e-5, clip_norm=1.0, params=params, key=Key.from_seed(seed)
    )


def matrix_factorization_privatizer(noising_matrix: Any, *, stddev: float, prng_key: Any) -> optax.GradientTransformation:
    if isinstance(noising_matrix, streaming_matrix.StreamingMatrix):
        noising_matrix = _materialized(noising_matrix)
    noising = np.asarray(noising_matrix, np.float64)
    seed = prng_key if isinstance(prng_key, int) else int(jax.random.key_data(prng_key)[-1])

    def privatized(step: Any, *leaves: Any) -> tuple[Any, ...]:
        total = np.concatenate([np.asarray(leaf, np.float64).ravel() for leaf in leaves])
        run = _run(noising, stddev, seed, total.size)
        for earlier in range(int(step)):
            run.admit([earlier])
            run.row()
        run.admit([int(step)])
        run.privatize(total)
        ends = np.cumsum([leaf.size for leaf in leaves])[:-1]
        return tuple(part.reshape(leaf.shape).astype(leaf.dtype) for part, leaf in zip(np.split(total, ends), leaves))

    def update(sum_of_clipped_grads: Any, noise_state: Any, params: Any = None) -> Any:
        leaves, structure = jax.tree.flatten(sum_of_clipped_grads)
        shapes = tuple(jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in leaves)
        noisy = jax.pure_callback(privatized, shapes, noise_state, *leaves)
        return structure.unflatten(noisy), noise_state + 1

    return optax.GradientTransformation(lambda _: jnp.array(0), update)


gaussian_privatizer = functools.partial(matrix_factorization_privatizer, streaming_matrix.identity())
