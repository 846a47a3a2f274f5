"""antiphon.flower: what is refused, and with which words."""

import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("flwr")

from flower_cases import NODES, START, MemoryGrid, fedavg, private_of, record, reply_of, train, vector  # noqa: E402
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict  # noqa: E402
from flwr.serverapp import strategy as flower  # noqa: E402

import antiphon  # noqa: E402
from antiphon import Key, PrivacyError, Schema  # noqa: E402
from antiphon.flower import SeparatedCohorts, partition_ids  # noqa: E402


@pytest.mark.parametrize(
    "changed, message",
    [
        (dict(clients=0), "clients must be a whole number, at least 1, got 0"),
        (dict(clients="abc"), "clients must be the number of clients or a list of their ids, got 'abc'"),
        (dict(clients=[1, 2, 3, 3]), "client ids must differ"),
        (dict(clients=[1, "a", 2]), "client ids must be whole numbers or strings, all of one kind, got int, str"),
        (dict(clients_per_round=13), "clients_per_round must be a whole number in 1..=12, got 13"),
        (dict(epochs=None), "epochs or rounds must be given, one of them, got neither"),
        (dict(rounds=8), "epochs or rounds must be given, one of them, got both"),
        (dict(epochs=None, rounds=9), 'rounds must be a multiple of 4 for sampling="fixed-order".*got 9'),
        (dict(sampling="poisson"), 'sampling must be "fixed-order" or "min-separation", got \'poisson\': a client may return only in rounds'),
        (dict(min_separation=2), 'min_separation and max_participations must be given with sampling="min-separation" only'),
        (dict(sampling="min-separation"), "rounds and min_separation must be given"),
        (dict(sampling="min-separation", epochs=None, rounds=9, min_separation=10), "min_separation must be a whole number in 1..=9, got 10"),
        (dict(sampling="min-separation", epochs=None, rounds=9, min_separation=5), "in round 5 only 0 may be asked"),
        (dict(sampling="min-separation", epochs=None, rounds=20, min_separation=2, max_participations=4), "in round 17 only 0 may be asked"),
        (dict(sampling="min-separation", epochs=None, rounds=9, min_separation=3, mechanism="optimal"), "optimizing for minimum separation"),
        (dict(mechanism="best"), "mechanism must be one of .*got 'best'"),
        (dict(delta=0.0), "delta must be in"),
        (dict(epsilon=3.0), "epsilon or noise_multiplier must be given, one of them, got both"),
        (dict(clip_norm=0), "clip_norm must be a number in"),
        (dict(zero_threshold=-1.0), "zero_threshold must be a number in"),
        (dict(seed=-1), "seed must be a whole number in"),
        (dict(wait_for=13), "wait_for must be a whole number in 1..=12, got 13"),
        (dict(client_id=3), "client_id must be a function of a node id or a dict by node id, got 3"),
        (dict(noise_memory=0), "noise_memory must be"),
    ],
)
def test_arguments(changed, message):
    with pytest.raises(ValueError, match=message):
        private_of(**changed)


@pytest.mark.parametrize(
    "inner, message",
    [
        (lambda: flower.FedAvg(), r"fraction_evaluate of the strategy must be 0.0, got 1.0: .*Pass FedAvg\(fraction_evaluate=0.0\)"),
        (lambda: fedavg(fraction_train=0.5), "fraction_train of the strategy must be 1.0, got 0.5: .*clients_per_round"),
        (lambda: fedavg(min_train_nodes=4), "min_train_nodes of the strategy must be at most 3, the size of the smallest cohort, got 4"),
        (lambda: fedavg(min_available_nodes=12), "min_available_nodes of the strategy must be at most 3"),
        (lambda: fedavg(train_metrics_aggr_fn=lambda records, key: MetricRecord()), "train_metrics_aggr_fn of the strategy must not be given"),
        (lambda: flower.FedMedian(fraction_evaluate=0.0), "strategy must be one that averages.*got FedMedian: it chooses among"),
        (lambda: flower.Krum(fraction_evaluate=0.0), "got Krum: it chooses among the replies of single clients"),
        (lambda: flower.QFedAvg(0.1, fraction_evaluate=0.0), "got QFedAvg: it weights clients by their training loss"),
        (
            lambda: flower.DifferentialPrivacyServerSideFixedClipping(fedavg(), 1.0, 1.0, 3),
            "got DifferentialPrivacyServerSideFixedClipping: it would clip and add noise a second time",
        ),
        (lambda: private_of(), "got CorrelatedNoise in itself"),
        (lambda: 5, "strategy must be a flwr.serverapp.strategy.Strategy, got int"),
    ],
)
def test_inner_strategies(inner, message):
    with pytest.raises(ValueError, match=message):
        private_of(inner())


