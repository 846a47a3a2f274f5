#!/usr/bin/env bash
# Normals per second in single precision, into memory that is there already: ours (AES and ChaCha20) on all cores, torch.randn on as
# many threads, numpy's Generator.standard_normal with one generator per thread. In turn, five times; medians.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo bench --locked --quiet -p antiphon --bench gaussians --no-run
environment=target/bench-gaussians
[ -x "$environment/bin/python" ] || python3 -m venv "$environment"
"$environment/bin/python" -c 'import numpy, torch' 2>/dev/null || "$environment/bin/pip" install --quiet numpy torch
"$environment/bin/python" - <<'PYTHON'
import os, statistics, subprocess, threading, time
import numpy, torch

COUNT, ROUNDS, RUNS = 50_000_000, 5, 3
THREADS = os.cpu_count()


def ours():
    """Millions per second on all threads, in memory, by cipher."""
    command = ["cargo", "bench", "--locked", "--quiet", "-p", "antiphon", "--bench", "gaussians"]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    # Cipher, type, threads, in cache, in memory; below a head of one line.
    rows = [line.split() for line in text.splitlines()[1:]]
    return {row[0]: float(row[4]) for row in rows if row[1] == "f32" and int(row[2]) == THREADS}


torch.set_num_threads(THREADS)
tensor = torch.empty(COUNT, dtype=torch.float32)
array = numpy.zeros(COUNT, dtype=numpy.float32)
generators = [numpy.random.default_rng(seed) for seed in range(THREADS)]


def by_torch():
    torch.randn(COUNT, out=tensor)


def by_numpy():
    parts = numpy.array_split(array, THREADS)
    draw = lambda i: generators[i].standard_normal(dtype=numpy.float32, out=parts[i])
    threads = [threading.Thread(target=draw, args=(i,)) for i in range(THREADS)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]


def rate(draw):
    draw()
    seconds = []
    for _ in range(RUNS):
        start = time.perf_counter()
        draw()
        seconds.append(time.perf_counter() - start)
    return 1e-6 * COUNT / statistics.median(seconds)


rounds = [(ours(), rate(by_torch), rate(by_numpy)) for _ in range(ROUNDS)]
aes, chacha = (statistics.median(r[0][name] for r in rounds) for name in ["aes256-ctr", "chacha20"])
theirs = {
    f"torch.randn {torch.__version__}": statistics.median(r[1] for r in rounds),
    f"numpy standard_normal {numpy.__version__}": statistics.median(r[2] for r in rounds),
}
print(f"{COUNT:,} normals of single precision, {THREADS} threads, millions per second")
print(f"{'antiphon, aes256-ctr':<36} {aes:>8.0f}")
print(f"{'antiphon, chacha20':<36} {chacha:>8.0f}")
for name, theirs in theirs.items():
    print(f"{name:<36} {theirs:>8.0f}   ratio {aes / theirs:.1f} (chacha20 {chacha / theirs:.1f})")
PYTHON
