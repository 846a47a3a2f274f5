"""Who is asked in which round: the same cohorts in every epoch, or cohorts whose members rest between two rounds.

Cohorts are settled before the first round and depend on the number of clients and a seed alone. Who is connected or replies changes nothing
about them: otherwise what one client does would decide about others, and the privacy statement would not cover it.
"""

from __future__ import annotations

import hashlib
import os
from typing import Any, Protocol

import numpy as np

from .. import Clip, FixedOrderBatches, Mechanism, Schema, Verified, make
from .._arguments import whole
from .._choice import NAMES, mechanism_for
from .._progress import Progress


class Cohorts(Protocol):
    """The cohorts of a whole run, as indices of clients."""

    @property
    def steps(self) -> int:
        """Rounds of the run."""

    def batch(self, step: int) -> list[int]:
        """Who is asked in a round, counted from 0."""

    def _description(self) -> dict[str, Any]: ...


class SeparatedCohorts:
    """Cohorts with a minimum separation: a client that was asked in round t is asked in round t + min_separation at the earliest, and at
    most `max_participations` times in all.

    Every cohort is drawn from the clients that may be asked, those who were asked least often first, by a generator with `seed`.

    >>> cohorts = antiphon.flower.SeparatedCohorts(12, 2, 20, min_separation=3)
    >>> cohorts.steps, len(cohorts.batch(0)), set(cohorts.batch(0)) & set(cohorts.batch(1)) & set(cohorts.batch(2))
    (20, 2, set())
    """

    def __init__(
        self, clients: int, clients_per_round: int, rounds: int, *, min_separation: int, max_participations: int | None = None, seed: int = 0
    ) -> None:
        self.clients = whole("clients", clients)
        self.clients_per_round = whole("clients_per_round", clients_per_round, self.clients)
        self.steps = whole("rounds", rounds)
        self.min_separation = whole("min_separation", min_separation, self.steps)
        self.seed = whole("seed", seed, (1 << 63) - 1, least=0)
        if max_participations is not None:
            max_participations = whole("max_participations", max_participations, -(-self.steps // self.min_separation))
        #: What the privacy analysis assumes, and the guard of the run checks.
        self.schema = Schema.min_separation(self.steps, self.min_separation, max_participations)
        self._cohorts = self._drawn()

    def _drawn(self) -> list[list[int]]:
        generator = np.random.default_rng(self.seed)
        asked, free_from = np.zeros(self.clients, np.int64), np.zeros(self.clients, np.int64)
        cohorts = []
        for step in range(self.steps):
            may = np.flatnonzero((free_from <= step) & (asked < self.schema.max_participations))
            if len(may) < self.clients_per_round:
                raise ValueError(
                    f"clients must be enough for {self.steps} rounds of {self.clients_per_round} with min_separation={self.min_separation} and "
                    f"max_participations={self.schema.max_participations}, got {self.clients}: in round {step + 1} only {len(may)} may be asked"
                )
            # Shuffled, then by how often they were asked: a stable sort keeps the shuffled order among equals.
            shuffled = generator.permutation(may)
            cohort = shuffled[np.argsort(asked[shuffled], kind="stable")][: self.clients_per_round]
            asked[cohort] += 1
            free_from[cohort] = step + self.min_separation
            cohorts.append(sorted(cohort.tolist()))
        return cohorts

    def batch(self, step: int) -> list[int]:
        """Who is asked in a round, counted from 0."""
        if not 0 <= step < self.steps:
            raise ValueError(f"step must be in 0..={self.steps - 1}, got {step}")
        return list(self._cohorts[step])

    def _description(self) -> dict[str, Any]:
        return {
            "clients": self.clients,
            "clients_per_round": self.clients_per_round,
            "rounds": self.steps,
            "min_separation": self.min_separation,
            "max_participations": self.schema.max_participations,
            "seed": self.seed,
            "order": hashlib.sha256(np.array(self._cohorts, "<i8").tobytes()).hexdigest(),
        }


def cohorts_for(
    sampling: str,
    clients: int,
    clients_per_round: int,
    *,
    epochs: int | None,
    rounds: int | None,
    min_separation: int | None,
    max_participations: int | None,
    seed: int,
) -> Cohorts:
    """The cohorts that the arguments of a strategy describe."""
    clients_per_round = whole("clients_per_round", clients_per_round, min(clients, Clip.MOST_EXAMPLES))
    seed = whole("seed", seed, (1 << 63) - 1, least=0)
    if sampling == "fixed-order":
        if min_separation is not None or max_participations is not None:
            raise ValueError(
                'min_separation and max_participations must be given with sampling="min-separation" only: in a fixed order both follow'
            )
        if (epochs is None) == (rounds is None):
            raise ValueError(f"epochs or rounds must be given, one of them, got {'neither' if epochs is None else 'both'}")
        per_epoch = -(-clients // clients_per_round)
        if epochs is None:
            if whole("rounds", rounds) % per_epoch:
                raise ValueError(
                    f'rounds must be a multiple of {per_epoch} for sampling="fixed-order", so that every client is asked equally often '
                    f"({clients} clients, {clients_per_round} per round), got {rounds}"
                )
            epochs = whole("rounds", rounds) // per_epoch
        return FixedOrderBatches(clients, clients_per_round, whole("epochs", epochs), seed=seed)
    if sampling != "min-separation":
        raise ValueError(
            f'sampling must be "fixed-order" or "min-separation", got {sampling!r}: a client may return only in rounds that the noise was made '
            "for, and clients drawn anew in every round may return at once"
        )
    if epochs is not None or rounds is None or min_separation is None:
        raise ValueError('rounds and min_separation must be given for sampling="min-separation", and epochs must not: there are none')
    return SeparatedCohorts(
        clients, clients_per_round, rounds, min_separation=min_separation, max_participations=max_participations, seed=seed
    )


def mechanism_of(cohorts: Cohorts, mechanism: Any, *, stamps: int, progress: Progress) -> tuple[str, Mechanism | Verified]:
    """The name of a mechanism for these cohorts, and the mechanism. None: the best that can be made for them."""
    if isinstance(cohorts, FixedOrderBatches):
        return mechanism_for(cohorts, "optimal" if mechanism is None else mechanism, stamps=stamps, progress=progress)
    assert isinstance(cohorts, SeparatedCohorts)
    name = "blt" if mechanism is None else mechanism
    if isinstance(name, str) and name in NAMES:
        return name, make(name, cohorts.schema, stamps=stamps, progress=progress)
    if stamps != 1:
        raise ValueError("stamps must be given for a mechanism that is made here, got a mechanism that exists")
    if isinstance(name, str) and not os.path.exists(name):
        raise ValueError(f"mechanism must be one of {', '.join(NAMES)}, a Mechanism, or an existing file, got {name!r}")
    found = Mechanism.load(name) if isinstance(name, (str, os.PathLike)) else name
    inner = found.mechanism if isinstance(found, Verified) else found
    if not isinstance(inner, Mechanism):
        raise ValueError(f"mechanism must be one of {', '.join(NAMES)}, a Mechanism, or a file, got {type(mechanism).__name__}")
    if inner.steps != cohorts.steps:
        raise ValueError(f"mechanism must be for {cohorts.steps} rounds, got one for {inner.steps}: {inner.schema}")
    return inner.kind, found
