"""Checks of arguments that several fronts have in common."""

from __future__ import annotations

import operator

from ._antiphon import epsilon as epsilon_of
from ._antiphon import noise_multiplier as multiplier_of


def whole(name: str, value: object, most: int | None = None, *, least: int = 1) -> int:
    """A whole number of any type that is one, within its range."""
    allowed = f"a whole number, at least {least}" if most is None else f"a whole number in {least}..={most}"
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = least - 1
    if isinstance(value, bool) or number < least or (most is not None and number > most):
        raise ValueError(f"{name} must be {allowed}, got {value!r}")
    return number


def check_budget(epsilon: float | None, noise_multiplier: float | None, delta: float) -> None:
    """Refuses a privacy level before any work is done for it."""
    if (epsilon is None) == (noise_multiplier is None):
        raise ValueError(f"epsilon or noise_multiplier must be given, one of them, got {'neither' if epsilon is None else 'both'}")
    if epsilon is not None:
        multiplier_of(epsilon, delta)
    elif noise_multiplier is not None:
        epsilon_of(noise_multiplier, delta)


def check_norm(name: str, norm: object) -> float:
    """A norm to which contributions are clipped."""
    if isinstance(norm, bool) or not (isinstance(norm, (int, float)) and 1e-30 <= norm <= 1e30):
        raise ValueError(f"{name} must be a number in [1e-30, 1e30], got {norm!r}")
    return float(norm)
