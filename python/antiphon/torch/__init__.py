"""Private training of PyTorch models with correlated noise: three lines in an existing loop.

    private = antiphon.torch.make_private(
        model, optimizer, dataset, loss_fn, batch_size=500, epochs=20,
        epsilon=8, delta=1e-5, max_grad_norm=1.0, key="run.key")
    for batch in private.loader:        # all epochs, in one loop
        private.step(batch)             # per-example gradients, clip, sum, noise, optimizer.step()
    print(private.statement())

The module is not wrapped and the optimizer is the user's own. There is no loss to show: the loss on training examples
is not private.

| file | room |
|---|---|
| `_training` | make_private, and the training that it makes |
| `_order` | the sampler: shuffled once, the same batches in every epoch |
| `_gradients` | per-example gradients, and their clipped sums |
| `_refuse` | models and optimizers for which the privacy statement would not hold |
"""

import importlib.util as _util

if _util.find_spec("torch") is None:
    raise ImportError('antiphon.torch needs PyTorch: pip install "antiphon[torch]", from a clone "./python[torch]"')

from ._gradients import PerExampleGradients, add_clipped
from ._order import Batch, FixedOrderBatches, WithIndices
from ._training import PrivateTraining, make_private

__all__ = ["Batch", "FixedOrderBatches", "PerExampleGradients", "PrivateTraining", "WithIndices", "add_clipped", "make_private"]
