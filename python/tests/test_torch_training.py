"""Private training of PyTorch models: a step, a run, its order."""

import json
import subprocess

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.utils.data import Dataset  # noqa: E402
from torch_cases import data_of, model_of, parameters_of, private_of  # noqa: E402

import antiphon  # noqa: E402
from antiphon import Key, PrivacyError  # noqa: E402
from antiphon.torch import Batch, FixedOrderBatches  # noqa: E402


def test_a_step_is_clip_sum_noise_divide():
    """The loop written out with NumPy's view of everything."""
    dataset, model = data_of(), model_of()
    private = private_of(model, dataset=dataset, epochs=2)
    reference = model_of()
    optimizer = torch.optim.SGD(reference.parameters(), lr=0.1, momentum=0.9)
    run = antiphon.PrivateRun(
        antiphon.optimize(antiphon.Schema.epochs(2, 6)), noise_multiplier=0.5, delta=1e-3, clip_norm=0.5, params=53, key=Key.from_seed(1)
    )
    for step, batch in enumerate(private.loader):
        assert isinstance(batch, Batch) and batch.indices.tolist() == private.order.batch(step)
        total = np.zeros(53)
        for index in batch.indices.tolist():
            x, y = dataset[index]
            reference.zero_grad()
            nn.functional.cross_entropy(reference(x[None]), y[None]).backward()
            gradient = torch.cat([p.grad.flatten() for p in reference.parameters()]).double().numpy()
            total += gradient * min(1.0, 0.5 / np.linalg.norm(gradient))
        run.admit(batch.indices)
        run.privatize(total)
        first = 0
        for p in reference.parameters():
            p.grad = torch.from_numpy(total[first : first + p.numel()] / 4).reshape(p.shape).float()
            first += p.numel()
        optimizer.step()
        private.step(batch)
        assert torch.allclose(parameters_of(model), parameters_of(reference), atol=1e-5), step
    assert private.run.step == 12 == private.run.steps
    assert list(private.loader) == [] and len(private.loader) == 0
    with pytest.raises(PrivacyError, match="step 12 is refused: the run has 12 steps"):
        private.step(batch)


def test_accumulation_threads_and_workers_change_nothing():
    def trained(how, **changed):
        model = model_of()
        private = private_of(model, **changed)
        for batch in private.loader:
            how(private, batch)
        return parameters_of(model)

    def parts(private, batch):
        x, y = batch.data
        for first in range(0, len(x), 3):
            private.accumulate((x[first : first + 3], y[first : first + 3]), indices=batch.indices[first : first + 3])
        private.step()

    one = trained(lambda private, batch: private.step(batch), physical_batch_size=1)
    assert torch.equal(one, trained(lambda private, batch: private.step(batch), physical_batch_size=1, num_workers=2))
    for how, size in [(lambda private, batch: private.step(batch), 4), (lambda private, batch: private.step(batch), 3), (parts, 2)]:
        assert torch.allclose(one, trained(how, physical_batch_size=size), atol=1e-6)


def test_any_optimizer_and_scheduler():
    for make in [torch.optim.Adam, torch.optim.AdamW, torch.optim.Adagrad, torch.optim.RMSprop, lambda p: torch.optim.SGD(p, lr=0.1, nesterov=True, momentum=0.9)]:
        model = model_of()
        optimizer = make(model.parameters())
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 18)
        before = parameters_of(model)
        private = private_of(model, optimizer)
        for batch in private.loader:
            private.step(batch)
            scheduler.step()
        assert not torch.equal(parameters_of(model), before) and parameters_of(model).isfinite().all()


def test_other_losses_and_inputs():
    class Dicts(Dataset):
        def __len__(self):
            return 24

        def __getitem__(self, i):
            x, y = data_of()[i]
            return {"input": x, "label": y}

    def compute_loss(model, batch):
        return nn.functional.cross_entropy(model(batch["input"]), batch["label"])

    model, pairs = model_of(), model_of()
    private, same = private_of(model, dataset=Dicts(), loss_fn=None, compute_loss=compute_loss), private_of(pairs)
    for batch, other in zip(private.loader, same.loader):
        private.step(batch)
        same.step(other)
    assert torch.equal(parameters_of(model), parameters_of(pairs))
    with pytest.raises(ValueError, match="examples must be pairs"):
        private = private_of(dataset=Dicts())
        private.step(next(iter(private.loader)))
    with pytest.raises(ValueError, match="must be one number, got a tensor of shape"):
        private = private_of(loss_fn=lambda output, target: output)
        private.step(next(iter(private.loader)))


def test_in_workload_reads_the_optimizer():
    rates = np.linspace(1.0, 0.1, 18).tolist()
    private = private_of(in_workload=True, learning_rates=rates)
    assert "momentum 0.9" in private.run.mechanism.workload
    expected = antiphon.optimize(antiphon.Schema.epochs(3, 6), momentum=0.9, learning_rates=rates)
    assert private.run.mechanism.id == expected.id
    model = model_of()
    for optimizer, message in [
        (torch.optim.Adam(model.parameters()), "optimizer must be torch.optim.SGD for in_workload=True.*got Adam"),
        (torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True), "no Nesterov"),
    ]:
        with pytest.raises(ValueError, match=message):
            private_of(model, optimizer, in_workload=True)
    with pytest.raises(ValueError, match="learning_rates must be given with in_workload=True"):
        private_of(learning_rates=rates)


def test_epsilon_is_that_of_the_command_line(binary, tmp_path):
    private = private_of(delta=1e-6, noise_multiplier=0.83)
    private.run.mechanism.save(tmp_path / "m.safetensors")
    command = [binary, "account", tmp_path / "m.safetensors", "--noise-multiplier", "0.83", "--delta", "1e-6", "--json"]
    found = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    assert private.epsilon == found["epsilon_upper"]
    text = private.statement()
    for words in ["one Gaussian mechanism (optimal)", "zero-out", "3 epochs with the same batches in the same order", "Not covered"]:
        assert words in text
    assert "was clipped" not in text, "it clips itself"
    assert "Not checked: that what the data set gives" in text and "belong to the data" not in text
    x, y = data_of().tensors
    private.step((x[:4], y[:4]), indices=range(4))
    assert "belong to the data given with them" in private.statement()
    other = private_of(delta=1e-6, noise_multiplier=0.83)
    other.load_state_dict(private.state_dict())
    assert "belong to the data given with them" in other.statement()


def test_the_order_is_fixed_and_goes_on():
    order = FixedOrderBatches(11, batch_size=3, epochs=2, seed=5)
    batches = list(order)
    assert batches[:4] == batches[4:] and sorted(sum(batches[:4], [])) == list(range(11))
    assert list(FixedOrderBatches(11, 3, 2, seed=6)) != batches
    assert list(FixedOrderBatches(5, 2, 1, shuffle=False)) == [[0, 1], [2, 3], [4]]
    order.position = 5
    again = FixedOrderBatches(11, 3, 2, seed=5)
    again.load_state_dict(order.state_dict())
    assert list(again) == batches[5:] and len(again) == 3
    with pytest.raises(ValueError, match="seed was 5 and is 6"):
        FixedOrderBatches(11, 3, 2, seed=6).load_state_dict(order.state_dict())
    with pytest.raises(ValueError, match="position must be in 0..=8, got 9"):
        again.load_state_dict({**order.state_dict(), "position": 9})
