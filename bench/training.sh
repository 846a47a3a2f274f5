#!/usr/bin/env bash
# Examples per second of one step at batch 500: our clipped sum of per-example gradients, PyTorch's gradient without privacy (in its
# usual memory format, and with channels last, as ours has them), and per-example gradients by Opacus's hooks. In turn, five
# times; medians, and ratios round by round, because other work on a machine comes and goes.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo bench --locked --quiet -p antiphon-train --bench step --no-run
environment=target/bench-training
[ -x "$environment/bin/python" ] || python3 -m venv "$environment"
"$environment/bin/python" -c 'import opacus, torch' 2>/dev/null || "$environment/bin/pip" install --quiet torch opacus
"$environment/bin/python" -W ignore - <<'PYTHON'
import os, statistics, subprocess, time
import opacus, torch
from torch import nn

BATCH, ROUNDS, STEPS = 500, 5, 3
THREADS = os.cpu_count()
torch.set_num_threads(THREADS)
torch.manual_seed(0)


def network():
    """Kairouz et al. 2021, Table 2 (b)."""
    layers, channels = [], 3
    for width in (32, 64, 128):
        for before in (channels, width):
            layers += [nn.Conv2d(before, width, 3, padding=1), nn.Tanh()]
        layers.append(nn.MaxPool2d(2))
        channels = width
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(2048, 128), nn.Tanh(), nn.Linear(128, 10))


x, y = torch.randn(BATCH, 3, 32, 32), torch.arange(BATCH) % 10
plain, private = network(), opacus.GradSampleModule(network(), loss_reduction="sum")
last, x_last = (thing.to(memory_format=torch.channels_last) for thing in (network(), x))
assert sum(p.numel() for p in plain.parameters()) == 550_570


def not_private(model, x):
    model.zero_grad(set_to_none=True)
    nn.functional.cross_entropy(model(x), y).backward()


def hooks():
    """Clipped and summed as Opacus's optimizer does it; without noise, as ours."""
    private.zero_grad(set_to_none=True)
    nn.functional.cross_entropy(private(x), y, reduction="sum").backward()
    samples = [p.grad_sample for p in private.parameters()]
    norms = torch.stack([g.flatten(1).norm(2, dim=1) for g in samples], dim=1).norm(2, dim=1)
    factors = (1.0 / (norms + 1e-6)).clamp(max=1.0)
    for p, g in zip(private.parameters(), samples):
        p.grad, p.grad_sample = torch.einsum("i,i...", factors, g), None


def rate(step):
    seconds = []
    for _ in range(STEPS):
        start = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - start)
    return BATCH / statistics.median(seconds)


def ours():
    command = ["cargo", "bench", "--locked", "--quiet", "-p", "antiphon-train", "--bench", "step", "--", str(BATCH), str(STEPS)]
    # One line: rate "examples/s at batch" … memory "MiB".
    words = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    return float(words[0]), words[-2]


theirs = {
    f"PyTorch {torch.__version__}, not private": lambda: not_private(plain, x),
    "the same, channels last": lambda: not_private(last, x_last),
    f"Opacus {opacus.__version__}, clipped, by hooks": hooks,
}
for step in theirs.values():
    step()
rounds = [(*ours(), *map(rate, theirs.values())) for _ in range(ROUNDS)]
print(f"{BATCH} examples, 550,570 parameters, {THREADS} threads, examples per second")
print(f"{'antiphon, clipped':<36} {statistics.median(r[0] for r in rounds):>6.0f}   {rounds[0][1]} MiB in all")
for i, name in enumerate(theirs, 2):
    ratios = sorted(r[0] / r[i] for r in rounds)
    median = statistics.median(r[i] for r in rounds)
    print(f"{name:<36} {median:>6.0f}   ratio {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})")
PYTHON
