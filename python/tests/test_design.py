"""Schemas, mechanisms, verification, sensitivity, plans."""

import hashlib
import itertools
import os
import re
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import antiphon
from antiphon import Schema


def test_schemas_check_their_arguments():
    assert Schema.epochs(20, 100).steps == 2000
    assert Schema.epochs(20, 100) == Schema.fixed_order(2000, 100)
    assert hash(Schema.epochs(20, 100)) == hash(Schema.fixed_order(2000, 100))
    assert Schema.min_separation(10, 3).max_participations == 4
    reshuffled = Schema.reshuffled(20, 100)
    assert (reshuffled.steps, reshuffled.max_participations, reshuffled.steps_per_epoch) == (2000, 20, None)
    assert str(reshuffled) == "20 epochs of 100 steps (2000 steps), a new order in every epoch"
    assert reshuffled == Schema.reshuffled(20, 100) != Schema.epochs(20, 100)
    assert Schema.every_step(3).max_participations == 3
    assert Schema.single(3).max_participations == 1
    assert Schema.patterns(4, [[0, 2], [1, 3]]).steps_per_epoch is None
    for make, message in [
        (lambda: Schema.epochs(0, 4), "epochs must be in 1..=268435456, got 0"),
        (lambda: Schema.epochs(-1, 4), "epochs must be in 0..=9223372036854775807, got -1"),
        (lambda: Schema.epochs(2**70, 4), "epochs must be in 0..=9223372036854775807, got 1180591620717411303424"),
        (lambda: Schema.reshuffled(2, 0), "steps_per_epoch must be in 1..=134217728, got 0"),
        (lambda: Schema.fixed_order(10, 11), "steps_per_epoch must be in 1..=10, got 11"),
        (lambda: Schema.min_separation(10, 4, 4), "max_participations must be in 1..=3, got 4"),
        (lambda: Schema.patterns(3, [[0, 3]]), "every step of pattern 0 must be in 0..=2, got 3"),
    ]:
        with pytest.raises(ValueError) as error:
            make()
        assert str(error.value) == message
    with pytest.raises(TypeError, match="epochs"):
        Schema.epochs(2.5, 4)  # type: ignore[arg-type]


def test_the_optimum_is_what_its_matrices_say():
    schema = Schema.epochs(3, 8)
    mechanism = antiphon.optimize(schema, momentum=0.9, cooldown=(0.25, 0.05), gap=1e-6)
    n = schema.steps
    rates = np.ones(n)
    rates[-6:] = 1 + (0.05 - 1) * np.arange(1, 7) / 6
    powers = np.array([[0.9 ** (i - j) if i >= j else 0.0 for j in range(n)] for i in range(n)])
    workload = np.tril(np.ones((n, n))) @ np.diag(rates) @ powers
    C, inverse = mechanism.C, mechanism.Cinv
    assert np.allclose(C @ inverse, np.eye(n), atol=1e-12)
    assert np.allclose(mechanism.X, C.T @ C)
    assert np.allclose(mechanism.B, workload @ inverse)
    # Sensitivity by its definition: every residue, every choice of directions; the optimum is orthogonal within a pattern.
    worst = max(np.abs(mechanism.X[np.ix_(range(r, n, 8), range(r, n, 8))]).sum() for r in range(8))
    assert mechanism.sensitivity**2 == pytest.approx(worst, rel=1e-6)
    assert mechanism.loss == pytest.approx(worst * (mechanism.B**2).sum(), rel=1e-6)
    assert mechanism.lower_bound <= mechanism.loss <= mechanism.lower_bound * (1 + 1e-6)
    # The workload as a matrix is the same problem.
    other = antiphon.optimize(schema, workload=workload, gap=1e-6)
    assert other.loss == pytest.approx(mechanism.loss, rel=2e-6)


def test_files_are_read_back_and_replaced_only_if_asked(tmp_path):
    mechanism = antiphon.make("tree-online", Schema.epochs(4, 8), stamps=4)
    path = tmp_path / "m.safetensors"
    mechanism.save(path)
    assert antiphon.Mechanism.load(path).id == mechanism.id
    assert antiphon.Mechanism.load(str(path)).schema == mechanism.schema
    with pytest.raises(FileExistsError, match="replace=True"):
        mechanism.save(path)
    mechanism.save(path, replace=True)
    with pytest.raises(FileNotFoundError):
        antiphon.Mechanism.load(tmp_path / "none")
    (tmp_path / "garbage").write_bytes(b"garbage")
    with pytest.raises(ValueError, match="garbage"):
        antiphon.Mechanism.load(tmp_path / "garbage")


