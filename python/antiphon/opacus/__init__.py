"""Opacus with correlated noise: the engine that its users know, and the loop that they have.

    engine = antiphon.opacus.PrivacyEngine()
    model, optimizer, loader = engine.make_private_with_epsilon(
        module=model, optimizer=optimizer, data_loader=loader, target_epsilon=8, target_delta=1e-5,
        epochs=20, max_grad_norm=1.0, key="run.key")
    for epoch in range(20):
        for x, y in loader:             # shuffled once, the same batches in every epoch
            optimizer.zero_grad()
            criterion(model(x), y).backward()
            optimizer.step()            # clip, sum, the noise of the step; or PrivacyError
    print(engine.statement())

Opacus computes the per-example gradients. Who takes part in a step, the noise and the accounting are antiphon's; nothing in
Opacus is patched. The loss of a batch gets no noise: do not publish it.

| file | room |
|---|---|
| `_engine` | PrivacyEngine: make_private, checkpoints, the statement |
| `_optimizer` | the optimizers: clipped sums, who takes part, the noise of the step |
| `_ghost` | ghost clipping: norms in double precision, and losses that say how many examples were clipped |
| `_loader` | the data in a fixed order, and who was handed out |
| `_checkpoint` | the one run of an engine, and its state in a file |
| `_refuse` | what the privacy statement does not cover, or is not known here |
| `_accountant` | ε for Opacus: one figure for the whole run |
"""

import importlib.util as _util

for _name, _package in (("torch", "PyTorch"), ("opacus", "Opacus")):
    if _util.find_spec(_name) is None:
        raise ImportError(f'antiphon.opacus needs {_package}: pip install "antiphon[opacus]", from a clone "./python[opacus]"')

import inspect as _inspect

import opacus as _opacus

if "wrap_model" not in _inspect.signature(_opacus.PrivacyEngine.make_private).parameters:
    raise ImportError(f'antiphon.opacus needs Opacus 1.6 or later, got {_opacus.__version__}: pip install "opacus>=1.6"')

from ._accountant import WholeRunAccountant
from ._engine import PrivacyEngine
from ._loader import BatchMemoryManager, FixedOrderLoader
from ._optimizer import CorrelatedOptimizer, GhostOptimizer

__all__ = ["BatchMemoryManager", "CorrelatedOptimizer", "FixedOrderLoader", "GhostOptimizer", "PrivacyEngine", "WholeRunAccountant"]
