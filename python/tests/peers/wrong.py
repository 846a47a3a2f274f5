"""Makes antiphon's answers wrong: figures and noise are doubled, and the optimum is another mechanism.

What their tests say then shows which of them look at an answer of antiphon, and that the stand-ins ask it at all.
"""

from __future__ import annotations

from typing import Any

import antiphon


class _Changed:
    """An object of antiphon with some of its figures doubled."""

    def __init__(self, original: Any, *doubled: str) -> None:
        self.original = original
        self._doubled = doubled

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.original, name)
        return 2 * value if name in self._doubled else value


def _figure(original: Any) -> Any:
    return lambda *args, **options: 2 * original(*args, **options)


def make_wrong() -> None:
    """For this process, before the stand-ins are imported."""
    for name in ("epsilon", "delta", "noise_multiplier"):
        setattr(antiphon, name, _figure(getattr(antiphon, name)))
    sensitivity, from_encoder, run = antiphon.sensitivity, antiphon.from_encoder, antiphon.PrivateRun

    def optimize(schema: Any, *, workload: Any, gap: float) -> Any:
        return antiphon.make("tree-online", schema, workload=workload)

    def private_run(mechanism: Any, *, noise_multiplier: float, **options: Any) -> Any:
        return run(mechanism.original, noise_multiplier=2 * noise_multiplier, **options)

    changes: dict[str, Any] = {
        "sensitivity": lambda *args, **options: _Changed(sensitivity(*args, **options), "upper", "lower"),
        "from_encoder": lambda *args, **options: _Changed(from_encoder(*args, **options), "B"),
        "optimize": optimize,
        "PrivateRun": private_run,
    }
    for name, changed in changes.items():
        setattr(antiphon, name, changed)