def test_verify_believes_nothing(tmp_path):
    mechanism = antiphon.optimize(Schema.epochs(2, 6))
    path = tmp_path / "m.safetensors"
    mechanism.save(path)
    verified = antiphon.verify(path)
    assert verified.id == mechanism.id and all(passed for _, passed, _ in verified.checks)
    assert verified.over_optimum is not None and verified.over_optimum <= 1e-3
    # A changed byte is a damaged file; a false claim with a true checksum is found out.
    text = path.read_bytes()
    claim, false = mechanism.sensitivity, "0.5".ljust(len(repr(mechanism.sensitivity)), "0")
    forged = text.replace(f'"sensitivity":"{claim!r}"'.encode(), f'"sensitivity":"{false}"'.encode())
    assert forged != text
    path.write_bytes(forged)
    with pytest.raises(ValueError, match="checksum"):
        antiphon.verify(path)
    checksum = re.search(rb'"checksum":"([0-9a-f]{64})"', forged)[1]
    digest = hashlib.sha256(forged.replace(checksum, b"0" * 64, 1)).hexdigest()
    path.write_bytes(forged.replace(checksum, digest.encode(), 1))
    for use in [antiphon.verify, lambda path: antiphon.PrivateRun(path, epsilon=1, delta=1e-5, clip_norm=1, params=1, key=antiphon.Key.from_seed(1))]:
        with pytest.raises(antiphon.VerificationError, match="sensitivity") as error:
            use(path)
        assert [name for name, passed, _ in error.value.checks if not passed] == ["sensitivity"]


def test_all_names_can_be_made_and_verified():
    schema = Schema.epochs(3, 5)
    for name in ["identity", "tree-online", "tree-optimal", "fft", "fft-optimal", "single-epoch", "comb-blt", "optimal"]:
        mechanism = antiphon.make(name, schema)
        assert antiphon.verify(mechanism).sensitivity <= mechanism.sensitivity
        assert np.allclose(mechanism.Cinv @ mechanism.C, np.eye(15), atol=1e-9), name
    with pytest.raises(ValueError, match="name must be one of identity, .*got foo"):
        antiphon.make("foo", schema)
    with pytest.raises(ValueError, match="stamps must be"):
        antiphon.make("fft", schema, stamps=0)
    implicit = antiphon.optimize(schema, implicit=True)
    with pytest.raises(ValueError, match="optimize without implicit=True"):
        implicit.C
    with pytest.raises(ValueError, match="Schema.epochs or Schema.fixed_order"):
        antiphon.optimize(Schema.min_separation(15, 5))


def test_buffers(tmp_path):
    """Families with buffers take their number and a distance to the optimum; others refuse both; nonsense is named."""
    schema = Schema.epochs(3, 5)
    mechanism = antiphon.make("comb-blt", schema, buffers=4, over_optimum=0.015, momentum=0.9)
    assert mechanism.buffers == 4 and mechanism.gap >= 0
    mechanism.save(tmp_path / "m")
    read = antiphon.Mechanism.load(tmp_path / "m")
    assert (read.id, read.buffers) == (mechanism.id, 4)
    verified = antiphon.verify(read)
    assert verified.sensitivity <= mechanism.sensitivity
    # Sensitivity by its definition: no choice of signs on any residue reaches more.
    signs = np.array(list(itertools.product([-1, 1], repeat=3))).T
    brute = max(np.linalg.norm(mechanism.C[:, r::5] @ signs, axis=0).max() for r in range(5))
    assert brute <= mechanism.sensitivity * (1 + 1e-12)
    assert np.allclose(mechanism.X, mechanism.C.T @ mechanism.C, atol=1e-12)
    assert 1 <= antiphon.make("comb-blt", schema).buffers <= 16
    assert antiphon.make("identity", schema).buffers is None
    for change, message in [
        (dict(buffers=0), r"buffers must be in 1..=16, got 0"),
        (dict(buffers=17), r"buffers must be in 1..=16, got 17"),
        (dict(buffers=-1), r"buffers must be .*got -1"),
        (dict(over_optimum=0.0), r"over_optimum must be in \(0, 1\], got 0"),
        (dict(over_optimum=float("nan")), r"over_optimum must be in \(0, 1\], got NaN"),
        (dict(stamps=2), "stamps must be 1 for comb-blt"),
        (dict(learning_rates=[0.0] * 15), "learning rate"),
    ]:
        with pytest.raises(ValueError, match=message):
            antiphon.make("comb-blt", schema, **change)
    with pytest.raises(ValueError, match="buffers must be left out for identity"):
        antiphon.make("identity", schema, buffers=2)
    with pytest.raises(ValueError, match="over_optimum must be left out for identity"):
        antiphon.make("identity", schema, over_optimum=0.1)
    with pytest.raises(ValueError, match="fixed epoch order.*blt and single-epoch"):
        antiphon.make("comb-blt", Schema.min_separation(15, 5))
    with pytest.raises(ValueError, match="fixed epoch order.*per-epoch"):
        antiphon.make("comb-blt", Schema.reshuffled(3, 5))


