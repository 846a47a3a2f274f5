"""Private training in several processes: a network for handwritten digits, replicated or sharded over them, with the noise of one process.

    python fsdp_two_processes.py                                  # starts two processes itself
    torchrun --nproc-per-node 3 fsdp_two_processes.py             # or as many as torchrun starts
    python fsdp_two_processes.py --kind ddp                       # replicated, not sharded

Every process computes a part of each batch and draws the noise of the coordinates that it holds. Needs torch, and a clone of the repository for
the images.
"""

import argparse
import os
import socket
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import TensorDataset

import antiphon
from antiphon.torch import make_private

IMAGES = Path(__file__).resolve().parents[2] / "crates/antiphon-train/src/data/digits/digits.bin"


def load() -> tuple[TensorDataset, TensorDataset]:
    """Images to train on and to test on."""
    records = torch.from_numpy(np.frombuffer(IMAGES.read_bytes(), np.uint8).reshape(-1, 65).copy())  # a label and 64 pixels
    # Pixels of 0 to 16 become -1 to 1: a formula that looks at no data.
    images, labels = records[:, 1:].float() / 8 - 1, records[:, 0].long()
    test = torch.arange(len(records)) % 5 == 0
    return TensorDataset(images[~test], labels[~test]), TensorDataset(images[test], labels[test])


def train(kind: str, *, epochs: int, batch_size: int, epsilon: float, key: antiphon.Key | str) -> tuple[float, str]:
    """The accuracy on test images, in percent, and what ε means: the same in all processes."""
    training, (images, labels) = load()[0], load()[1].tensors
    torch.manual_seed(0)  # the same model in every process
    model: nn.Module = nn.Sequential(nn.Linear(64, 48), nn.Tanh(), nn.Linear(48, 10))
    if kind == "fsdp":
        fully_shard(model)
    elif kind == "ddp":
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    private = make_private(
        model,
        optimizer,
        training,
        nn.functional.cross_entropy,
        batch_size=batch_size,
        epochs=epochs,
        epsilon=epsilon,
        delta=1e-4,
        max_grad_norm=1.0,
        mechanism="comb-blt",
        key=key,
    )
    for batch in private.loader:
        private.step(batch)
    with torch.no_grad():
        right = (model(images).argmax(1) == labels).float().mean().item()
    return 100 * right, private.statement()


def work(rank: int, world: int, port: int, arguments: argparse.Namespace) -> None:
    """One of the processes."""
    torch.set_num_threads(1)  # more do not pay for so small a model
    if port:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(world))
    dist.init_process_group("gloo")
    # A seed, so that the figures can be repeated. It is NOT private: a real run has key="run.key".
    accuracy, statement = train(
        arguments.kind, epochs=arguments.epochs, batch_size=120, epsilon=arguments.epsilon, key=antiphon.Key.from_seed(1)
    )
    if dist.get_rank() == 0:
        print(f"{arguments.kind} in {dist.get_world_size()} processes: {accuracy:.1f} % of the test images\n\n{statement}")
    dist.barrier()
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", choices=["fsdp", "ddp"], default="fsdp", help="sharded or replicated (default: fsdp)")
    parser.add_argument("--epochs", type=int, default=10, help="default: 10")
    parser.add_argument("--epsilon", type=float, default=8.0, help="ε of the whole run (default: 8)")
    arguments = parser.parse_args()
    if "RANK" in os.environ:  # started by torchrun
        work(0, 0, 0, arguments)
        return
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mp.start_processes(work, (2, port, arguments), nprocs=2, start_method="spawn")


if __name__ == "__main__":
    main()
