"""A private training in several processes of which one is killed: `killed_ranks.py FOLDER RANK WORLD KIND` goes on from FOLDER/state."""

import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from sharded_cases import placed, private_of


def main(folder, rank, world, kind):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world, timeout=timedelta(seconds=60))
    model = placed(kind)
    private = private_of(model, optimizer=torch.optim.Adam(model.parameters(), lr=0.01), key=folder / "run.key", log=folder / "log", epochs=4)
    if (folder / "state").exists():
        private.load(folder / "state")
    else:
        private.save(folder / "state")
    for batch in private.loader:
        private.step(batch)
        print("step", private.run.step, flush=True)
        if private.run.step % 2 == 0:
            private.save(folder / "state")
        time.sleep(0.05)  # so that a kill comes before the end


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
