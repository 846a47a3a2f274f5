"""Who takes part in a step: either it is known, or the step is refused."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("opacus")

from opacus.schedulers import ExponentialNoise  # noqa: E402
from opacus.utils.batch_memory_manager import BatchMemoryManager as OfOpacus  # noqa: E402
from opacus_cases import MODES, made  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402
from torch_cases import data_of, model_of  # noqa: E402

from antiphon import PrivacyError  # noqa: E402
from antiphon.opacus import BatchMemoryManager  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:Full backward hook is firing:UserWarning")

KINDS = [("hooks", True), ("ew", True), ("ghost", True), ("ghost", False)]


def refused(case, match="is refused"):
    """The step is refused, and nothing has happened."""
    before, step = case.parameters(), case.run.step
    with pytest.raises(PrivacyError, match=match):
        case.optimizer.step()
    assert torch.equal(case.parameters(), before) and case.run.step == step
    assert case.optimizer._counted == 0 and case.optimizer._total.abs().max() == 0


def goes_on(case):
    """After whatever was refused, a new loop over the loader finishes the run."""
    while case.run.step < case.run.steps:
        for batch in case.loader:
            case.step(batch)
    straight = made()
    straight.epochs(3)
    if type(case.optimizer) is type(straight.optimizer):
        assert torch.allclose(case.parameters(), straight.parameters(), rtol=0, atol=1e-6)


@pytest.mark.parametrize(("mode", "wrap"), KINDS)
def test_misuse_is_refused_and_a_new_loop_goes_on(mode, wrap, request):
    case = made(mode, wrap)
    batches = iter(case.loader)
    case.step(next(batches))
    # Two steps on one batch.
    same = next(batches)
    case.step(same)
    case.gradients(same)
    refused(case, "handed out 0 examples since the last step, and there are gradients of 4")
    # A batch is skipped.
    batches = iter(case.loader)
    next(batches)
    case.gradients(next(batches))
    refused(case, "the loader handed out another one")
    # A batch is read ahead.
    batches = iter(case.loader)
    first, _ = next(batches), next(batches)
    case.gradients(first)
    refused(case, "the loader handed out another one")
    # Other data.
    next(iter(case.loader))
    case.gradients([torch.randn(5, 6), torch.zeros(5, dtype=torch.int64)])
    refused(case, "handed out 4 examples since the last step, and there are gradients of 5")
    # A part of the batch.
    x, y = next(iter(case.loader))
    case.gradients([x[:3], y[:3]])
    refused(case, "handed out 4 examples since the last step, and there are gradients of 3")
    # The loop is begun anew with gradients left: they are counted with those that follow, or replaced.
    case.gradients(next(iter(case.loader)))
    batch = next(iter(case.loader))
    if mode == "hooks":
        case.criterion(case.model(batch[0]), batch[1]).backward()
    refused(case, "8 examples" if mode == "hooks" else "8 examples since the last step, and there are gradients of 4")
    goes_on(case)


def test_accumulation_over_batches_is_refused():
    case = made()
    batches = iter(case.loader)
    case.optimizer.zero_grad()
    for _ in range(2):
        x, y = next(batches)
        case.criterion(case.model(x), y).backward()
    refused(case, "must be made of the batch that belongs to it \\(4 examples\\), and the loader handed out 8 examples")
    # The same batch twice.
    x, y = next(iter(case.loader))
    case.optimizer.zero_grad()
    for _ in range(2):
        case.criterion(case.model(x), y).backward()
    refused(case, "handed out 4 examples since the last step, and there are gradients of 8")
    # One twice, the next not at all: the numbers agree when the step comes, but did not when the second was handed out.
    batches = iter(case.loader)
    x, y = next(batches)
    case.optimizer.zero_grad()
    for _ in range(2):
        case.criterion(case.model(x), y).backward()
    next(batches)
    refused(case)
    goes_on(case)


def test_the_parts_of_one_batch_make_one_step():
    """Backward in two parts, as memory may need it: the denominator is that of the batch."""
    case, whole = made(), made()
    for (x, y), same in zip(case.loader, whole.loader):
        case.optimizer.zero_grad()
        for part in slice(0, 3), slice(3, None):
            case.criterion(case.model(x[part]), y[part]).backward()
        case.optimizer.step()
        whole.step(same)
    assert torch.allclose(case.parameters(), whole.parameters(), rtol=0, atol=1e-6) and case.run.step == 6


@pytest.mark.parametrize(("mode", "wrap"), MODES)
def test_gradients_are_used_once(mode, wrap):
    case = made(mode, wrap)
    batches = iter(case.loader)
    case.step(next(batches))
    with pytest.raises(PrivacyError, match="in an earlier step already|were not clipped"):
        case.optimizer.step()
    case.gradients(next(iter(case.loader)))
    case.optimizer.step()
    assert case.run.step == 2


def test_looking_at_the_data_is_no_step():
    """A look at the shapes, the accuracy on training data, an early end of an epoch, and a loop after the last step."""
    case = made()
    next(iter(case.loader))
    for number, batch in enumerate(case.loader):
        if number == 4:
            break
        case.step(batch)
    with torch.no_grad():
        assert sum(len(x) for x, _ in case.loader) == 8  # the rest of the epoch
    assert case.loader.epoch == 0
    case.epochs(1)
    assert case.run.step == 6 and case.loader.epoch == 1
    case.epochs(2)
    assert case.run.step == 18 and sum(len(x) for x, _ in case.loader) == 24
    straight = made()
    straight.epochs(3)
    assert torch.equal(case.parameters(), straight.parameters())


@pytest.mark.parametrize("persistent", [False, True])
def test_worker_processes(persistent):
    case = made(loader=DataLoader(data_of(), batch_size=4, num_workers=2, persistent_workers=persistent))
    case.epochs(2)
    batches = iter(case.loader)
    next(batches)
    case.gradients(next(batches))
    refused(case, "the loader handed out another one")
    del batches
    case.epochs(1)
    straight = made()
    straight.epochs(3)
    assert torch.equal(case.parameters(), straight.parameters())


@pytest.mark.parametrize(("mode", "wrap", "workers"), [(*kind, 0) for kind in KINDS] + [("hooks", True, 1)])
@pytest.mark.parametrize("manager", [BatchMemoryManager, OfOpacus])
def test_batches_in_parts(manager, mode, wrap, workers):
    data = data_of()
    case = made(mode, wrap, batch_size=6, loader=DataLoader(data, batch_size=6, num_workers=workers))
    sizes = []
    with manager(data_loader=case.loader, max_physical_batch_size=4, optimizer=case.optimizer) as parts:
        if workers and manager is OfOpacus:
            # It draws batches before they are used, so that nobody knows which one a step is made of.
            with pytest.raises(PrivacyError, match="Opacus' own reads ahead"):
                for batch in parts:
                    case.step(batch)
            assert case.run.step == 0
            return
        # Loops that are left in the middle of a batch, before or after its part is added.
        for batch in parts:
            case.step(batch)
            break
        next(iter(parts))
        assert case.run.step == 0
        for _ in range(3):
            for batch in parts:
                case.step(batch)
                sizes.append(len(batch[0]))
    assert case.run.step == 12 and set(sizes) == {3}
    straight = made(mode, wrap, batch_size=6)
    straight.epochs(3)
    # Parts are added in another order only by ghost clipping, in single precision; kernels may round by the size of a batch.
    assert torch.allclose(case.parameters(), straight.parameters(), rtol=0, atol=1e-6)
    with pytest.raises(PrivacyError, match="step 12 is refused"):
        case.epochs(1)
    with pytest.raises(ValueError, match="must be those that antiphon.opacus"):
        BatchMemoryManager(data_loader=DataLoader(data), max_physical_batch_size=1, optimizer=case.optimizer).__enter__()


@pytest.mark.parametrize("manager", [BatchMemoryManager, OfOpacus])
def test_a_part_that_is_left_out_is_refused(manager):
    case = made(batch_size=6)
    with manager(data_loader=case.loader, max_physical_batch_size=3, optimizer=case.optimizer) as parts:
        given = iter(parts)
        case.step(next(given))
        next(given)
        case.gradients(next(given))
        with pytest.raises(PrivacyError):
            for _ in range(2):
                case.optimizer.step()
                case.gradients(next(given))
    assert case.run.step == 0


@pytest.mark.parametrize(("mode", "wrap"), KINDS)
def test_the_optimizer_that_was_given_is_refused(mode, wrap):
    case = made(mode, wrap)
    case.gradients(next(iter(case.loader)))
    before = case.parameters()
    with pytest.raises(PrivacyError, match="its gradients have no noise"):
        case.optimizer.original_optimizer.step()
    assert torch.equal(case.parameters(), before)
    # A schedule of the rate may hold either.
    schedule = torch.optim.lr_scheduler.StepLR(case.optimizer, 1, 0.5)
    case.optimizer.step()
    schedule.step()
    assert case.run.step == 1 and case.optimizer.param_groups[0]["lr"] == 0.05


@pytest.mark.parametrize("wrap", [True, False])
def test_ghost_mode_with_gradients_that_are_not_clipped(wrap):
    case = made("ghost", wrap)
    x, y = next(iter(case.loader))
    # The user's own criterion.
    nn.functional.cross_entropy(case.model(x), y).backward()
    refused(case, "must come from the criterion that make_private returned")
    # Clipped, and then something on top.
    x, y = next(iter(case.loader))
    case.gradients((x, y))
    nn.functional.cross_entropy(case.model(x), y).backward()
    refused(case, "the gradients changed after backward")
    x, y = next(iter(case.loader))
    case.gradients((x, y))
    nn.utils.clip_grad_norm_(case.model.parameters(), 1e-3)
    refused(case, "the gradients changed after backward")
    # Sums and multiples of losses stay clipped.
    x, y = next(iter(case.loader))
    case.optimizer.zero_grad()
    (2 * case.criterion(case.model(x), y) / 4 + 1).backward()
    case.optimizer.step()
    assert case.run.step == 1
    # Another clip norm, and numbers that are not finite.
    case.gradients(next(iter(case.loader)))
    case.optimizer.clipper.max_grad_norm = 7.0
    refused(case, "max_grad_norm of the model changed")
    case = made("ghost", wrap)
    x, y = next(iter(case.loader))
    case.gradients((x * float("inf"), y))
    refused(case, "not finite")


def test_changes_after_make_private_are_refused():
    case = made()
    ExponentialNoise(case.optimizer, gamma=0.5).step()
    case.gradients(next(iter(case.loader)))
    refused(case, "noise_multiplier and max_grad_norm of the optimizer changed")
    case = made()
    case.gradients(next(iter(case.loader)))
    case.original[0].bias.requires_grad_(False)
    with pytest.raises((PrivacyError, ValueError), match="parameters"):
        case.optimizer.step()
    case = made()
    case.original.register_buffer("seen", torch.zeros(1))
    case.gradients(next(iter(case.loader)))
    refused(case, "a buffer of the model changed")
    assert case.run.step == 0


def test_coarse_gradients_are_refused():
    case = made()
    x, y = next(iter(case.loader))
    with torch.autocast("cpu", torch.bfloat16):
        case.gradients((x, y))
    refused(case, "per-example gradients must be float32 or float64, got torch.bfloat16")


def test_rows_that_are_not_examples_are_refused():
    """Tokens as rows of a batch: what is clipped is a token, and not an example."""

    class Tokens(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 3)

        def forward(self, x):
            return self.layer(x.reshape(-1, 3))

    case = made(model=Tokens())
    x, y = next(iter(case.loader))
    case.gradients((x, y.repeat(2)))
    refused(case, "handed out 4 examples since the last step, and there are gradients of 8")
    del case


def test_a_closure():
    case, straight = made(), made()
    for batch, same in zip(case.loader, straight.loader):
        case.optimizer.step(lambda: case.gradients(batch))
        straight.step(same)
    assert torch.equal(case.parameters(), straight.parameters()) and case.run.step == 6


@pytest.mark.parametrize("persistent", [False, True])
def test_a_loop_within_a_loop_gets_its_own_batches_or_is_refused(persistent):
    dataset = data_of()
    case = made(loader=DataLoader(dataset, batch_size=4, num_workers=1, persistent_workers=persistent))
    batches = iter(case.loader)
    case.step(next(batches))
    next(iter(case.loader))
    if persistent:
        with pytest.raises(PrivacyError, match="within another one"):
            next(batches)
        assert case.run.step == 1
        batches = iter(case.loader)
    for step, (x, y) in enumerate(batches, 1):
        assert torch.equal(x, torch.stack([dataset[i][0] for i in case.loader.order.batch(step)]))
        case.step((x, y))
    assert case.run.step == 6


class Penalized(nn.CrossEntropyLoss):
    """Adds a penalty on weights to the loss of every example."""

    def __init__(self, model):
        super().__init__()
        self.parts = list(model.parameters())

    def forward(self, output, target):
        return super().forward(output, target) + 10 * sum(p.square().sum() for p in self.parts)


class UsedTwice(nn.Module):
    """Its first weights are used by a function too, as for embeddings that are the last layer as well."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x):
        return self.last(self.first(x).relu() @ self.first.weight)


