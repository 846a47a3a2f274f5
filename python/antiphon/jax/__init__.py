"""Private training in JAX with correlated noise: a few lines in an existing loop.

    order = antiphon.FixedOrderBatches(len(x), batch_size=500, epochs=20)
    noise = antiphon.jax.private_noise(params, order=order, epsilon=8, delta=1e-5, clip_norm=1.0, key="run.key")
    optimizer = optax.chain(antiphon.jax.add_noise(), optax.sgd(0.1, momentum=0.9))

    @jax.jit
    def step(params, state, batch, row):
        total = antiphon.jax.clipped_sum(loss_fn, params, batch, clip_norm=1.0)   # loss_fn(params, example)
        updates, state = optimizer.update(total, state, params, noise=row)        # (sum + noise) / batch size, then SGD
        return optax.apply_updates(params, updates), state

    for indices, row in noise:          # all epochs, in one loop
        params, state = step(params, state, (x[indices], y[indices]), row)
    print(noise.statement())

The noise is that of `antiphon.PrivateRun`, from the key of the run: made on the host, or with the same bits on the device. No random number of JAX is used for it.

| file | room |
|---|---|
| `_noise` | private_noise, and the noise of a run: one row per step, or the rows of a chunk of steps |
| `_rows` | where rows come from: the host, one row ahead in a thread |
| `_layout` | which number of a row belongs to which parameter |
| `_mean` | the noise meets the sum: as a function, and as a transformation of optax |
| `_clip` | per-example gradients, clipped and added up |
| `_callback` | rows drawn by a compiled function itself |
| `_matrix` | what the privatizers of jax-privacy take |
| `_device` | rows that are made on the device, one by one or within a compiled function |
| `_field` | the normals of a key in JAX operations |
| `_files` | a state and the arrays of a training in one file |
"""

import importlib.util as _util

for _package in ("jax", "optax"):
    if _util.find_spec(_package) is None:
        raise ImportError(f'antiphon.jax needs {_package}: pip install "antiphon[jax]", from a clone "./python[jax]"')

from ._callback import callback_noise
from ._clip import clipped_sum
from ._device import Coefficients, DeviceRows, State, row
from ._layout import layout_of
from ._matrix import noising_matrix
from ._mean import ClippedSum, NoiseRow, add_noise, private_mean
from ._noise import Chunk, Noise, private_noise
from ._rows import HostRows, Rows

__all__ = [
    "Chunk",
    "ClippedSum",
    "Coefficients",
    "DeviceRows",
    "HostRows",
    "Noise",
    "NoiseRow",
    "Rows",
    "State",
    "add_noise",
    "callback_noise",
    "clipped_sum",
    "layout_of",
    "noising_matrix",
    "private_mean",
    "private_noise",
    "row",
]
