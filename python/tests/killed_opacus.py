"""An Opacus loop with antiphon's engine that is killed and started again: `killed_opacus.py FOLDER MODE` goes on from FOLDER/checkpoint if it is
there, saves every few steps, and writes a digest of all parameters at the end."""

import hashlib
import sys
import warnings
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import antiphon
from antiphon.opacus import PrivacyEngine

EPOCHS = 20


def main(folder: Path, mode: str) -> None:
    warnings.filterwarnings("ignore", message="Full backward hook is firing")
    torch.set_num_threads(1)
    torch.manual_seed(3)
    generator = torch.Generator().manual_seed(5)
    data = TensorDataset(torch.randn(60, 1, 8, 8, generator=generator), torch.randint(0, 10, (60,), generator=generator))
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Tanh(), nn.Flatten(), nn.Dropout(0.2), nn.Linear(144, 10))
    file = folder / "mechanism.safetensors"
    if not file.exists():
        antiphon.make("tree-online", antiphon.Schema.epochs(EPOCHS, 6)).save(file)
    criterion = nn.CrossEntropyLoss()
    engine = PrivacyEngine()
    found = engine.make_private(
        module=model,
        optimizer=torch.optim.Adam(model.parameters(), lr=0.01),
        criterion=criterion,
        data_loader=DataLoader(data, batch_size=10),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
        epochs=EPOCHS,
        delta=1e-3,
        key=folder / "run.key",
        mechanism=file,
        log=folder / "log",
        grad_sample_mode=mode,
    )
    private, optimizer, loader = found[0], found[1], found[-1]
    criterion = found[2] if len(found) == 4 else criterion
    checkpoint = folder / "checkpoint"
    if checkpoint.exists():
        engine.load_checkpoint(path=checkpoint, module=private, optimizer=optimizer)
    else:
        engine.save_checkpoint(path=checkpoint, module=private, optimizer=optimizer)  # before the first step: from then on nothing can be lost
    print(engine.run.step, flush=True)
    for _ in range(loader.epoch, EPOCHS):
        for x, y in loader:
            optimizer.zero_grad()
            criterion(private(x), y).backward()
            optimizer.step()
            print(engine.run.step, flush=True)
            if engine.run.step % 3 == 0:
                engine.save_checkpoint(path=checkpoint, module=private, optimizer=optimizer)
    print(hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest())


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
