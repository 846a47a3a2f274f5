#!/usr/bin/env bash
# Rows of noise from buffers: ours (a BLT, which is a comb with one epoch, and a comb of 20 epochs, whose rows draw 10.5 normals for each number on
# average) against the BLT of jax-privacy, all with four buffers, on all cores. bench/streams.sh [STEPS COORDINATES]; STEPS is a multiple of 20.
# In turn, three times; best and median of the milliseconds for one row.
#
# jax-privacy: noise_addition.matrix_factorization_privatizer with the streaming matrix of BufferedToeplitz, one jitted update per step whose state is
# handed over; once on one device and once with the coordinates spread over one JAX device per core. Gradients are zeros. Not counted: compiling.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo bench --locked --quiet -p antiphon --bench combs --no-run
environment=target/bench-rows
[ -x "$environment/bin/python" ] || python3 -m venv "$environment"
"$environment/bin/python" -c 'import jax_privacy' 2>/dev/null \
    || "$environment/bin/pip" install --quiet jax-privacy==2.0.0 jax==0.10.2
"$environment/bin/python" - "${1:-200}" "${2:-1000000}" <<'PYTHON'
import importlib.metadata, os, re, statistics, subprocess, sys, time
import jax
import numpy as np

STEPS, COORDINATES = int(sys.argv[1]), int(sys.argv[2])
ROUNDS = 3
THREADS = len(os.sched_getaffinity(0))
jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", THREADS)
jax.config.update("jax_enable_x64", True)
from jax_privacy import noise_addition
from jax_privacy.matrix_factorization import buffered_toeplitz

# As in crates/antiphon/benches/combs.rs.
POLES, ZEROS = np.array([0.9999, 0.99, 0.9, 0.5]), np.array([0.999, 0.95, 0.7, 0.2])
others = POLES[:, None] - POLES[None, :] + np.eye(4)
WEIGHTS = np.prod(POLES[:, None] - ZEROS[None, :], axis=1) / np.prod(others, axis=1)


def ours(epochs):
    command = ["cargo", "bench", "--locked", "--quiet", "-p", "antiphon", "--bench", "combs", "--"]
    command += [str(epochs), str(STEPS // epochs), str(COORDINATES)]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return 1e3 * float(re.search(r"threads: ([0-9.]+) s", text)[1]) / STEPS


def theirs(devices):
    blt = buffered_toeplitz.BufferedToeplitz.build(buf_decay=POLES, output_scale=WEIGHTS)
    matrix = blt.inverse_as_streaming_matrix()
    privatizer = noise_addition.matrix_factorization_privatizer(matrix, stddev=1.0, prng_key=1)
    mesh = jax.make_mesh((devices,), ("coordinates",), axis_types=(jax.sharding.AxisType.Auto,))
    spread = jax.NamedSharding(mesh, jax.P("coordinates"))
    update = jax.jit(privatizer.update, donate_argnums=1)
    gradient = jax.device_put(np.zeros(COORDINATES, np.float32), spread)

    def turn(steps=STEPS):
        state = jax.block_until_ready(jax.tree.map(lambda x: x.copy(), privatizer.init(gradient)))
        start = time.perf_counter()
        for _ in range(steps):
            row, state = update(gradient, state)
        jax.block_until_ready(row)
        return 1e3 * (time.perf_counter() - start) / steps

    turn(3)
    return turn


ways = {"antiphon, blt": lambda: ours(1), "antiphon, comb of 20 epochs": lambda: ours(20), "jax-privacy, BLT": theirs(1)}
if COORDINATES % THREADS == 0 and THREADS > 1:
    ways["jax-privacy, BLT, sharded"] = theirs(THREADS)
times = {name: [] for name in ways}
for _ in range(ROUNDS):
    for name, turn in ways.items():
        times[name].append(turn())

versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ["jax-privacy", "jax"])
print(f"{STEPS} steps, {COORDINATES:,} coordinates, {THREADS} threads; {versions}")
fastest = min((statistics.median(t), name) for name, t in times.items() if name.startswith("jax"))
for name, t in times.items():
    ratio = "" if name.startswith("jax") else f"   {fastest[0] / statistics.median(t):.1f} times as fast as {fastest[1]}"
    print(f"{name:<28} {min(t):>8.2f} ms best {statistics.median(t):>8.2f} ms median{ratio}")
PYTHON
