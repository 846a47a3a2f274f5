"""PrivateTrainer: training, noise, resuming, and what is not shown."""

import importlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from antiphon import Key, PrivacyError, PrivateRun  # noqa: E402

TESTS = Path(__file__).parent


@pytest.fixture(scope="module")
def cases():
    """Imported late: transformers takes seconds, and tests that are not selected should not wait for it."""
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    pytest.importorskip("peft")
    torch.set_num_threads(1)
    return importlib.import_module("hf_cases")


def test_a_missing_package_is_named(monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "transformers" else find(name, *rest))
    monkeypatch.delitem(sys.modules, "antiphon.hf", raising=False)
    with pytest.raises(ImportError, match=r'antiphon.hf needs transformers: pip install "antiphon\[hf\]"'):
        importlib.import_module("antiphon.hf")


def test_without_adapters_the_noise_is_row_t_and_the_loss_is_not_shown(tmp_path):
    """What ./check has of this front: no peft, one epoch."""
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    from transformers import TrainerCallback

    torch.set_num_threads(1)
    cases = importlib.import_module("hf_cases")
    gradients = []

    class Watch(TrainerCallback):
        def on_pre_optimizer_step(self, args, state, control, **kwargs):
            gradients.append(torch.cat([p.grad.flatten() for p in trainer.model.parameters()]).double())

    trainer = cases.trainer_of(tmp_path, cases.bert(), dict(num_train_epochs=1), mechanism="tree-online", callbacks=[Watch()])
    run = PrivateRun(
        trainer.run.mechanism, noise_multiplier=0.5, delta=1e-3, clip_norm=0.5, params=trainer.run.coordinates, key=Key.from_seed(1)
    )
    result = trainer.train()
    assert len(gradients) == trainer.run.step == cases.STEPS_PER_EPOCH and result.training_loss != result.training_loss
    for step, gradient in enumerate(gradients):
        batch = trainer._private.order.batch(step)
        run.admit(batch)
        row = torch.from_numpy(run.row()).double()
        # What is left is the sum of clipped gradients; 1e-3 is far above rounding to single precision and far below the noise.
        assert row.norm() > 20 and 0 < (gradient * cases.BATCH - row).norm() < 0.5 * len(batch) + 1e-3
    shown = [*trainer.state.log_history, result.metrics]
    assert len(shown) > 3 and not any(name in entry for entry in shown for name in ("loss", "train_loss"))
    with pytest.raises(ValueError, match="model must be a model, got str: load it first"):
        cases.trainer_of(tmp_path, "bert-base-uncased", dict(num_train_epochs=1), mechanism="tree-online")


@pytest.mark.long
def test_adapters_learn_and_nothing_of_the_training_loss_is_shown(cases, tmp_path, capsys):
    seen = []
    from transformers import TrainerCallback

    class Watch(TrainerCallback):
        def on_log(self, args, state, control, logs=None, **kwargs):
            seen.append(dict(logs))

    def accuracy(prediction):
        return {"accuracy": float((prediction.predictions.argmax(1) == prediction.label_ids).mean())}

    model = cases.adapted(target_modules=["query", "value", "dense"])
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.3, momentum=0.9)
    frozen = {name: p.clone() for name, p in model.named_parameters() if not p.requires_grad}
    trainer = cases.trainer_of(
        tmp_path / "out", model, dict(num_train_epochs=10, per_device_train_batch_size=50, save_strategy="steps", save_steps=30),
        train_dataset=cases.Texts(500), eval_dataset=cases.Texts(400, seed=1), compute_metrics=accuracy, callbacks=[Watch()],
        max_grad_norm=1.0, noise_multiplier=None, epsilon=8, optimizers=(optimizer, None), in_workload=True,
    )  # fmt: skip
    result = trainer.train()
    # Chance is 0.5, with a standard deviation of 0.025 for 400 examples.
    assert trainer.evaluate()["eval_accuracy"] > 0.8
    assert result.global_step == trainer.run.steps == trainer.run.step == 100 and result.training_loss != result.training_loss
    assert trainer.run.epsilon <= 8.00001
    files = [json.loads(file.read_text()) for file in (tmp_path / "out").rglob("trainer_state.json")]
    assert files and len(trainer.state.log_history) > 40
    shown = seen + trainer.state.log_history + [result.metrics] + [entry for file in files for entry in file["log_history"]]
    assert not any(name in entry for entry in shown for name in ("loss", "train_loss", "num_input_tokens_seen"))
    assert "'loss'" not in capsys.readouterr().out
    assert all(torch.equal(frozen[name], p) for name, p in model.named_parameters() if not p.requires_grad)
    assert "eval_dataset" in trainer.statement() and "one Gaussian mechanism (optimal)" in trainer.statement()


