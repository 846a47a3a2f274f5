"""What noise costs a step in JAX when the next row is made in a thread while the device computes.

    python bench/jax_prefetch.py [--mechanism tree-online] [--threads 1] [--params 4000000] [--rounds 5]

A step without noise, one with noise and prefetch, and one with noise and without prefetch, in turn: every round has a few steps of each.
Every step waits for its result, as a loop does that looks at it, so that nothing but the thread of the prefetch overlaps. A round ends when the
row that is being made is done, so no mode pays for another. Beside the time it shows the processor time of all threads, which other work on the
machine changes far less: with XLA on one thread, a step without noise takes that long on a quiet machine. On a processor XLA uses all cores, and the thread of the noise takes its share of
them: --threads 1 keeps XLA to one. Needs antiphon with jax and optax, and two cores.
"""

import argparse
import os
import statistics
import time

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--mechanism", default="tree-online", help="a name that antiphon.make knows (default: tree-online)")
parser.add_argument("--threads", default="1", choices=["1", "all"], help="of XLA on the processor (default: 1)")
parser.add_argument("--params", type=int, default=4_000_000, help="parameters, about (default: 4,000,000)")
parser.add_argument("--seconds", type=float, default=0.7, help="of a step without noise, about (default: 0.7)")
parser.add_argument("--rounds", type=int, default=5)
parser.add_argument("--steps", type=int, default=6, help="steps of each mode in a round (default: 6)")
arguments = parser.parse_args()
if arguments.threads == "1":
    os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import optax  # noqa: E402

import antiphon  # noqa: E402
from antiphon.jax import ClippedSum, add_noise, private_noise  # noqa: E402

WIDTH, BATCH, EPOCHS, MODES = round(arguments.params**0.5), 64, 20, ["without noise", "prefetch", "no prefetch"]
SGD = optax.sgd(0.01, momentum=0.9)
NOISY = optax.chain(add_noise(), SGD)


def gradient(params, inputs, layers):
    """Stands for the clipped sum of a batch: products of matrices, of which `layers` sets the time."""
    hidden = jax.lax.fori_loop(0, layers, lambda _, hidden: jnp.tanh(hidden @ params["w"] * 0.02), inputs)
    total = hidden.T @ inputs
    return {"w": total / (1 + jnp.linalg.norm(total))}


@jax.jit
def plain(params, state, inputs, layers):
    mean = jax.tree.map(lambda leaf: leaf / BATCH, gradient(params, inputs, layers))
    updates, state = SGD.update(mean, state, params)
    return optax.apply_updates(params, updates), state


@jax.jit
def noisy(params, state, inputs, layers, row):
    updates, state = NOISY.update(ClippedSum(gradient(params, inputs, layers), 1.0), state, params, noise=row)
    return optax.apply_updates(params, updates), state


def main() -> None:
    params = {"w": jnp.asarray(np.random.default_rng(0).standard_normal((WIDTH, WIDTH), np.float32))}
    inputs = jnp.ones((BATCH, WIDTH))
    needed = (arguments.rounds + 1) * arguments.steps
    order = antiphon.FixedOrderBatches(BATCH * -(-needed // EPOCHS), BATCH, EPOCHS)
    noises = {
        mode: private_noise(
            params,
            order=order if mode == "prefetch" else antiphon.FixedOrderBatches(order.examples, BATCH, EPOCHS),
            noise_multiplier=1.0,
            delta=1e-5,
            clip_norm=1.0,
            key=antiphon.Key.from_seed(1),
            mechanism=arguments.mechanism,
            prefetch=mode == "prefetch",
        )
        for mode in MODES[1:]
    }
    states = {mode: (params, (SGD if mode == MODES[0] else NOISY).init(params)) for mode in MODES}

    def step(mode, layers):
        if mode == MODES[0]:
            states[mode] = plain(*states[mode], inputs, layers)
        else:
            states[mode] = noisy(*states[mode], inputs, layers, noises[mode].next())
        jax.block_until_ready(states[mode])

    def seconds(mode, layers, last=False):
        start = time.perf_counter(), time.process_time()
        step(mode, layers)
        if last and mode in noises:
            noises[mode].run  # waits for the row that is being made
        return time.perf_counter() - start[0], time.process_time() - start[1]

    # By processor time, so that the step is long enough on a quiet machine too.
    cores = 1 if arguments.threads == "1" else os.cpu_count() or 1
    layers, took = 8, 0.0
    seconds(MODES[0], layers)
    while took < arguments.seconds * cores:
        layers = round(layers * min(4.0, max(1.2, 1.1 * arguments.seconds * cores / took))) if took else layers
        took = min(seconds(MODES[0], layers)[1] for _ in range(2))
    times: dict[str, list[list[float]]] = {mode: [] for mode in MODES}
    processor: dict[str, list[float]] = {mode: [] for mode in MODES}
    for each in range(arguments.rounds + 1):
        for mode in MODES:
            found = [seconds(mode, layers, last=place == arguments.steps - 1) for place in range(arguments.steps)]
            if each:  # the first round compiles, and makes the first rows
                times[mode].append([wall for wall, _ in found])
                processor[mode].append(statistics.mean(busy for _, busy in found))
    print(f"{arguments.mechanism}, {WIDTH * WIDTH:,} parameters, {arguments.threads} XLA thread(s) of {os.cpu_count()}, {arguments.rounds} rounds of {arguments.steps} steps")
    steps = {mode: [t for found in times[mode] for t in found] for mode in MODES}
    means = {mode: [statistics.mean(found) for found in times[mode]] for mode in MODES}
    for mode in MODES:
        ratios = [a / b for a, b in zip(means[mode], means[MODES[0]])]
        print(
            f"  {mode:<14} median {statistics.median(steps[mode]):.3f} s ({statistics.median(steps[mode]) / statistics.median(steps[MODES[0]]):.3f}x)"
            f"   least {min(steps[mode]):.3f} s ({min(steps[mode]) / min(steps[MODES[0]]):.3f}x)"
            f"   mean of a round, against the same round without noise: median {statistics.median(ratios):.3f}x ({min(ratios):.3f} to {max(ratios):.3f})"
            f"   processor time {statistics.median(processor[mode]):.3f} s, least {min(processor[mode]):.3f} s"
        )


main()
