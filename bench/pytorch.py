"""What a private step costs in PyTorch: called by pytorch.sh.

speed   examples per second at batch 64, in turn, several rounds; medians, and ratios round by round
memory  growth of resident memory (the peak over five steps, from what was resident before the first), one process for each, at batch 64
noise   the noise of a step (optimal mechanism of 2,000 steps, 1 GiB) against a step of batch 500, over a whole run of rows
"""

import os
import statistics
import subprocess
import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import antiphon
from antiphon.torch import make_private

BATCH, ROUNDS = 64, 7
MODES = ["antiphon", "opacus hooks", "opacus ghost", "opacus ew", "plain SGD"]
torch.set_num_threads(os.cpu_count() or 1)


def network() -> nn.Module:
    """Kairouz et al. 2021, Table 2 (b)."""
    layers, channels = [], 3
    for width in (32, 64, 128):
        for before in (channels, width):
            layers += [nn.Conv2d(before, width, 3, padding=1), nn.Tanh()]
        layers.append(nn.MaxPool2d(2))
        channels = width
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(2048, 128), nn.Tanh(), nn.Linear(128, 10))


def data(examples: int) -> TensorDataset:
    torch.manual_seed(0)
    return TensorDataset(torch.randn(examples, 3, 32, 32), torch.arange(examples) % 10)


def private_step(batch: int, epochs: int, mechanism: str, physical_batch_size: int | None = None):
    """Our step: forward, backward, clip, sum, noise, SGD."""
    model = network()
    private = make_private(
        model,
        torch.optim.SGD(model.parameters(), lr=0.01),
        data(batch),
        nn.functional.cross_entropy,
        batch_size=batch,
        epochs=epochs,
        noise_multiplier=1.0,
        delta=1e-5,
        max_grad_norm=1.0,
        key=antiphon.Key.from_seed(1),
        mechanism=mechanism,
        physical_batch_size=physical_batch_size,
    )
    (only,) = [next(iter(private.loader))]
    return private, lambda: private.step(only)


def step_of(mode: str, physical_batch_size: int | None = None):
    """A step of batch 64 with independent noise, as Opacus has it."""
    if mode == "antiphon":
        return private_step(BATCH, 1000, "identity", physical_batch_size)[1]
    x, y = data(BATCH).tensors
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    criterion = nn.CrossEntropyLoss()
    if mode.startswith("opacus"):
        from opacus import PrivacyEngine

        made = PrivacyEngine(accountant="rdp").make_private(
            module=model,
            optimizer=optimizer,
            data_loader=DataLoader(TensorDataset(x, y), batch_size=BATCH),
            noise_multiplier=1.0,
            max_grad_norm=1.0,
            poisson_sampling=False,
            grad_sample_mode=mode.split()[1],
            criterion=criterion,
        )
        model, optimizer = made[0], made[1]
        if len(made) == 4:
            criterion = made[2]

    def step():
        optimizer.zero_grad()
        criterion(model(x), y).backward()
        optimizer.step()

    return step


def seconds(step) -> float:
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


def speed() -> None:
    steps = {mode: step_of(mode) for mode in MODES}
    for step in steps.values():
        step()
    rounds = [{mode: BATCH / seconds(step) for mode, step in steps.items()} for _ in range(ROUNDS)]
    print(f"batch {BATCH}, 550,570 parameters, {torch.get_num_threads()} threads, examples per second (median of {ROUNDS} rounds)")
    for mode in MODES:
        rates, ratios = [r[mode] for r in rounds], sorted(r["antiphon"] / r[mode] for r in rounds)
        print(f"  {mode:<14} {statistics.median(rates):>6.0f}   antiphon / it: {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})")


def resident(name: str) -> int:
    """VmRSS, what is resident now, or VmHWM, the most since it was reset; in MiB."""
    with open("/proc/self/status") as status:
        (line,) = [line for line in status if line.startswith(name)]
    return int(line.split()[1]) // 1024


def memory_of(mode: str) -> None:
    """Everything is loaded and a model of its own has made a step before; what grows is the private step."""
    for _ in range(2):
        nn.functional.cross_entropy(network()(torch.randn(1, 3, 32, 32)), torch.tensor([0])).backward()
    step = step_of(mode, 16)
    before = resident("VmRSS")
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # VmHWM begins here
    for _ in range(5):
        step()
    print(resident("VmHWM") - before)


def memory() -> None:
    print(f"growth of resident memory, batch {BATCH} (antiphon: physical_batch_size=16)")
    for mode in MODES:
        out = subprocess.run([sys.executable, "-W", "ignore", __file__, "memory-of", mode], check=True, capture_output=True, text=True)
        print(f"  {mode:<14} {out.stdout.strip():>6} MiB")


def noise() -> None:
    private, step = private_step(500, 2000, "identity")
    step()
    whole = statistics.median(seconds(step) for _ in range(5))
    run = antiphon.PrivateRun(
        antiphon.optimize(antiphon.Schema.epochs(20, 100)),
        noise_multiplier=1.0,
        delta=1e-5,
        clip_norm=1.0,
        params=550_570,
        key=antiphon.Key.from_seed(1),
        memory=1 << 30,
    )
    total = torch.zeros(550_570, dtype=torch.float64)
    start, longest = time.perf_counter(), 0.0
    for row in range(run.steps):
        run.admit([row % 100])
        longest = max(longest, seconds(lambda: run.privatize(total)))
    mean = (time.perf_counter() - start) / run.steps
    print("noise of the optimal mechanism of 2,000 steps for 550,570 parameters, in 1 GiB")
    print(f"  {1000 * mean:.1f} ms per step on average, {1000 * longest:.0f} ms at most; a step of batch 500 takes {1000 * whole:.0f} ms: {100 * mean / whole:.2f} %")


if __name__ == "__main__":
    if sys.argv[1:2] == ["memory-of"]:
        memory_of(sys.argv[2])
    else:
        for part in sys.argv[1:] or ["speed", "memory", "noise"]:
            {"speed": speed, "memory": memory, "noise": noise}[part]()
