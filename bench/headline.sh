#!/usr/bin/env bash
# The optimal dense mechanism for 20 epochs of 100 steps, from process start to finish, against one symmetric
# eigendecomposition of a dense 2000×2000 matrix by numpy on the same two threads. Five runs each, in turn; medians.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo build --release --locked --quiet
environment=target/bench-python
[ -x "$environment/bin/python" ] || python3 -m venv "$environment"
"$environment/bin/python" -c 'import numpy' 2>/dev/null || "$environment/bin/pip" install --quiet numpy
OMP_NUM_THREADS=2 OPENBLAS_NUM_THREADS=2 "$environment/bin/python" - <<'PYTHON'
import statistics, subprocess, time
import numpy as np

command = ["target/release/antiphon", "--threads", "2", "optimize", "--epochs", "20", "--steps-per-epoch", "100", "--json"]
matrix = np.random.default_rng(0).standard_normal((2000, 2000))
matrix = matrix + matrix.T
ours, theirs = [], []
for _ in range(5):
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    ours.append(time.perf_counter() - start)
    start = time.perf_counter()
    np.linalg.eigh(matrix)
    theirs.append(time.perf_counter() - start)
a, b = statistics.median(ours), statistics.median(theirs)
print(f"antiphon optimize, 20 × 100, whole process   {a:.3f} s")
print(f"numpy {np.__version__} eigh, 2000 × 2000, one call      {b:.3f} s")
print(f"ratio                                        {a / b:.2f}")
PYTHON
