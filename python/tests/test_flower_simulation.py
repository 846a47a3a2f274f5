"""antiphon.flower in Flower's own simulation (Ray), and what the example shows."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

# Before Flower and Ray are imported: neither is to call home from a test.
os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

pytest.importorskip("flwr")

from flower_cases import MemoryGrid  # noqa: E402
from flwr.app import Array, ArrayRecord, Error, Message, MetricRecord, RecordDict  # noqa: E402
from flwr.clientapp import ClientApp  # noqa: E402
from flwr.serverapp import ServerApp  # noqa: E402
from flwr.serverapp.strategy import FedAvgM  # noqa: E402

from antiphon import Key  # noqa: E402
from antiphon.flower import CorrelatedNoise, partition_ids, tell_partition_id  # noqa: E402

EXAMPLE = Path(__file__).resolve().parents[1] / "examples/flower_simulation.py"
CLIENTS = 12


def apps_of(grid_main):
    """A client app with a client that fails and one that sends NaN; functions in here, so that workers get them by value."""

    def train(message, context):
        client = int(context.node_config["partition-id"])
        if client == 3:
            raise RuntimeError("no data")
        model = message.content["arrays"]["x"].numpy()
        new = (model + 0.3 * (np.arange(20, dtype=np.float32) * (client + 1) / 50 - model)).astype(np.float32)
        if client == 7:
            new[5] = np.nan
        content = {"arrays": ArrayRecord({"x": Array(new)}), "metrics": MetricRecord({"num-examples": client + 1, "loss": 0.5})}
        return Message(RecordDict(content), reply_to=message)

    client_app, server_app = ClientApp(), ServerApp()
    client_app.train()(train)
    client_app.query("antiphon_partition_id")(tell_partition_id)
    server_app.main()(grid_main)
    return train, client_app, server_app


def strategy_of(ids, log):
    return CorrelatedNoise(
        FedAvgM(fraction_evaluate=0.0, server_momentum=0.5),
        clients=range(CLIENTS),
        client_id=ids,
        clients_per_round=3,
        epochs=2,
        epsilon=8.0,
        delta=1e-3,
        clip_norm=0.5,
        key=Key.from_seed(1),
        log=log,
    )


START = ArrayRecord({"x": Array(np.zeros(20, np.float32))})


def test_a_real_simulation_gives_what_a_grid_in_memory_gives(tmp_path):
    pytest.importorskip("ray")
    from flwr.simulation import run_simulation

    found = []

    def main(grid, context):
        private = strategy_of(partition_ids(grid, CLIENTS), tmp_path / "log")
        result = private.start(grid, START)
        found.append((result, private))

    train, client_app, server_app = apps_of(main)
    run_simulation(server_app, client_app, num_supernodes=CLIENTS, backend_config={"client_resources": {"num_cpus": 1}})
    ((result, private),) = found
    assert sum(report.failed for report in private.reports) == 2 and sum(report.not_finite for report in private.reports) == 2
    assert sum(report.counted for report in private.reports) == 20
    assert not result.train_metrics_clientapp and not result.evaluate_metrics_clientapp
    audit = private.run.audit(tmp_path / "log")
    assert audit.ok and audit.participations == 24
    assert "ε = 8.0" in private.statement() and "one user" in private.statement()

    def behave(message):
        context = SimpleNamespace(node_config={"partition-id": message.metadata.dst_node_id})
        try:
            return [train(message, context)]
        except RuntimeError as error:
            return [Message(Error(0, str(error)), reply_to=message)]

    expected = strategy_of(None, None).start(MemoryGrid(range(CLIENTS), {client: behave for client in range(CLIENTS)}), START)
    assert np.array_equal(result.arrays["x"].numpy(), expected.arrays["x"].numpy())


@pytest.fixture(scope="module")
def example():
    specification = importlib.util.spec_from_file_location("flower_simulation", EXAMPLE)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    if not module.IMAGES.exists():
        pytest.skip("the images are in a clone of the repository")
    return module


def in_memory(example, monkeypatch, seeds):
    """The accuracies of the example, with its own clients, without the simulation engine."""
    data = {client: example.data_of(client) for client in range(example.CLIENTS)}
    monkeypatch.setattr(example, "data_of", data.__getitem__)
    monkeypatch.setattr(example, "partition_ids", lambda grid, nodes: {node: node for node in range(nodes)})

    def behave(message):
        return [example.train(message, SimpleNamespace(node_config={"partition-id": message.metadata.dst_node_id}))]

    grid = MemoryGrid(range(example.CLIENTS), {client: behave for client in range(example.CLIENTS)})
    found, said = {}, []
    example.experiment(8.0, seeds, found, said)(grid, None)
    assert len(grid.asked) == 80 * seeds and all(len(asked) == 10 for asked in grid.asked)
    return found, said


def test_the_data_of_the_example_are_split_by_client(example):
    """Every training image has one client."""
    images, labels, test = example.load()
    parts = [example.data_of(client) for client in range(example.CLIENTS)]
    assert sum(len(kinds) for _, kinds in parts) == int((~test).sum()) == 1440
    together = np.concatenate([part for part, _ in parts])
    assert np.array_equal(np.sort(together.sum(1)), np.sort(images[~test].sum(1)))
    assert all(len(set(kinds.tolist())) <= 8 for _, kinds in parts)


def test_correlated_noise_is_more_accurate_than_independent_noise(example, monkeypatch):
    """100 clients, 40 rounds, the same ε. Each has the best of the same learning rates on images held out from training."""
    found, said = in_memory(example, monkeypatch, 2)
    assert np.mean(found["optimal"]) > np.mean(found["identity"]) + 2, found
    assert np.mean(found["optimal"]) > 85, found
    assert all("The log of 400 participations of 100 clients passes the audit: True" in one for one in said)
    assert "ε = 8.0" in said[0] and "(optimal)" in said[0] and "(identity)" in said[-1]


@pytest.mark.long
def test_the_example_in_a_real_simulation(example, monkeypatch):
    pytest.importorskip("ray")
    found, _ = in_memory(example, monkeypatch, 1)
    output = subprocess.run([sys.executable, EXAMPLE], check=True, capture_output=True, text=True).stdout
    printed = dict(re.findall(r"(optimal|identity) +([0-9.]+) % of the test images", output))
    assert {name: f"{accuracies[0]:.1f}" for name, accuracies in found.items()} == printed
    assert float(printed["optimal"]) > float(printed["identity"]) + 2
    assert "This run is (ε, δ)-differentially private with ε = 8.0" in output
