"""Private training of PyTorch models."""

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

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, Dataset, TensorDataset  # noqa: E402

import antiphon  # noqa: E402
from antiphon import Clip, Key, PrivacyError  # noqa: E402
from antiphon.torch import Batch, FixedOrderBatches, PerExampleGradients, add_clipped, make_private  # noqa: E402
from antiphon.torch._gradients import add_clipped_by_torch, of_pairs  # noqa: E402


def data_of(examples=24, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return TensorDataset(torch.randn(examples, 6, generator=generator), torch.randint(0, 3, (examples,), generator=generator))


def model_of(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))


def private_of(model=None, optimizer=None, dataset=None, loss_fn=nn.functional.cross_entropy, **changed):
    model = model or model_of()
    optimizer = optimizer or torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1, momentum=0.9)
    settings = dict(batch_size=4, epochs=3, noise_multiplier=0.5, delta=1e-3, max_grad_norm=0.5)
    settings.setdefault("key", changed.pop("key", None) or Key.from_seed(1))
    settings.update(changed)
    return make_private(model, optimizer, data_of() if dataset is None else dataset, loss_fn, **settings)


def parameters_of(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


# Gradients and sums.


class Tied(nn.Module):
    """One weight with two names, a buffer, a residual, a norm."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6)
        self.second.weight = self.first.weight
        self.norm = nn.LayerNorm(6)
        self.register_buffer("offset", torch.full((6,), 0.1))

    def forward(self, x):
        return self.norm(self.second(torch.relu(self.first(x))) + x + self.offset)[:, :3]


@pytest.mark.parametrize("make", [model_of, lambda: Tied(), lambda: nn.Sequential(nn.Unflatten(1, (1, 6)), nn.Conv1d(1, 2, 3), nn.GroupNorm(1, 2), nn.Flatten(), nn.Linear(8, 3))])
def test_vmap_is_the_loop(make):
    model, (x, y) = make(), data_of(7).tensors
    loss = of_pairs(nn.functional.cross_entropy)
    loop = list(PerExampleGradients(model, loss, method="loop").chunks((x, y), 7))
    slow = [torch.cat([chunk[i] for chunk in loop]) for i in range(len(loop[0]))]
    for size in [1, 3, 7, 100]:
        chunks = list(PerExampleGradients(model, loss, physical_batch_size=size).chunks((x, y), 7))
        assert [chunk[0].shape[0] for chunk in chunks] == {1: [1] * 7, 3: [3, 3, 1], 7: [7], 100: [7]}[size]
        fast = [torch.cat([chunk[i] for chunk in chunks]) for i in range(len(chunks[0]))]
        assert len(fast) == len(list(model.parameters()))
        for a, b in zip(fast, slow):
            assert torch.allclose(a, b, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rust_and_torch_clip_the_same(dtype):
    generator = torch.Generator().manual_seed(2)
    gradients = [torch.randn(9, *shape, generator=generator, dtype=dtype) for shape in [(3, 4), (), (50_000,), (2, 2, 2)]]
    for gradient in gradients:
        gradient[::3] *= 1e-4  # some are short
    gradients[0][4, 0, 0] = torch.inf
    gradients[3][5, 0, 0, 0] = torch.nan
    count = sum(g[0].numel() for g in gradients)
    clip = Clip(0.3, params=count)
    totals = torch.zeros(2, count, dtype=torch.float64)
    add_clipped(clip, gradients, totals[0])
    add_clipped_by_torch(clip, gradients, totals[1])
    # Norms are added up in another order, so that factors may differ in the last bits, and roundings to the grid by one unit.
    assert (totals[0] - totals[1]).abs().max() <= 9 * clip.unit
    # Those with an entry that is not finite contribute nothing; the others their share.
    finite = [g[[0, 1, 2, 3, 6, 7, 8]] for g in gradients]
    alone = torch.zeros(count, dtype=torch.float64)
    add_clipped(clip, finite, alone)
    assert torch.equal(alone, totals[0])
    assert torch.equal(totals[0] / clip.unit, (totals[0] / clip.unit).round())


def exact_norm_at_most(difference, unit, limit):
    """Whether the norm is at most the limit, in exact arithmetic: differences are whole numbers of units."""
    from fractions import Fraction

    steps = (difference / unit).tolist()
    assert all(step == int(step) for step in steps)
    return sum(int(step) ** 2 for step in steps) <= (Fraction(limit) / Fraction(unit)) ** 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("size", [1, 5, 16])
def test_one_example_moves_the_sum_by_at_most_the_clip_norm(dtype, size):
    """Zero-out of each example in turn: the sums differ by exactly its own contribution, whatever the others are."""
    model = model_of().to(dtype)
    (x, y), clip_norm = data_of(16).tensors, 0.1

    def weighted(module, batch):
        x, y, weight = batch
        return (nn.functional.cross_entropy(module(x), y, reduction="none") * weight).sum()

    gradients = PerExampleGradients(model, weighted, physical_batch_size=size)
    clip = Clip(clip_norm, params=53)

    def total(without=None):
        weight = torch.full((16,), 1000.0, dtype=dtype)
        if without is not None:
            weight[without] = 0.0
        found = torch.zeros(53, dtype=torch.float64)
        for chunk in gradients.chunks((x.to(dtype), y, weight), 16):
            add_clipped(clip, chunk, found)
        return found

    whole = total()
    for example in range(16):
        difference = whole - total(without=example)
        assert difference.norm() > 0.99 * clip_norm
        assert exact_norm_at_most(difference, clip.unit, clip_norm)


# A whole run.


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


def test_frozen_before_is_fine_and_midway_is_refused():
    model = model_of()
    model[0].requires_grad_(False)
    frozen = model[0].weight.detach().clone()
    private = private_of(model)
    assert private.run.coordinates == 18
    batches = iter(private.loader)
    private.step(next(batches))
    assert torch.equal(model[0].weight, frozen) and model[0].weight.grad is None
    model[0].requires_grad_(True)
    with pytest.raises(PrivacyError, match="trainable parameters of the model changed after make_private.*0.bias"):
        private.step(next(batches))
    model[0].requires_grad_(False)
    model.add_module("more", nn.Linear(3, 3))
    with pytest.raises(PrivacyError, match="more.bias"):
        private.step(next(batches))
    del model.more
    model[2].weight = nn.Parameter(torch.zeros(3, 5))
    with pytest.raises(PrivacyError, match="2.weight"):
        private.step(next(batches))
    assert private.run.step == 1


def test_a_loader_of_ones_own_needs_indices_and_a_fixed_order():
    class Indexed(Dataset):
        def __init__(self, dataset):
            self.dataset = dataset

        def __len__(self):
            return len(self.dataset)

        def __getitem__(self, i):
            return i, *self.dataset[i]

    torch.manual_seed(0)
    shuffled = DataLoader(Indexed(data_of()), batch_size=4, shuffle=True)
    private = private_of()
    steps = 0
    with pytest.raises(PrivacyError, match="would take part in a way that the privacy statement does not cover"):
        for _ in range(3):
            for indices, x, y in shuffled:
                private.step((x, y), indices=indices)
                steps += 1
    assert steps == 6, "stopped at the first step of the second epoch"
    assert private.run.step == 6
    # A fixed order of one's own is as good as ours.
    private, fixed = private_of(), DataLoader(Indexed(data_of()), batch_size=4)
    for _ in range(3):
        for indices, x, y in fixed:
            private.step([x, y], indices=indices)
    assert private.run.step == private.run.steps
    x, y = data_of().tensors
    with pytest.raises(PrivacyError, match="a batch without indices is refused"):
        private_of().step((x[:4], y[:4]))
    with pytest.raises(ValueError, match="data must have 3 examples, one per index, got \\[4\\]"):
        private_of().step((x[:4], y[:4]), indices=[0, 1, 2])
    with pytest.raises(ValueError, match="dataset must be a data set, got a DataLoader"):
        private_of(dataset=fixed)


def test_an_exception_halfway_leaves_nothing_behind():
    broken = []

    def loss(output, target):
        if broken:
            raise RuntimeError("broken")
        return nn.functional.cross_entropy(output, target)

    model, other = model_of(), model_of()
    private, straight = private_of(model, loss_fn=loss), private_of(other)
    for step, (batch, same) in enumerate(zip(private.loader, straight.loader)):
        if step == 3:
            broken.append(True)
            with pytest.raises(RuntimeError, match="broken"):
                private.step(batch)
            broken.clear()
        private.step(batch)
        straight.step(same)
    assert torch.equal(parameters_of(model), parameters_of(other))


def test_what_fails_in_the_optimizer_or_between_parts_is_not_in_the_next_sum(monkeypatch):
    private = private_of()
    x, y = data_of().tensors
    batches = [private.order.batch(step) for step in range(3)]
    monkeypatch.setattr(private.optimizer, "step", lambda: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        private.step((x[batches[0]], y[batches[0]]), indices=batches[0])
    assert private._total.abs().max() == 0 and private._indices == [] and private.run.step == 1
    # A part, then one that fails: both are forgotten.
    private.accumulate((x[batches[1][:2]], y[batches[1][:2]]), indices=batches[1][:2])
    with pytest.raises(RuntimeError, match="out of bounds"):
        private.accumulate((x[batches[1][2:]], y[batches[1][2:]] + 100), indices=batches[1][2:])
    assert private._total.abs().max() == 0 and private._indices == []
    with pytest.raises(ValueError, match="batch must be given, or accumulate"):
        private.step()
    # The same example in two parts.
    for _ in range(2):
        private.accumulate((x[:1], y[:1]), indices=[batches[1][0]])
    with pytest.raises(PrivacyError, match="twice"):
        private.step()
    assert private.run.step == 1 and private._indices == []


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


def test_wrong_arguments():
    batch_norm = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Linear(5, 3))
    instance_norm = nn.Sequential(nn.Unflatten(1, (1, 6)), nn.InstanceNorm1d(1, track_running_stats=True), nn.Flatten(), nn.Linear(6, 3))
    model, other = model_of(), model_of()
    for changed, message in [
        (dict(batch_size=0), "batch_size must be a whole number in 1..=24, got 0"),
        (dict(batch_size=25), "batch_size must be a whole number in 1..=24, got 25"),
        (dict(batch_size=2.5), "batch_size must be a whole number"),
        (dict(epochs=0), "epochs must be a whole number, at least 1, got 0"),
        (dict(noise_multiplier=None, epsilon=-1), "epsilon must be in \\(0, ∞\\), got -1"),
        (dict(noise_multiplier=None), "epsilon or noise_multiplier must be given, one of them, got neither"),
        (dict(epsilon=1.0), "epsilon or noise_multiplier must be given, one of them, got both"),
        (dict(delta=1.5), "delta must be in \\(0, 1\\), got 1.5"),
        (dict(max_grad_norm=-1.0), "max_grad_norm must be a number in \\[1e-30, 1e30\\], got -1"),
        (dict(physical_batch_size=0), "physical_batch_size must be a whole number, at least 1, got 0"),
        (dict(mechanism="best"), "mechanism must be one of identity, .*got 'best'"),
        (dict(mechanism=antiphon.optimize(antiphon.Schema.epochs(2, 6))), "mechanism must be for 18 steps \\(3 epochs of 6\\), got one for 12"),
        (dict(per_example="hooks"), 'per_example must be "vmap" or "loop"'),
        (dict(loss_fn=None), "loss_fn or compute_loss must be given"),
        (dict(model=batch_norm), "got BatchNorm1d at 1: its statistics make the gradient of one example depend on all others"),
        (dict(model=instance_norm), "got InstanceNorm1d with track_running_stats"),
        (dict(model=nn.Sequential(nn.Embedding(3, 3, sparse=True))), "got Embedding with sparse=True"),
        (dict(model=nn.Sequential(nn.LazyLinear(3)), optimizer=torch.optim.SGD(model.parameters())), "got the lazy parameter 0.weight"),
        (dict(model=nn.Identity(), optimizer=torch.optim.SGD(model.parameters())), "at least one parameter that requires a gradient"),
        (dict(model=model, optimizer=torch.optim.LBFGS(model.parameters())), "got LBFGS"),
        (dict(model=model, optimizer=torch.optim.SGD(model[0].parameters())), "got one without 2.weight, 2.bias"),
        (dict(model=model, optimizer=torch.optim.SGD([*model.parameters(), *other.parameters()])), "no trainable parameters outside the model, got 4"),
        (dict(loss_fn=3), "loss_fn must be a function, got 3"),
        (dict(noise_memory=-1), "noise_memory must be a whole number in"),
        (dict(shuffle_seed=-1), "shuffle_seed must be a whole number in"),
        (dict(model=nn.Sequential(nn.Embedding(9, 3, max_norm=1.0))), "must not write to its weights while it computes, got Embedding with max_norm"),
        (dict(dataset=TensorDataset(torch.zeros(0, 6))), "dataset must have at least one example"),
        (dict(dataset=torch.utils.data.Subset(data_of(), [0, 1, 2, 0])), "dataset must have every example once, got a Subset"),
        (dict(dataset=torch.utils.data.ConcatDataset([again := data_of(), again])), "dataset must have every example once, got a ConcatDataset"),
        (dict(dataset=iter([])), "dataset must have a length and examples by index"),
    ]:
        with pytest.raises(ValueError, match=message):
            private_of(**changed)
    batch_norm.eval()
    private = private_of(batch_norm)
    batches = iter(private.loader)
    private.step(next(batches))
    batch_norm.train()
    with pytest.raises(ValueError, match="BatchNorm1d"):
        private.step(next(batches))
    with pytest.raises(ValueError, match="at most 12000 steps for the optimal mechanism, got 24000"):
        private_of(epochs=4000)


class Keeps(nn.Module):
    """Something of what it saw, in one way or another."""

    def __init__(self, how):
        super().__init__()
        self.linear, self.how, self.seen, self.inner = nn.Linear(6, 3), how, torch.zeros(6), {"list": []}
        self.register_buffer("mean", torch.zeros(6))

    def forward(self, x):
        if self.how == "attribute":
            self.seen = x.detach().mean(0)
        elif self.how == "container":
            self.inner["list"] = [x.detach()]
        elif self.how == "buffer":
            self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)
        elif self.how == "in place":
            self.mean.lerp_(x.detach().mean(0), 0.1)
        elif self.how == "data":
            self.mean.data.mul_(0.9).add_(x.detach().mean(0))
        elif self.how == "weight data":
            self.linear.weight.data.add_(1e-3 * x.mean())
        elif self.how == "weight":
            with torch.no_grad():
                self.linear.weight.mul_(1 + 1e-3 * x.mean())
        return self.linear(x)


@pytest.mark.parametrize("per_example", ["vmap", "loop"])
@pytest.mark.parametrize("how", ["attribute", "container", "buffer", "in place", "data", "weight data", "weight"])
def test_models_that_keep_something_of_examples_are_refused(how, per_example):
    private = private_of(Keeps(how), per_example=per_example)
    fails = (PrivacyError, RuntimeError) if per_example == "vmap" else PrivacyError
    with pytest.raises(fails) as error:
        private.step(next(iter(private.loader)))
    if isinstance(error.value, PrivacyError):
        assert "kept something of the examples" in str(error.value)
    assert private.run.step == 0
    private_of(Keeps("nothing"), per_example=per_example).step(next(iter(private.loader)))


def test_a_collate_function_sees_one_example_at_a_time():
    class Texts(Dataset):
        def __len__(self):
            return 24

        def __getitem__(self, i):
            return torch.ones(1 + i % 5), data_of()[i][1]

    def longest(examples):
        return nn.utils.rnn.pad_sequence([x for x, _ in examples], batch_first=True), torch.stack([y for _, y in examples])

    def fixed(examples):
        assert len(examples) == 1
        return torch.stack([nn.functional.pad(x, (0, 6 - len(x))) for x, _ in examples]), torch.stack([y for _, y in examples])

    with pytest.raises(ValueError, match="pad to a fixed length, because the longest example of a batch is private"):
        next(iter(private_of(dataset=Texts(), collate_fn=longest).loader))
    private = private_of(dataset=Texts(), collate_fn=fixed)
    for batch in private.loader:
        private.step(batch)


def test_no_gradient_without_noise_reaches_the_optimizer():
    model, (x, y) = model_of(), data_of().tensors
    nn.functional.cross_entropy(model(x), y).backward()
    model[0].requires_grad_(False)
    frozen = model[0].weight.detach().clone()
    private = private_of(model, torch.optim.SGD(model.parameters(), lr=0.1))
    for batch in private.loader:
        private.step(batch)
    assert torch.equal(model[0].weight, frozen)
    for make in [lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), torch.optim.Adam]:
        model = model_of()
        optimizer = make(model.parameters())
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        with pytest.raises(ValueError, match="optimizer must be new, got one with a state of 4 parameters"):
            private_of(model, optimizer)


def test_an_interrupt_between_noise_and_update_stops_nothing(monkeypatch):
    """As Ctrl-C: raised when the noise is drawn, or before."""
    private = private_of()

    class Interrupted:
        def __init__(self, run, when):
            self.run, self.when = run, when

        def __getattr__(self, name):
            return getattr(self.run, name)

        def privatize(self, total):
            if self.when == "after":
                self.run.privatize(total)
            raise KeyboardInterrupt

    for when in ["before", "after"]:
        real = private.run
        private.run = Interrupted(real, when)
        with pytest.raises(KeyboardInterrupt):
            private.step(next(iter(private.loader)))
        private.run = real
        assert private.order.position == private.run.step
        private.state_dict()
    for batch in private.loader:
        private.step(batch)
    assert private.run.step == private.run.steps


class Item(nn.Module):
    """Control flow that depends on the data."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 3)

    def forward(self, x):
        return self.linear(x) * (2.0 if x.sum().item() > 0 else 1.0)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru, self.linear = nn.GRU(2, 4, batch_first=True), nn.Linear(4, 3)

    def forward(self, x):
        return self.linear(self.gru(x.unflatten(1, (3, 2)))[0][:, -1])


@pytest.mark.parametrize("make", [Item, Recurrent])
def test_modules_that_vmap_cannot_handle_have_another_way(make):
    private = private_of(make())
    with pytest.raises(RuntimeError) as error:
        private.step(next(iter(private.loader)))
    assert any('per_example="loop"' in note for note in error.value.__notes__)
    private = private_of(make(), per_example="loop")
    for batch in private.loader:
        private.step(batch)
    # What is wrong without vmap too is not blamed on it.
    private = private_of(nn.Linear(5, 3))
    with pytest.raises(RuntimeError) as error:
        private.step(next(iter(private.loader)))
    assert not getattr(error.value, "__notes__", [])


@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_attention_and_lstm_are_the_loop_too():
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.linear = nn.TransformerEncoderLayer(2, 1, 4, dropout=0.0, batch_first=True), nn.Linear(2, 3)

        def forward(self, x):
            return self.linear(self.layer(x.unflatten(1, (3, 2))).mean(1))

    class Lstm(Recurrent):
        def __init__(self):
            super().__init__()
            self.gru = nn.LSTM(2, 4, batch_first=True)

    loss, data = of_pairs(nn.functional.cross_entropy), data_of(5).tensors
    for model in [Attention(), Lstm()]:
        loop = list(PerExampleGradients(model, loss, method="loop").chunks(data, 5))
        (fast,) = PerExampleGradients(model, loss).chunks(data, 5)
        for i, gradient in enumerate(fast):
            assert torch.allclose(gradient, torch.cat([chunk[i] for chunk in loop]), atol=1e-6)


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


# Order, state, kills.


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


def with_dropout():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 5), nn.Dropout(0.3), nn.Tanh(), nn.Linear(5, 3))