def test_sensitivity_against_all_signs():
    """Scalar contributions by brute force are a lower bound; with non-negative entries both agree."""
    rng = np.random.default_rng(1)
    C = np.tril(rng.uniform(size=(6, 6)))
    schema = Schema.epochs(3, 2)
    found = antiphon.sensitivity(C, schema)
    brute = max(
        np.linalg.norm(C[:, r::2] @ np.array(signs)) for r in range(2) for signs in itertools.product([-1, 1], repeat=3)
    )
    assert found.exact and float(found) == pytest.approx(brute, rel=1e-8)
    assert found.worst_pattern in ([0, 2, 4], [1, 3, 5])
    gram = antiphon.sensitivity(C.T @ C, schema, gram=True)
    assert gram.upper == pytest.approx(found.upper, rel=1e-9)
    mechanism = antiphon.make("identity", schema)
    assert antiphon.sensitivity(mechanism).upper == pytest.approx(3**0.5)
    assert antiphon.sensitivity(mechanism, Schema.min_separation(6, 1)).upper == pytest.approx(6**0.5)
    for bad in [np.zeros(3), "text", [[1.0, 2.0], [3.0]]]:
        with pytest.raises(ValueError, match="matrix must be"):
            antiphon.sensitivity(bad, schema)
    with pytest.raises(ValueError, match="schema must be given"):
        antiphon.sensitivity(C)


def test_compare_and_plan():
    schema = Schema.epochs(4, 16)
    comparison = antiphon.compare(schema, without=["single-epoch"])
    names = [one.name for one in comparison.candidates]
    assert names[0] == "optimal" and names[-1] == "identity" and comparison.left_out == {"single-epoch": "as asked"}
    assert comparison.lower_bound is not None
    best = comparison.candidates[0]
    assert best.loss >= comparison.lower_bound and best.variances.sum() == pytest.approx(best.loss, rel=1e-3)
    assert "optimal" in str(comparison) and "Not compared: single-epoch" in str(comparison)
    # Little memory: something that streams.
    plan = antiphon.plan(schema, params=1000, memory=60_000, momentum=0.9)
    assert plan.stream_bytes <= 60_000
    made = plan.make()
    assert made.buffers == plan.chosen.buffers
    assert made.loss == pytest.approx(plan.chosen.loss, rel=1e-6) and "momentum" in made.workload
    with pytest.raises(ValueError, match="memory must be at least"):
        antiphon.plan(schema, params=1000, memory=10)


def test_progress_is_told_in_words_and_can_stop():
    told: list[str] = []
    antiphon.optimize(Schema.epochs(8, 50), momentum=0.95, gap=1e-6, progress=told.append)
    assert told

    def stop(words: str) -> None:
        raise LookupError("enough")

    with pytest.raises(LookupError, match="enough"):
        antiphon.optimize(Schema.epochs(8, 50), momentum=0.95, gap=1e-6, progress=stop)


def test_other_threads_run_meanwhile():
    counted = 0
    done = threading.Event()

    def count() -> None:
        nonlocal counted
        while not done.is_set():
            counted += 1
            time.sleep(0.001)

    thread = threading.Thread(target=count)
    thread.start()
    start = time.monotonic()
    antiphon.verify(antiphon.optimize(Schema.epochs(10, 60), momentum=0.9))
    passed = time.monotonic() - start
    done.set()
    thread.join()
    assert counted > 20 * passed, (counted, passed)


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_ctrl_c_stops_the_optimizer():
    # A program that is started in the background of a script ignores Ctrl-C, and its children do too.
    listen = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    code = f"{listen}; import antiphon; print('begun', flush=True); antiphon.optimize(antiphon.Schema.epochs(40, 150), momentum=0.99, gap=1e-8)"
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout is not None and child.stdout.readline() == "begun\n"
    time.sleep(1.0)
    os.kill(child.pid, signal.SIGINT)
    _, errors = child.communicate(timeout=120)
    assert "KeyboardInterrupt" in errors and child.returncode != 0, errors
