"""Private training on handwritten digits with Opacus, as its users write it: the loop that opacus_loop_changed.py changes.

Independent noise and Poisson sampling, ε = 8 at δ = 1e-4. Needs torch and opacus, and a clone of the repository for the images.
"""

import torch
from digits_torch import load
from opacus import PrivacyEngine
from torch import nn
from torch.utils.data import DataLoader

EPOCHS, BATCH = 20, 60


def main() -> None:
    torch.set_num_threads(1)  # more do not pay for so small a model
    training, test = load()
    model = nn.Linear(64, 10)
    nn.init.zeros_(model.weight), nn.init.zeros_(model.bias)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    loader = DataLoader(training, batch_size=BATCH)
    engine = PrivacyEngine()
    model, optimizer, loader = engine.make_private_with_epsilon(
        module=model,
        optimizer=optimizer,
        data_loader=loader,
        target_epsilon=8.0,
        target_delta=1e-4,
        epochs=EPOCHS,
        max_grad_norm=1.0,
    )
    for epoch in range(EPOCHS):
        for images, labels in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()
    with torch.no_grad():
        images, labels = test.tensors
        right = (model(images).argmax(1) == labels).float().mean().item()
    print(f"{100 * right:.1f} % of the test images")
    print(f"ε = {engine.get_epsilon(1e-4):.4f}")


if __name__ == "__main__":
    main()