@pytest.mark.long
def test_the_noise_of_step_t_is_row_t_and_the_end_is_the_end(cases, tmp_path):
    from transformers import TrainerCallback

    gradients = []

    class Watch(TrainerCallback):
        def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):
            gradients.append(torch.cat([p.grad.flatten() for p in model.parameters() if p.requires_grad]))

    trainer = cases.trainer_of(
        tmp_path, callbacks=[Watch()], compute_loss_func=lambda outputs, labels, num_items_in_batch=None: 0.0 * outputs.logits.sum()
    )
    trainer.train()
    # All gradients are zero: what is left is the noise.
    other = PrivateRun(
        trainer.run.mechanism, noise_multiplier=0.5, delta=1e-3, clip_norm=0.5, params=len(gradients[0]), key=Key.from_seed(1), units=cases.EXAMPLES
    )
    assert len(gradients) == cases.STEPS
    for step, gradient in enumerate(gradients):
        other.admit(trainer._private.order.batch(step))
        row = torch.from_numpy(other.row())
        assert torch.equal(gradient, (row.double() / cases.BATCH).float()), step
    last = next(iter(trainer.get_train_dataloader()))
    before = cases.trained(trainer.model)
    with pytest.raises(PrivacyError, match=f"step {cases.STEPS} is refused"):
        trainer.training_step(trainer.model, last)
    with pytest.raises(PrivacyError, match="a run is trained once"):
        trainer.train()
    assert torch.equal(before, cases.trained(trainer.model))


@pytest.mark.long
def test_it_trains_as_antiphon_torch_does(cases, tmp_path):
    """The same run by hand, bit for bit: Trainer's optimizer with its groups, its learning rates, dropout with the same random numbers."""
    from transformers import get_linear_schedule_with_warmup, set_seed

    from antiphon.torch import make_private

    trainer = cases.trainer_of(tmp_path, arguments=dict(weight_decay=0.1, seed=5, warmup_steps=3))
    trainer.train()

    model = cases.adapted().train()
    set_seed(5)
    ours = {name: p for name, p in model.named_parameters() if p.requires_grad}
    decayed = trainer.get_decay_parameter_names(model)
    groups = [
        {"params": [p for name, p in ours.items() if name in decayed], "weight_decay": 0.1},
        {"params": [p for name, p in ours.items() if name not in decayed], "weight_decay": 0.0},
    ]
    assert all(group["params"] for group in groups)
    optimizer = torch.optim.AdamW(groups, lr=0.01, fused=True)
    private = make_private(
        model, optimizer, cases.Texts(), compute_loss=lambda model, batch: model(**batch).loss, batch_size=cases.BATCH, epochs=cases.EPOCHS,
        noise_multiplier=0.5, delta=1e-3, max_grad_norm=0.5, key=Key.from_seed(1), shuffle_seed=5,
    )  # fmt: skip
    schedule = get_linear_schedule_with_warmup(optimizer, 3, cases.STEPS)
    from antiphon.hf._attention import always_masked

    with always_masked(model):
        for batch in private.loader:
            private.step(batch)
            schedule.step()
    assert torch.equal(cases.trained(model), cases.trained(trainer.model))


