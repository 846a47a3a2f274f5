"""Stands in for jax_privacy.matrix_factorization.sensitivity.

Their functions compute in float32 and their tests compare with float32 figures, some exactly; antiphon's figures are
upper bounds in float64 (a few units in the last place above the value). The stand-in rounds them to float32.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

import antiphon
from antiphon import Schema

from .shim import NotApplicable

ANSWERS = [
    "single_participation_sensitivity",
    "minsep_true_max_participations",
    "max_participation_for_linear_fn",
    "get_min_sep_sensitivity_upper_bound",
    "get_min_sep_sensitivity_upper_bound_for_X",
    "get_sensitivity_banded",
    "fixed_epoch_sensitivity",
]
_MASK = "a mask of zeros and ones that their own optimizer uses; antiphon has none"
ABSENT = {"banded_lower_triangular_mask": _MASK, "banded_symmetric_mask": _MASK, "": "not asked by their tests"}
_PRECONDITION = "a precondition of their algorithm; antiphon.sensitivity has an answer for columns that are not orthogonal"
_WORDS = "the words of an error message; antiphon refuses it too, in its own words (test_design.py)"
NOT_APPLICABLE = {
    "GetSensitivityBandedTest.test_not_orthogonal": _PRECONDITION,
    "FixedEpochSensitivityTest.test_raises_zero": _WORDS,
    "FixedEpochSensitivityTest.test_raises_divisible": "antiphon takes a last epoch that is cut short (Schema.fixed_order)",
}
DIFFERS = {
    "FixedEpochSensitivityTest.test_single_participation": "expects a norm that was computed in float32; antiphon's is computed"
    " in float64, and rounded to float32 it is one unit in the last place above",
}


def _upper(matrix: Any, schema: Schema, gram: bool = False) -> float:
    return antiphon.sensitivity(np.asarray(matrix, dtype=np.float64), schema, gram=gram).upper


def _schema(n: int, min_sep: int, most: int | None) -> Schema:
    """Their arguments may ask for more than fits into n steps; antiphon refuses those figures."""
    whole = Schema.min_separation(n, min(min_sep, n))
    return whole if most is None else Schema.min_separation(n, min(min_sep, n), min(most, whole.max_participations))


def single_participation_sensitivity(C: Any) -> Any:
    return jnp.float32(_upper(C, Schema.single(C.shape[1])))


def minsep_true_max_participations(n: int, min_sep: int, max_participations: int | None = None) -> int:
    return _schema(n, min_sep, max_participations).max_participations


def max_participation_for_linear_fn(x: Any, min_sep: int = 1, max_participations: int | None = None) -> Any:
    """The largest sum of entries of x is the squared sensitivity of diag(√x); entries below zero are never taken."""
    if max_participations == 0:
        raise NotApplicable("antiphon.Schema refuses zero participations")
    n = len(x)
    gram = np.diag(np.maximum(np.asarray(x, dtype=np.float64), 0.0))
    return jnp.float32(_upper(gram, _schema(n, min_sep, max_participations), gram=True) ** 2)


def get_min_sep_sensitivity_upper_bound_for_X(X: Any, min_sep: int = 1, max_participations: int | None = None) -> float:
    return float(np.float32(_upper(X, _schema(X.shape[0], min_sep, max_participations), gram=True)))


def get_min_sep_sensitivity_upper_bound(C: Any, min_sep: int = 1, max_participations: int | None = None) -> float:
    return float(np.float32(_upper(C, _schema(C.shape[1], min_sep, max_participations))))


def get_sensitivity_banded(C: Any, min_sep: int = 1, max_participations: int | None = None) -> float:
    n = C.shape[1]
    gram = np.asarray(C.T @ C)
    distance = np.abs(np.subtract.outer(np.arange(n), np.arange(n)))
    if gram[distance >= min_sep].any():
        # For the rest of test_banded, which begins with this; the test that asks for nothing else is set aside above.
        raise ValueError("must be orthogonal")
    return get_min_sep_sensitivity_upper_bound(C, min_sep, max_participations)


def fixed_epoch_sensitivity(C: Any, epochs: int) -> float:
    return float(np.float32(_upper(C, Schema.epochs(epochs, C.shape[1] // epochs))))
