"""Small runs for the tests of antiphon.opacus."""

from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader
from torch_cases import data_of, model_of

import antiphon
from antiphon.opacus import PrivacyEngine

torch.set_num_threads(1)

#: Modes of Opacus, with the model wrapped and not.
MODES = [("hooks", True), ("functorch", True), ("ew", True), ("ghost", True), ("hooks", False), ("functorch", False), ("ghost", False)]


@cache
def mechanism_of(epochs, steps_per_epoch):
    return antiphon.make("optimal", antiphon.Schema.epochs(epochs, steps_per_epoch))


@dataclass
class Made:
    engine: PrivacyEngine
    original: nn.Module
    optimizer: Any
    loader: Any
    criterion: Any
    model: nn.Module

    @property
    def run(self):
        return self.engine.run

    def gradients(self, batch):
        """Of a batch, as an Opacus loop has it."""
        self.optimizer.zero_grad()
        self.criterion(self.model(batch[0]), batch[1]).backward()

    def step(self, batch):
        self.gradients(batch)
        self.optimizer.step()

    def epochs(self, count):
        for _ in range(count):
            for batch in self.loader:
                self.step(batch)

    def parameters(self):
        return torch.cat([p.detach().flatten() for p in self.original.parameters()])


def made(
    mode="hooks", wrap=True, *, model=None, optimizer=None, dataset=None, batch_size=4, epochs=3, criterion=None, loader=None, engine=None, **changed
):
    """24 examples, 6 batches of 4 and 3 epochs unless something else is said."""
    dataset = data_of() if dataset is None else dataset
    model = model or model_of()
    optimizer = optimizer or torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1, momentum=0.9)
    criterion = criterion or nn.CrossEntropyLoss(reduction=changed.get("loss_reduction", "mean"))
    loader = loader or DataLoader(dataset, batch_size=batch_size)
    engine = engine or PrivacyEngine()
    settings = dict(noise_multiplier=0.5, delta=1e-3, max_grad_norm=0.5, grad_sample_mode=mode, wrap_model=wrap)
    settings["mechanism"] = changed.pop("mechanism", None) or mechanism_of(epochs, -(-len(dataset) // batch_size))
    settings["key"] = changed.pop("key", None) or antiphon.Key.from_seed(1)
    settings.update(changed)
    make = engine.make_private_with_epsilon if "target_epsilon" in settings else engine.make_private
    if "target_epsilon" in settings:
        del settings["noise_multiplier"], settings["delta"]
    found = make(module=model, optimizer=optimizer, criterion=criterion, data_loader=loader, epochs=epochs, **settings)
    return Made(engine, model, found[1], found[-1], found[2] if len(found) == 4 else criterion, found[0] if wrap else model)


def rows_of(run, order, mechanism):
    """The noise of every step, by a second run with the same seed."""
    again = antiphon.PrivateRun(
        mechanism,
        noise_multiplier=run.noise_multiplier,
        delta=run.delta,
        clip_norm=run.clip_norm,
        params=run.coordinates,
        key=antiphon.Key.from_seed(1),
    )
    for step in range(again.steps):
        again.admit(order.batch(step))
        yield torch.from_numpy(again.row())
