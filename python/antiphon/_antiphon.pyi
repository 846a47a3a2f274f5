"""Types of the extension module."""

import os
from collections.abc import Callable, Sequence
from typing import Any, Final, final

import numpy as np
import numpy.typing as npt

__all__ = [
    "__version__",
    "Audit",
    "Clip",
    "Event",
    "Key",
    "Mechanism",
    "PrivacyError",
    "PrivateRun",
    "Schema",
    "Sensitivity",
    "VerificationError",
    "Verified",
    "audit",
    "compare",
    "delta",
    "epsilon",
    "make",
    "noise_multiplier",
    "optimize",
    "plan",
    "sensitivity",
    "verify",
]

__version__: str

_Path = str | os.PathLike[str]
_Matrix = npt.NDArray[np.float64]

class PrivacyError(RuntimeError): ...

class VerificationError(ValueError):
    checks: list[tuple[str, bool, str]]

@final
class Schema:
    @staticmethod
    def epochs(epochs: int, steps_per_epoch: int) -> Schema: ...
    @staticmethod
    def fixed_order(steps: int, steps_per_epoch: int, max_participations: int | None = None) -> Schema: ...
    @staticmethod
    def single(steps: int) -> Schema: ...
    @staticmethod
    def every_step(steps: int) -> Schema: ...
    @staticmethod
    def min_separation(steps: int, min_separation: int, max_participations: int | None = None) -> Schema: ...
    @staticmethod
    def patterns(steps: int, patterns: Sequence[Sequence[int]]) -> Schema: ...
    @property
    def steps(self) -> int: ...
    @property
    def max_participations(self) -> int: ...
    @property
    def steps_per_epoch(self) -> int | None: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class Mechanism:
    @staticmethod
    def load(path: _Path) -> Mechanism: ...
    def save(self, path: _Path, *, replace: bool = False) -> None: ...
    @property
    def id(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def schema(self) -> Schema: ...
    @property
    def steps(self) -> int: ...
    @property
    def workload(self) -> str: ...
    @property
    def loss(self) -> float: ...
    @property
    def lower_bound(self) -> float: ...
    @property
    def gap(self) -> float: ...
    @property
    def rmse(self) -> float: ...
    @property
    def sensitivity(self) -> float: ...
    @property
    def C(self) -> _Matrix: ...
    @property
    def Cinv(self) -> _Matrix: ...
    @property
    def B(self) -> _Matrix: ...
    @property
    def X(self) -> _Matrix: ...

@final
class Verified:
    @property
    def mechanism(self) -> Mechanism: ...
    @property
    def id(self) -> str: ...
    @property
    def sensitivity(self) -> float: ...
    @property
    def loss(self) -> float: ...
    @property
    def lower_bound(self) -> float | None: ...
    @property
    def over_optimum(self) -> float | None: ...
    @property
    def checks(self) -> list[tuple[str, bool, str]]: ...

@final
class Sensitivity:
    @property
    def upper(self) -> float: ...
    @property
    def lower(self) -> float: ...
    @property
    def exact(self) -> bool: ...
    @property
    def worst_pattern(self) -> list[int] | None: ...
    @property
    def method(self) -> str: ...
    def __float__(self) -> float: ...

@final
class Event:
    @staticmethod
    def gaussian(noise_multiplier: float) -> Event: ...
    @staticmethod
    def poisson_sampled(sampling_rate: float, noise_multiplier: float) -> Event: ...
    @staticmethod
    def dp_sgd(sampling_rate: float, noise_multiplier: float, steps: int) -> Event: ...
    @staticmethod
    def composed(events: Sequence[tuple[Event, int]]) -> Event: ...
    @staticmethod
    def from_json(text: str) -> Event: ...
    def to_json(self) -> str: ...
    def epsilon_bracket(self, delta: float, *, adjacency: str = "zero-out") -> tuple[float, float]: ...
    def to_dp_accounting(self) -> Any: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...

@final
class Key:
    @staticmethod
    def from_seed(seed: int, *, cipher: str = "aes256-ctr") -> Key: ...
    @staticmethod
    def fresh(path: _Path) -> Key: ...
    @staticmethod
    def load(path: _Path) -> Key: ...
    @property
    def fingerprint(self) -> str: ...
    @property
    def cipher(self) -> str: ...

@final
class Clip:
    MOST_EXAMPLES: Final[int]
    def __new__(cls, clip_norm: float, *, params: int) -> Clip: ...
    def add(self, gradients: Sequence[Any], total: Any) -> None: ...
    @property
    def unit(self) -> float: ...
    @property
    def target(self) -> float: ...

@final
class PrivateRun:
    def __new__(
        cls,
        mechanism: Mechanism | Verified | _Path,
        *,
        delta: float,
        clip_norm: float,
        params: int,
        key: Key | _Path,
        epsilon: float | None = None,
        noise_multiplier: float | None = None,
        units: int | None = None,
        unit: str = "example",
        adjacency: str = "zero-out",
        ranges: Sequence[tuple[int, int]] | None = None,
        layout: str = "",
        memory: int = 268435456,
        log: _Path | None = None,
    ) -> PrivateRun: ...
    def admit(self, indices: Any) -> None: ...
    def privatize(self, array: Any) -> None: ...
    def row(self, out: Any = None) -> Any: ...
    def rehearse(self, schedule: Callable[[int], Any]) -> None: ...
    def statement(self) -> str: ...
    def _statement_of_training(self, name: str) -> str: ...
    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: dict[str, Any]) -> None: ...
    @property
    def mechanism(self) -> Mechanism: ...
    @property
    def steps(self) -> int: ...
    @property
    def step(self) -> int: ...
    @property
    def epsilon(self) -> float: ...
    @property
    def delta(self) -> float: ...
    @property
    def noise_multiplier(self) -> float: ...
    @property
    def stddev(self) -> float: ...
    @property
    def clip_norm(self) -> float: ...
    @property
    def coordinates(self) -> int: ...
    @property
    def noise_id(self) -> str: ...

