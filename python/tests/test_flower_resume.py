"""antiphon.flower: saved states, resumed runs, kills."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr")

from flower_cases import NODES, START, MemoryGrid, fedavg, private_of, record, train, vector  # noqa: E402
from flwr.app import MetricRecord  # noqa: E402
from flwr.serverapp import strategy as flower  # noqa: E402

import antiphon  # noqa: E402
from antiphon import Key, PrivacyError  # noqa: E402

INNER = {
    "FedAvg": fedavg,
    "FedProx": lambda: flower.FedProx(fraction_evaluate=0.0, proximal_mu=0.1),
    "FedAvgM": lambda: flower.FedAvgM(fraction_evaluate=0.0, server_learning_rate=0.7, server_momentum=0.9),
    "FedAdagrad": lambda: flower.FedAdagrad(fraction_evaluate=0.0),
    "FedAdam": lambda: flower.FedAdam(fraction_evaluate=0.0),
    "FedYogi": lambda: flower.FedYogi(fraction_evaluate=0.0),
}


@pytest.mark.parametrize("name", INNER)
def test_resumed_ends_the_same(tmp_path, name):
    """In another process it would be other objects, and so it is here. What the inner strategy remembers goes with the state."""
    whole = private_of(INNER[name]()).start(MemoryGrid(NODES), record(START))
    first = private_of(INNER[name]())
    first.start(MemoryGrid(NODES), record(START), num_rounds=5)
    first.save(tmp_path / "state")
    second, rounds = private_of(INNER[name]()), []
    second.load(tmp_path / "state")
    grid = MemoryGrid(NODES)
    found = second.start(grid, record(np.zeros(11)), evaluate_fn=lambda n, a: rounds.append(n) or MetricRecord({"n": n}))
    assert np.array_equal(vector(found.arrays), vector(whole.arrays))
    assert len(grid.asked) == 3 and rounds == [5, 6, 7, 8] == list(found.evaluate_metrics_serverapp)


def test_a_momentum_that_is_lost_would_show():
    """The test above can fail: without what FedAvgM remembers, the end is another."""
    first = private_of(INNER["FedAvgM"]())
    first.start(MemoryGrid(NODES), record(START), num_rounds=5)
    state = first.state_dict()
    assert set(state["memory"]) == {f"list/momentum_vector/{number}" for number in range(3)}
    whole = first.start(MemoryGrid(NODES), record(START))
    second = private_of(INNER["FedAvgM"]())
    second.load_state_dict({**state, "memory": {}})
    assert not np.array_equal(vector(second.start(MemoryGrid(NODES), record(START)).arrays), vector(whole.arrays))


class Own(flower.FedAvg):
    """A strategy of a user, with a memory: it counts rounds, and slows down."""

    def __init__(self):
        super().__init__(fraction_evaluate=0.0)
        self.count = 0

    def aggregate_train(self, server_round, replies):
        self.count += 1
        return super().aggregate_train(server_round, replies)


class Kept(Own):
    def state_dict(self):
        return {"count": np.array(self.count)}

    def load_state_dict(self, state):
        self.count = int(state["count"])


def test_a_strategy_of_ones_own(tmp_path):
    private = private_of(Own())
    private.start(MemoryGrid(NODES), record(START), num_rounds=2)
    for refused in [lambda: private.save(tmp_path / "state"), lambda: private_of(Own(), checkpoint=tmp_path / "state")]:
        with pytest.raises(ValueError, match=r"strategy must be one whose state can be kept, got Own: give it state_dict\(\)"):
            refused()
    assert not (tmp_path / "state").exists()
    private = private_of(Kept(), checkpoint=tmp_path / "state")
    private.start(MemoryGrid(NODES), record(START), num_rounds=2)
    resumed = private_of(Kept(), checkpoint=tmp_path / "state")
    resumed.start(MemoryGrid(NODES), record(START))
    assert resumed.strategy.count == 8


def test_a_checkpoint_is_written_before_anybody_sees_the_arrays(tmp_path):
    """And before the first round. So a kill never leads to the same noise on top of other updates that somebody got."""
    key, state = tmp_path / "run.key", tmp_path / "state"
    sent = []

    def watched(message):
        sent.append((antiphon.flower._state.read(state)["run"]["step"], message.content["config"]["server-round"]))
        return train(message)

    private = private_of(key=key, checkpoint=state)
    private.start(MemoryGrid(NODES, {node: watched for node in NODES}), record(START))
    assert sent == [(number - 1, number) for number in range(1, 9) for _ in range(3)]


@pytest.mark.parametrize("broken", ["disk", "inner"])
def test_no_arrays_go_out_whose_state_is_not_on_disk(tmp_path, monkeypatch, broken):
    """A full disk, or an inner strategy that fails once the noise is made; then the server goes on in the same process."""
    state, sent, fail = tmp_path / "state", [], [True]

    def watched(message):
        kept = antiphon.flower._state.read(state)
        current = np.concatenate([kept["arrays"][name].ravel() for name in "wbs"])
        sent.append((kept["run"]["step"], np.array_equal(current, vector(message.content["arrays"]))))
        return train(message)

    private = private_of(key=tmp_path / "run.key", checkpoint=state, log=tmp_path / "log")
    place, name = (antiphon.flower._state, "write") if broken == "disk" else (private.strategy, "aggregate_train")
    real = getattr(place, name)

    def failing(*arguments):
        if private.run.step == 3 and fail and fail.pop():
            raise OSError("no space left on device")
        return real(*arguments)

    monkeypatch.setattr(place, name, failing)
    grid = MemoryGrid(NODES, {node: watched for node in NODES})
    with pytest.raises(OSError, match="no space left"):
        private.start(grid, record(START))
    assert private.run.step == 3 and antiphon.flower._state.read(state)["run"]["step"] == 2
    private.start(grid, record(START))
    assert sent == [(step, True) for step in range(8) for _ in range(3)]
    assert private.run.audit(tmp_path / "log").ok


def test_a_finished_run_that_is_started_again_gives_its_arrays(tmp_path):
    """As after a kill behind the last round. Nobody is asked."""
    settings = dict(key=tmp_path / "run.key", checkpoint=tmp_path / "state")
    found = private_of(**settings).start(MemoryGrid(NODES), record(START))
    grid, private = MemoryGrid(NODES), private_of(**settings)
    assert np.array_equal(vector(private.start(grid, record(START)).arrays), vector(found.arrays))
    assert grid.asked == [] and private.run.step == 8


def test_a_state_has_no_key_and_no_pickle(tmp_path):
    private = private_of(key=tmp_path / "run.key", checkpoint=tmp_path / "state")
    private.start(MemoryGrid(NODES), record(START), num_rounds=3)
    secret = bytes.fromhex(json.loads((tmp_path / "run.key").read_text())["key"])
    content = (tmp_path / "state").read_bytes()
    assert len(secret) == 32 and secret not in content and secret.hex().encode() not in content
    with np.load(tmp_path / "state", allow_pickle=False) as file:
        header = json.loads(bytes(file["antiphon_flower.json"]))
        assert all(not file[name].dtype.hasobject for name in file.files)
    assert secret.hex() not in json.dumps(header) and "key" not in header["run"]
    assert header["clients"] == NODES and header["run"]["step"] == 3
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".state")]


def test_a_state_of_another_run_is_refused():
    private = private_of()
    private.start(MemoryGrid(NODES), record(START), num_rounds=2)
    state = private.state_dict()
    for changed, error, message in [
        (dict(mechanism="tree-online"), PrivacyError, "mechanism was"),
        (dict(key=Key.from_seed(2)), PrivacyError, "key_fingerprint was"),
        (dict(clip_norm=0.4), PrivacyError, "clip_norm was"),
        (dict(noise_multiplier=1.1), PrivacyError, "noise was"),
        (dict(seed=1), ValueError, "seed was 0 and is 1"),
        (dict(clients_per_round=4), ValueError, "batch_size was 3 and is 4"),
        (dict(zero_threshold=1.0), ValueError, "zero_threshold was None and is 1.0"),
        (dict(strategy=INNER["FedAvgM"]()), ValueError, "inner was FedAvg and is FedAvgM"),
        (dict(clients=list(range(12))), PrivacyError, "other clients"),
    ]:
        other = private_of(**changed)
        with pytest.raises(error, match=message):
            other.load_state_dict(state)
        with pytest.raises(ValueError, match="the run must have begun"):
            other.run
    for wrong in [{}, None, {"antiphon_flower": 2}]:
        with pytest.raises(ValueError, match="state must be what state_dict"):
            private_of().load_state_dict(wrong)
    with pytest.raises(ValueError, match="a state must be loaded before the run begins"):
        private.load_state_dict(state)
    other = private_of()
    other.load_state_dict(state)
    with pytest.raises(PrivacyError, match="the arrays must have the names, shapes and types"):
        other.start(MemoryGrid(NODES), record(START, np.float64))


def test_files_that_are_no_state(tmp_path):
    with pytest.raises(FileNotFoundError):
        private_of().load(tmp_path / "none")
    (tmp_path / "text").write_text("hello")
    np.savez(tmp_path / "arrays.npz", a=np.zeros(3))
    np.savez(tmp_path / "objects.npz", **{"antiphon_flower.json": np.array([{"a": 1}], dtype=object)})
    for name in ["text", "arrays.npz", "objects.npz"]:
        with pytest.raises(ValueError, match="must be a state that CorrelatedNoise saved, got something else"):
            private_of().load(tmp_path / name)


def test_an_old_state_is_refused_after_a_later_one_was_saved(tmp_path):
    settings = dict(key=tmp_path / "run.key", checkpoint=tmp_path / "state")
    private = private_of(**settings)
    private.start(MemoryGrid(NODES), record(START), num_rounds=2)
    shutil.copy(tmp_path / "state", tmp_path / "old")
    private.start(MemoryGrid(NODES), record(START), num_rounds=4)
    with pytest.raises(PrivacyError, match="a later one, after 4 steps, was kept"):
        private_of(key=tmp_path / "run.key").load(tmp_path / "old")
    private_of(key=tmp_path / "run.key").load(tmp_path / "old", repeat_noise=True)


def test_an_old_state_is_refused_after_clients_got_later_arrays(tmp_path):
    """Without a checkpoint: the rounds after the state would be made once more, with the same noise on other updates."""
    settings = dict(key=tmp_path / "run.key")
    private = private_of(**settings)
    private.start(MemoryGrid(NODES), record(START), num_rounds=2)
    private.save(tmp_path / "state")
    # A round whose arrays nobody got.
    private.start(MemoryGrid(NODES), record(START), num_rounds=3)
    private_of(**settings).load(tmp_path / "state")
    private.start(MemoryGrid(NODES), record(START), num_rounds=4)
    with pytest.raises(PrivacyError, match="a later one, after 3 steps, was kept"):
        private_of(**settings).load(tmp_path / "state")
    private_of(**settings).load(tmp_path / "state", repeat_noise=True)


@pytest.mark.parametrize("rounds", [2, 5])
def test_a_run_that_another_process_went_on_with_is_refused(tmp_path, rounds):
    settings = dict(key=tmp_path / "run.key", checkpoint=tmp_path / "state")
    first, second, grid = private_of(**settings), private_of(**settings), MemoryGrid(NODES)
    first.start(grid, record(START), num_rounds=1)
    second.start(MemoryGrid(NODES), record(START), num_rounds=rounds)
    kept, asked = (tmp_path / "state").read_bytes(), len(grid.asked)
    with pytest.raises(PrivacyError, match="was written by another process"):
        first.start(grid, record(START))
    assert len(grid.asked) == asked and (tmp_path / "state").read_bytes() == kept
    # One that goes on in the middle of a round of this one: no arrays are given out.
    third = private_of(**settings)

    def meanwhile(message):
        fourth = private_of(**settings)
        fourth.start(MemoryGrid(NODES), record(START), num_rounds=rounds + 1)
        return train(message)

    node = next(NODES[i] for i in third.cohorts.batch(rounds))
    with pytest.raises(PrivacyError, match="was written by another process"):
        third.start(MemoryGrid(NODES, {node: meanwhile}), record(START))
    second = private_of(**settings)
    second.start(MemoryGrid(NODES), record(START))
    assert second.run.step == 8


def test_resumed_with_new_nodes(tmp_path):
    """Node ids are new in every simulation: refused with the way out, and right with client ids."""
    settings = dict(key=tmp_path / "a.key", checkpoint=tmp_path / "a.state")
    private_of(**settings).start(MemoryGrid(NODES), record(START), num_rounds=3)
    with pytest.raises(PrivacyError, match="Node ids are new in every simulation: pass client_id"):
        private_of(**settings).start(MemoryGrid([node + 1 for node in NODES]), record(START))

    def behave(message, shift):
        """Clients that train by who they are, and not by their node."""
        message.metadata.dst_node_id -= shift
        replies = train(message)
        message.metadata.dst_node_id += shift
        for reply in replies:
            reply.metadata.__dict__["_src_node_id"] = message.metadata.dst_node_id
        return replies

    ends = []
    for shift in [0, 1000]:
        settings = dict(key=Key.from_seed(3), checkpoint=tmp_path / f"{shift}.state")
        ids = {node: f"user {node}" for node in NODES}
        private_of(client_id=ids, **settings).start(MemoryGrid(NODES), record(START), num_rounds=3)
        moved = [node + shift for node in NODES]
        grid = MemoryGrid(moved, {node: lambda message, shift=shift: behave(message, shift) for node in moved})
        settings["key"] = Key.from_seed(3)
        private = private_of(client_id={node + shift: name for node, name in ids.items()}, **settings)
        ends.append(vector(private.start(grid, record(START)).arrays))
        assert private.client_ids == sorted(ids.values()) and all(report.counted == 3 for report in private.reports)
    assert np.array_equal(ends[0], ends[1])


def killed_and_whole(tmp_path, epochs):
    """The folder of a run that will be killed, how to start it, and what the same run gives that is not."""
    script = Path(__file__).with_name("flower_killed.py")
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    whole.mkdir()
    antiphon.Key.fresh(whole / "run.key")  # the same key for both
    shutil.copytree(whole, killed)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}

    def started(folder, *kill):
        return subprocess.Popen([sys.executable, script, folder, str(epochs), *kill], stdout=subprocess.PIPE, text=True, env=environment)

    expected = started(whole).communicate()[0].split()
    assert expected[0] == "begun" and expected[2] == "True", "the log passes the audit"
    return killed, started, expected


def check_end(killed, started, expected, rounds):
    child = started(killed)
    assert child.communicate()[0].split() == expected and child.returncode == 0
    steps = [json.loads(line)["step"] for line in (killed / "log").read_text().splitlines()]
    assert steps == list(range(rounds)), "one line per round"


def test_kills(tmp_path):
    """kill -9 of the server at the worst moments: what is started again ends with the same arrays bit for bit."""
    killed, started, expected = killed_and_whole(tmp_path, 3)
    for number, moment in [(1, "client"), (3, "noise"), (6, "state"), (9, "kept")]:
        child = started(killed, str(number), moment)
        child.communicate()
        assert child.returncode == -signal.SIGKILL
        step = antiphon.flower._state.read(killed / "state")["run"]["step"]
        assert step == (number if moment in ("state", "kept") else number - 1)
    check_end(killed, started, expected, 12)


@pytest.mark.long
def test_kills_at_random_moments(tmp_path):
    killed, started, expected = killed_and_whole(tmp_path, 60)
    wanted, rng = int(os.environ.get("ANTIPHON_KILLS", "10")), random.Random(11)
    steps = []
    for _ in range(wanted):
        child = started(killed)
        child.stdout.readline()
        time.sleep(rng.uniform(0.0, 0.5))
        os.kill(child.pid, signal.SIGKILL)
        child.stdout.close()
        if child.wait() == 0:  # a fast machine: it was done before
            break
        if (killed / "state").exists():
            steps.append(antiphon.flower._state.read(killed / "state")["run"]["step"])
    assert len(steps) >= 3 and 0 < steps[2] < 240 and steps == sorted(steps)
    check_end(killed, started, expected, 240)
