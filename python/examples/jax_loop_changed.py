"""Your JAX loop, changed: DP-SGD in JAX and optax on handwritten digits, with correlated noise instead of independent noise.

A plain loop clips per-example gradients, adds independent normals to their sum and updates by optax. Lines that change have a comment that
says what was there before. To compare at the same ε, `identity` is the same loop with independent noise: 1,440 images of 8×8 pixels to
train on and 357 to test on, a linear model, 20 epochs of 24 steps, ε = 1 at δ = 1e-4 for the whole run. Needs jax and optax, and a clone of the
repository for the images.
"""

import argparse
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax

import antiphon
import antiphon.jax

IMAGES = Path(__file__).resolve().parents[2] / "crates/antiphon-train/src/data/digits/digits.bin"
EPOCHS, BATCH, CLIP = 20, 60, 1.0
#: Learning rate and momentum, the best of a grid on held-out training images (repository, crates/antiphon-train/src/settings.rs).
RATES = {"identity": (0.1, 0.0), "optimal": (0.03, 0.9)}


def load() -> tuple[tuple[jax.Array, jax.Array], tuple[jax.Array, jax.Array]]:
    """Images to train on and to test on: the split of `antiphon train`, with every digit in both parts by its share."""
    records = np.frombuffer(IMAGES.read_bytes(), np.uint8).reshape(-1, 65)  # a label and 64 pixels
    count = len(records)
    places = np.arange(count)
    test = np.zeros(count, bool)
    test[np.argsort(records[:, 0], kind="stable")] = 357 * (places + 1) // count > 357 * places // count
    # Pixels of 0 to 16 become -1 to 1: a formula that looks at no data.
    images, labels = records[:, 1:] / np.float32(8) - 1, records[:, 0].astype(np.int32)
    part = lambda which: (jnp.asarray(images[which]), jnp.asarray(labels[which]))  # noqa: E731
    return part(~test), part(test)


def logits(params, image):
    return image @ params["weight"] + params["bias"]


def loss_fn(params, example):
    """Of one example: no axis of a batch."""
    image, label = example
    return optax.softmax_cross_entropy_with_integer_labels(logits(params, image), label)


def train(mechanism: str, seed: int, epsilon: float) -> tuple[float, str]:
    """The accuracy on test images, in percent, and what ε means."""
    (x, y), (images, labels) = load()
    params = {"weight": jnp.zeros((64, 10)), "bias": jnp.zeros(10)}
    rate, momentum = RATES[mechanism]
    # Before: a new shuffle, or a sample, in every epoch. Now the data are shuffled once, and every epoch has the same batches.
    order = antiphon.FixedOrderBatches(len(x), BATCH, EPOCHS, seed=seed)
    # The rate falls to a twentieth over the last quarter. This is post-processing: it costs no privacy.
    falling = order.steps // 4
    schedule = lambda t: rate * (1 - 0.95 * jnp.maximum(0, t + 1 - (order.steps - falling)) / falling)  # noqa: E731
    # Before: a noise multiplier from an accountant, and a random key of JAX.
    noise = antiphon.jax.private_noise(
        params,
        order=order,
        epsilon=epsilon,
        delta=1e-4,
        clip_norm=CLIP,
        mechanism=mechanism,  # "optimal" is the default; "identity" is independent noise, as DP-SGD has it
        # A seed, so that the figures can be repeated. It is NOT private: a real run has key="run.key".
        key=antiphon.Key.from_seed(seed),
    )
    # Before: optax.sgd alone. add_noise gives it (sum + noise) / batch size.
    optimizer = optax.chain(antiphon.jax.add_noise(), optax.sgd(schedule, momentum=momentum))

    @jax.jit
    def step(params, state, batch, row):  # before: a random key in the place of the row
        # Before: vmap of grad, a clip, a sum, plus noise_multiplier * CLIP * jax.random.normal(...), divided by the batch size.
        total = antiphon.jax.clipped_sum(loss_fn, params, batch, CLIP)
        updates, state = optimizer.update(total, state, params, noise=row)
        return optax.apply_updates(params, updates), state

    state = optimizer.init(params)
    # Before: two loops, over epochs and batches. Who takes part comes with the noise.
    for indices, row in noise:
        params, state = step(params, state, (x[indices], y[indices]), row)
    right = (logits(params, images).argmax(axis=1) == labels).mean()
    return 100 * float(right), noise.statement()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5, help="runs per mechanism (default: 5)")
    parser.add_argument("--epsilon", type=float, default=1.0, help="ε of the whole run (default: 1)")
    arguments = parser.parse_args()
    for mechanism in RATES:
        runs = [train(mechanism, seed, arguments.epsilon) for seed in range(arguments.seeds)]
        accuracies = [accuracy for accuracy, _ in runs]
        low, high = min(accuracies), max(accuracies)
        print(f"{mechanism:<9} {np.mean(accuracies):.1f} % of the test images ({low:.1f} to {high:.1f} over {len(runs)} seeds)")
    print(f"\n{runs[-1][1]}")


if __name__ == "__main__":
    main()
