"""antiphon.flower: what a round computes, and what becomes of odd replies."""

import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("flwr")

from flower_cases import NODES, PARAMS, START, MemoryGrid, private_of, record, reply_of, train, vector  # noqa: E402
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict  # noqa: E402
from flwr.serverapp.strategy import FedAdam, FedAvgM, FedProx, Strategy  # noqa: E402

import antiphon  # noqa: E402
from antiphon import FixedOrderBatches, Key, PrivateRun, Schema  # noqa: E402


def clipped(update, norm=0.5):
    return update * min(1.0, norm / max(np.linalg.norm(update), 1e-300))


def test_rounds_are_those_of_the_slow_obvious_way():
    """Updates clipped as a whole, added up with equal weights, the row of the round, divided by clients_per_round."""
    grid, private = MemoryGrid(NODES), private_of()
    result = private.start(grid, record(START))
    order = FixedOrderBatches(12, 3, 2)
    noise = PrivateRun(
        antiphon.optimize(Schema.epochs(2, 4)), noise_multiplier=1.0, delta=1e-3, clip_norm=0.5, params=PARAMS, key=Key.from_seed(1)
    )
    model = START.astype(np.float32)
    for step in range(8):
        cohort = order.batch(step)
        assert grid.asked[step] == sorted(NODES[index] for index in cohort)
        total = np.zeros(PARAMS)
        for index in cohort:
            message = Message(RecordDict({"arrays": record(model), "config": ConfigRecord()}), dst_node_id=NODES[index], message_type="train")
            message.content["config"]["server-round"] = step + 1
            total += clipped(vector(train(message)[0].content["arrays"]).astype(np.float64) - model.astype(np.float64))
        noise.admit(cohort)
        model = (model + (total + noise.row()) / 3).astype(np.float32)
    # The sum here is rounded elsewhere than that of Clip, which rounds to a grid: by far less than 1e-5.
    assert np.allclose(vector(result.arrays), model, rtol=0, atol=1e-5)
    assert np.abs(model - START).max() > 0.1
    assert private.run.step == private.run.steps == 8
    assert private.client_ids == NODES


def test_the_order_of_replies_and_their_weights_do_not_matter():
    class Backwards(MemoryGrid):
        def send_and_receive(self, messages, *, timeout=None):
            return list(super().send_and_receive(messages))[::-1]

    def heavy(message):
        (reply,) = train(message)
        reply.content["metrics"]["num-examples"] = 10**6
        return [reply]

    plain = private_of().start(MemoryGrid(NODES), record(START))
    other = private_of().start(Backwards(NODES, {NODES[3]: heavy}), record(START))
    assert np.array_equal(vector(plain.arrays), vector(other.arrays))


def silent(message):
    return []


def failing(message):
    return [Message(Error(code=0, reason="out of memory"), reply_to=message)]


def sends(change):
    """A client that changes one array of its reply."""

    def behave(message):
        arrays = train(message)[0].content["arrays"]
        changed = {name: array.numpy() for name, array in arrays.items()}
        change(changed)
        return [reply_of(message, ArrayRecord({name: Array(np.asarray(values)) for name, values in changed.items()}))]

    return behave


def broken_bytes(message):
    (reply,) = train(message)
    reply.content["arrays"]["b"].data = b"nonsense"
    return [reply]


def lying_record(message):
    """A record that names the shape of the model, around an array of another."""
    (reply,) = train(message)
    array = Array(np.zeros(400, np.float32))
    array.shape = (4,)
    reply.content["arrays"]["b"] = array
    return [reply]


def two_records(message):
    (reply,) = train(message)
    reply.content["more"] = record(START)
    return [reply]


def unchanged(message):
    """An update of zero."""
    return [reply_of(message, record(vector(message.content["arrays"])))]


