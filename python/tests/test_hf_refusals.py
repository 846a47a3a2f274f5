"""What PrivateTrainer refuses, and that an example does not depend on the others."""

import importlib

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional as F  # noqa: E402

from antiphon import Key, PrivacyError  # noqa: E402

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def cases():
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    pytest.importorskip("peft")
    torch.set_num_threads(1)
    return importlib.import_module("hf_cases")


@pytest.mark.parametrize(
    "setting",
    [
        dict(max_grad_norm=1.0),
        dict(gradient_accumulation_steps=2),
        dict(max_steps=10),
        dict(num_train_epochs=2.5),
        dict(num_train_epochs=0.5),
        dict(train_sampling_strategy="group_by_length"),
        dict(train_sampling_strategy="sequential"),
        dict(dataloader_drop_last=True),
        dict(dataloader_in_order=False),
        dict(ignore_data_skip=True),
        dict(auto_find_batch_size=True),
        dict(bf16=True),
        dict(torch_compile=True),
        dict(activation_checkpointing=True),
        dict(enable_jit_checkpoint=True),
        dict(include_num_input_tokens_seen="non_padding"),
        dict(debug="underflow_overflow"),
    ],
    ids=lambda setting: "-".join(map(str, *setting.items())),
)
def test_settings_are_refused_by_name(cases, tmp_path, setting):
    name = next(iter(setting))
    with pytest.raises(ValueError, match=f"TrainingArguments.{name} must be"):
        cases.trainer_of(tmp_path, arguments=setting)


def test_the_default_clipping_of_the_trainer_is_refused(cases, tmp_path):
    from transformers import TrainingArguments

    from antiphon.hf import PrivateTrainer

    with pytest.raises(ValueError, match="must be 0 for private training, got 1.0: it would clip after the noise"):
        PrivateTrainer(
            cases.adapted(), TrainingArguments(str(tmp_path), use_cpu=True), train_dataset=cases.Texts(), epsilon=8, delta=1e-3, max_grad_norm=1.0,
            key=Key.from_seed(1),
        )  # fmt: skip


def test_settings_that_change_later_are_refused_too(cases, tmp_path):
    trainer = cases.trainer_of(tmp_path)
    trainer.args.gradient_accumulation_steps = 2
    with pytest.raises(ValueError, match="gradient_accumulation_steps must be 1"):
        trainer.train()
    assert trainer.run.step == 0


def test_several_devices_are_refused(cases, tmp_path):
    trainer = cases.trainer_of(tmp_path)
    trainer.args._n_gpu = 2
    with pytest.raises(ValueError, match="one device"):
        trainer.train()
    trainer = cases.trainer_of(tmp_path)
    with pytest.raises(ValueError, match="something wrapped it"):
        trainer.training_step(torch.nn.DataParallel(trainer.model), next(iter(trainer.get_train_dataloader())))


def test_what_would_be_published_is_refused(cases, tmp_path):
    for name in ("key", "log"):
        with pytest.raises(PrivacyError, match=f"{name} must be a file outside"):
            cases.trainer_of(tmp_path / "out", **{name: tmp_path / "out" / "secret"})
    assert not (tmp_path / "out" / "secret").exists()
    (tmp_path / "out").mkdir(exist_ok=True)
    (tmp_path / "out" / "other.json").write_text("{}")
    key = Key.fresh(tmp_path / "out" / "run.key")
    with pytest.raises(PrivacyError, match="key must be in a file outside .*run.key"):
        cases.trainer_of(tmp_path / "out", key=key)
    trainer = cases.trainer_of(tmp_path)
    trainer.args.push_to_hub, trainer.args.hub_strategy = True, "all_checkpoints"
    with pytest.raises(PrivacyError, match="hub_strategy"):
        trainer.train()


def test_evaluation_on_the_training_examples_is_refused(cases, tmp_path):
    data = cases.Texts()
    for evaluated in (data, {"other": cases.Texts(), "same": data}, torch.utils.data.Subset(data, range(5))):
        with pytest.raises(PrivacyError, match="evaluation on train_dataset is refused"):
            cases.trainer_of(tmp_path, train_dataset=data, eval_dataset=evaluated)
    # Parts of one data set: those that have no example in common may be evaluated.
    Subset, Concat = torch.utils.data.Subset, torch.utils.data.ConcatDataset
    train = Subset(data, range(20))
    overlapping = [data, Subset(data, range(19, 30)), Subset(train, [3]), Subset(Subset(data, range(10, 40)), [5, 25]), Concat([cases.Texts(), train])]
    for evaluated in overlapping:
        with pytest.raises(PrivacyError, match="evaluation on train_dataset is refused"):
            cases.trainer_of(tmp_path, train_dataset=train, eval_dataset=evaluated)
    cases.trainer_of(tmp_path, train_dataset=train, eval_dataset=Subset(data, range(20, 44)), mechanism="tree-online")
    trainer = cases.trainer_of(tmp_path, train_dataset=data)
    for call in (trainer.evaluate, trainer.predict):
        with pytest.raises(PrivacyError, match="evaluation on train_dataset is refused"):
            call(data)
    # What else is evaluated is not known here: the statement says so.
    assert "evaluations" not in trainer.statement()
    trainer.predict(cases.Texts(8, seed=1))
    assert "of other evaluations, whose metrics get no noise" in trainer.statement()


