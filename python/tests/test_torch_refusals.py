"""What antiphon.torch refuses, and that nothing gets around the noise."""

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, Dataset, TensorDataset  # noqa: E402
from torch_cases import data_of, model_of, private_of  # noqa: E402

import antiphon  # noqa: E402
from antiphon import PrivacyError  # noqa: E402


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
