"""Noise on the device in PyTorch: the bits of the Rust code, and nothing else."""

from fractions import Fraction

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from device_cases import FAR, PLACES, bits, exact_fma, fma_cases, plain_normals, run_of, slow_group  # noqa: E402
from torch_cases import model_of, parameters_of, private_of  # noqa: E402

import antiphon  # noqa: E402
from antiphon import Key, PrivacyError, Schema  # noqa: E402
from antiphon.torch import DeviceRows, _device, _field  # noqa: E402


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def comb():
    return antiphon.make("comb-blt", Schema.epochs(5, 10), progress=False)


def test_a_fused_multiply_add_is_rounded_once():
    cases = fma_cases()
    wanted = np.array([exact_fma(*case) for case in cases])
    a, b, c = torch.from_numpy(cases).double().unbind(1)
    assert np.array_equal(bits(_field._fma(a, b, c).float().numpy()), bits(wanted))
    twice = (a * b + c).float().numpy()
    assert (bits(twice) != bits(wanted)).sum() > 50  # the cases are hard ones


def test_a_million_normals_have_the_bits_of_rust():
    run = plain_normals(1_000_001)
    groups = torch.arange(-(-1_000_001 // 16))
    for step in range(2):
        run.admit([step])
        got = torch.cat([_field.normals(run._field_key(), step, part) for part in groups.split(8192)])
        assert np.array_equal(bits(got.numpy()[:1_000_001]), bits(run.row()))


def test_steps_and_coordinates_of_64_bits():
    run = plain_normals(16)
    key = run._field_key()
    run.admit([0])
    assert np.array_equal(bits(slow_group(key, 0, 0)), bits(run.row()))  # the slow way is that of Rust
    for step, group in PLACES:
        got = _field.normals(key, step, torch.tensor([group, group + 1]))
        wanted = np.concatenate([slow_group(key, step, group), slow_group(key, step, group + 1)])
        assert np.array_equal(bits(got.numpy()), bits(wanted)), (step, group)
    with pytest.raises(ValueError, match="step must be in"):
        _field.normals(key, 1 << 64, torch.arange(1))


def compare(mechanism, ranges, epoch, steps=None):
    run, other = run_of(mechanism, ranges=ranges), run_of(mechanism, ranges=ranges)
    rows = DeviceRows(other, "cpu")
    for step in range(steps or run.steps):
        run.admit([step % epoch])
        other.admit([step % epoch])
        got = rows.row()
        assert got.dtype == torch.float32
        assert np.array_equal(bits(got.numpy()), bits(run.row())), step
        assert other.step == step + 1


def test_fifty_rows_of_a_comb_have_the_bits_of_rust(comb):
    assert comb.steps == 50
    compare(comb, FAR, 10)
    compare(comb, [(0, 140_000)], 10, steps=12)  # more than are drawn at a time


@pytest.mark.parametrize("name, stamps", [("blt", 1), ("identity", 1), ("identity", 3)])
def test_rows_of_other_mechanisms_have_the_bits_of_rust(name, stamps):
    compare(antiphon.make(name, Schema.epochs(3, 6), stamps=stamps, progress=False), FAR, 6)


def test_rows_of_many_combs_have_the_bits_of_rust():
    for epochs, period, buffers, momentum in [(1, 7, 1, 0.0), (4, 1, 1, 0.0), (2, 9, 3, 0.9), (7, 3, 2, 0.5), (3, 8, 4, 0.0)]:
        schema = Schema.epochs(epochs, period)
        compare(antiphon.make("comb-blt", schema, buffers=buffers, momentum=momentum, progress=False), [(5, 60)], period)


def test_a_restored_run_goes_on_with_the_same_bits(comb):
    ranges = [(1, 50)]
    whole, first, second = (run_of(comb, ranges=ranges) for _ in range(3))
    rows = DeviceRows(first, "cpu")
    for step in range(13):
        first.admit([step % 10])
        rows.row()
    other = DeviceRows(second, "cpu")
    other.prepare()  # of step 0, which is not taken
    second.load_state_dict(first.state_dict())
    for step in range(20):
        whole.admit([step % 10])
        wanted = whole.row()
        if step >= 13:
            second.admit([step % 10])
            assert np.array_equal(bits(other.row().numpy()), bits(wanted))


def test_an_interrupted_row_is_made_again(comb, monkeypatch):
    ranges = [(0, 40)]
    run, other = run_of(comb, ranges=ranges), run_of(comb, ranges=ranges)
    rows = DeviceRows(other, "cpu")
    monkeypatch.setattr(rows, "_chunk", 1)
    for step in range(6):
        run.admit([step])
        wanted = run.row()
        if step < 4:
            with pytest.raises(PrivacyError, match="admit those who take part"):
                rows.row()  # it waits
        other.admit([step])
        if step == 4:
            calls = iter(range(100))
            true = _device.normals

            def fails(*arguments):
                if next(calls) == 1:
                    raise KeyboardInterrupt
                return true(*arguments)

            with monkeypatch.context() as patch:
                patch.setattr(_device, "normals", fails)
                with pytest.raises(KeyboardInterrupt):
                    rows.row()
            assert other.step == 4
            rows._seek(4)  # an interrupt can also come when the row is made and not yet kept: the buffers are those of the next step then
        assert np.array_equal(bits(rows.row().numpy()), bits(wanted))
    with pytest.raises(PrivacyError):
        rows.row()
    assert other.step == 6


def test_no_row_after_the_last():
    run = run_of(antiphon.make("identity", Schema.epochs(1, 2), progress=False), params=3)
    rows = DeviceRows(run, "cpu")
    for step in range(2):
        run.admit([step])
        rows.row()
    rows.prepare()
    with pytest.raises(PrivacyError, match="the run has 2 steps"):
        rows.row()


def test_what_is_refused(comb):
    tree = antiphon.make("tree-online", Schema.epochs(1, 4), progress=False)
    with pytest.raises(ValueError, match="comb-blt, blt and identity"):
        DeviceRows(run_of(tree, params=3), "cpu")
    with pytest.raises(ValueError, match="chacha20 for noise on a device.*got one of aes256-ctr"):
        DeviceRows(run_of(comb, params=3, key=Key.from_seed(1)), "cpu")
    with pytest.raises(ValueError, match="stddev is at least 1e-15"):
        DeviceRows(run_of(comb, params=3, clip_norm=1e-18), "cpu")


def test_a_device_with_other_bits_is_refused(comb, monkeypatch):
    run = run_of(comb, params=5000)
    DeviceRows(run, "cpu").check()

    def twice(a, b, c):
        return _field._single(b * a + c)

    def fused(place):
        def plain(a, b, c):
            return a * b + c

        def once(a, b, c):
            exact = [float(Fraction(a) * Fraction(x) + Fraction(y)) for x, y in zip(b.tolist(), c.tolist())]
            return torch.tensor(exact, dtype=torch.float64)

        mix, take, keep = (once if place == here else plain for here in ("mix", "take", "keep"))

        def row_of(recurrence, rows, buffers):
            inputs, factors, scale, _ = recurrence
            mixed = torch.zeros(buffers.shape[1], dtype=torch.float64)
            for (_, weight), z in zip(inputs, rows):
                mixed = mix(weight, z.double(), mixed)
            row = mixed
            for buffer, (taken, kept) in zip(buffers, factors):
                row = take(-taken, buffer, row)
                buffer.copy_(keep(kept, buffer, mixed))
            return (scale * row).float()

        return row_of

    with monkeypatch.context() as patch:
        patch.setattr(_device, "_recurrence_row", fused("nowhere"))
        DeviceRows(run, "cpu")
    patches = [
        (_device, "_fma", twice, "not rounded as IEEE 754"),
        (_field, "_rotate", lambda x, by: None, "numbers of step 0 differ"),
        (_field, "_TWO_LN_2", _field._TWO_LN_2 * (1 + 2.0**-23), "numbers of step 0 differ"),
        *((_device, "_recurrence_row", fused(place), "not rounded one by one") for place in ("mix", "take", "keep")),
    ]
    for module, name, wrong, message in patches:
        with monkeypatch.context() as patch:
            patch.setattr(module, name, wrong)
            with pytest.raises(PrivacyError, match=message) as raised:
                DeviceRows(run, "cpu")
            assert 'noise="host"' in str(raised.value)
    with pytest.raises(PrivacyError, match="lacks an operation"):
        DeviceRows(run, "meta")  # a device without numbers
    assert run.step == 0


def trained(noise, steps=None, state=None, mechanism="comb-blt", **changed):
    model = model_of()
    private = private_of(model, mechanism=mechanism, noise=noise, **{"key": Key.from_seed(1, cipher="chacha20"), **changed})
    if state is not None:
        private.load_state_dict(state)
    for batch in private.loader:
        if private.run.step == steps:
            break
        private.step(batch)
    return private, parameters_of(model)


@pytest.mark.parametrize("mechanism", ["comb-blt", "blt", "identity"])
def test_training_has_the_same_bits_on_host_and_device(mechanism):
    assert torch.equal(trained("host", mechanism=mechanism)[1], trained("device", mechanism=mechanism)[1])


def test_training_goes_on_from_a_state_of_either():
    straight = trained("host")[1]
    for first, second in [("host", "device"), ("device", "host"), ("device", "device")]:
        state = trained(first, steps=7)[0].state_dict()
        assert torch.equal(trained(second, state=state)[1], straight)


def test_the_key_of_training_on_a_device(tmp_path):
    private = private_of(mechanism="identity", noise="device", key=tmp_path / "new.key")
    assert Key.load(tmp_path / "new.key").cipher == "chacha20"
    assert "The noise was made on the device cpu. It was compared" in private.statement()
    private.step(next(iter(private.loader)))
    with pytest.raises(PrivacyError):  # the file serves this run
        other = private_of(mechanism="identity", noise="device", key=tmp_path / "new.key")
        other.step(next(iter(other.loader)))
    Key.fresh(tmp_path / "aes.key", cipher="aes256-ctr")
    for key in (tmp_path / "aes.key", str(tmp_path / "aes.key"), Key.from_seed(1)):
        with pytest.raises(ValueError, match='chacha20 for noise="device".*got one of aes256-ctr'):
            private_of(mechanism="identity", noise="device", key=key)


def test_other_mechanisms_and_places_are_refused(tmp_path):
    with pytest.raises(ValueError, match='comb-blt, blt, identity for noise="device", got \'optimal\''):
        private_of(noise="device", key=tmp_path / "run.key")
    assert not (tmp_path / "run.key").exists()
    mechanism = antiphon.optimize(Schema.epochs(3, 6), progress=False)
    with pytest.raises(ValueError, match="comb-blt, blt and identity"):
        private_of(mechanism=mechanism, noise="device", key=Key.from_seed(1, cipher="chacha20"))
    with pytest.raises(ValueError, match='noise must be "host" or "device", got \'gpu\''):
        private_of(noise="gpu")


@pytest.mark.long
def test_a_hundred_million_normals_have_the_bits_of_rust():
    run = plain_normals(1 << 22, steps=24)
    groups = torch.arange(1 << 18)
    for step in range(24):
        run.admit([step])
        got = torch.cat([_field.normals(run._field_key(), step, part) for part in groups.split(8192)])
        assert np.array_equal(bits(got.numpy()), bits(run.row()))


@pytest.mark.long
def test_all_rows_of_a_long_run_have_the_bits_of_rust():
    compare(antiphon.make("comb-blt", Schema.epochs(8, 50), progress=False), [(7, 2000)], 50)


@pytest.mark.long
def test_a_compiled_training_step_changes_nothing(comb):
    run, other = run_of(comb, params=2000), run_of(comb, params=2000)
    rows = DeviceRows(other, "cpu")
    step = torch.compile(lambda total: total + rows.row())
    for number in range(12):
        run.admit([number % 10])
        other.admit([number % 10])
        got = step(torch.zeros(2000, dtype=torch.float64))
        assert np.array_equal(bits(got.float().numpy()), bits(run.row()))