@final
class Audit:
    @property
    def ok(self) -> bool: ...
    @property
    def violations(self) -> list[tuple[int | None, int | None, str]]: ...
    @property
    def steps(self) -> int: ...
    @property
    def units(self) -> int: ...
    @property
    def participations(self) -> int: ...
    @property
    def sensitivity(self) -> float: ...
    @property
    def worst(self) -> tuple[int, list[int]] | None: ...
    @property
    def epsilon_stated(self) -> float: ...
    @property
    def epsilon_realised(self) -> float: ...

def verify(mechanism: Mechanism | Verified | _Path) -> Verified: ...
def sensitivity(
    matrix: npt.ArrayLike | Mechanism | Verified, schema: Schema | None = None, *, gram: bool = False
) -> Sensitivity: ...
def epsilon(
    noise: float | Event,
    delta: float,
    *,
    sampling_rate: float | None = None,
    steps: int | None = None,
    adjacency: str = "zero-out",
) -> float: ...
def delta(
    noise: float | Event,
    epsilon: float,
    *,
    sampling_rate: float | None = None,
    steps: int | None = None,
    adjacency: str = "zero-out",
) -> float: ...
def noise_multiplier(
    epsilon: float,
    delta: float,
    *,
    sampling_rate: float | None = None,
    steps: int | None = None,
    adjacency: str = "zero-out",
) -> float: ...
def audit(
    log: _Path,
    mechanism: Mechanism | Verified | _Path,
    *,
    noise_multiplier: float,
    delta: float,
    adjacency: str = "zero-out",
) -> Audit: ...
def optimize(
    schema: Schema,
    *,
    momentum: float = 0.0,
    learning_rates: Sequence[float] | None = None,
    cooldown: tuple[float, float] | None = None,
    workload: npt.ArrayLike | None = None,
    gap: float = 1e-3,
    max_iterations: int = 1000,
    implicit: bool = False,
    progress: Callable[[str], Any] | None = None,
) -> Mechanism: ...
def make(
    name: str,
    schema: Schema,
    *,
    stamps: int = 1,
    momentum: float = 0.0,
    learning_rates: Sequence[float] | None = None,
    cooldown: tuple[float, float] | None = None,
    workload: npt.ArrayLike | None = None,
    gap: float = 1e-3,
    progress: Callable[[str], Any] | None = None,
) -> Mechanism: ...
def compare(
    schema: Schema,
    *,
    stamps: int | None = None,
    without: Sequence[str] = ...,
    momentum: float = 0.0,
    learning_rates: Sequence[float] | None = None,
    cooldown: tuple[float, float] | None = None,
    workload: npt.ArrayLike | None = None,
    gap: float = 1e-3,
    progress: Callable[[str], Any] | None = None,
) -> str: ...
def plan(
    schema: Schema,
    *,
    params: int,
    memory: int | None = None,
    stamps: int | None = None,
    without: Sequence[str] = ...,
    momentum: float = 0.0,
    learning_rates: Sequence[float] | None = None,
    cooldown: tuple[float, float] | None = None,
    workload: npt.ArrayLike | None = None,
    gap: float = 1e-3,
    progress: Callable[[str], Any] | None = None,
) -> str: ...
