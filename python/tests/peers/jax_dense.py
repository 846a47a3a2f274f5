"""Stands in for jax_privacy.matrix_factorization.dense: `antiphon.optimize` for their optimizer, `Mechanism.B` for their error."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax_privacy.matrix_factorization import dense as original

import antiphon
from antiphon import Schema

from .shim import Absent, NotApplicable

ANSWERS = ["per_query_error", "optimize", "_mean_loss_and_gradient"]
ABSENT = {"": "not asked by their tests"}
_BANDED = "antiphon does not optimize banded matrices"
NOT_APPLICABLE = {
    "DenseTest.test_callback_called_every_step": "a callback in every step of L-BFGS; antiphon's optimizer has other steps and"
    " tells its progress in words",
}
DIFFERS: dict[str, str] = {}


def _decoder(C: Any, A: Any) -> Any:
    n = C.shape[1]
    return antiphon.from_encoder(np.asarray(C, np.float64), Schema.single(n), stamps=1, workload=np.asarray(A, np.float64)).B


def per_query_error(
    *, workload_matrix: Any, strategy_matrix: Any = None, noising_matrix: Any = None, skip_checks: bool = False
) -> Any:
    """The squared norms of the rows of B. A matrix C⁻¹ that is not square belongs to the encoder that is its pseudo-inverse."""
    given = strategy_matrix if strategy_matrix is not None else noising_matrix
    n = workload_matrix.shape[0]

    def errors(matrix: Any, workload: Any) -> Any:
        C = np.asarray(matrix, np.float64) if strategy_matrix is not None else np.linalg.pinv(np.asarray(matrix, np.float64))
        return (_decoder(C, workload) ** 2).sum(axis=1).astype(np.float32)

    # One of the cases compiles the function.
    return jax.pure_callback(errors, jax.ShapeDtypeStruct((n,), jnp.float32), given, workload_matrix)


def optimize(
    n: int,
    *,
    epochs: int = 1,
    bands: int | None = None,
    equal_norm: bool = False,
    A: Any = None,
    max_optimizer_steps: int = 10000,
    reduction_fn: Any = jnp.mean,
    callback: Any = None,
) -> Any:
    """antiphon's optimum, scaled to sensitivity 1 as theirs. The callback is told their projected gradient at it."""
    if bands is not None:
        raise NotApplicable(_BANDED)
    if equal_norm:
        raise NotApplicable("antiphon does not optimize under equal column norms")
    if reduction_fn is not jnp.mean:
        raise NotApplicable("antiphon minimizes the total squared error, no other function of the errors")
    A = np.tri(n) if A is None else np.asarray(A, np.float64)
    # The least gap that antiphon proves: their test wants a gradient below 1e-3, and entries to 1e-7 where the optimum is the identity.
    mechanism = antiphon.optimize(Schema.epochs(epochs, n // epochs), workload=A, gap=1e-8)
    C = mechanism.C / mechanism.sensitivity
    if callback is not None:
        callback(SimpleNamespace(grad=_projected_gradient(C.T @ C, A, epochs)))
    return C


def _projected_gradient(X: Any, A: Any, epochs: int) -> Any:
    """By the original: zero where X is the least of all that their optimizer may choose from."""
    n = X.shape[0]
    with jax.enable_x64():
        gradient = np.array(original._mean_loss_and_gradient(jnp.asarray(X), jnp.asarray(A))[1])
        mask = np.asarray(original.get_orthogonal_mask(n, epochs))
    diagonal = np.diag(gradient).reshape(epochs, -1)
    np.fill_diagonal(gradient, (diagonal - diagonal.mean(axis=0)).ravel())
    return gradient * mask


def _mean_loss_and_gradient(X: Any, A: Any) -> Any:
    C = np.asarray(original.strategy_from_X(jnp.asarray(X)))
    loss = (_decoder(C, A) ** 2).sum() / X.shape[0]
    return loss, Absent("the gradient of the loss, which antiphon does not give out")
