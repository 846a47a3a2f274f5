"""Private training on handwritten digits: optimal correlated noise against independent noise, at the same ε.

The same comparison as `antiphon train`, in PyTorch: 1,440 images of 8×8 pixels to train on and 357 to test on, a linear model,
20 epochs of 24 steps, ε = 1 at δ = 1e-4 for the whole run, several seeds. Needs torch, and a clone of the repository for the images.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import TensorDataset

import antiphon
from antiphon.torch import make_private

IMAGES = Path(__file__).resolve().parents[2] / "crates/antiphon-train/src/data/digits/digits.bin"
EPOCHS, BATCH = 20, 60
#: Learning rate and momentum, the best of a grid on held-out training images (repository, crates/antiphon-train/src/settings.rs).
RATES = {"optimal": (0.03, 0.9), "identity": (0.1, 0.0)}


def load() -> tuple[TensorDataset, TensorDataset]:
    """Images to train on and to test on: the split of `antiphon train`, with every digit in both parts by its share."""
    records = np.frombuffer(IMAGES.read_bytes(), np.uint8).reshape(-1, 65)  # a label and 64 pixels
    count = len(records)
    places = np.arange(count)
    test = np.zeros(count, bool)
    test[np.argsort(records[:, 0], kind="stable")] = 357 * (places + 1) // count > 357 * places // count
    # Pixels of 0 to 16 become -1 to 1: a formula that looks at no data.
    images, labels = torch.tensor(records[:, 1:] / np.float32(8) - 1), torch.tensor(records[:, 0].astype(np.int64))
    return TensorDataset(images[~test], labels[~test]), TensorDataset(images[test], labels[test])


def train(mechanism: str, seed: int, epsilon: float) -> tuple[float, str]:
    """The accuracy on test images, in percent, and what ε means."""
    training, (images, labels) = load()[0], load()[1].tensors
    model = nn.Linear(64, 10)
    nn.init.zeros_(model.weight), nn.init.zeros_(model.bias)
    rate, momentum = RATES[mechanism]
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=momentum)
    private = make_private(
        model,
        optimizer,
        training,
        nn.functional.cross_entropy,
        batch_size=BATCH,
        epochs=EPOCHS,
        epsilon=epsilon,
        delta=1e-4,
        max_grad_norm=1.0,
        mechanism=mechanism,
        shuffle_seed=seed,
        # A seed, so that the figures can be repeated. It is NOT private: a real run has key="run.key".
        key=antiphon.Key.from_seed(seed),
    )
    # The rate falls to a twentieth over the last quarter. This is post-processing: it costs no privacy.
    steps, falling = private.order.steps, private.order.steps // 4
    cooldown = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda t: 1 - 0.95 * max(0, t + 1 - (steps - falling)) / falling)
    for batch in private.loader:
        private.step(batch)
        cooldown.step()
    with torch.no_grad():
        right = (model(images).argmax(1) == labels).float().mean().item()
    return 100 * right, private.statement()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5, help="runs per mechanism (default: 5)")
    parser.add_argument("--epsilon", type=float, default=1.0, help="ε of the whole run (default: 1)")
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # more do not pay for so small a model
    for mechanism in RATES:
        runs = [train(mechanism, seed, arguments.epsilon) for seed in range(arguments.seeds)]
        accuracies = [accuracy for accuracy, _ in runs]
        low, high = min(accuracies), max(accuracies)
        print(f"{mechanism:<9} {np.mean(accuracies):.1f} % of the test images ({low:.1f} to {high:.1f} over {len(runs)} seeds)")
    print(f"\n{runs[-1][1]}")


if __name__ == "__main__":
    main()
