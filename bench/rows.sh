#!/usr/bin/env bash
# All rows of C⁻¹Z, one per step, for a dense lower triangular C⁻¹ in single precision: ours against jax-privacy, both on all
# cores. bench/rows.sh [STEPS COORDINATES]; the default takes about ten minutes. In turn, three times; best and median.
#
# jax-privacy takes any dense matrix C⁻¹ in noise_addition.matrix_factorization_privatizer. Its update draws rows 0, …, t of Z
# again for step t, and keeps nothing. It is timed in the ways that were fastest:
#   dense           one jitted update per step, as in its documentation; a scan over the steps in one jit is no faster. The
#                   generator is JAX's default, threefry: rbg and unsafe_rbg take about four times as long on CPUs.
#   dense, sharded  the same numbers, with the coordinates spread over one JAX device per core. (Its own strategy for that,
#                   ZERO, does not compile for dense matrices: the loop's sum starts without a sharding.)
#   banded          not meant for this, but the only other class that can do it: C itself with as many bands as steps, up to
#                   the norms of its columns. It keeps the last STEPS rows.
# Gradients are zeros. Not counted: compiling theirs, preparing the matrix of either. Ours uses at most 943 bytes for each
# coordinate, which are 234 rows (crates/antiphon/benches/rows.rs): most of the ratio is rows of Z that are drawn once for many
# steps.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo bench --locked --quiet -p antiphon --bench rows --no-run
environment=target/bench-rows
[ -x "$environment/bin/python" ] || python3 -m venv "$environment"
"$environment/bin/python" -c 'import jax_privacy' 2>/dev/null \
    || "$environment/bin/pip" install --quiet jax-privacy==2.0.0 jax==0.10.2
"$environment/bin/python" - "${1:-500}" "${2:-100000}" <<'PYTHON'
import importlib.metadata, os, re, statistics, subprocess, sys, time
import jax
import jax.numpy as jnp
import numpy as np
from jax_privacy import noise_addition
from jax_privacy.matrix_factorization import banded

STEPS, COORDINATES = int(sys.argv[1]), int(sys.argv[2])
ROUNDS = 3
THREADS = len(os.sched_getaffinity(0))
jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", THREADS)

# As in crates/antiphon/benches/rows.rs.
noising = np.tril(np.full((STEPS, STEPS), 1e-3))
np.fill_diagonal(noising, 1.0)


def ours():
    command = ["cargo", "bench", "--locked", "--quiet", "-p", "antiphon", "--bench", "rows", "--"]
    command += [str(STEPS), str(COORDINATES)]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    # The rate has more digits than the seconds: n²·d operations in all.
    return STEPS**2 * COORDINATES / (1e9 * float(re.search(r"([0-9.]+) GFLOP/s", text)[1]))


def theirs(matrix, devices):
    """A function that makes all rows and returns the seconds it took; compiled already."""
    privatizer = noise_addition.matrix_factorization_privatizer(matrix, stddev=1.0, prng_key=1)
    mesh = jax.make_mesh((devices,), ("coordinates",), axis_types=(jax.sharding.AxisType.Auto,))
    spread = jax.NamedSharding(mesh, jax.P("coordinates"))
    # The state is handed over from step to step: without that, banded would copy its rows each time.
    update = jax.jit(privatizer.update, out_shardings=(spread, None), donate_argnums=1)
    gradient = jax.device_put(np.zeros(COORDINATES, np.float32), spread)

    def turn(steps=STEPS):
        # A state may hold the key itself, which must outlive the turn.
        state = jax.block_until_ready(jax.tree.map(lambda x: x.copy(), privatizer.init(gradient)))
        start = time.perf_counter()
        for _ in range(steps):
            row, state = update(gradient, state)
        jax.block_until_ready(row)
        return time.perf_counter() - start

    # The state that comes back is placed otherwise than the first: two steps compile both.
    turn(2)
    return turn


def bands():
    """C by columns, each from its diagonal down."""
    encoder = np.linalg.inv(noising)
    columns = np.zeros((STEPS, STEPS), np.float32)
    for j in range(STEPS):
        columns[j, : STEPS - j] = encoder[j:, j]
    return banded.ColumnNormalizedBanded(params=jnp.asarray(columns)).inverse_as_streaming_matrix()


dense = noising.astype(np.float32)
sharded = {"dense, sharded": theirs(dense, THREADS)} if COORDINATES % THREADS == 0 else {}
ways = {"antiphon": ours, "dense": theirs(dense, 1)} | sharded | {"banded": theirs(bands(), 1)}
times = {name: [] for name in ways}
for _ in range(ROUNDS):
    for name, turn in ways.items():
        times[name].append(turn())

versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ["jax-privacy", "jax"])
print(f"{STEPS} steps, {COORDINATES:,} coordinates, {THREADS} threads; {versions}")
best, median = min(times["antiphon"]), statistics.median(times["antiphon"])
print(f"{'antiphon':<28} {best:>8.2f} s best {median:>8.2f} s median")
for name, seconds in list(times.items())[1:]:
    low, middle = min(seconds), statistics.median(seconds)
    ratio = f"ratio {low / best:.1f} best, {middle / median:.1f} median"
    print(f"{'jax-privacy, ' + name:<28} {low:>8.2f} s best {middle:>8.2f} s median   {ratio}")
PYTHON
