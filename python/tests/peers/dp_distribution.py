"""Stands in for dp_accounting.pld.privacy_loss_distribution, for the Gaussian mechanism."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np
from dp_accounting.pld import privacy_loss_distribution as original

from antiphon import Event

from .shim import NotApplicable

ANSWERS = ["from_gaussian_mechanism", "PrivacyLossDistribution", "NeighborRel"]
ABSENT = {"": "not a Gaussian mechanism"}
NOT_APPLICABLE: dict[str, str] = {}
DIFFERS: dict[str, str] = {}

PrivacyLossDistribution = original.PrivacyLossDistribution
NeighborRel = original.NeighborRel


class _Gaussian:
    def __getattr__(self, name: str) -> NoReturn:
        raise NotApplicable("the masses of their discretization at a given width; antiphon has another one and does not give it out")


def from_gaussian_mechanism(standard_deviation: float, sensitivity: float = 1.0, sampling_prob: float = 1.0, **_: Any) -> _Gaussian:
    with np.errstate(divide="ignore"):
        multiplier = float(np.float64(standard_deviation) / sensitivity)
    event = Event.gaussian(multiplier) if sampling_prob == 1 else Event.poisson_sampled(sampling_prob, multiplier)
    # antiphon makes the distribution when a figure is asked for.
    low, high = event.epsilon_bracket(1e-5)
    if not 0 <= low <= high < np.inf:
        raise OverflowError(f"ε in [{low}, {high}]")
    return _Gaussian()
