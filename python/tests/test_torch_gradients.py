"""Per-example gradients and their clipped sums."""

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch_cases import data_of, model_of  # noqa: E402

from antiphon import Clip  # noqa: E402
from antiphon.torch import PerExampleGradients, add_clipped  # noqa: E402
from antiphon.torch._gradients import add_clipped_by_torch, of_pairs  # noqa: E402


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


@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_attention_and_lstm_are_the_loop_too():
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.linear = nn.TransformerEncoderLayer(2, 1, 4, dropout=0.0, batch_first=True), nn.Linear(2, 3)

        def forward(self, x):
            return self.linear(self.layer(x.unflatten(1, (3, 2))).mean(1))

    class Lstm(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm, self.linear = nn.LSTM(2, 4, batch_first=True), nn.Linear(4, 3)

        def forward(self, x):
            return self.linear(self.lstm(x.unflatten(1, (3, 2)))[0][:, -1])

    loss, data = of_pairs(nn.functional.cross_entropy), data_of(5).tensors
    for model in [Attention(), Lstm()]:
        loop = list(PerExampleGradients(model, loss, method="loop").chunks(data, 5))
        (fast,) = PerExampleGradients(model, loss).chunks(data, 5)
        for i, gradient in enumerate(fast):
            assert torch.allclose(gradient, torch.cat([chunk[i] for chunk in loop]), atol=1e-6)


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