ODD = {
    "silent": (silent, "missing"),
    "failing": (failing, "failed"),
    "NaN": (sends(lambda a: a["w"].__setitem__((1, 1), np.nan)), "not_finite"),
    "infinity": (sends(lambda a: a["b"].__setitem__(2, -np.inf)), "not_finite"),
    "shape": (sends(lambda a: a.update(b=a["b"][:3])), "wrong_arrays"),
    "same size": (sends(lambda a: a.update(w=a["w"].T.copy())), "wrong_arrays"),
    "double": (sends(lambda a: a.update(b=a["b"].astype(np.float64))), "wrong_arrays"),
    "whole numbers": (sends(lambda a: a.update(b=np.ones(4, np.int64))), "wrong_arrays"),
    "missing array": (sends(lambda a: a.pop("b")), "wrong_arrays"),
    "more arrays": (sends(lambda a: a.update(more=np.zeros(3, np.float32))), "wrong_arrays"),
    "no arrays": (lambda message: [reply_of(message, None)], "wrong_arrays"),
    "two records": (two_records, "wrong_arrays"),
    "broken bytes": (broken_bytes, "wrong_arrays"),
    "lying record": (lying_record, "wrong_arrays"),
    "large": (sends(lambda a: a["w"].__setitem__((0, 0), 50.0)), "zeroed"),
}


@pytest.mark.parametrize("name", ODD)
def test_an_odd_reply_counts_as_zero_and_its_client_takes_part(name, tmp_path):
    behave, kind = ODD[name]
    odd = NODES[4]
    expected = private_of(zero_threshold=20.0).start(MemoryGrid(NODES, {odd: unchanged}), record(START))
    private = private_of(zero_threshold=20.0, log=tmp_path / "log")
    found = private.start(MemoryGrid(NODES, {odd: behave}), record(START))
    assert np.array_equal(vector(found.arrays), vector(expected.arrays))
    seen = [report for report in private.reports if getattr(report, kind)]
    assert [getattr(report, kind) for report in seen] == [1, 1], "once in each of two epochs"
    assert all(report.counted == 2 and report.asked == 3 for report in seen)
    audit = private.run.audit(tmp_path / "log")
    assert audit.ok and audit.participations == 24 and audit.units == 12 and audit.steps == 8
    assert audit.epsilon_realised <= audit.epsilon_stated


def test_a_large_update_without_a_threshold_is_clipped():
    private = private_of()
    private.start(MemoryGrid(NODES, {NODES[4]: ODD["large"][0]}), record(START))
    assert all(report.counted == 3 and report.zeroed == 0 for report in private.reports)


def test_a_second_reply_and_a_stranger_are_dropped():
    plain = private_of().start(MemoryGrid(NODES), record(START))

    def twice(message):
        (first,) = train(message)
        return [first, reply_of(message, record(START + 100))]

    def for_another(message):
        """Also a reply in the name of a node that was not asked."""
        stranger = Message(RecordDict({"arrays": record(START)}), dst_node_id=5, message_type="train")
        return [reply_of(stranger, record(START + 100)), *train(message)]

    private = private_of()
    found = private.start(MemoryGrid(NODES, {NODES[2]: twice, NODES[7]: for_another}), record(START))
    assert np.array_equal(vector(found.arrays), vector(plain.arrays))
    assert sum(report.duplicates for report in private.reports) == 2
    assert sum(report.not_asked for report in private.reports) == 2
    assert all(report.counted == 3 for report in private.reports)
    text = " ".join(str(report) for report in private.reports)
    assert "1 sent twice (dropped)" in text and "1 from nodes that were not asked (dropped)" in text


def test_a_reply_of_a_client_of_another_cohort_is_dropped():
    order = FixedOrderBatches(12, 3, 2)
    other = NODES[order.batch(1)[0]]

    def early(message):
        mine = Message(message.content, dst_node_id=other, message_type="train")
        return train(message) + train(mine)

    asked_first = NODES[order.batch(0)[0]]
    private = private_of()
    found = private.start(MemoryGrid(NODES, {asked_first: early}), record(START))
    assert private.reports[0].not_asked == 1
    assert np.array_equal(vector(found.arrays), vector(private_of().start(MemoryGrid(NODES), record(START)).arrays))


def test_who_is_not_connected_takes_part_as_zero_and_who_joins_later_takes_none(tmp_path):
    gone, late = NODES[4], 7777

    class Changing(MemoryGrid):
        def send_and_receive(self, messages, *, timeout=None):
            replies = super().send_and_receive(messages)
            if self.asked:
                self.nodes = [node for node in NODES if node != gone] + [late]
            return replies

    order = FixedOrderBatches(12, 3, 2)
    assert 4 not in order.batch(0)
    grid, private = Changing(NODES), private_of(log=tmp_path / "log")
    found = private.start(grid, record(START))
    expected = private_of().start(MemoryGrid(NODES, {gone: silent}), record(START))
    assert np.array_equal(vector(found.arrays), vector(expected.arrays))
    assert all(gone not in asked and late not in asked for asked in grid.asked)
    assert sum(report.missing for report in private.reports) == 2
    audit = private.run.audit(tmp_path / "log")
    assert audit.ok and audit.participations == 24


