"""ε, δ and noise multipliers."""

import json
import subprocess

import pytest

import antiphon
from antiphon import Event


def test_there_and_back():
    z = antiphon.noise_multiplier(epsilon=8.0, delta=1e-6)
    assert antiphon.epsilon(z, 1e-6) <= 8.0 < antiphon.epsilon(0.999 * z, 1e-6)
    assert antiphon.delta(z, 8.0) <= 1e-6
    assert antiphon.noise_multiplier(8.0, 1e-6, adjacency="replace-one") == pytest.approx(2 * z)
    assert antiphon.epsilon(2 * z, 1e-6, adjacency="replace-one") == pytest.approx(antiphon.epsilon(z, 1e-6))
    # Four full-batch steps are one Gaussian with half the multiplier.
    assert antiphon.epsilon(2 * z, 1e-6, steps=4) == pytest.approx(antiphon.epsilon(z, 1e-6))
    sampled = antiphon.noise_multiplier(2.0, 1e-5, sampling_rate=0.01, steps=500)
    assert antiphon.epsilon(sampled, 1e-5, sampling_rate=0.01, steps=500) <= 2.0
    low, high = Event.dp_sgd(0.01, sampled, 500).epsilon_bracket(1e-5)
    assert low <= high <= 2.0 < 1.01 * high


def test_events_are_those_of_the_command_line(binary, tmp_path):
    event = Event.composed([(Event.poisson_sampled(0.01, 0.9), 100), (Event.gaussian(3.0), 1)])
    assert Event.from_json(event.to_json()) == event
    path = tmp_path / "event.json"
    path.write_text(event.to_json())
    out = subprocess.run([binary, "account", "--event", path, "--delta", "1e-6", "--json"], check=True, capture_output=True)
    assert antiphon.epsilon(event, 1e-6) == json.loads(out.stdout)["epsilon_upper"]


def test_dp_accounting_agrees():
    dp_accounting = pytest.importorskip("dp_accounting")
    from dp_accounting import pld

    def theirs(event, delta):
        accountant = pld.PLDAccountant()
        accountant.compose(event.to_dp_accounting())
        return accountant.get_epsilon(delta)

    for event in [
        Event.gaussian(0.6002),
        Event.gaussian(2.0),
        Event.composed([(Event.gaussian(4.0), 9)]),
        Event.dp_sgd(0.02, 1.1, 200),
        Event.dp_sgd(0.01, 1.0, 1000),  # the docstring of Event
        Event.composed([(Event.poisson_sampled(0.05, 1.0), 20), (Event.gaussian(3.0), 2)]),
    ]:
        ours = antiphon.epsilon(event, 1e-5)
        assert ours == pytest.approx(theirs(event, 1e-5), rel=1e-3, abs=1e-3), event
    assert isinstance(Event.gaussian(1.0).to_dp_accounting(), dp_accounting.GaussianDpEvent)


def test_wrong_figures():
    for call, message in [
        (lambda: antiphon.epsilon(-1, 1e-5), "noise_multiplier must be in [1e-6, 1e12], got -1"),
        (lambda: antiphon.epsilon(1.0, 2.0), "delta must be in (0, 1), got 2"),
        (lambda: antiphon.noise_multiplier(-1, 1e-5), "epsilon must be in (0, ∞), got -1"),
        (lambda: antiphon.epsilon("much", 1e-5), "noise must be a noise multiplier or an antiphon.Event, got str"),
        (lambda: antiphon.epsilon(1.0, 1e-5, adjacency="near"), 'adjacency must be "zero-out" or "replace-one", got "near"'),
        (lambda: antiphon.epsilon(1.0, 1e-5, sampling_rate=0.1), "steps must be given with sampling_rate, got nothing"),
        (lambda: antiphon.epsilon(1.0, 1e-5, sampling_rate=1.5, steps=3), "sampling_rate must be in (0, 1], got 1.5"),
        (lambda: Event.composed([]), "a composed event must be a list of at least one event, got []"),
    ]:
        with pytest.raises(ValueError) as error:
            call()
        assert str(error.value) == message
    with pytest.raises(ValueError, match="replace-one is not accounted for"):
        antiphon.epsilon(1.0, 1e-5, sampling_rate=0.1, steps=3, adjacency="replace-one")