@pytest.mark.parametrize("num_workers", [0, 2])
def test_resumed_ends_the_same(tmp_path, num_workers):
    def training():
        model = with_dropout()
        optimizer = torch.optim.Adam(model.parameters())
        return model, private_of(model, optimizer, key=Key.from_seed(4), num_workers=num_workers)

    model, private = training()
    for batch in private.loader:
        private.step(batch)
    expected = parameters_of(model)
    model, private = training()
    for batch in private.loader:
        private.step(batch)
        if private.run.step == 7:
            break
    private.save(tmp_path / "state")
    torch.randn(100)  # the world goes on
    model, private = training()
    private.load(tmp_path / "state")
    assert len(private.loader) == 11
    for batch in private.loader:
        private.step(batch)
    assert torch.equal(parameters_of(model), expected)


def test_a_state_of_another_run_is_refused(tmp_path):
    private = private_of()
    private.step(next(iter(private.loader)))
    state = private.state_dict()
    for changed, error, message in [
        (dict(mechanism="tree-online"), PrivacyError, "mechanism was"),
        (dict(key=Key.from_seed(2)), PrivacyError, "key_fingerprint was"),
        (dict(max_grad_norm=0.4), PrivacyError, "clip_norm was"),
        (dict(model=nn.Sequential(nn.Linear(6, 3))), PrivacyError, "layout was"),
        (dict(shuffle_seed=1), ValueError, "seed was 0 and is 1"),
        (dict(physical_batch_size=2), ValueError, "physical_batch_size"),
    ]:
        other = private_of(**changed)
        with pytest.raises(error, match=message):
            other.load_state_dict(state)
        assert other.order.position == 0
    for wrong in [{}, {"model": 1}, None]:
        with pytest.raises(ValueError, match="state must be what state_dict"):
            private_of().load_state_dict(wrong)