def test_several_runs_are_refused(cases, tmp_path):
    trainer = cases.trainer_of(tmp_path)
    with pytest.raises(PrivacyError, match="covers one run"):
        trainer.hyperparameter_search()
    with pytest.raises(PrivacyError, match="covers one run"):
        trainer.train(trial={"learning_rate": 1.0})
    from antiphon.hf import PrivateTrainer

    with pytest.raises(ValueError, match="model must be given, got model_init"):
        PrivateTrainer(None, cases.arguments_of(tmp_path), model_init=lambda: cases.adapted(), train_dataset=cases.Texts(), epsilon=8, delta=1e-3,
                       max_grad_norm=1.0, key=Key.from_seed(1))  # fmt: skip


def test_data_of_another_order_are_refused(cases, tmp_path):
    from transformers import TrainerCallback

    class NextEpoch(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            control.should_epoch_stop = state.global_step == 3

    trainer = cases.trainer_of(tmp_path, callbacks=[NextEpoch()])
    with pytest.raises(PrivacyError):
        trainer.train()
    assert trainer.run.step == 3
    with pytest.raises(PrivacyError, match="without indices"):
        trainer.training_step(trainer.model, next(iter(torch.utils.data.DataLoader(cases.Texts(), batch_size=8))))
    trainer = cases.trainer_of(tmp_path)
    trainer.train_dataset = cases.Texts()
    with pytest.raises(PrivacyError, match="replaced"):
        trainer.train()
    for wrong in (None, torch.utils.data.Subset(cases.Texts(), [0, 0])):
        with pytest.raises(ValueError, match="dataset must"):
            cases.trainer_of(tmp_path, train_dataset=wrong)


def test_a_batch_that_is_padded_to_its_longest_text_is_refused(cases, tmp_path):
    """What a collator makes of one text must not depend on the others: here it sees one, and the lengths differ."""
    sizes = []

    def to_the_longest(features):
        sizes.append(len(features))
        longest = max(int(one["attention_mask"].sum()) for one in features)
        return {name: torch.stack([one[name][:longest] if one[name].ndim else one[name] for one in features]) for name in features[0]}

    with pytest.raises(ValueError, match="pad to a fixed length"):
        cases.trainer_of(tmp_path, data_collator=to_the_longest).train()
    assert set(sizes) == {1}


def test_models_that_mix_or_keep_examples_and_hooks_are_refused(cases, tmp_path):
    model = cases.bert()
    model.bert.pooler.activation = torch.nn.Sequential(torch.nn.BatchNorm1d(16), torch.nn.Tanh())
    model.eval()  # the Trainer would put it back into training mode
    with pytest.raises(ValueError, match="BatchNorm1d"):
        cases.trainer_of(tmp_path, model)
    trainer = cases.trainer_of(tmp_path)
    next(p for p in trainer.model.parameters() if p.requires_grad).register_hook(print)
    with pytest.raises(PrivacyError, match="a hook on the parameter"):
        trainer.train()


def test_a_checkpoint_within_a_step_is_refused(cases, tmp_path):
    from transformers import TrainerCallback

    class Save(TrainerCallback):
        def on_pre_optimizer_step(self, args, state, control, **kwargs):
            trainer._save_checkpoint(trainer.model, None)

    trainer = cases.trainer_of(tmp_path, callbacks=[Save()])
    with pytest.raises(PrivacyError, match="a checkpoint within a step"):
        trainer.train()


def test_the_loss_of_a_text_is_the_mean_over_its_own_tokens(cases, tmp_path):
    """Trainer divides by the number of tokens of the batch: an example would depend on the others. By hand, with antiphon.torch."""
    from antiphon.torch import make_private

    data = [{"input_ids": one["input_ids"], "labels": torch.where(one["attention_mask"] == 1, one["input_ids"], -100)} for one in cases.Texts()]

    def model_and_optimizer():
        model = cases.gpt()
        for module in model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
        return model, torch.optim.SGD(model.parameters(), lr=0.1)

    def loss_of(model, batch):
        logits = model(batch["input_ids"]).logits
        return F.cross_entropy(logits[0, :-1], batch["labels"][0, 1:])

    model, optimizer = model_and_optimizer()
    arguments = dict(num_train_epochs=1, lr_scheduler_type="constant", seed=3)
    trainer = cases.trainer_of(tmp_path, model, arguments, train_dataset=data, optimizers=(optimizer, None))
    assert trainer.model_accepts_loss_kwargs  # so Trainer would pass the number of tokens of the batch
    trainer.train()
    by_hand, optimizer = model_and_optimizer()
    private = make_private(
        by_hand.train(), optimizer, data, compute_loss=loss_of, batch_size=cases.BATCH, epochs=1, noise_multiplier=0.5, delta=1e-3, max_grad_norm=0.5,
        key=Key.from_seed(1), shuffle_seed=3,
    )  # fmt: skip
    for batch in private.loader:
        private.step(batch)
    # Six steps with the same noise, the same loss in other words: differences are those of float32.
    assert (cases.trained(by_hand) - cases.trained(model)).abs().max() < 1e-5
    assert len({id(p) for p in model.parameters()}) == len(list(model.parameters())) and model.lm_head.weight is model.transformer.wte.weight


def test_a_loss_that_logs_is_refused(cases, tmp_path):
    from antiphon.hf import PrivateTrainer

    class Talks(PrivateTrainer):
        def compute_loss(self, *args, **kwargs):
            loss = super().compute_loss(*args, **kwargs)
            self.log({"my_loss": 0.5})
            return loss

    trainer = Talks(
        cases.adapted(), cases.arguments_of(tmp_path), train_dataset=cases.Texts(), noise_multiplier=0.5, delta=1e-3, max_grad_norm=0.5,
        key=Key.from_seed(1), per_example="loop",
    )  # fmt: skip
    with pytest.raises(PrivacyError, match="within a step is refused.*my_loss"):
        trainer.train()
    assert trainer.run.step == 0 and not trainer.state.log_history