def test_flower_has_no_strategy_that_nobody_thought_of():
    """Every strategy of Flower either averages, and its memory is known, or is refused by name."""
    from antiphon.flower._inner import _MEMORY, _REFUSED

    known = {kind.__name__ for kind in _MEMORY} | set(_REFUSED) | {"Strategy", "Result"}
    assert known == set(flower.__all__)


def test_a_used_inner_strategy():
    inner = flower.FedAvgM(fraction_evaluate=0.0, server_momentum=0.9)
    inner.momentum_vector = [np.zeros(3)]
    with pytest.raises(ValueError, match="strategy must be new, got one that has momentum_vector: it may remember updates"):
        private_of(inner)


def test_the_last_cohort_may_be_smaller():
    private = private_of(clients=10)
    grid = MemoryGrid(NODES[:10])
    private.start(grid, record(START))
    assert [len(asked) for asked in grid.asked] == [3, 3, 3, 1] * 2
    with pytest.raises(ValueError, match="min_train_nodes of the strategy must be at most 1"):
        private_of(fedavg(min_train_nodes=2), clients=10)


@pytest.mark.parametrize(
    "arrays, message",
    [
        (ArrayRecord(), "arrays must have at least one array"),
        (ArrayRecord({"n": Array(np.arange(3))}), "arrays must be arrays of float16, float32, float64, got int64 for 'n': .*BatchNorm"),
        (ArrayRecord({"n": Array(np.array([1.0, np.nan]))}), "arrays must be finite, got NaN or infinity in 'n'"),
        (ArrayRecord({"n": Array(np.zeros((0, 3)))}), "arrays must have at least one number"),
    ],
)
def test_models(arrays, message):
    with pytest.raises(ValueError, match=message):
        private_of().start(MemoryGrid(NODES), arrays)


def test_more_rounds_than_the_run_has():
    grid, private = MemoryGrid(NODES), private_of()
    with pytest.raises(PrivacyError, match="num_rounds must be at most 8, got 9: the noise and the privacy statement are for 8 rounds"):
        private.start(grid, record(START), num_rounds=9)
    assert grid.asked == []
    private.start(grid, record(START), num_rounds=3)
    with pytest.raises(ValueError, match="num_rounds must be in 3..=8, got 2: it counts the rounds of the whole run, and 3 are done"):
        private.start(grid, record(START), num_rounds=2)
    found = private.start(grid, record(START))  # goes on from where it was
    whole = private_of().start(MemoryGrid(NODES), record(START))
    assert np.array_equal(vector(found.arrays), vector(whole.arrays))
    for again in [None, 8]:
        with pytest.raises(PrivacyError, match="all 8 rounds of the run are done"):
            private.start(grid, record(START), num_rounds=again)
    with pytest.raises(PrivacyError, match="round 9 is refused: all 8 rounds of the run are done"):
        private.configure_train(9, private.arrays, ConfigRecord(), grid)
    assert len(grid.asked) == 8


