"""Stands in for dp_accounting.gaussian_mechanism: `antiphon.epsilon` and `antiphon.noise_multiplier`."""

from __future__ import annotations

import antiphon

from .shim import NotApplicable

ANSWERS = ["get_epsilon_gaussian", "get_sigma_gaussian"]
ABSENT = {"": "not asked by their tests"}
NOT_APPLICABLE: dict[str, str] = {}
_MARGIN = (
    "ε to 1e-7 of its value at ε of 1e-5 and 1e-3 and δ from 0.1: antiphon.noise_multiplier is 1e-9 of its value above the"
    " least, so that ε is up to 7e-9 below"
)
DIFFERS = {f"GaussianTest.test_get_epsilon_gaussian_inverts_get_sigma_gaussian{i}": _MARGIN for i in (3, 4, 5, 10, 11, 12)}


def _check(delta: float) -> None:
    if not 0 < delta < 1:
        raise NotApplicable("δ = 0 and δ = 1: antiphon refuses both")


def get_epsilon_gaussian(sigma: float, delta: float, tol: float = 1e-12) -> float:
    _check(delta)
    return antiphon.epsilon(sigma, delta)


def get_sigma_gaussian(epsilon: float, delta: float, tol: float = 1e-12) -> float:
    _check(delta)
    if epsilon == 0:
        raise NotApplicable("ε = 0: antiphon.noise_multiplier refuses it")
    return antiphon.noise_multiplier(epsilon, delta)