class Spy(Strategy):
    """An inner strategy of a user, which keeps all that it sees."""

    def __init__(self):
        self.seen, self.grids = [], []

    def configure_train(self, server_round, arrays, config, grid):
        self.grids.append(grid)
        config["server-round"] = server_round
        content = RecordDict({"arrays": arrays, "config": config})
        return [Message(content, dst_node_id=node, message_type="train") for node in grid.get_node_ids()]

    def aggregate_train(self, server_round, replies):
        self.seen.append(list(replies))
        return next(iter(self.seen[-1][0].content.array_records.values())), MetricRecord({"loss": 1.0})

    def configure_evaluate(self, server_round, arrays, config, grid):
        raise AssertionError("nobody is asked to evaluate")

    def aggregate_evaluate(self, server_round, replies):
        raise AssertionError("nothing is evaluated")

    def summary(self):
        pass


def test_the_inner_strategy_sees_one_reply_with_noise_and_nothing_else():
    spy = Spy()
    private = private_of(spy)
    result = private.start(MemoryGrid(NODES), record(START))
    plain = private_of().start(MemoryGrid(NODES), record(START))
    assert np.array_equal(vector(result.arrays), vector(plain.arrays))
    assert len(spy.seen) == 8
    for replies in spy.seen:
        (reply,) = replies
        assert set(reply.content) == {"arrays", "metrics"}
        assert dict(reply.content["metrics"]) == {"num-examples": 1}, "no loss, no number of examples of anybody"
    assert not result.train_metrics_clientapp and not result.evaluate_metrics_clientapp
    for call in ["push_messages", "pull_messages", "send_and_receive"]:
        with pytest.raises(antiphon.PrivacyError, match=f"the inner strategy called grid.{call}"):
            getattr(spy.grids[0], call)([])


@pytest.mark.parametrize("kind", ["fewer", "twice", "others", "evaluate"])
def test_an_inner_strategy_that_asks_others_is_refused(kind):
    class Wrong(Spy):
        def configure_train(self, server_round, arrays, config, grid):
            messages = super().configure_train(server_round, arrays, config, grid)
            if kind == "fewer":
                return messages[1:]
            if kind == "twice":
                return messages + messages[:1]
            message_type = "evaluate" if kind == "evaluate" else "train"
            node = 1 if kind == "others" else messages[0].metadata.dst_node_id
            return [Message(messages[0].content, dst_node_id=node, message_type=message_type), *messages[1:]]

    grid, private = MemoryGrid(NODES), private_of(Wrong())
    with pytest.raises(antiphon.PrivacyError, match="must ask every client of the cohort once, to train"):
        private.start(grid, record(START))
    assert grid.asked == [] and private.run.step == 0


def test_server_momentum_is_that_of_flower():
    """FedAvgM over noised means, as one would write it down."""
    private = private_of(FedAvgM(fraction_evaluate=0.0, server_learning_rate=0.5, server_momentum=0.9))
    spy = Spy()
    seen = private_of(spy)
    first = private.start(MemoryGrid(NODES), record(START), num_rounds=1)
    seen.start(MemoryGrid(NODES), record(START), num_rounds=1)
    start = START.astype(np.float32)
    mean = vector(spy.seen[0][0].content["arrays"]) - start
    # Single precision of numbers below 4.
    assert np.allclose(vector(first.arrays), start + 0.5 * mean, rtol=0, atol=1e-6)


def test_adaptive_strategies_keep_the_type_of_the_arrays():
    """FedAdam makes float64 of float32; clients get what they got in the first round."""
    private = private_of(FedAdam(fraction_evaluate=0.0))
    types = set()

    def watched(message):
        types.update(array.numpy().dtype.name for array in message.content["arrays"].values())
        return train(message)

    result = private.start(MemoryGrid(NODES, {node: watched for node in NODES}), record(START))
    assert types == {"float32"} and vector(result.arrays).dtype == np.float32
    assert all(report.counted == 3 for report in private.reports)


