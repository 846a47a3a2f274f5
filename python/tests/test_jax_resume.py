"""Saved states of antiphon.jax, and kills."""

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

jax = pytest.importorskip("jax")
pytest.importorskip("optax")

import jax.numpy as jnp  # noqa: E402
from jax_cases import OPTIMIZER, data_of, flat, noise_of, order_of, params_of, step  # noqa: E402

import antiphon  # noqa: E402
from antiphon import Key, PrivacyError  # noqa: E402


def trained(noise, carry, until=18):
    x, y = data_of()
    for indices, row in noise:
        carry = step(*carry, (x[indices], y[indices]), row)
        if noise.step == until:
            break
    return carry


def begun(dtype=jnp.float32):
    params = params_of(dtype)
    return params, OPTIMIZER.init(params)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_resumed_ends_the_same(tmp_path, dtype):
    def noise():
        return noise_of(params_of(dtype), key=Key.from_seed(4), mechanism="tree-online")

    expected = trained(noise(), begun(dtype))
    first = noise()
    first.save(tmp_path / "state", trained(first, begun(dtype), until=7))
    again = noise()
    carry = again.load(tmp_path / "state", begun(dtype))
    assert again.step == again.order.position == 7
    assert [leaf.dtype for leaf in jax.tree.leaves(carry)] == [leaf.dtype for leaf in jax.tree.leaves(begun(dtype))]
    assert np.array_equal(flat(trained(again, carry)), flat(expected))


def test_a_state_is_plain_and_has_no_key(tmp_path):
    noise = noise_of(key=tmp_path / "run.key")
    noise.next()
    text = json.dumps(noise.state_dict())
    other = noise_of(key=tmp_path / "run.key")
    other.load_state_dict(json.loads(text))
    assert np.array_equal(other.next().flat, noise.next().flat)
    secret = noise_of(key=Key.from_seed(5), mechanism="identity")
    assert Key.from_seed(5)._shared().hex() not in json.dumps(secret.state_dict())


def test_a_state_of_another_run_is_refused():
    noise = noise_of()
    noise.next()
    state = noise.state_dict()
    for changed, error, message in [
        (dict(mechanism="tree-online"), PrivacyError, "mechanism was"),
        (dict(key=Key.from_seed(2)), PrivacyError, "key_fingerprint was"),
        (dict(clip_norm=0.4), PrivacyError, "clip_norm was"),
        (dict(params=params_of(jnp.bfloat16)), PrivacyError, "layout was"),
        (dict(order=order_of(seed=1)), ValueError, "seed was 0 and is 1"),
    ]:
        other = noise_of(**changed)
        with pytest.raises(error, match=message):
            other.load_state_dict(state)
        assert other.step == other.order.position == 0
    for wrong in [{}, {"run": 1}, None]:
        with pytest.raises(ValueError, match="state must be what state_dict"):
            noise_of().load_state_dict(wrong)
    with pytest.raises(PrivacyError, match="a run that has begun cannot go on from another state"):
        noise.load_state_dict(state)
    moved = {**state, "order": {**state["order"], "position": 2}}
    with pytest.raises(ValueError, match="same number of steps"):
        noise_of().load_state_dict(moved)
    with pytest.raises(ValueError, match="batch_size must be 5"):
        noise_of().load_state_dict({**state, "batch_size": 5})


def test_an_old_state_is_refused_after_a_later_one_was_saved(tmp_path):
    key = tmp_path / "run.key"
    noise = noise_of(key=key)
    noise.save(tmp_path / "first")
    for _ in noise.chunks(5):
        noise.save(tmp_path / "last")
    again = noise_of(key=key)
    with pytest.raises(PrivacyError, match="a later one, after 18 steps, was kept"):
        again.load(tmp_path / "first")
    assert again.step == 0
    again.load(tmp_path / "last")
    assert again.step == 18
    noise_of(key=key).load(tmp_path / "first", repeat_noise=True)
    # A key begins one run: without its state it takes no step.
    with pytest.raises(PrivacyError):
        noise_of(key=key).next()


def test_files_are_whole_and_of_the_same_tree(tmp_path):
    noise, carry = noise_of(), begun()
    noise.save(tmp_path / "state", carry)
    before = (tmp_path / "state").read_bytes()
    with pytest.raises(ValueError, match="random key"):
        noise.save(tmp_path / "state", {"key": jax.random.key(0)})
    assert (tmp_path / "state").read_bytes() == before and [file.name for file in tmp_path.iterdir()] == ["state"]
    for like in (begun(jnp.bfloat16), carry[0], (), {"other": carry}):
        other = noise_of()
        with pytest.raises(ValueError, match="like must be a tree as it was saved"):
            other.load(tmp_path / "state", like)
        assert other.step == 0
    np.savez(tmp_path / "other.npz", x=np.zeros(3))
    with pytest.raises(ValueError, match="a file that Noise.save wrote"):
        noise_of().load(tmp_path / "other.npz")


def test_kills(tmp_path):
    """kill -9 at random moments; what is started again ends with the same parameters, and every row is the same whenever it was made."""
    script = Path(__file__).with_name("killed_jax.py")
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    whole.mkdir()
    antiphon.Key.fresh(whole / "run.key")  # the same for both
    shutil.copytree(whole, killed)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    expected = subprocess.run([sys.executable, script, whole], check=True, capture_output=True, text=True, env=environment).stdout.split()[-1]
    kills, wanted, rng = 0, int(os.environ.get("ANTIPHON_KILLS", "2")), random.Random(11)
    while True:
        child = subprocess.Popen([sys.executable, script, killed], stdout=subprocess.PIPE, text=True, env=environment)
        assert child.stdout is not None
        begun = child.stdout.readline()
        if kills < wanted:
            # In the middle of the steps, not while the first one is compiled.
            steps = len((killed / "rows").read_text().splitlines()) if (killed / "rows").exists() else 0
            while child.poll() is None and (not (killed / "rows").exists() or len((killed / "rows").read_text().splitlines()) < steps + 3):
                time.sleep(0.005)
            time.sleep(rng.uniform(0.0, 0.03))
            os.kill(child.pid, signal.SIGKILL)
            kills += child.wait() == -signal.SIGKILL
            child.stdout.close()
            assert begun != "begun 180\n", "killed too late to show anything"
            continue
        found = child.communicate()[0].split()
        assert child.returncode == 0 and found[-1] == expected
        break
    assert kills == wanted
    rows = dict(line.split() for line in (whole / "rows").read_text().splitlines())
    lines = [line.split() for line in (killed / "rows").read_text().splitlines()]
    assert len(rows) == 180 and {step for step, _ in lines} == set(rows) and all(rows[step] == row for step, row in lines if len(row) == 64)
    steps = [json.loads(line)["step"] for line in (killed / "log").read_text().splitlines()]
    assert steps == list(range(180))
