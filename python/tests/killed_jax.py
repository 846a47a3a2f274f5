"""A private training in JAX that is killed and started again: `killed_jax.py FOLDER` goes on from FOLDER/state if it is there, saves every
few steps, and writes a digest of all parameters at the end. Digests of the rows go to FOLDER/rows."""

import hashlib
import os
import sys
from pathlib import Path

os.environ["JAX_PLATFORMS"] = "cpu"

import numpy as np  # noqa: E402
from jax_cases import OPTIMIZER, data_of, flat, noise_of, order_of, params_of, step  # noqa: E402

import antiphon  # noqa: E402


def main(folder: Path) -> None:
    x, y = data_of()
    file = folder / "mechanism.safetensors"
    if not file.exists():
        antiphon.make("tree-online", antiphon.Schema.epochs(30, 6)).save(file)
    noise = noise_of(order=order_of(epochs=30), key=folder / "run.key", mechanism=file, log=folder / "log")
    params = params_of()
    carry = params, OPTIMIZER.init(params)
    state = folder / "state"
    if state.exists():
        carry = noise.load(state, carry)
    else:
        noise.save(state, carry)  # before the first step: from then on nothing can be lost
    print("begun", noise.step, flush=True)
    for indices, row in noise:
        with open(folder / "rows", "a") as rows:
            rows.write(f"{noise.step} {hashlib.sha256(np.asarray(row.flat).tobytes()).hexdigest()}\n")
        carry = step(*carry, (x[indices], y[indices]), row)
        if noise.step % 4 == 0:
            noise.save(state, carry)
    print(hashlib.sha256(flat(carry).tobytes()).hexdigest())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