@pytest.mark.long
@pytest.mark.parametrize("kind", ["bert", "gpt"])
def test_vmap_with_masks_and_the_slow_way_agree(cases, tmp_path, kind):
    def trainer(per_example):
        torch.manual_seed(0)
        model = cases.bert(dropout=0.0) if kind == "bert" else cases.gpt()
        for module in model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
        data = cases.Texts()
        if kind == "gpt":
            data = [{**one, "labels": torch.where(one["attention_mask"] == 1, one["input_ids"], -100)} for one in data]
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        found = cases.trainer_of(tmp_path / per_example, model, dict(num_train_epochs=1), per_example=per_example, train_dataset=data,
                                 optimizers=(optimizer, None))  # fmt: skip
        assert model.config._attn_implementation == "sdpa"
        found.train()
        assert model.config._attn_implementation == "sdpa"
        return cases.trained(model)

    # Six steps of SGD with the same noise: differences are those of the order of float32 operations.
    assert (trainer("vmap") - trainer("loop")).abs().max() < 1e-5


@pytest.mark.long
def test_settings_that_are_allowed_work(cases, tmp_path):
    """Label smoothing, NEFTune, other optimizers, workers, the best model at the end: all of them only see gradients with noise, or one example."""

    def accuracy(prediction):
        return {"accuracy": float((prediction.predictions.argmax(1) == prediction.label_ids).mean())}

    for number, settings in enumerate([
        dict(label_smoothing_factor=0.1, neftune_noise_alpha=5.0), dict(optim="adafactor", dataloader_num_workers=2),
        dict(eval_strategy="epoch", save_strategy="epoch", load_best_model_at_end=True, metric_for_best_model="accuracy", save_total_limit=1),
    ]):  # fmt: skip
        folder = tmp_path / str(number)
        trainer = cases.trainer_of(folder, arguments=dict(num_train_epochs=2, **settings), eval_dataset=cases.Texts(seed=1), compute_metrics=accuracy)
        trainer.train()
        assert trainer.run.step == 12 and trainer.state.epoch == 2.0
    best = trainer.state.best_model_checkpoint
    assert best is not None and len(list(folder.glob("checkpoint-*/antiphon.pt"))) == 1


@pytest.mark.long
@pytest.mark.parametrize("at", [0, 5, 12, 23])
def test_a_resumed_run_ends_bit_identically(cases, tmp_path, at):
    """Before the first step, within an epoch, between epochs, before the last step."""
    straight = cases.trainer_of(tmp_path / "straight")
    straight.train()
    wanted = cases.trained(straight.model)

    from transformers import TrainerCallback

    class Stop(TrainerCallback):
        def on_step_begin(self, args, state, control, **kwargs):
            if state.global_step == max(at, 1):
                raise KeyboardInterrupt

    saving = dict(save_strategy="steps", save_steps=at or 24)
    first = cases.trainer_of(tmp_path / "out", arguments=saving, callbacks=[Stop()])
    with pytest.raises(KeyboardInterrupt):
        first.train()
    assert (tmp_path / "out" / f"checkpoint-{at}" / "antiphon.pt").exists()
    second = cases.trainer_of(tmp_path / "out", arguments=saving)
    second.train(resume_from_checkpoint=True)
    assert torch.equal(cases.trained(second.model), wanted)
    assert second.state.global_step == second.run.step == cases.STEPS