def test_rounds_by_hand_come_in_order_and_once():
    grid, private = MemoryGrid(NODES), private_of()
    with pytest.raises(ValueError, match="the run must have begun"):
        private.statement()
    with pytest.raises(PrivacyError, match="round 2 is refused: the next round of the run is 1"):
        private.configure_train(2, record(START), ConfigRecord(), grid)
    messages = private.configure_train(1, record(START), ConfigRecord(), grid)
    replies = grid.send_and_receive(messages)
    arrays, metrics = private.aggregate_train(1, replies)
    assert metrics is None
    with pytest.raises(PrivacyError, match="round 1 is refused: the next round of the run is 2, and each gets noise once"):
        private.aggregate_train(1, replies)
    with pytest.raises(ValueError, match="configure_train must be called before aggregate_train, got round 2 without it"):
        private.aggregate_train(2, replies)
    with pytest.raises(PrivacyError, match="the arrays must have the names, shapes and types of those that the run began with"):
        private.configure_train(2, record(START, np.float64), ConfigRecord(), grid)
    # A round that is configured again after a failure asks the same clients.
    first = [message.metadata.dst_node_id for message in private.configure_train(2, arrays, ConfigRecord(), grid)]
    again = [message.metadata.dst_node_id for message in private.configure_train(2, arrays, ConfigRecord(), grid)]
    assert sorted(first) == sorted(again) and private.run.step == 1


def test_federated_evaluation():
    private = private_of()
    private.start(MemoryGrid(NODES), record(START), num_rounds=1)
    assert list(private.configure_evaluate(1, private.arrays, ConfigRecord(), MemoryGrid(NODES))) == []
    assert private.aggregate_evaluate(1, []) is None
    with pytest.raises(PrivacyError, match="metrics of clients are refused"):
        private.aggregate_evaluate(1, [object()])
    with pytest.raises(ValueError, match="evaluate_config must not be given"):
        private_of().start(MemoryGrid(NODES), record(START), evaluate_config=ConfigRecord())
    rounds = []
    result = private_of().start(MemoryGrid(NODES), record(START), evaluate_fn=lambda n, a: rounds.append(n) or MetricRecord({"n": n}))
    assert rounds == list(range(9)) == list(result.evaluate_metrics_serverapp)


def test_a_client_app_that_sends_other_arrays_is_found_in_the_first_round():
    def wrong(message):
        return [reply_of(message, record(vector(message.content["arrays"]), np.float64))]

    private = private_of()
    with pytest.raises(ValueError, match="clients must reply with the arrays of the model, got others from all 3 that replied: .*float64.*instead of float32"):
        private.start(MemoryGrid(NODES, {node: wrong for node in NODES}), record(START))
    assert private.run.step == 0, "nobody was admitted, and no noise was made"
    # The client app is mended, and the same run goes on.
    found = private.start(MemoryGrid(NODES), record(START))
    assert np.array_equal(vector(found.arrays), vector(private_of().start(MemoryGrid(NODES), record(START)).arrays))

    # Later, clients cannot stop the training so.
    def later(message):
        return wrong(message) if message.content["config"]["server-round"] == 2 else train(message)

    private = private_of()
    private.start(MemoryGrid(NODES, {node: later for node in NODES}), record(START))
    assert private.reports[1].wrong_arrays == 3 and private.run.step == 8


def test_a_mechanism_for_another_order():
    with pytest.raises(ValueError, match=r"mechanism must be for 8 steps \(2 epochs of 4\), got one for 12"):
        private_of(mechanism=antiphon.make("tree-online", Schema.epochs(3, 4)))
    # As many steps, but another order: refused before anybody is asked.
    grid, private = MemoryGrid(NODES), private_of(mechanism=antiphon.make("tree-online", Schema.epochs(1, 8)))
    with pytest.raises(PrivacyError):
        private.start(grid, record(START))
    assert grid.asked == []
    separated = dict(sampling="min-separation", epochs=None, rounds=9, min_separation=2)
    with pytest.raises(ValueError, match="mechanism must be for 9 rounds, got one for 8"):
        private_of(mechanism=antiphon.make("tree-online", Schema.epochs(2, 4)), **separated)
    private = private_of(mechanism=antiphon.make("blt", Schema.min_separation(9, 3)), **separated)
    with pytest.raises(PrivacyError):
        private.start(MemoryGrid(NODES), record(START))


def test_wrong_client_ids():
    with pytest.raises(ValueError, match="client_id must give a whole number or a string, got 1.5 for node 100"):
        private_of(client_id=lambda node: 1.5).start(MemoryGrid(NODES), record(START))
    with pytest.raises(PrivacyError, match="none of the 12 connected clients is one of the 12 of this run, such as 1: .*pass client_id"):
        private_of(clients=list(range(1, 13))).start(MemoryGrid(NODES), record(START))


