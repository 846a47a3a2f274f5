"""Stands in for dp_accounting.pld.pld_privacy_accountant: an accountant of theirs that asks `antiphon.epsilon` and `antiphon.delta`."""

from __future__ import annotations

from typing import Any

from dp_accounting import dp_event, privacy_accountant

import antiphon
from antiphon import Event

from .shim import NotApplicable

ANSWERS = ["NeighborRel", "PLDAccountant"]
ABSENT = {"": "not asked by their tests"}
_OTHER = "a mechanism that is not Gaussian: antiphon does not account for it"
_BASE = "the protocol of their base class; no figure is asked for"
_NOTHING = "no event, or one without privacy: antiphon has no events for these"
NOT_APPLICABLE = {
    "PldPrivacyAccountantTest.test_make_test_accountants": _BASE,
    "PldPrivacyAccountantTest.test_unsupported": _BASE,
    "PldPrivacyAccountantTest.test_non_positive_composition_value_error": "refused by the ledger of their base class, before"
    " antiphon is asked",
    "PldPrivacyAccountantTest.test_no_events": _NOTHING,
}
DIFFERS: dict[str, str] = {}

NeighborRel = privacy_accountant.NeighboringRelation


class PLDAccountant(privacy_accountant.PrivacyAccountant):  # type: ignore[misc]
    def __init__(self, neighboring_relation: Any = NeighborRel.ADD_OR_REMOVE_ONE) -> None:
        super().__init__(neighboring_relation)
        # One record replaced by the zero record is antiphon's zero-out, and add-or-remove has the same pairs of outputs.
        self._adjacency = "replace-one" if neighboring_relation == NeighborRel.REPLACE_ONE else "zero-out"
        self._events: list[tuple[Event, int]] = []

    def _maybe_compose(self, event: Any, count: int, do_compose: bool) -> None:
        for one, times in self._translated(event, count):
            # Refuses what it does not account for. `supports` of their base class asks with a count of 0.
            Event.composed([(one, times if do_compose else 1)]).epsilon_bracket(0.5, adjacency=self._adjacency)
            if do_compose:
                self._events.append((one, times))

    def _translated(self, event: Any, count: int) -> list[tuple[Event, int]]:
        if isinstance(event, dp_event.SelfComposedDpEvent):
            return self._translated(event.event, event.count * count)
        if isinstance(event, dp_event.ComposedDpEvent):
            return [pair for one in event.events for pair in self._translated(one, count)]
        if isinstance(event, (dp_event.NoOpDpEvent, dp_event.NonPrivateDpEvent)):
            raise NotApplicable(_NOTHING)
        sampled = isinstance(event, dp_event.PoissonSampledDpEvent)
        inner = event.event if sampled else event
        if not isinstance(inner, dp_event.GaussianDpEvent):
            raise NotApplicable(_OTHER)
        if inner.noise_multiplier == 0:
            raise NotApplicable("a noise multiplier of 0: antiphon refuses it")
        if not sampled:
            return [(Event.gaussian(inner.noise_multiplier), count)]
        if event.sampling_probability == 0:
            raise NotApplicable("a sampling rate of 0: antiphon refuses it")
        if self._adjacency == "replace-one":
            raise NotApplicable("Poisson sampling under replace-one: antiphon refuses to account for it")
        return [(Event.poisson_sampled(event.sampling_probability, inner.noise_multiplier), count)]

    def get_epsilon(self, target_delta: float) -> float:
        return antiphon.epsilon(Event.composed(self._events), target_delta, adjacency=self._adjacency)

    def get_delta(self, target_epsilon: float) -> float:
        return antiphon.delta(Event.composed(self._events), target_epsilon, adjacency=self._adjacency)
