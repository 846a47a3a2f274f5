"""Processes that form process groups of any size, one after the other: starting PyTorch takes longer than most tests."""

import atexit
import functools
import sys
import tempfile
import traceback
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

#: Nothing in the tests takes so long: whoever waits for longer waits for somebody who will never answer.
PATIENCE = 120

EXAMPLES = str(Path(__file__).resolve().parents[1] / "examples")


@functools.cache
def pool():
    """Three of them, for all tests."""
    sys.path.insert(0, EXAMPLES)  # the children take it over
    made = Workers(3)
    sys.path.remove(EXAMPLES)
    atexit.register(made.stop)
    return made


def serve(rank, pipe):
    torch.set_num_threads(1)
    while (job := pipe.recv()) is not None:
        world, store, function, arguments = job
        try:
            dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world, timeout=timedelta(seconds=PATIENCE))
            found = ("gave", function(rank, world, *arguments))
        except Exception as error:
            found = ("raised", f"{type(error).__name__}: {error}", traceback.format_exc())
        try:
            dist.destroy_process_group()
        except Exception as error:
            found = ("raised", f"at the end, {type(error).__name__}: {error}", traceback.format_exc())
        pipe.send(found)


class Workers:
    """`most` processes, each with one thread."""

    def __init__(self, most=3):
        context = mp.get_context("spawn")
        self.pipes, self.children, self.folder, self.jobs = [], [], tempfile.TemporaryDirectory(), 0
        for rank in range(most):
            ours, theirs = context.Pipe()
            self.pipes.append(ours)
            self.children.append(context.Process(target=serve, args=(rank, theirs), daemon=True))
            self.children[-1].start()

    def outcomes(self, world, function, *arguments):
        """What the function gave or raised in each process."""
        self.jobs += 1
        store = Path(self.folder.name) / f"store{self.jobs}"
        for pipe in self.pipes[:world]:
            pipe.send((world, store, function, arguments))
        found = []
        for rank, pipe in enumerate(self.pipes[:world]):
            assert pipe.poll(PATIENCE), f"rank {rank} of {world} hangs in {function.__name__}{arguments}"
            found.append(pipe.recv())
        return found

    def run(self, world, function, *arguments):
        """What the function gave in each process; it must not raise."""
        found = self.outcomes(world, function, *arguments)
        for rank, one in enumerate(found):
            assert one[0] == "gave", f"rank {rank} of {world}: {one[2]}"
        return [one[1] for one in found]

    def errors(self, world, function, *arguments):
        """What the function raised in each process: it must raise in all."""
        found = self.outcomes(world, function, *arguments)
        assert all(one[0] == "raised" for one in found), found
        return [one[1] for one in found]

    def stop(self):
        for pipe in self.pipes:
            pipe.send(None)
        for child in self.children:
            child.join(10)
            child.kill()  # one that hangs
            child.join()
        self.folder.cleanup()
