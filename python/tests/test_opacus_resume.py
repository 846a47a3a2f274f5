"""Checkpoints by Opacus' own functions: resumed runs, what is refused, kills."""

import io

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("opacus")

from kills import check_kills  # noqa: E402
from opacus.schedulers import ExponentialNoise  # noqa: E402
from opacus_cases import MODES, made  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402
from torch_cases import data_of  # noqa: E402

from antiphon import Key, PrivacyError  # noqa: E402
from antiphon.opacus import BatchMemoryManager, PrivacyEngine  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:Full backward hook is firing:UserWarning")


def training(mode="hooks", wrap=True, **changed):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 5), nn.Dropout(0.3), nn.Tanh(), nn.Linear(5, 3))
    return made(mode, wrap, model=model, optimizer=torch.optim.Adam(model.parameters()), **changed)


def save(case, path, **more):
    case.engine.save_checkpoint(path=path, module=case.model, optimizer=case.optimizer, **more)


def load(case, path, **more):
    return case.engine.load_checkpoint(path=path, module=case.model, optimizer=case.optimizer, **more)


@pytest.mark.parametrize(("mode", "wrap", "workers"), [(*kind, 0) for kind in MODES] + [("hooks", True, 2)])
def test_resumed_ends_the_same(tmp_path, mode, wrap, workers):
    def again():
        return training(mode, wrap, loader=DataLoader(data_of(), batch_size=4, num_workers=workers))

    case = again()
    case.epochs(3)
    expected = case.parameters()
    case = again()
    case.epochs(1)
    for batch in case.loader:
        case.step(batch)
        if case.run.step == 8:
            break
    save(case, tmp_path / "checkpoint", checkpoint_dict={"note": "kept"})
    torch.randn(100)  # the world goes on
    case = again()
    assert load(case, tmp_path / "checkpoint")["note"] == "kept"
    assert case.loader.epoch == 1 and case.run.step == 8 and len(case.engine.accountant) == 8
    for _ in range(case.loader.epoch, 3):
        for batch in case.loader:
            case.step(batch)
    assert torch.equal(case.parameters(), expected) and case.run.step == 18
    assert "The run was continued from a saved state" in case.engine.statement()


def test_a_checkpoint_in_the_middle_of_a_batch_begins_the_batch_again(tmp_path):
    whole = training(batch_size=6)
    whole.epochs(3)
    case = training(batch_size=6)
    with BatchMemoryManager(data_loader=case.loader, max_physical_batch_size=3, optimizer=case.optimizer) as parts:
        for number, batch in enumerate(parts):
            case.gradients(batch)
            if number == 3:
                save(case, tmp_path / "checkpoint")
                break
            case.optimizer.step()
    case = training(batch_size=6)
    load(case, tmp_path / "checkpoint")
    assert case.run.step == 1
    case.epochs(3)
    assert case.run.step == 12


def test_the_checkpoint_holds_no_key_and_is_read_as_plain_values(tmp_path):
    key = Key.fresh(tmp_path / "run.key")
    secret = key._shared()
    case = training(key=key)
    case.step(next(iter(case.loader)))
    save(case, tmp_path / "checkpoint")
    content = (tmp_path / "checkpoint").read_bytes()
    # The secret is the last 32 bytes of what processes share.
    assert secret[-32:] not in content and secret[-32:].hex().encode() not in content
    assert set(torch.load(tmp_path / "checkpoint", weights_only=True)) == {
        "antiphon",
        "module_state_dict",
        "privacy_accountant_state_dict",
        "optimizer_state_dict",
    }
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint", "run.key"]


def test_a_checkpoint_of_another_run_is_refused(tmp_path):
    case = training()
    case.step(next(iter(case.loader)))
    path = tmp_path / "checkpoint"
    save(case, path)
    for changed, error, message in [
        (dict(mechanism="tree-online"), PrivacyError, "mechanism was"),
        (dict(key=Key.from_seed(2)), PrivacyError, "key_fingerprint was"),
        (dict(max_grad_norm=0.4), PrivacyError, "clip_norm was"),
        (dict(noise_multiplier=0.6), PrivacyError, "was"),
        (dict(shuffle_seed=1), ValueError, "seed was 0 and is 1"),
        (dict(mode="ew"), ValueError, "the same settings"),
        (dict(loss_reduction="sum"), ValueError, "the same settings"),
    ]:
        other = training(**changed)
        before = other.parameters()
        with pytest.raises(error, match=message):
            load(other, path)
        assert other.loader.order.position == 0 and torch.equal(other.parameters(), before)
    other = training()
    with pytest.raises(ValueError, match="optimizer must be given if"):
        other.engine.load_checkpoint(path=path, module=other.model)
    with pytest.raises(ValueError, match="make_private must be called first"):
        PrivacyEngine().load_checkpoint(path=path, module=other.model)
    with pytest.raises(ValueError, match="noise_scheduler and grad_clip_scheduler must be left out"):
        save(other, path, noise_scheduler=ExponentialNoise(other.optimizer, gamma=0.9))
    with pytest.raises(ValueError, match='must not have the name "antiphon"'):
        save(other, path, checkpoint_dict={"antiphon": 1})
    torch.save({"module_state_dict": {}}, tmp_path / "other")
    with pytest.raises(ValueError, match="path must be a checkpoint that save_checkpoint"):
        load(other, tmp_path / "other")
    # A run that has begun does not go on from a state.
    other.step(next(iter(other.loader)))
    with pytest.raises(PrivacyError):
        load(other, path)


def test_an_old_checkpoint_is_refused_after_a_later_one_was_saved(tmp_path):
    key = tmp_path / "run.key"
    case = training(key=key)
    for batch in case.loader:
        save(case, tmp_path / f"checkpoint{case.run.step}")
        case.step(batch)
    again = training(key=key)
    with pytest.raises(PrivacyError, match="a later one, after 5 steps, was kept"):
        load(again, tmp_path / "checkpoint0")
    assert again.loader.order.position == 0
    load(again, tmp_path / "checkpoint5")
    assert again.run.step == 5
    load(training(key=key), tmp_path / "checkpoint3", repeat_noise=True)
    # A run that was begun with this key, without its checkpoint.
    fresh = training(key=key)
    with pytest.raises(PrivacyError):
        fresh.step(next(iter(fresh.loader)))


def test_open_files(tmp_path):
    """Nobody knows here when such a file is safe, so the user says it."""
    case = training(key=tmp_path / "run.key")
    files = []
    for batch in case.loader:
        files.append(io.BytesIO())
        save(case, files[-1])
        case.step(batch)
    for file in files:
        file.seek(0)
    again = training(key=tmp_path / "run.key")
    load(again, files[2])
    again.run.state_is_kept()
    files[1].seek(0)
    with pytest.raises(PrivacyError, match="a later one, after 2 steps, was kept"):
        load(training(key=tmp_path / "run.key"), files[1])


def test_a_write_that_fails_leaves_the_old_file(tmp_path):
    case = training()
    path = tmp_path / "checkpoint"
    save(case, path)
    before = path.read_bytes()
    with pytest.raises(Exception, match="pickle"):
        save(case, path, checkpoint_dict={"function": lambda: None})
    assert path.read_bytes() == before and [p.name for p in tmp_path.iterdir()] == ["checkpoint"]


@pytest.mark.long
@pytest.mark.parametrize("mode", ["hooks", "functorch", "ew", "ghost"])
def test_kills(tmp_path, mode):
    check_kills(tmp_path, "killed_opacus.py", mode, kills=5, steps=120)