@pytest.mark.long
def test_what_cannot_be_resumed_is_refused(cases, tmp_path):
    key = tmp_path / "run.key"
    out = tmp_path / "out"
    saving = dict(save_strategy="steps", save_steps=6)

    def trainer(**changed):
        return cases.trainer_of(out, arguments={**saving, **changed.pop("arguments", {})}, key=key, **changed)

    with pytest.raises(ValueError, match="no whole checkpoint"):
        trainer().train(resume_from_checkpoint=True)
    trainer().train()
    assert sorted(path.parent.name for path in out.glob("*/antiphon.pt")) == sorted(f"checkpoint-{n}" for n in (0, 6, 12, 18, 24))
    secret = json.loads(key.read_text())["key"]
    assert len(secret) > 30 and not any(secret.encode() in path.read_bytes() for path in out.rglob("*") if path.is_file())
    with pytest.raises(ValueError, match="output_dir must have no checkpoints of another run"):
        trainer().train()
    with pytest.raises(PrivacyError, match="key"):  # a key begins one run
        cases.trainer_of(tmp_path / "other", key=key).train()
    with pytest.raises(PrivacyError):  # an earlier state than the last one that was kept
        trainer().train(resume_from_checkpoint=str(out / "checkpoint-6"))
    for changed in (dict(noise_multiplier=0.6), dict(max_grad_norm=1.0), dict(physical_batch_size=3), dict(arguments=dict(data_seed=9))):
        with pytest.raises((ValueError, PrivacyError)):
            trainer(**changed).train(resume_from_checkpoint=True)
    (out / "checkpoint-24" / "antiphon.pt").unlink()  # as if the process had ended while it was written
    with pytest.raises(ValueError, match="whole checkpoint"):
        trainer().train(resume_from_checkpoint=str(out / "checkpoint-24"))
    again = trainer()
    again.train(resume_from_checkpoint=True, repeat_noise=True)
    assert again.run.step == 24 and again._expected is None


@pytest.mark.long
def test_a_checkpoint_that_loses_parameters_is_refused(cases, tmp_path):
    def model():
        found = cases.adapted()
        found.base_model.model.bert.pooler.dense.weight.requires_grad_(True)  # peft does not save it
        return found

    saving = dict(save_strategy="steps", save_steps=5, num_train_epochs=1)
    cases.trainer_of(tmp_path, model(), saving).train()
    with pytest.raises(ValueError, match="did not bring back all trainable parameters"):
        cases.trainer_of(tmp_path, model(), saving).train(resume_from_checkpoint=str(tmp_path / "checkpoint-5"))


@pytest.mark.long
def test_killed_and_resumed_ends_bit_identically(cases, tmp_path):
    """Killed without warning, at a time of its own, until it ends by itself."""

    def start(folder):
        return subprocess.Popen([sys.executable, str(TESTS / "hf_cases.py"), str(folder)], stdout=subprocess.PIPE, text=True, cwd=TESTS)

    def end(process):
        """How it began, and its parameters."""
        return process.communicate()[0].splitlines()[-1].split()

    tmp_path.joinpath("a").mkdir()
    tmp_path.joinpath("b").mkdir()
    # The same key for both: the file as it was before either run began.
    Key.fresh(tmp_path / "a" / "run.key")
    (tmp_path / "b" / "run.key").write_bytes((tmp_path / "a" / "run.key").read_bytes())
    (tmp_path / "b" / "run.key").chmod(0o600)
    straight = end(start(tmp_path / "a"))
    assert straight[0] == "straight"
    for step in (3, 9, 15):
        process = start(tmp_path / "b")
        while not (tmp_path / "b" / "out" / f"checkpoint-{step}" / "adapter_model.safetensors").exists() and process.poll() is None:
            time.sleep(0.001)
        os.kill(process.pid, signal.SIGKILL)  # while the checkpoint is being written, or soon after
        process.communicate()
    resumed = end(start(tmp_path / "b"))
    assert resumed[0] == "resumed" and resumed[1] == straight[1] and len(resumed[1]) > 1000


@pytest.mark.long
def test_the_example_runs(cases, tmp_path):
    example = TESTS.parent / "examples" / "hf_adapters.py"
    done = subprocess.run([sys.executable, str(example)], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    before, after = (float(line.rpartition(" ")[2]) for line in done.stdout.splitlines() if line.startswith("private task"))
    # Chance is 0.25; it was 0.78.
    assert before < 0.4 and after > 0.6 and "differentially private" in done.stdout
