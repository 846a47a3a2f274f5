"""Noise on the device in JAX: the bits of the Rust code under jit, in scan, with and without x64."""

from functools import partial

import numpy as np
import pytest

jax = pytest.importorskip("jax")
pytest.importorskip("optax")  # antiphon.jax needs it

import jax.numpy as jnp  # noqa: E402
from device_cases import FAR, PLACES, bits, exact_fma, fma_cases, plain_normals, run_of, slow_group  # noqa: E402

import antiphon  # noqa: E402
from antiphon import Key, PrivacyError, Schema  # noqa: E402
from antiphon._elsewhere import row_by_numpy  # noqa: E402
from antiphon.jax import _device, _field  # noqa: E402
from antiphon.jax._device import Coefficients, DeviceRows, State, row  # noqa: E402

CPU = jax.devices("cpu")[0]


@pytest.fixture(scope="module")
def comb():
    return antiphon.make("comb-blt", Schema.epochs(5, 10), progress=False)


@pytest.fixture(scope="module")
def wanted(comb):
    """All rows of the comb by Rust."""
    run = run_of(comb, ranges=FAR)
    rows = []
    for step in range(run.steps):
        run.admit([step % 10])
        rows.append(run.row())
    return np.array(rows)


def words(numbers):
    return np.array(numbers, dtype="<u8").view(np.uint32).reshape(-1, 2).T


def test_a_fused_multiply_add_is_rounded_once():
    cases = fma_cases()
    exact = np.array([exact_fma(*case) for case in cases])
    # XLA flushes numbers below the normal range of float32 to zero on the CPU. In the transform that changes nothing: see _field.py.
    normal = (np.abs(exact) >= 2.0**-126) | (exact == 0)
    assert normal.sum() > 1500
    assert np.array_equal(bits(_device._fma(*cases.T))[normal], bits(exact)[normal])


