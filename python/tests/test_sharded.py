"""Training in several processes, replicated and sharded: noise, parameters, batches and accuracy are those of one process."""

import json
import subprocess
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch.distributed.fsdp", reason="no sharded models in this PyTorch")

import sharded_cases as cases  # noqa: E402
from sharded_workers import EXAMPLES, Workers, pool  # noqa: E402

import antiphon  # noqa: E402
from antiphon import Key  # noqa: E402

SEVERAL = [(2, "ddp"), (2, "fsdp"), (3, "replicas"), (3, "fsdp"), (2, "fsdp-columns")]


@pytest.fixture(scope="module")
def workers():
    return pool()


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def rows_of(params):
    """The noise of the run, by the library alone."""
    made = antiphon.make("tree-online", antiphon.Schema.epochs(2, 6))
    run = antiphon.PrivateRun(made, noise_multiplier=0.5, delta=1e-3, clip_norm=0.5, params=params, key=Key.from_seed(1))
    rows = []
    for step in range(12):
        run.admit([step % 6])
        rows.append(run.row())
    return np.stack(rows)


@pytest.mark.parametrize("name", ["uneven", "narrow"])
def test_noise_is_that_of_one_process_and_every_coordinate_is_drawn_once(workers, name):
    params = sum(p.numel() for p in cases.MODELS[name]().parameters())
    expected = rows_of(params)
    held = set()
    for world, kind in SEVERAL[:4] if name == "narrow" else SEVERAL:
        found = workers.run(world, cases.noise, kind, name)
        for rows, _, _ in found:
            assert rows.dtype == np.float32 and rows.tobytes() == expected.tobytes(), (world, kind)
        drawn = sorted(i for _, ranges, _ in found for first, last in ranges for i in range(first, last))
        assert drawn == list(range(params)), (world, kind)
        assert sum(coordinates for _, _, coordinates in found) == params
        held |= {coordinates for _, _, coordinates in found}
    assert name == "uneven" or 0 in held, "a process that holds nothing at all"


def test_parameters_are_those_of_one_process_bit_for_bit(workers, tmp_path):
    """With gradients that do not depend on how many examples a process has: one example after the other."""
    expected, _, _ = cases.trained(0, 1, "one", log=tmp_path / "log")
    for world, kind in [*SEVERAL, (2, "hsdp"), (2, "part"), (2, "group"), (1, "fsdp")]:
        log = tmp_path / f"log-{world}-{kind}"
        found = workers.run(world, cases.trained, kind, "uneven", log)
        for values, parts, statement in found:
            assert values.tobytes() == expected.tobytes(), (world, kind)
            assert (f"the {world} processes of the run have the same data set" in statement) == (world > 1)
        # Nobody is padded: four of 22 examples in five steps, and two in the sixth.
        assert [sum(sizes) for sizes in zip(*(parts for _, parts, _ in found))] == [4, 4, 4, 4, 4, 2] * 2
        assert world < 3 or min(min(parts) for _, parts, _ in found) == 0, "a process without examples in a small batch"
        assert log.read_text() == (tmp_path / "log").read_text(), "rank 0 writes the log of one process"
    assert [json.loads(line)["step"] for line in log.read_text().splitlines()] == list(range(12))


@pytest.mark.parametrize("name", ["uneven", "narrow"])
def test_noise_that_every_process_makes_on_its_device(workers, name):
    expected = cases.made_on(0, 1, "one", name, "host")
    for world, kind in [(2, "ddp"), (2, "fsdp"), (3, "fsdp")]:
        for values in workers.run(world, cases.made_on, kind, name, "device"):
            assert values.tobytes() == expected.tobytes(), (world, kind)


def test_parts_of_any_size(workers):
    expected, _, _ = cases.trained(0, 1, "one")
    for kind in ["replicas", "fsdp"]:
        for values in workers.run(2, cases.accumulated, kind):
            assert values.tobytes() == expected.tobytes(), kind


def test_sharded_parameters_that_are_not_trained(workers):
    expected = cases.frozen(0, 1, "one")
    for values in workers.run(2, cases.frozen, "fsdp"):
        assert values.tobytes() == expected.tobytes()


def test_coordinates_of_all_placements(workers):
    for count, wrong in workers.run(2, cases.boxes) + workers.run(3, cases.boxes):
        assert count >= 18 and not wrong


def test_processes_have_random_numbers_of_their_own(workers):
    drawn = workers.run(3, cases.masks)
    assert len({tuple(numbers) for numbers in drawn}) == 3
    assert drawn == workers.run(3, cases.masks), "and the same ones in every run"


def accuracies(workers, epochs, batch_size):
    sys.path.insert(0, EXAMPLES)
    one = cases.digits(0, 1, "one", epochs, batch_size)
    sys.path.remove(EXAMPLES)
    ddp = workers.run(2, cases.digits, "ddp", epochs, batch_size)
    fsdp = workers.run(2, cases.digits, "fsdp", epochs, batch_size)
    assert len(set(ddp)) == len(set(fsdp)) == 1, "all processes have the same model"
    return one, ddp[0], fsdp[0]


def test_digits(workers):
    """Half a point of 360 test images allows for one image: the gradients of an example can differ in their last bits where it is computed
    together with others."""
    one, ddp, fsdp = accuracies(workers, 3, 180)
    assert one > 75 and abs(ddp - one) <= 0.5 and abs(fsdp - one) <= 0.5, (one, ddp, fsdp)


@pytest.mark.long
def test_four_processes():
    """Two copies of two shards, whose coordinates are drawn in both copies; and placements on meshes of two dimensions."""
    workers = Workers(4)
    try:
        expected = cases.trained(0, 1, "one")[0]
        for kind in ["hsdp", "fsdp", "replicas"]:
            for values, _, _ in workers.run(4, cases.trained, kind):
                assert values.tobytes() == expected.tobytes(), kind
        params = sum(p.numel() for p in cases.Uneven().parameters())
        for rows, _, _ in (found := workers.run(4, cases.noise, "hsdp", "uneven")):
            assert rows.tobytes() == rows_of(params).tobytes()
        drawn = sorted(i for _, ranges, _ in found for first, last in ranges for i in range(first, last))
        assert drawn == sorted([*range(params), *range(params)])
        for count, wrong in workers.run(4, cases.boxes):
            assert count > 60 and not wrong
    finally:
        workers.stop()


@pytest.mark.long
def test_digits_to_the_end(workers):
    """The example as it is."""
    one, ddp, fsdp = accuracies(workers, 10, 120)
    assert one > 90 and abs(ddp - one) <= 0.5 and abs(fsdp - one) <= 0.5, (one, ddp, fsdp)


@pytest.mark.long
def test_the_example_starts_its_processes():
    command = [sys.executable, f"{EXAMPLES}/fsdp_two_processes.py", "--epochs", "3"]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert said.startswith("fsdp in 2 processes:") and said.count("differentially private") == 1
