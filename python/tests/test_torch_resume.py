"""Exceptions, interrupts, saved states, kills."""

import pytest

torch = pytest.importorskip("torch")

from kills import check_kills  # noqa: E402
from torch import nn  # noqa: E402
from torch_cases import data_of, model_of, parameters_of, private_of  # noqa: E402

from antiphon import Key, PrivacyError  # noqa: E402


def test_an_exception_halfway_leaves_nothing_behind():
    broken = []

    def loss(output, target):
        if broken:
            raise RuntimeError("broken")
        return nn.functional.cross_entropy(output, target)

    model, other = model_of(), model_of()
    private, straight = private_of(model, loss_fn=loss), private_of(other)
    for step, (batch, same) in enumerate(zip(private.loader, straight.loader)):
        if step == 3:
            broken.append(True)
            with pytest.raises(RuntimeError, match="broken"):
                private.step(batch)
            broken.clear()
        private.step(batch)
        straight.step(same)
    assert torch.equal(parameters_of(model), parameters_of(other))


def test_what_fails_in_the_optimizer_or_between_parts_is_not_in_the_next_sum(monkeypatch):
    private = private_of()
    x, y = data_of().tensors
    batches = [private.order.batch(step) for step in range(3)]
    monkeypatch.setattr(private.optimizer, "step", lambda: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        private.step((x[batches[0]], y[batches[0]]), indices=batches[0])
    assert private._total.abs().max() == 0 and private._indices == [] and private.run.step == 1
    # A part, then one that fails: both are forgotten.
    private.accumulate((x[batches[1][:2]], y[batches[1][:2]]), indices=batches[1][:2])
    with pytest.raises(RuntimeError, match="out of bounds"):
        private.accumulate((x[batches[1][2:]], y[batches[1][2:]] + 100), indices=batches[1][2:])
    assert private._total.abs().max() == 0 and private._indices == []
    with pytest.raises(ValueError, match="batch must be given, or accumulate"):
        private.step()
    # The same example in two parts.
    for _ in range(2):
        private.accumulate((x[:1], y[:1]), indices=[batches[1][0]])
    with pytest.raises(PrivacyError, match="twice"):
        private.step()
    assert private.run.step == 1 and private._indices == []


def test_an_interrupt_between_noise_and_update_stops_nothing():
    """As Ctrl-C: raised when the noise is drawn, or before."""
    private = private_of()

    class Interrupted:
        def __init__(self, run, when):
            self.run, self.when = run, when

        def __getattr__(self, name):
            return getattr(self.run, name)

        def privatize(self, total):
            if self.when == "after":
                self.run.privatize(total)
            raise KeyboardInterrupt

    for when in ["before", "after"]:
        real = private.run
        private.run = Interrupted(real, when)
        with pytest.raises(KeyboardInterrupt):
            private.step(next(iter(private.loader)))
        private.run = real
        assert private.order.position == private.run.step
        private.state_dict()
    for batch in private.loader:
        private.step(batch)
    assert private.run.step == private.run.steps


def with_dropout():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 5), nn.Dropout(0.3), nn.Tanh(), nn.Linear(5, 3))


@pytest.mark.parametrize("num_workers", [0, 2])
def test_resumed_ends_the_same(tmp_path, num_workers):
    def training():
        model = with_dropout()
        optimizer = torch.optim.Adam(model.parameters())
        return model, private_of(model, optimizer, key=Key.from_seed(4), num_workers=num_workers)

    model, private = training()
    for batch in private.loader:
        private.step(batch)
    expected = parameters_of(model)
    model, private = training()
    for batch in private.loader:
        private.step(batch)
        if private.run.step == 7:
            break
    private.save(tmp_path / "state")
    torch.randn(100)  # the world goes on
    model, private = training()
    private.load(tmp_path / "state")
    assert len(private.loader) == 11
    for batch in private.loader:
        private.step(batch)
    assert torch.equal(parameters_of(model), expected)


def test_a_state_of_another_run_is_refused(tmp_path):
    private = private_of()
    private.step(next(iter(private.loader)))
    state = private.state_dict()
    for changed, error, message in [
        (dict(mechanism="tree-online"), PrivacyError, "mechanism was"),
        (dict(key=Key.from_seed(2)), PrivacyError, "key_fingerprint was"),
        (dict(max_grad_norm=0.4), PrivacyError, "clip_norm was"),
        (dict(model=nn.Sequential(nn.Linear(6, 3))), PrivacyError, "layout was"),
        (dict(shuffle_seed=1), ValueError, "seed was 0 and is 1"),
        (dict(physical_batch_size=2), ValueError, "physical_batch_size"),
    ]:
        other = private_of(**changed)
        with pytest.raises(error, match=message):
            other.load_state_dict(state)
        assert other.order.position == 0
    for wrong in [{}, {"model": 1}, None]:
        with pytest.raises(ValueError, match="state must be what state_dict"):
            private_of().load_state_dict(wrong)


def test_a_state_that_was_loaded_in_part_is_not_trained_from(tmp_path):
    """The run stands where the state stands, and the parameters do not: a program that takes the error for "no state" would use noise twice."""
    key = tmp_path / "run.key"
    private = private_of(key=key)
    batches = iter(private.loader)
    for _ in range(2):
        private.step(next(batches))
    state = private.state_dict()
    private.save(tmp_path / "state")
    groups = [*state["optimizer"]["param_groups"], {**state["optimizer"]["param_groups"][0], "params": []}]
    resumed = private_of(key=key)
    with pytest.raises(ValueError, match="different number of parameter groups"):
        resumed.load_state_dict({**state, "optimizer": {**state["optimizer"], "param_groups": groups}})
    batch = next(iter(resumed.loader))
    for what in (lambda: resumed.step(batch), lambda: resumed.accumulate(batch), resumed.state_dict, lambda: resumed.save(tmp_path / "state")):
        with pytest.raises(PrivacyError, match="goes on at step 2, but loading model and optimizer from it failed"):
            what()
    # What is refused before the run went on changes nothing.
    again = private_of(key=key)
    with pytest.raises(ValueError, match="version 1"):
        again.load_state_dict({})
    again.load(tmp_path / "state")
    again.step(next(iter(again.loader)))
    assert again.run.step == 3
    assert "same examples for the same indices as it did before" in again.statement() and "same indices" not in private.statement()


def test_an_old_state_is_refused_after_a_later_one_was_saved(tmp_path):
    key = tmp_path / "run.key"
    private = private_of(key=key)
    for batch in private.loader:
        private.save(tmp_path / f"state{private.run.step}")
        private.step(batch)
    again = private_of(key=key)
    with pytest.raises(PrivacyError, match="a later one, after 17 steps, was kept"):
        again.load(tmp_path / "state0")
    assert again.order.position == 0
    again.load(tmp_path / "state17")
    assert again.run.step == 17
    private_of(key=key).load(tmp_path / "state3", repeat_noise=True)


def test_kills(tmp_path):
    check_kills(tmp_path, "killed.py", kills=3, steps=120)
