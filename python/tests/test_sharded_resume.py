"""States of runs in several processes: saved, resumed in any number of processes, after kills too."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch.distributed.fsdp", reason="no sharded models in this PyTorch")

import sharded_cases as cases  # noqa: E402
from sharded_workers import pool  # noqa: E402

import antiphon  # noqa: E402


@pytest.fixture(scope="module")
def workers():
    return pool()


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def folder_of(tmp_path, name, like=None):
    """A folder with a key; the same key as in another one."""
    made = tmp_path / name
    made.mkdir()
    if like is None:
        antiphon.Key.fresh(made / "run.key")
    else:
        shutil.copy(like / "run.key", made / "run.key")
    return made


def whole_run(tmp_path):
    """A key that was not used, and the digest of the parameters of an uninterrupted run with it."""
    new = folder_of(tmp_path, "new")
    one = folder_of(tmp_path, "one", new)
    return new, cases.goes_on(0, 1, "one", one)


def test_resumed_in_any_number_of_processes_ends_the_same(workers, tmp_path):
    """From process to process by a state in a folder: parameters, optimizer, noise, participation and log are those of one process."""
    new, expected = whole_run(tmp_path)
    folder = folder_of(tmp_path, "folder", new)
    workers.run(2, cases.goes_on, "fsdp", folder, 5)
    state = (folder / "state" / "current").read_text()
    assert state.startswith("step-4-") and [one.name for one in (folder / "state").glob("step-*")] == [state]
    workers.run(3, cases.goes_on, "fsdp", folder, 9)
    workers.run(2, cases.goes_on, "ddp", folder, 13)
    workers.run(1, cases.goes_on, "fsdp", folder, 15)
    other = folder_of(tmp_path, "other", folder)
    shutil.copytree(folder / "state", other / "state")
    shutil.copy(folder / "log", other / "log")
    assert set(workers.run(3, cases.goes_on, "replicas", folder)) == {expected}
    assert cases.goes_on(0, 1, "one", other) == expected, "one process can go on too"
    for path in [folder, other]:
        assert [json.loads(line)["step"] for line in (path / "log").read_text().splitlines()] == list(range(24))
    secret = json.loads((folder / "run.key").read_text())["key"]
    for file in (folder / "state").rglob("*"):
        assert file.is_dir() or (secret.encode() not in file.read_bytes() and bytes.fromhex(secret) not in file.read_bytes())


def test_random_numbers_go_on(workers, tmp_path):
    """A model with dropout, in as many processes as before."""
    whole = folder_of(tmp_path, "whole")
    parts = folder_of(tmp_path, "parts", whole)
    expected = workers.run(2, cases.goes_on, "fsdp", whole, None, "dropping", "SGD")
    workers.run(2, cases.goes_on, "fsdp", parts, 7, "dropping", "SGD")
    assert workers.run(2, cases.goes_on, "fsdp", parts, None, "dropping", "SGD") == expected


def test_states_that_are_refused_are_refused_everywhere(workers, tmp_path):
    folder = folder_of(tmp_path, "folder")
    workers.run(2, cases.goes_on, "fsdp", folder, 4)
    old = tmp_path / "old"
    shutil.copytree(folder / "state", old)
    workers.run(2, cases.goes_on, "fsdp", folder, 8)
    shutil.rmtree(folder / "state")
    shutil.copytree(old, folder / "state")
    for error in workers.errors(2, cases.goes_on, "fsdp", folder):
        assert "PrivacyError" in error and "a later one, after 8 steps, was kept" in error
    workers.run(2, cases.goes_on, "fsdp", folder, 6, "uneven", "Adam", True)
    for error in workers.errors(2, cases.goes_on, "fsdp", folder, None, "dropping"):
        assert "PrivacyError" in error and "layout was" in error
    # A part of the state that is lost.
    broken = folder_of(tmp_path, "broken", folder)
    shutil.copytree(folder / "state", broken / "state")
    shutil.copy(folder / "log", broken / "log")
    next((broken / "state").rglob("__1_0.distcp")).unlink()
    for error in workers.errors(2, cases.goes_on, "fsdp", broken, None, "uneven", "Adam", True):
        assert "torch.distributed.checkpoint failed" in error and "__1_0.distcp" in error
    # A begun run without its state: the key serves no other.
    shutil.rmtree(folder / "state")
    (folder / "log").unlink()
    for error in workers.errors(2, cases.goes_on, "fsdp", folder):
        assert "PrivacyError" in error and "already used for" in error
    shutil.rmtree(folder / "state")
    (folder / "state").write_text("a file")
    for error in workers.errors(2, cases.goes_on, "fsdp", folder):
        assert "finds no state in" in error


def start(folder, world, kind):
    script = Path(__file__).with_name("killed_ranks.py")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    (folder / "store").unlink(missing_ok=True)
    pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    return [subprocess.Popen([sys.executable, script, folder, str(rank), str(world), kind], **pipes) for rank in range(world)]


def kill_one(folder, world, kind, rng):
    """Kills a process -9 after a few steps. The others must end by themselves, with a reason."""
    children = start(folder, world, kind)
    try:
        for _ in range(rng.randrange(2, 7)):
            assert children[0].stdout.readline(), children[0].communicate()[1]
        time.sleep(rng.uniform(0.0, 0.1))
        victim = rng.randrange(world)
        children[victim].send_signal(signal.SIGKILL)
        for rank, child in enumerate(children):
            _, said = child.communicate(timeout=90)
            if rank == victim:
                assert child.returncode == -signal.SIGKILL
            else:
                assert child.returncode == 1, said
                assert "got no answer from another process" in said and "load the last saved state" in said, said
    finally:
        for child in children:
            child.kill()


def test_a_killed_process_stops_the_run_and_it_goes_on(workers, tmp_path):
    """kill -9 of one process of two; what is started again ends with the parameters of a run that nobody killed."""
    new, expected = whole_run(tmp_path)
    folder = folder_of(tmp_path, "folder", new)
    kill_one(folder, 2, "fsdp", random.Random(1))
    assert set(workers.run(2, cases.goes_on, "fsdp", folder)) == {expected}
    assert [json.loads(line)["step"] for line in (folder / "log").read_text().splitlines()] == list(range(24))


@pytest.mark.long
@pytest.mark.parametrize("kind", ["fsdp", "ddp"])
def test_many_kills(workers, tmp_path, kind):
    new, expected = whole_run(tmp_path)
    folder, rng = folder_of(tmp_path, "folder", new), random.Random(2)
    for _ in range(3):
        kill_one(folder, 3, kind, rng)
    assert set(workers.run(3, cases.goes_on, kind, folder)) == {expected}
    assert [json.loads(line)["step"] for line in (folder / "log").read_text().splitlines()] == list(range(24))