def test_the_settings_of_the_inner_strategy_reach_clients():
    told = []

    def watched(message):
        told.append((message.content["config"]["proximal-mu"], message.content["config"]["server-round"], message.content["config"]["lr"]))
        return train(message)

    private = private_of(FedProx(fraction_evaluate=0.0, proximal_mu=0.25))
    private.start(MemoryGrid(NODES, {node: watched for node in NODES}), record(START), train_config=ConfigRecord({"lr": 0.1}))
    assert told == [(0.25, number, 0.1) for number in range(1, 9) for _ in range(3)]


def test_half_and_double_precision():
    for dtype in [np.float16, np.float64]:

        def behave(message):
            return [reply_of(message, record(vector(message.content["arrays"]) * 0.9, dtype))]

        private = private_of()
        result = private.start(MemoryGrid(NODES, {node: behave for node in NODES}), record(START, dtype))
        assert vector(result.arrays).dtype == dtype and all(report.counted == 3 for report in private.reports)


def test_minimum_separation(tmp_path):
    from antiphon.flower import SeparatedCohorts

    private = private_of(
        sampling="min-separation", epochs=None, rounds=20, min_separation=3, max_participations=6, log=tmp_path / "log", seed=5
    )
    grid = MemoryGrid(NODES, {NODES[0]: silent})
    private.start(grid, record(START))
    cohorts = SeparatedCohorts(12, 3, 20, min_separation=3, max_participations=6, seed=5)
    assert [cohorts.batch(step) for step in range(20)] == [sorted(NODES.index(node) for node in asked) for asked in grid.asked]
    assert len({tuple(asked) for asked in grid.asked}) > 4, "other cohorts than in a fixed order"
    for node in NODES:
        rounds = [number for number, asked in enumerate(grid.asked) if node in asked]
        assert np.diff(rounds).min() >= 3 and len(rounds) <= 6
    assert private.run.audit(tmp_path / "log").ok
    assert "a user returns after 3 steps at the earliest, at most 6 participations" in private.statement()
    # Silence changes nothing about who is asked.
    other = MemoryGrid(NODES)
    private_of(sampling="min-separation", epochs=None, rounds=20, min_separation=3, max_participations=6, seed=5).start(other, record(START))
    assert other.asked == grid.asked


def test_cohorts_depend_on_client_ids_and_not_on_nodes():
    """Nodes have other numbers in every simulation: with client ids, the same clients come in the same rounds."""
    names = [f"user-{i:02}" for i in range(12)]
    asked = []
    for nodes in [NODES, NODES[::-1]]:
        by_node = dict(zip(nodes, names))
        grid, private = MemoryGrid(NODES), private_of(clients=names[::-1], client_id=by_node)
        private.start(grid, record(START))
        asked.append([sorted(by_node[node] for node in one) for one in grid.asked])
        assert private.client_ids == names
    assert asked[0] == asked[1]


def test_a_client_with_two_nodes_is_asked_once():
    grid = MemoryGrid([*NODES, 9999])
    private = private_of(clients=NODES, client_id=lambda node: NODES[4] if node == 9999 else node)
    private.start(grid, record(START))
    assert sum(NODES[4] in asked for asked in grid.asked) == 2 and not any(9999 in asked for asked in grid.asked)


def test_ids_may_be_numbers_of_numpy():
    private = private_of(clients=list(np.arange(12)), client_id=lambda node: np.int64(NODES.index(node)), clients_per_round=np.int64(3))
    private.start(MemoryGrid(NODES), record(START))
    assert private.client_ids == list(range(12)) and private_of(clients=np.int32(12)).cohorts.steps == 8


def test_nodes_beyond_the_number_of_clients_take_no_part():
    grid = MemoryGrid([*NODES, 9999])
    private = private_of()
    private.start(grid, record(START))
    assert private.client_ids == NODES and not any(9999 in asked for asked in grid.asked)


def test_no_torch():
    found = subprocess.run(
        [sys.executable, "-c", "import antiphon.flower, sys; print('torch' in sys.modules, 'flwr' in sys.modules)"], capture_output=True, text=True, check=True
    )
    assert found.stdout.split() == ["False", "True"]


def test_the_statement_is_for_users():
    private = private_of()
    private.start(MemoryGrid(NODES), record(START))
    text = private.statement()
    for part in ["Neighbouring data sets differ in one user", "2 epochs with the same batches", "Not checked: that a user has no more than one client id"]:
        assert part in text
