#!/usr/bin/env bash
# ε of DP-SGD on Poisson samples (q = 0.01, z = 1, T = 10,000, δ = 1e-6) against dp-accounting's privacy loss distributions
# with connect-the-dots, on the same interval of 1e-4. Imports are excluded. In turn, five times; medians.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo bench --locked --quiet -p antiphon --bench accounting --no-run
environment=target/bench-accounting
[ -x "$environment/bin/python" ] || python3 -m venv "$environment"
"$environment/bin/python" -c 'import dp_accounting' 2>/dev/null || "$environment/bin/pip" install --quiet dp-accounting==0.6.0
"$environment/bin/python" - <<'PYTHON'
import importlib.metadata, statistics, subprocess, time
from dp_accounting.pld import privacy_loss_distribution as pld


def theirs():
    start = time.perf_counter()
    one = pld.from_gaussian_mechanism(
        standard_deviation=1.0,
        sampling_prob=0.01,
        value_discretization_interval=1e-4,
        use_connect_dots=True,
        pessimistic_estimate=True,
    )
    epsilon = one.self_compose(10_000).get_epsilon_for_delta(1e-6)
    return time.perf_counter() - start, epsilon


def ours():
    command = ["cargo", "bench", "--locked", "--quiet", "-p", "antiphon", "--bench", "accounting", "--", "first"]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    # The first line is the head, the second this case: q, z, T, interval, first "s", median "s", lower "to" upper.
    words = text.splitlines()[1].split()
    return float(words[4]), float(words[6]), float(words[10])


times = [(ours(), [theirs() for _ in range(3)]) for _ in range(5)]
first = statistics.median(ours[0] for ours, _ in times)
median = statistics.median(ours[1] for ours, _ in times)
other = statistics.median(seconds for _, runs in times for seconds, _ in runs)
print(f"antiphon             {median:.4f} s (first call {first:.4f} s)   epsilon at most {times[0][0][2]:.6f}")
print(f"dp-accounting {importlib.metadata.version('dp-accounting')}  {other:.4f} s                          epsilon at most {times[0][1][0][1]:.6f}")
print(f"ratio                {other / median:.1f} (first call {other / first:.1f})")
PYTHON
