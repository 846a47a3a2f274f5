"""A private federated training whose server is killed and started again: `flower_killed.py FOLDER EPOCHS` goes on from FOLDER/state if it is
there, and writes a digest of the arrays at the end. The clients are in this process, and deterministic.

With ROUND and MOMENT it kills itself in that round: "client" while a client trains, "noise" when noise was added and nothing is saved, "state"
when the new state is there and the key file does not know it yet, "kept" when it does.
"""

import hashlib
import logging
import os
import signal
import sys
from pathlib import Path

from flower_cases import NODES, START, MemoryGrid, record, train, vector
from flwr.serverapp.strategy import FedAdam

from antiphon.flower import CorrelatedNoise, _state


def kill_in(private: CorrelatedNoise, grid: MemoryGrid, number: int, moment: str) -> None:
    """Puts the kill where it belongs."""

    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def client(message):
        if moment == "client" and message.content["config"]["server-round"] == number:
            die()
        return train(message)

    grid.behave = {node: client for node in NODES}
    write, save = _state.write, private.save

    def writing(path, state):
        if moment == "noise" and state["run"]["step"] == number:
            die()
        write(path, state)
        if moment == "state" and state["run"]["step"] == number:
            die()

    def saving(path):
        save(path)
        if moment == "kept" and private.run.step == number:
            die()

    _state.write, private.save = writing, saving


def main(folder: Path, epochs: int, *kill: str) -> None:
    logging.getLogger("flwr").setLevel(logging.ERROR)
    private = CorrelatedNoise(
        FedAdam(fraction_evaluate=0.0),
        clients=NODES,
        clients_per_round=3,
        epochs=epochs,
        noise_multiplier=1.0,
        delta=1e-3,
        clip_norm=0.5,
        mechanism="tree-online",
        key=folder / "run.key",
        checkpoint=folder / "state",
        log=folder / "log",
    )
    print("begun", flush=True)
    grid = MemoryGrid(NODES)
    if kill:
        kill_in(private, grid, int(kill[0]), kill[1])
    result = private.start(grid, record(START))
    print(hashlib.sha256(vector(result.arrays).tobytes()).hexdigest(), private.run.audit(folder / "log").ok)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
