"""Small parameters, data and noise for the tests of antiphon.jax."""

import jax
import jax.numpy as jnp
import numpy as np
import optax

from antiphon import FixedOrderBatches, Key
from antiphon.jax import add_noise, clipped_sum, private_noise

#: 22 examples in batches of 4: the last batch of every epoch has 2.
EXAMPLES, BATCH, EPOCHS, CLIP = 22, 4, 3, 0.5
OPTIMIZER = optax.chain(add_noise(), optax.sgd(0.1, momentum=0.9))


def params_of(dtype=jnp.float32):
    rng = np.random.default_rng(3)
    return {"layer": {"w": jnp.asarray(rng.normal(size=(6, 5)), dtype), "b": jnp.zeros(5, dtype)}, "head": jnp.asarray(rng.normal(size=(5, 3)), dtype)}


def data_of():
    rng = np.random.default_rng(0)
    return rng.normal(size=(EXAMPLES, 6)).astype(np.float32), rng.integers(0, 3, EXAMPLES)


def order_of(**changed):
    return FixedOrderBatches(**{"examples": EXAMPLES, "batch_size": BATCH, "epochs": EPOCHS, **changed})


def noise_of(params=None, **changed):
    settings = dict(order=order_of(), noise_multiplier=0.5, delta=1e-3, clip_norm=CLIP)
    settings["key"] = changed.pop("key", None) or Key.from_seed(1)
    settings.update(changed)
    return private_noise(params_of() if params is None else params, **settings)


def loss(params, example):
    x, y = example
    hidden = jnp.tanh(x @ params["layer"]["w"] + params["layer"]["b"])
    return optax.softmax_cross_entropy_with_integer_labels((hidden @ params["head"]).astype(jnp.float32), y)


@jax.jit
def step(params, state, batch, row, present=None):
    total = clipped_sum(loss, params, batch, CLIP, present=present)
    updates, state = OPTIMIZER.update(total, state, params, noise=row)
    return optax.apply_updates(params, updates), state


def flat(tree):
    return np.concatenate([np.asarray(leaf, np.float64).ravel() for leaf in jax.tree_util.tree_leaves(tree)])
