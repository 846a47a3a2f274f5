"""A private training that is killed and started again: `killed.py FOLDER` goes on from FOLDER/state if it is there, saves every few
steps, and writes a digest of all parameters at the end."""

import hashlib
import sys
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import TensorDataset

import antiphon
from antiphon.torch import make_private


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(3)
    generator = torch.Generator().manual_seed(5)
    data = TensorDataset(torch.randn(60, 1, 8, 8, generator=generator), torch.randint(0, 10, (60,), generator=generator))
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Tanh(), nn.Flatten(), nn.Dropout(0.2), nn.Linear(144, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    schema = antiphon.Schema.epochs(20, 6)
    file = folder / "mechanism.safetensors"
    if not file.exists():
        antiphon.make("tree-online", schema).save(file)
    private = make_private(
        model,
        optimizer,
        data,
        nn.functional.cross_entropy,
        batch_size=10,
        epochs=20,
        noise_multiplier=1.0,
        delta=1e-3,
        max_grad_norm=1.0,
        key=folder / "run.key",
        mechanism=file,
        log=folder / "log",
        physical_batch_size=4,
    )
    state = folder / "state"
    if state.exists():
        private.load(state)
    else:
        private.save(state)  # before the first step: from then on nothing can be lost
    print(private.run.step, flush=True)
    for batch in private.loader:
        private.step(batch)
        print(private.run.step, flush=True)
        if private.run.step % 3 == 0:
            private.save(state)
    digest = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()
    print(digest)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