def test_an_old_state_is_refused_after_a_later_one_was_saved(tmp_path):
    key = tmp_path / "run.key"
    private = private_of(key=key)
    for batch in private.loader:
        private.save(tmp_path / f"state{private.run.step}")
        private.step(batch)
    again = private_of(key=key)
    with pytest.raises(PrivacyError, match="a later one, after 17 steps, was kept"):
        again.load(tmp_path / "state0")
    assert again.order.position == 0
    again.load(tmp_path / "state17")
    assert again.run.step == 17
    private_of(key=key).load(tmp_path / "state3", repeat_noise=True)


def test_kills(tmp_path):
    """kill -9 at random moments; what is started again ends with the same parameters, and with one line per step in its log."""
    script = Path(__file__).with_name("killed.py")
    whole = tmp_path / "whole"
    whole.mkdir()
    # The same key for both: a seed would do, but a run on disk has a key file.
    antiphon.Key.fresh(whole / "run.key")
    killed = tmp_path / "killed"
    shutil.copytree(whole, killed)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    expected = subprocess.run([sys.executable, script, whole], check=True, capture_output=True, text=True, env=environment).stdout.split()[-1]
    kills, wanted, rng = 0, int(os.environ.get("ANTIPHON_KILLS", "3")), random.Random(11)
    while True:
        child = subprocess.Popen([sys.executable, script, killed], stdout=subprocess.PIPE, text=True, env=environment)
        assert child.stdout is not None
        begun = child.stdout.readline()
        if kills < wanted:
            time.sleep(rng.uniform(0.0, 0.25 if wanted < 5 else 0.12))
            os.kill(child.pid, signal.SIGKILL)
            kills += child.wait() == -signal.SIGKILL
            child.stdout.close()
            assert begun != "begun 120\n", "killed too late to show anything"
            continue
        found = child.communicate()[0].split()
        assert child.returncode == 0 and found[-1] == expected
        break
    assert kills == wanted
    steps = [json.loads(line)["step"] for line in (killed / "log").read_text().splitlines()]
    assert steps == list(range(120))