@pytest.mark.parametrize("wrap", [True, False])
def test_ghost_mode_with_gradients_that_opacus_does_not_see(wrap):
    # A penalty on weights outside the criterion: an example would add its gradient on top of the clip norm.
    case = made("ghost", wrap)
    x, y = next(iter(case.loader))
    with pytest.raises(PrivacyError, match="must not depend on parameters"):
        case.criterion(case.model(x), y) + sum(p.square().sum() for p in case.model.parameters())
    # One within the criterion, and weights that are used outside their module.
    penalized = model_of()
    for case in [
        made("ghost", wrap, model=penalized, criterion=Penalized(penalized)),
        made("ghost", wrap, model=UsedTwice()),
    ]:
        with pytest.raises(PrivacyError, match="does not see all of the gradient"):
            case.gradients(next(iter(case.loader)))
        refused(case, "were not clipped")
        assert case.run.step == 0


@pytest.mark.parametrize("wrap", [True, False])
def test_ghost_mode_takes_no_norms_of_an_earlier_batch(wrap):
    case = made("ghost", wrap)
    batches = iter(case.loader)
    case.step(next(batches))
    case.original.eval()
    with pytest.raises(PrivacyError, match="must be in training mode"):
        case.gradients(next(batches))
    refused(case, "were not clipped")
    case.original.train()
    # The hooks were off in the forward pass: nothing was measured.
    x, y = next(iter(case.loader))
    case.optimizer.clipper.disable_hooks()
    loss = case.criterion(case.model(x), y)
    case.optimizer.compared = 1
    with pytest.raises(PrivacyError, match="all trainable parameters must have a part"):
        loss.backward()
    refused(case, "were not clipped")


