"""Stands in for dp_accounting.pld.accountant: `antiphon.noise_multiplier`."""

from __future__ import annotations

from typing import Any

import antiphon

ANSWERS = ["get_smallest_gaussian_noise", "get_smallest_subsampled_gaussian_noise"]
ABSENT = {"": "not a Gaussian mechanism"}
NOT_APPLICABLE: dict[str, str] = {}
_UPPER = "σ to 1e-7: antiphon's meets ε with the upper end of its bracket, 4e-7 and 7e-7 of its value above the expected one"
DIFFERS = {
    "AccountantTest.test_get_smallest_subsampled_gaussian_noise_base": _UPPER,
    "AccountantTest.test_get_smallest_subsampled_gaussian_noise_varying_sensitivity_and_num_queries": _UPPER,
}


def get_smallest_gaussian_noise(privacy_parameters: Any, num_queries: int = 1, sensitivity: float = 1) -> float:
    return sensitivity * antiphon.noise_multiplier(privacy_parameters.epsilon, privacy_parameters.delta, steps=num_queries)


def get_smallest_subsampled_gaussian_noise(
    privacy_parameters: Any, num_queries: int = 1, sensitivity: float = 1, sampling_prob: float = 1.0
) -> float:
    return sensitivity * antiphon.noise_multiplier(
        privacy_parameters.epsilon, privacy_parameters.delta, sampling_rate=sampling_prob, steps=num_queries
    )