def test_a_million_normals_have_the_bits_of_rust():
    run = plain_normals(1_000_001)
    groups = words(np.arange(-(-1_000_001 // 16)))
    drawn = jax.jit(_field.normals)
    for step in range(2):
        run.admit([step])
        got = drawn(np.array(run._field_key(), np.uint32), words([step])[:, 0], groups)
        assert got.dtype == jnp.float32
        assert np.array_equal(bits(got[:1_000_001]), bits(run.row()))


def test_steps_and_coordinates_of_64_bits():
    run = plain_normals(16)
    key = run._field_key()
    drawn = jax.jit(_field.normals)
    for step, group in PLACES:
        got = drawn(np.array(key, np.uint32), words([step])[:, 0], words([group, group + 1]))
        slow = np.concatenate([slow_group(key, step, group), slow_group(key, step, group + 1)])
        assert np.array_equal(bits(got), bits(slow)), (step, group)


def test_fifty_rows_of_a_comb_have_the_bits_of_rust(comb, wanted):
    run = run_of(comb, ranges=FAR)
    rows = DeviceRows(run, CPU)
    for step in range(50):
        with pytest.raises(PrivacyError, match="admit those who take part"):
            rows.row()
        run.admit([step % 10])
        assert np.array_equal(bits(rows.row()), bits(wanted[step])), step
        assert run.step == step + 1
    with pytest.raises(PrivacyError, match="the run has 50 steps"):
        rows.row()


@pytest.mark.parametrize("name, stamps", [("blt", 1), ("identity", 1), ("identity", 3)])
def test_rows_of_other_mechanisms_have_the_bits_of_rust(name, stamps):
    mechanism = antiphon.make(name, Schema.epochs(3, 6), stamps=stamps, progress=False)
    run, other = run_of(mechanism, ranges=FAR), run_of(mechanism, ranges=FAR)
    rows = DeviceRows(other, CPU)
    for step in range(run.steps):
        run.admit([step % 6])
        other.admit([step % 6])
        assert np.array_equal(bits(rows.take()), bits(run.row())), step


@pytest.mark.parametrize("x64", [False, True])
def test_a_scan_over_steps_has_the_bits_of_rust(comb, wanted, x64):
    run = run_of(comb, ranges=FAR)
    rows = DeviceRows(run, CPU)
    for step in range(7):
        run.admit([step])
        rows.row()
    state, taken = rows.state(), []  # in the middle
    for step in range(7, 40):
        run.admit([step % 10])
        taken.append(rows.coefficients())
    with jax.enable_x64(x64):
        stacked = jax.tree.map(lambda *parts: np.stack(parts), *taken)
        sums = jnp.ones(len(wanted[0]))

        def step(carry, coefficients):
            state, total = carry
            state, noise = row(state, coefficients)
            # What a program does with the row must not change it: here it is the factor of a product and part of a sum.
            return (state, total + 3.0 * noise), (noise, total * noise + noise)

        (state, _), (got, _) = jax.jit(partial(jax.lax.scan, step))((state, sums), stacked)
    assert np.array_equal(bits(got), bits(wanted[7:40]))
    # The wrapper finds its way after the steps that others took.
    run.admit([0])
    assert np.array_equal(bits(rows.row()), bits(wanted[40]))


def test_a_state_that_is_out_of_step_gives_no_noise(comb, wanted):
    """A step is lost between its coefficients and its row: the buffers are those of another step, and what they give protects nobody."""
    run = run_of(comb, ranges=FAR)
    rows = DeviceRows(run, CPU)
    state, given = rows.state(), []
    for step in range(3):
        run.admit([step])
        given.append(rows.coefficients())
    state, noise = row(state, given[0])
    assert np.array_equal(bits(noise), bits(wanted[0]))
    lost, noise = row(state, given[2])
    assert np.isnan(noise).all()
    run.admit([3])
    last = rows.coefficients()
    assert np.isnan(row(lost, last)[1]).all()  # it stays so
    assert np.isnan(row(state, given[0])[1]).all()  # nor does one come twice
    run.admit([4])
    state = rows.state()
    assert np.array_equal(bits(row(state, rows.coefficients())[1]), bits(wanted[4]))


def test_constants_have_the_same_bits(comb, wanted):
    rows = DeviceRows(run_of(comb, ranges=FAR), CPU)
    state, coefficients = rows.state(), rows._coefficients(rows.run()._recurrence(0), 0)
    assert np.array_equal(bits(jax.jit(lambda: row(state, coefficients)[1])()), bits(wanted[0]))


def test_a_restored_run_goes_on_with_the_same_bits(comb, wanted):
    first, second = run_of(comb, ranges=FAR), run_of(comb, ranges=FAR)
    for step in range(13):
        first.admit([step % 10])
        first.row()
    rows = DeviceRows(second, CPU)
    rows.prepare()  # of step 0, which is not taken
    second.load_state_dict(first.state_dict())
    rows.restored()
    for step in range(13, 16):
        second.admit([step % 10])
        if step == 14:
            rows._next(step)  # an interrupt can come when the row is made and not yet kept: the state is that of the next step then
        assert np.array_equal(bits(rows.row()), bits(wanted[step]))


def test_tiles_change_nothing(comb, wanted, monkeypatch):
    monkeypatch.setattr(_device, "_TILES", (16, 16))
    run = run_of(comb, ranges=FAR)
    rows = DeviceRows.__new__(DeviceRows)  # a check would take samples of one tile
    rows._prepare(run, FAR, CPU)
    assert rows._zero(0).groups.shape == (3, 2, 16)
    for step in range(3):
        run.admit([step])
        assert np.array_equal(bits(rows.row()), bits(wanted[step]))


def test_random_recurrences_are_rounded_one_by_one():
    """Within a scan, against NumPy: any number of rows of Z and any coefficients, in arrays that have room for nine and three buffers."""
    random = np.random.default_rng(3)
    key, groups, steps = random.integers(0, 1 << 32, 8, dtype=np.uint32), words(np.arange(20)), 60
    drawn = jax.jit(_field.normals)
    z = [np.asarray(drawn(key, words([number])[:, 0], groups)) for number in range(9)]

    def doubles(numbers):
        return np.ascontiguousarray(numbers, dtype=np.float64).view(np.uint32).reshape(*np.shape(numbers), 2)

    buffers, all_coefficients, rows, after = np.zeros((3, 320)), [], [], []
    for step in range(steps):
        inputs = [(int(random.integers(9)), float(random.standard_normal())) for _ in range(random.integers(1, 10))]
        factors = [(float(taken), float(kept)) for taken, kept in random.uniform(0, 1, (3, 2))]
        scale, first = float(random.uniform(0.1, 10)), bool(step % 17 == 0)
        missing = 9 - len(inputs)
        all_coefficients.append(
            Coefficients(
                key=key,
                inputs=words([number for number, _ in inputs] + [7] * missing).T,
                weights=doubles([weight for _, weight in inputs] + [np.inf] * missing),  # never touched
                count=np.int32(len(inputs)),
                taken=doubles([taken for taken, _ in factors]),
                kept=doubles([kept for _, kept in factors]),
                scale=doubles(scale),
                first=np.bool_(first),
                step=np.int32(step),
            )
        )
        one, buffers = row_by_numpy((inputs, factors, scale, first), [z[number] for number, _ in inputs], 0 * buffers if first else buffers)
        rows.append(one)
        after.append(buffers)

    def step_of(state, coefficients):
        state, noise = row(state, coefficients)
        return state, (noise, state.buffers)

    state = State(groups[None], doubles(random.standard_normal((1, 3, 320))), ((0, 320),), np.int32(0))
    stacked = jax.tree.map(lambda *parts: np.stack(parts), *all_coefficients)
    _, (got, got_after) = jax.jit(partial(jax.lax.scan, step_of))(state, stacked)
    assert np.array_equal(bits(got), bits(np.array(rows)))
    assert np.array_equal(np.asarray(got_after), doubles(np.array(after)[:, None]))


def test_private_noise_on_the_device(tmp_path):
    """The front makes the key, and gives the rows that the host makes from it."""
    params = {"a": np.zeros((3, 5), np.float32), "b": np.zeros(7, np.float32)}

    def noise_of(name, **changed):
        order = antiphon.FixedOrderBatches(24, 4, 2)
        settings = dict(order=order, noise_multiplier=1.0, delta=1e-3, clip_norm=1.0, mechanism="comb-blt", key=Key.from_seed(1, cipher="chacha20"))
        return antiphon.jax.private_noise(params, **{**settings, **changed})

    host, device = noise_of("host"), noise_of("device", noise="device")
    for (indices, row), (same, other) in zip(host, device, strict=True):
        assert np.array_equal(indices, same) and np.array_equal(bits(row.flat), bits(other.flat))
    assert "The noise was made on the device" in device.statement() and "on the device" not in host.statement()
    noise_of("device", noise="device", key=tmp_path / "key").next()
    assert Key.load(tmp_path / "key").cipher == "chacha20"
    for changed, message in [
        (dict(mechanism="optimal"), "mechanism must be one of comb-blt, blt, identity"),
        (dict(key=Key.from_seed(1)), "key must be one of chacha20"),
        (dict(noise="gpu"), 'noise must be "host" or "device"'),
        (dict(rows=lambda run: None), "rows must be left out"),
    ]:
        with pytest.raises(ValueError, match=message):
            noise_of("device", **{"noise": "device", **changed})


def test_what_is_refused(comb):
    tree = antiphon.make("tree-online", Schema.epochs(1, 4), progress=False)
    with pytest.raises(ValueError, match="comb-blt, blt and identity"):
        DeviceRows(run_of(tree, params=3), CPU)
    with pytest.raises(ValueError, match="chacha20 for noise on a device.*got one of aes256-ctr"):
        DeviceRows(run_of(comb, params=3, key=Key.from_seed(1)), CPU)
    with pytest.raises(ValueError, match="stddev is at least 1e-15"):
        DeviceRows(run_of(comb, params=3, clip_norm=1e-18), CPU)


def test_a_device_with_other_bits_is_refused(comb, monkeypatch):
    run = run_of(comb, ranges=FAR)

    def refused(module, name, wrong, message):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, wrong)
            # Compiled anew, with what is wrong.
            patch.setattr(_device, "_compiled", jax.jit(lambda *arguments: row(*arguments), donate_argnums=0))
            with pytest.raises(PrivacyError, match=message) as raised:
                DeviceRows(run, CPU)
            assert "row() of the PrivateRun" in str(raised.value)

    def twice(*numbers):
        a, b, c = (np.asarray(x, np.float64) for x in numbers)
        return (a * b + c).astype(np.float32)

    refused(_device, "_fma", twice, "not rounded as IEEE 754")
    refused(_field, "_TWO_LN_2", np.float32(_field._TWO_LN_2 * (1 + 2.0**-23)), "numbers of step 0 differ")
    one = np.float32(1.0 + 2.0**-23)
    if jax.jit(lambda a, b, c: a * b + c)(one, one, -one * one) != 0:
        # This machine has fused multiply-adds, and XLA uses them where nothing keeps it from that.
        refused(_device, "kept", lambda x, zero: x, "not rounded one by one")
    assert run.step == 0
    DeviceRows(run, CPU)


@pytest.mark.long
def test_a_hundred_million_normals_have_the_bits_of_rust():
    run = plain_normals(1 << 22, steps=24)
    key, groups, drawn = np.array(run._field_key(), np.uint32), words(np.arange(1 << 18)), jax.jit(_field.normals)
    for step in range(24):
        run.admit([step])
        assert np.array_equal(bits(drawn(key, words([step])[:, 0], groups)), bits(run.row()))


@pytest.mark.long
def test_all_rows_of_a_long_run_have_the_bits_of_rust():
    mechanism = antiphon.make("comb-blt", Schema.epochs(8, 50), progress=False)
    run, other = run_of(mechanism, ranges=[(7, 2000)]), run_of(mechanism, ranges=[(7, 2000)])
    rows = DeviceRows(other, CPU)
    for step in range(run.steps):
        run.admit([step % 50])
        other.admit([step % 50])
        assert np.array_equal(bits(rows.row()), bits(run.row())), step
