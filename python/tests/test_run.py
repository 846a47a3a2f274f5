"""A private run: its noise, its guard, its state, its log."""

import subprocess

import numpy as np
import pytest

import antiphon
from antiphon import Key, PrivacyError, PrivateRun, Schema

EPOCHS, PER_EPOCH, PARAMS = 3, 8, 1003


@pytest.fixture(scope="module")
def mechanism():
    return antiphon.optimize(Schema.epochs(EPOCHS, PER_EPOCH), momentum=0.9)


def run_of(mechanism, **changed):
    settings = dict(noise_multiplier=0.7, delta=1e-5, clip_norm=0.25, params=PARAMS)
    settings.setdefault("key", changed.pop("key", None) or Key.from_seed(7))
    settings.update(changed)
    return PrivateRun(mechanism, **settings)


def rows_of(run):
    rows = []
    for step in range(run.step, run.steps):
        run.admit([step % PER_EPOCH])
        rows.append(run.row())
    return np.array(rows)


@pytest.mark.parametrize("name", ["optimal", "tree-online", "fft-optimal", "identity", "comb-blt"])
def test_rows_are_those_of_the_command_line(binary, tmp_path, name):
    made = antiphon.make(name, Schema.epochs(EPOCHS, PER_EPOCH))
    made.save(tmp_path / "m.safetensors")
    command = [binary, "noise", "m.safetensors", "--params", str(PARAMS), "--seed", "7", "--clip-norm", "0.25"]
    command += ["--noise-multiplier", "0.7", "--output", "noise.npy"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    theirs = np.load(tmp_path / "noise.npy")
    assert theirs.dtype == np.float32 and theirs.shape == (made.steps, PARAMS)
    assert np.array_equal(rows_of(run_of(made)), theirs)
    # By ranges, in the order in which they are given, in one call.
    parts = rows_of(run_of(made, ranges=[(500, 600), (0, 17), (1000, 1003)]))
    assert np.array_equal(parts, np.concatenate([theirs[:, 500:600], theirs[:, :17], theirs[:, 1000:]], axis=1))


def test_numpy_and_torch_get_the_same_numbers_in_place(mechanism):
    torch = pytest.importorskip("torch")
    rows = rows_of(run_of(mechanism))
    start = np.linspace(-1, 1, PARAMS).astype(np.float32)
    arrays = [
        start.copy(),
        start.astype(np.float64),
        torch.from_numpy(start.copy()),
        torch.from_numpy(start.astype(np.float64)),
        torch.from_numpy(start.copy()).reshape(17, 59).requires_grad_(True),
    ]
    for array in arrays:
        run = run_of(mechanism)
        run.admit(range(3))
        memory = array.data_ptr() if isinstance(array, torch.Tensor) else array.ctypes.data
        run.privatize(array)
        found = array.detach().numpy() if isinstance(array, torch.Tensor) else array
        assert found.ctypes.data == memory
        expected = start.astype(found.dtype).reshape(found.shape) + rows[0].astype(found.dtype).reshape(found.shape)
        assert np.array_equal(found, expected)


def test_wrong_arrays(mechanism):
    run = run_of(mechanism)
    run.admit([0])
    frozen = np.zeros(PARAMS, np.float32)
    frozen.flags.writeable = False
    for array, message in [
        (np.zeros(PARAMS, np.int64), "array must be an array of float32 or float64, got int64"),
        (np.zeros(PARAMS, np.float16), "array must be an array of float32 or float64, got float16"),
        (np.zeros(PARAMS - 1), f"array must be {PARAMS} numbers long, got {PARAMS - 1}"),
        (np.zeros((PARAMS, 2))[:, 0], "array must be C-contiguous .*another order"),
        (np.zeros((17, 59), order="F"), "array must be C-contiguous .*another order"),
        (np.frombuffer(bytearray(8 * PARAMS + 1), np.float64, PARAMS, 1), "array must be aligned in memory"),
        (frozen, "array must be writable, got a read-only array"),
        ([0.0] * PARAMS, "array must be a NumPy array or a PyTorch tensor on the CPU.*got list"),
    ]:
        with pytest.raises(ValueError, match=message):
            run.privatize(array)
    with pytest.raises(ValueError, match="out must be an array of float32"):
        run.row(np.zeros(PARAMS))
    assert run.step == 0
    run.privatize(np.zeros(PARAMS))
    assert run.step == 1


def test_who_may_take_part(mechanism):
    run = run_of(mechanism)
    with pytest.raises(PrivacyError, match="admit those who take part"):
        run.privatize(np.zeros(PARAMS))
    for indices, message in [([-1], "indices must be whole numbers, at least 0, got -1"), ([0.5], "indices must be whole numbers")]:
        with pytest.raises(ValueError, match=message):
            run.admit(indices)
    run.admit(np.array([3, 1], dtype=np.int32))
    run.admit([3, 1])  # again, as after an interrupt
    with pytest.raises(PrivacyError, match="admitted already"):
        run.admit([4])
    run.row()
    with pytest.raises(PrivacyError, match="example 3 would take part in a way that the privacy statement does not cover"):
        run.admit([3])
    with pytest.raises(PrivacyError, match="step"):
        run.rehearse(lambda step: [step])  # a new example in every step is fine, but 3 has been there
    run.rehearse(lambda step: [[3, 1], [9]][step % PER_EPOCH] if step % PER_EPOCH < 2 else [])
    with pytest.raises(ZeroDivisionError):
        run.rehearse(lambda step: 1 // 0)


def test_no_step_after_the_last(mechanism):
    run = run_of(mechanism)
    rows_of(run)
    with pytest.raises(PrivacyError, match=f"step {run.steps} is refused: the run has {run.steps} steps"):
        run.admit([0])


def test_wrong_settings_do_not_cost_a_key(mechanism):
    key = Key.from_seed(1)
    for changed, message in [
        (dict(noise_multiplier=None, epsilon=-1), "epsilon must be in \\(0, ∞\\), got -1"),
        (dict(noise_multiplier=None), "epsilon or noise_multiplier must be given, got neither"),
        (dict(epsilon=1.0), "epsilon and noise_multiplier must be one of them, got both"),
        (dict(delta=0.0), "delta must be in \\(0, 1\\), got 0"),
        (dict(clip_norm=0.0), "clip_norm must be"),
        (dict(params=0), "params must be at least 1, got 0"),
        (dict(params=-3), "params must be in 0..=9223372036854775807, got -3"),
        (dict(units=0), "units must be at least 1, got 0"),
        (dict(ranges=[(0, 5), (4, 8)]), "ranges of coordinates must be without overlap"),
        (dict(ranges=[(0, 2000)]), "a range of coordinates must be within"),
        (dict(unit="dog"), 'unit must be "example" or "user", got "dog"'),
    ]:
        with pytest.raises(ValueError, match=message):
            run_of(mechanism, key=key, **changed)
    with pytest.raises(ValueError, match="key must be an antiphon.Key or the path of a key file, got int"):
        run_of(mechanism, key=5)
    run_of(mechanism, key=key)
    with pytest.raises(PrivacyError, match="a key serves one run"):
        run_of(mechanism, key=key)


def test_a_key_file_serves_one_run(mechanism, tmp_path):
    path = tmp_path / "run.key"
    run = run_of(mechanism, key=path)
    assert path.exists() and path.stat().st_mode & 0o077 == 0
    run.admit([0])
    again = run_of(mechanism, key=str(path))
    with pytest.raises(PrivacyError, match="already used for"):
        again.admit([0])
    with pytest.raises(FileExistsError, match="a key is never replaced"):
        Key.fresh(path)
    assert Key.load(path).fingerprint == run.state_dict()["key_fingerprint"]
    with pytest.raises(FileNotFoundError):
        Key.load(tmp_path / "none.key")


def test_goes_on_from_its_state_and_from_no_other(mechanism, tmp_path):
    rows = rows_of(run_of(mechanism))
    path = tmp_path / "run.key"
    first = run_of(mechanism, key=path, log=tmp_path / "log")
    made = []
    for step in range(10):
        first.admit([step % PER_EPOCH])
        made.append(first.row())
    state = first.state_dict()
    assert "key" not in state and state["step"] == 10
    del first  # it holds the log
    second = run_of(mechanism, key=path, log=tmp_path / "log")
    second.load_state_dict(state)
    made += list(rows_of(second))
    whole = run_of(mechanism, key=Key.load(path))
    with pytest.raises(PrivacyError, match="begun"):
        second.load_state_dict(state)
    assert len((tmp_path / "log").read_text().splitlines()) == second.steps
    assert not np.array_equal(np.array(made), rows), "another key"
    # The same bits as without the break: the key file may not begin another run, a seed may.
    seeded = run_of(mechanism)
    half = [seeded.admit([s]) or seeded.row() for s in range(5)]
    other = run_of(mechanism)
    other.load_state_dict(seeded.state_dict())
    assert np.array_equal(np.concatenate([half, rows_of(other)]), rows)
    # Another mechanism, another clip norm, another key, a changed state.
    tree = antiphon.make("tree-online", mechanism.schema)
    for wrong, message in [
        (run_of(tree, key=Key.from_seed(7)), "mechanism was .* and is"),
        (run_of(mechanism, clip_norm=0.5), "clip_norm was 0.25 and is 0.5"),
        (run_of(mechanism, key=Key.from_seed(8)), "key_fingerprint was"),
        (whole, "key_fingerprint was"),
    ]:
        with pytest.raises(PrivacyError, match=message):
            wrong.load_state_dict(seeded.state_dict())
    forged = {**seeded.state_dict(), "step": 3}
    with pytest.raises(PrivacyError):
        run_of(mechanism).load_state_dict(forged)
    with pytest.raises(ValueError, match="state must be what state_dict"):
        run_of(mechanism).load_state_dict({"step": 3})


def test_a_state_from_before_the_first_step_can_always_be_restored(mechanism, tmp_path):
    """Whether the run was killed before its first step, or in it."""
    path = tmp_path / "run.key"
    state = run_of(mechanism, key=path).state_dict()
    for _ in range(2):
        run = run_of(mechanism, key=path)
        run.load_state_dict(state)
        run.admit([0])
    run.row()
    other = run_of(mechanism, key=path, clip_norm=0.5)
    with pytest.raises(PrivacyError):
        other.load_state_dict(state)
    with pytest.raises(PrivacyError, match="already used"):
        other.admit([0])


def test_there_is_no_way_back_before_a_state_that_was_kept(mechanism, tmp_path):
    path = tmp_path / "run.key"
    first = run_of(mechanism, key=path)
    states = [first.state_dict()]
    first.state_is_kept()
    for step in range(4):
        first.admit([step])
        first.row()
        states.append(first.state_dict())
        if step == 2:
            first.state_is_kept()
    # Killed; the last one that is on disk, or a newer one, is where it goes on.
    for steps in [3, 4]:
        run_of(mechanism, key=path).load_state_dict(states[steps])
    for steps in [0, 2]:
        run = run_of(mechanism, key=path)
        with pytest.raises(PrivacyError, match=f"the state is one after {steps} steps, and a later one, after 3 steps, was kept"):
            run.load_state_dict(states[steps])
        assert run.step == 0
        run.load_state_dict(states[steps], repeat_noise=True)
        assert run.step == steps and "continued from a saved state" in run.statement()


def test_no_step_without_the_log_that_was_asked_for(mechanism, tmp_path):
    first = run_of(mechanism)
    first.admit([0])
    first.row()
    for begin in [lambda run: run.admit([0]), lambda run: run.load_state_dict(first.state_dict())]:
        run = run_of(mechanism, log=tmp_path / "no" / "folder" / "log")
        for action in [begin, lambda run: run.admit([1])]:
            with pytest.raises(OSError):
                action(run)


def test_clip_is_that_of_the_run(mechanism):
    clip = run_of(mechanism).clip()
    total = np.zeros(PARAMS)
    clip.add([np.ones((2, PARAMS))], total)
    assert np.linalg.norm(total) == pytest.approx(0.5, rel=1e-5) and np.linalg.norm(total) <= 0.5
    for gradients, message in [
        ([], "gradients must be a list of at least one array"),
        ([np.ones((2, PARAMS)), np.ones((3, 1))], "gradients must be arrays of 2 examples"),
        ([np.ones((2, 4), np.float32), np.ones((2, PARAMS - 4))], "gradients must be all of float32 or all of float64"),
        ([total.reshape(1, -1)], "in use|memory of its own"),
    ]:
        with pytest.raises(ValueError, match=message):
            clip.add(gradients, total)
    with pytest.raises(ValueError, match="the sum must be at most 1003 numbers long"):
        clip.add([np.ones((1, PARAMS + 1))], np.zeros(PARAMS + 1))
    torch = pytest.importorskip("torch")
    shared = torch.zeros(4, dtype=torch.float64)
    with pytest.raises(ValueError, match="total must be in memory of its own"):
        antiphon.Clip(1.0, params=4).add([shared.view(1, 4)], shared)


def test_the_log_is_audited(mechanism, tmp_path):
    run = run_of(mechanism, log=tmp_path / "log", units=PER_EPOCH)
    rows_of(run)
    found = antiphon.audit(tmp_path / "log", mechanism, noise_multiplier=0.7, delta=1e-5)
    assert found.ok and found.violations == []
    assert repr(run.audit(tmp_path / "log")) == repr(found)
    assert found.epsilon_stated == run.epsilon == antiphon.epsilon(0.7, 1e-5)
    assert found.epsilon_realised <= found.epsilon_stated * (1 + 1e-9)
    assert (found.steps, found.units, found.participations) == (24, 8, 24)
    lines = (tmp_path / "log").read_text().splitlines()
    lines[9] = lines[9].replace("[1]", "[2]")
    (tmp_path / "shifted").write_text("\n".join(lines) + "\n")
    found = antiphon.audit(tmp_path / "shifted", mechanism, noise_multiplier=0.7, delta=1e-5)
    assert not found.ok and any(unit == 2 for _, unit, _ in found.violations)
    assert found.epsilon_realised > found.epsilon_stated
    with pytest.raises(FileNotFoundError):
        antiphon.audit(tmp_path / "none", mechanism, noise_multiplier=0.7, delta=1e-5)


def test_the_event_of_a_run_is_what_it_is_accounted_for(mechanism):
    for adjacency in ["zero-out", "replace-one"]:
        run = run_of(mechanism, adjacency=adjacency)
        assert antiphon.epsilon(run.event, run.delta) == run.epsilon
    assert run.event == antiphon.Event.gaussian(0.35)


def test_the_statement_says_what_it_means(mechanism):
    text = run_of(mechanism, units=PER_EPOCH).statement()
    for words in ["zero-out", "one Gaussian mechanism", "noise multiplier of 0.7", "comes from a seed", "Not covered", "Not checked", "WARNING"]:
        assert (words in text) == (words != "WARNING"), words
    assert "WARNING" in run_of(mechanism, units=PER_EPOCH, delta=0.5).statement()
    assert "one user" in run_of(mechanism, unit="user").statement()
    assert "replace-one" in run_of(mechanism, adjacency="replace-one").statement()
