"""Clients per second of a federated round with the window model (V = 1000, D = 32): ours against PyTorch. bench/federated.sh runs it.

A client has 64 positions and makes two steps of local training with batches of 32; then its update is clipped and added to a sum. PyTorch
trains clients in groups, their parameters side by side and all products as batched ones (bmm), with the gradient written out by hand, which
is faster than autograd; in one process with 1 and 2 threads, and in one process per core with one thread each. The fastest counts.
"""

import multiprocessing, os, re, statistics, subprocess, sys, tempfile, time
import numpy as np
import torch

V, D, POSITIONS, BATCH, RATE, CLIP = 1000, 32, 64, 32, 1.0, 1.0
GROUPS, ROUNDS, SECONDS = (8, 24, 64), 3, 1.0


class Model:
    """Parameters as ours: the transposed table, weights, biases of the hidden layer, biases of the tokens."""

    def __init__(self, context: int):
        self.context = context
        self.sizes = [V * D, context * D * D, D, V]

    def initial(self) -> torch.Tensor:
        scales = (0.1, (self.context * D) ** -0.5, 0.0, 0.0)
        return torch.cat([scale * torch.randn(size) for scale, size in zip(scales, self.sizes)])

    def split(self, flat: torch.Tensor):
        table, weights, bias, tokens = flat.split(self.sizes, dim=1)
        n = len(flat)
        return table.view(n, D, V), weights.view(n, self.context * D, D), bias.view(n, 1, D), tokens.view(n, 1, V)

    def step(self, flat: torch.Tensor, contexts: torch.Tensor, labels: torch.Tensor) -> None:
        """One step of all clients of a group, in place: contexts [client, position, J], labels [client, position]."""
        table, weights, bias, tokens = self.split(flat)
        clients, positions, context = contexts.shape
        flat_contexts = contexts.reshape(clients, 1, -1).expand(-1, D, -1)
        x = table.gather(2, flat_contexts).view(clients, D, positions, context)
        x = x.permute(0, 2, 3, 1).reshape(clients, positions, context * D)
        h = torch.baddbmm(bias, x, weights).tanh_()
        p = torch.baddbmm(tokens, h, table).softmax(2)
        p.scatter_add_(2, labels[..., None], torch.full((clients, positions, 1), -1.0))
        slope = torch.bmm(p, table.transpose(1, 2)).mul_(1 - h * h)
        back = torch.bmm(slope, weights.transpose(1, 2)).view(clients, positions * context, D).transpose(1, 2)
        rate = -RATE / positions
        table.baddbmm_(h.transpose(1, 2), p, alpha=rate)
        table.scatter_add_(2, flat_contexts, back * rate)
        tokens.add_(p.sum(1, keepdim=True), alpha=rate)
        weights.baddbmm_(x.transpose(1, 2), slope, alpha=rate)
        bias.add_(slope.sum(1, keepdim=True), alpha=rate)

    def updates(self, theta: torch.Tensor, contexts: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        flat = theta.repeat(len(labels), 1)
        for at in range(0, POSITIONS, BATCH):
            self.step(flat, contexts[:, at : at + BATCH], labels[:, at : at + BATCH])
        return theta - flat


def clients(count: int, context: int):
    """Windows over lines of random tokens; token 0 is before the line."""
    labels = torch.randint(1, V, (count, POSITIONS))
    line = torch.cat([torch.zeros(count, context, dtype=torch.int64), labels], dim=1)
    return line.unfold(1, context, 1)[:, :POSITIONS].contiguous(), labels


def same_update(binary: str, context: int) -> None:
    """Both give the same update for one client."""
    torch.manual_seed(1)
    model, (contexts, labels) = Model(context), clients(1, context)
    theta = model.initial()
    with tempfile.TemporaryDirectory() as folder:
        for name, tensor in (("theta", theta), ("contexts", contexts.int()), ("labels", labels.int())):
            tensor.numpy().tofile(f"{folder}/{name}")
        subprocess.run([binary, "update", folder, str(context)], check=True)
        ours = torch.from_numpy(np.fromfile(f"{folder}/update", dtype=np.float32))
    theirs = model.updates(theta, contexts, labels)[0]
    off = ((ours - theirs).norm() / theirs.norm()).item()
    assert off < 1e-4, f"J={context}: the updates differ by {off:.1e} of their size"
    print(f"J={context}: the updates of one client differ by {off:.0e} of their size")


def torch_rate(context: int, group: int, threads: int) -> float:
    """The best of short stretches, as the other side has it."""
    torch.set_num_threads(threads)
    model = Model(context)
    theta, (contexts, labels) = model.initial(), clients(group, context)
    total, best, begin = torch.zeros(len(theta)), 0.0, time.perf_counter()
    while time.perf_counter() - begin < SECONDS:
        start = time.perf_counter()
        updates = model.updates(theta, contexts, labels)
        total.addmv_(updates.T, (CLIP / updates.norm(dim=1)).clamp(max=1.0))
        best = max(best, group / (time.perf_counter() - start))
    return best


def worker(arguments) -> float:
    return torch_rate(*arguments)


def our_rates(binary: str) -> dict:
    out = subprocess.run([binary, str(SECONDS)], check=True, capture_output=True, text=True).stdout
    found = re.findall(r"J=(\d+): (\d+) clients/s on (\d+) threads", out)
    return {(int(context), int(threads)): float(rate) for context, rate, threads in found}


def main(binary: str) -> None:
    cores = len(os.sched_getaffinity(0))
    for context in (4, 7):
        same_update(binary, context)
    print(f"torch {torch.__version__}, {cores} cores; clients/s, best of {ROUNDS} rounds in turn (median of the ratios by round)")
    ours, theirs, ratios = {}, {}, {}
    with multiprocessing.get_context("spawn").Pool(cores) as pool:
        pool.map(worker, [(4, 8, 1)] * cores)
        for _ in range(ROUNDS):
            found = our_rates(binary)
            for context in (4, 7):
                one = {f"groups of {g}, {t} thread{'s' * (t > 1)}": torch_rate(context, g, t) for g in GROUPS for t in (1, 2)}
                many = {f"groups of {g}, {cores} processes": sum(pool.map(worker, [(context, g, 1)] * cores, chunksize=1)) for g in GROUPS}
                single = max(rate for name, rate in one.items() if name.endswith("1 thread"))
                fastest = max((one | many).values())
                for key, a, b in (((context, 1), found[context, 1], single), ((context, cores), found[context, cores], fastest)):
                    ratios.setdefault(key, []).append(a / b)
                    ours[key] = max(ours.get(key, 0.0), a)
                for name, rate in (one | many).items():
                    theirs[context, name] = max(theirs.get((context, name), 0.0), rate)
    for context in (4, 7):
        for threads in (1, cores):
            ratio = statistics.median(ratios[context, threads])
            against = "its fastest with one thread" if threads == 1 else "its fastest"
            print(f"J={context}  antiphon, {threads} threads{'':<19} {ours[context, threads]:>7.0f}   {ratio:.2f} times {against}")
        for (_, name), rate in sorted((item for item in theirs.items() if item[0][0] == context), key=lambda item: -item[1]):
            print(f"J={context}  torch, {name:<30} {rate:>7.0f}")


if __name__ == "__main__":
    main(sys.argv[1])
