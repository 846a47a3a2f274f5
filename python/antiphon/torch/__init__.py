"""Private training of PyTorch models with correlated noise: three lines in an existing loop.

    private = antiphon.torch.make_private(
        model, optimizer, dataset, loss_fn, batch_size=500, epochs=20,
        epsilon=8, delta=1e-5, max_grad_norm=1.0, key="run.key")
    for batch in private.loader:        # all epochs, in one loop
        private.step(batch)             # per-example gradients, clip, sum, noise, optimizer.step()
    print(private.statement())

The module is not wrapped and the optimizer is the user's own. There is no loss to show: the loss on training examples
is not private.

Several processes train one model together if `torch.distributed.init_process_group` was called: the same lines in all of
them, for a model that is replicated or sharded by `torch.distributed.fsdp.fully_shard`.

| file | room |
|---|---|
| `_make` | make_private: what is decided, compared and refused before the first step |
| `_training` | the training that it makes: steps and states |
| `_order` | the sampler: shuffled once, the same batches in every epoch |
| `_gradients` | per-example gradients, and their clipped sums |
| `_placement` | whole, replicated and sharded models: which coordinates a process adds noise to |
| `_ranks` | several processes: what one finds wrong all raise |
| `_agreement` | what several processes must have in common: compared, or sent by the first |
| `_checkpoint` | states of several processes, in a folder |
| `_device` | the noise made on the device that trains: DeviceRows |
| `_field` | the normals of a key in PyTorch operations |
| `_refuse` | models and optimizers for which the privacy statement would not hold |
"""

import importlib.util as _util

if _util.find_spec("torch") is None:
    raise ImportError('antiphon.torch needs PyTorch: pip install "antiphon[torch]", from a clone "./python[torch]"')

from ._device import DeviceRows
from ._gradients import PerExampleGradients, add_clipped
from ._make import make_private
from ._order import Batch, FixedOrderBatches, WithIndices
from ._training import PrivateTraining

__all__ = ["Batch", "DeviceRows", "FixedOrderBatches", "PerExampleGradients", "PrivateTraining", "WithIndices", "add_clipped", "make_private"]