class Average(nn.Module):
    """A moving average of its inputs, written as many models do."""

    def __init__(self, model):
        super().__init__()
        self.model = model
        self.register_buffer("average", torch.zeros(()))

    def forward(self, x):
        self.average.data.mul_(0.9).add_(0.1 * x.detach().mean())
        return self.model(x)


def test_buffers_that_are_written_past_pytorch_are_refused(tmp_path):
    case = made(model=Average(model_of()))
    case.gradients(next(iter(case.loader)))
    with pytest.raises(PrivacyError, match="a buffer of the model changed"):
        case.engine.save_checkpoint(path=tmp_path / "state", module=case.model)
    assert not list(tmp_path.iterdir())
    refused(case, "a buffer of the model changed")


def test_what_is_frozen_stays_as_it_is():
    model = model_of()
    model(data_of()[0][0][None]).sum().backward()
    frozen = next(model.parameters()).requires_grad_(False)
    before = frozen.detach().clone()
    case = made(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    for x, y in case.loader:
        case.criterion(case.model(x), y).backward()
        case.optimizer.step()
        case.optimizer.zero_grad()
    assert torch.equal(frozen, before) and case.run.step == 6
    # All of it, after backward(): Opacus would take an ordinary step, with gradients that have no noise.
    case.gradients(next(iter(case.loader)))
    model.requires_grad_(False)
    refused(case, "trainable parameters of the model changed")
