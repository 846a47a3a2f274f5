"""Small models, data and runs for the tests of antiphon.torch."""

import torch
from torch import nn
from torch.utils.data import TensorDataset

from antiphon import Key
from antiphon.torch import make_private


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