def test_it_waits_for_clients(monkeypatch):
    grid, naps = MemoryGrid(NODES[:5]), []

    def sleep(seconds):
        naps.append(seconds)
        grid.nodes = NODES[: 5 + 4 * len(naps)]

    monkeypatch.setattr("antiphon.flower._clients.time.sleep", sleep)
    private = private_of()
    private.start(grid, record(START))
    assert len(naps) == 2 and private.client_ids == NODES
    grid.nodes, naps[:] = NODES[:9], []
    private_of(clients=NODES, wait_for=9).start(grid, record(START))
    assert naps == []


def test_separated_cohorts():
    for seed in range(5):
        cohorts = SeparatedCohorts(20, 3, 40, min_separation=4, seed=seed)
        for client in range(20):
            rounds = [step for step in range(40) if client in cohorts.batch(step)]
            assert np.diff(rounds).min() >= 4 and 5 <= len(rounds) <= 7, "120 places among 20 clients"
        assert all(len(set(cohorts.batch(step))) == 3 for step in range(40))
    assert cohorts.batch(0) != SeparatedCohorts(20, 3, 40, min_separation=4, seed=0).batch(0)
    with pytest.raises(ValueError, match="step must be in 0..=39, got 40"):
        cohorts.batch(40)


def test_partitions_that_nobody_tells():
    failing = {node: lambda message: [Message(Error(0, "no such action"), reply_to=message)] for node in NODES}
    with pytest.raises(ValueError, match="must tell its partition, got an error: no such action. Register app.query"):
        partition_ids(MemoryGrid(NODES, failing), 12)
    with pytest.raises(TimeoutError, match="13 nodes must be connected within 0.01 seconds, got 12"):
        partition_ids(MemoryGrid(NODES), 13, timeout=0.01)
    telling = {
        node: lambda message: [
            Message(RecordDict({"config": ConfigRecord({"partition-id": NODES.index(message.metadata.dst_node_id)})}), reply_to=message)
        ]
        for node in NODES
    }
    assert partition_ids(MemoryGrid(NODES, telling), 12) == {node: index for index, node in enumerate(NODES)}
    # Some of them in time: without this, a run would wait for the others for ever.
    with pytest.raises(TimeoutError, match="12 nodes must tell their partitions within 5 seconds, got 11"):
        partition_ids(MemoryGrid(NODES, {**telling, NODES[3]: lambda message: []}), 12, timeout=5)


def test_a_key_serves_one_run(tmp_path):
    key = Key.from_seed(1)
    private_of(key=key).start(MemoryGrid(NODES), record(START), num_rounds=1)
    with pytest.raises(PrivacyError, match="a key serves one run"):
        private_of(key=key).start(MemoryGrid(NODES), record(START))
    private_of(key=tmp_path / "run.key").start(MemoryGrid(NODES), record(START), num_rounds=1)
    with pytest.raises(PrivacyError, match="already used for"):
        private_of(key=tmp_path / "run.key").start(MemoryGrid(NODES), record(START))


def test_without_flower():
    """As where it is not installed: what to install is said."""
    code = """
import importlib.util, sys
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "flwr" else find(name, *rest)
try:
    import antiphon.flower
except ImportError as error:
    print(error)
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert found.strip() == 'antiphon.flower needs Flower: pip install "antiphon[flower]", from a clone "./python[flower]"'


def test_docstrings():
    import doctest

    import antiphon.flower._cohorts as cohorts

    found = doctest.testmod(cohorts, extraglobs={"antiphon": antiphon})
    assert found.attempted == 2 and found.failed == 0
    for thing in [getattr(antiphon.flower, name) for name in antiphon.flower.__all__]:
        assert thing.__doc__
        for part in vars(thing) if isinstance(thing, type) else ():
            if not part.startswith("_") and not hasattr(thing, "__dataclass_fields__"):
                assert getattr(thing, part).__doc__, f"{thing.__name__}.{part}"
