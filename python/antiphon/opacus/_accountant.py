"""ε for Opacus: one Gaussian mechanism for the whole run, whatever number of steps is done."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from opacus.accountants import IAccountant, register_accountant

from .. import Event
from .. import epsilon as epsilon_of

#: The name under which Opacus knows the accountant.
NAME = "antiphon"


class WholeRunAccountant(IAccountant):  # type: ignore[misc]
    """ε of a run with correlated noise. It is the figure of all steps that were planned, from the first step on: with this noise a part
    of the run is not accounted apart from the rest."""

    #: As Opacus has it: noise multiplier, sampling rate, steps. One entry.
    history: list[tuple[float, float, int]]

    def __init__(self) -> None:
        super().__init__()
        self._event: Event | None = None

    def begin(self, event: Event) -> None:
        """The event of the run, as it is under its neighbouring relation."""
        self._event = event

    def step(self, *, noise_multiplier: float, sample_rate: float) -> None:
        """Counts the step. It changes no figure."""
        steps = self.history[-1][2] if self.history else 0
        self.history = [(noise_multiplier, sample_rate, steps + 1)]

    def get_epsilon(self, delta: float, **_: Any) -> float:
        """An upper bound on ε of the whole run, at any δ."""
        if self._event is None:
            raise ValueError("make_private must be called first: ε is a property of the run that it plans")
        return epsilon_of(self._event, delta)

    def __len__(self) -> int:
        return self.history[-1][2] if self.history else 0

    @classmethod
    def mechanism(cls) -> str:
        """The name of the accountant."""
        return NAME

    def state_dict(self, destination: Any = None) -> Any:
        """What Opacus' accountants keep, and the event of the run."""
        destination = super().state_dict(OrderedDict() if destination is None else destination)
        destination["event"] = None if self._event is None else self._event.to_json()
        return destination

    def load_state_dict(self, state_dict: Any) -> None:
        """The state must be of a run with the same event, if one has begun here."""
        super().load_state_dict(state_dict)
        found = state_dict.get("event")
        event = None if found is None else Event.from_json(found)
        if self._event is not None and event != self._event:
            raise ValueError(f"the state must be of a run with the same noise, {self._event}, got {event}")
        self._event = event


register_accountant(NAME, WholeRunAccountant, force=True)
