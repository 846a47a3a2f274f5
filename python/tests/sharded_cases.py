"""What the processes of the sharded tests do: models, runs, and things that must be refused."""

import hashlib
import itertools

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch_cases import data_of

from antiphon import Key
from antiphon.torch import make_private


class Uneven(nn.Module):
    """Shapes that no number of processes divides, a weight with two names, a parameter of one number (others hold nothing of it)."""

    def __init__(self):
        super().__init__()
        self.first, self.hidden, self.gain = nn.Linear(6, 5, bias=False), nn.Linear(5, 7), nn.Parameter(torch.ones(1))
        self.back, self.tied, self.last = nn.Linear(7, 5), nn.Linear(6, 5, bias=False), nn.Linear(5, 3)
        self.tied.weight = self.first.weight

    def forward(self, x):
        return self.last(self.back(torch.tanh(self.hidden(self.first(x)))) * self.gain + self.tied(x))


def narrow():
    """All of it is in the first process."""
    return nn.Sequential(nn.Linear(6, 1, bias=False))


def dropping():
    return nn.Sequential(nn.Linear(6, 5), nn.Dropout(0.3), nn.Tanh(), nn.Linear(5, 3))


MODELS = {"uneven": Uneven, "narrow": narrow, "dropping": dropping}


def placed(kind, name="uneven", seed=0):
    """A model as it is, replicated or sharded."""
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(seed)
    model = MODELS[name]()
    if kind == "hsdp":
        world = dist.get_world_size()
        fully_shard(model, mesh=init_device_mesh("cpu", (2, world // 2), mesh_dim_names=("copies", "shards")))
    elif kind == "group":  # modules whose parameters are gathered together have hooks of another form
        fully_shard([model.hidden, model.back])
        fully_shard(model)
    elif kind == "part":  # the rest is replicated
        fully_shard(model.hidden)
    elif kind in ("fsdp", "fsdp-columns"):
        # By columns where they divide: fully_shard does no other.
        columns = {"shard_placement_fn": lambda p: Shard(int(p.ndim > 1 and p.shape[1] % dist.get_world_size() == 0))}
        how = {} if kind == "fsdp" else columns
        if name == "uneven":
            fully_shard(model.hidden, **how)
            fully_shard(model.back, **how)
        fully_shard(model, **how)
    elif kind == "ddp":
        model = nn.parallel.DistributedDataParallel(model)
    return model


def loss_of(output, target):
    return nn.functional.cross_entropy(output, target) if output.shape[1] > 1 else (output.mean() - target.float().mean()) ** 2


def nothing(output, target):
    """A loss without gradients: what is left of a step is noise."""
    return 0.0 * output.sum()


def trainable(parameter):
    return (parameter.full_tensor() if hasattr(parameter, "full_tensor") else parameter).detach()


def private_of(model, loss_fn=loss_of, optimizer=None, **changed):
    optimizer = optimizer or torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1, momentum=0.9, weight_decay=0.01)
    settings = dict(batch_size=4, epochs=2, noise_multiplier=0.5, delta=1e-3, max_grad_norm=0.5, per_example="loop", mechanism="tree-online")
    settings.update({"key": Key.from_seed(1), **changed})
    return make_private(model, optimizer, settings.pop("dataset", None) or data_of(22), loss_fn, **settings)


def values_of(private):
    return torch.cat([trainable(p).flatten() for p in private.model.parameters()]).numpy()


def noise(rank, world, kind, name):
    """The noise of every step, from gradients, and the coordinates that this process draws. Batches of 4: dividing by that is exact."""
    private = private_of(placed(kind, name), nothing)
    rows = []
    for batch in private.loader:
        private.step(batch)
        rows.append(torch.cat([trainable(p.grad).flatten() for p in private.model.parameters()]).numpy() * 4)
    return np.stack(rows), private._placement.ranges, private.run.coordinates


def trained(rank, world, kind, name="uneven", log=None):
    """All parameters at the end of a run, the sizes of this process's parts of batches, and the statement. Evaluation in the middle leaves
    a sharded model in another form."""
    private = private_of(placed(kind, name), log=log, key="/only/rank/0/has/a/key" if rank else Key.from_seed(1))
    parts = []
    for batch in private.loader:
        if private.run.step == 5:
            with torch.no_grad():
                private.model(data_of(22).tensors[0])
        parts.append(len(batch.indices))
        private.step(batch)
    return values_of(private), parts, private.statement()


def made_on(rank, world, kind, name, noise):
    """All parameters at the end of a run whose noise is made on the host or on the device."""
    key = Key.from_seed(2, cipher="chacha20")
    private = private_of(placed(kind, name), mechanism="comb-blt", noise=noise, key=key)
    for batch in private.loader:
        private.step(batch)
    return values_of(private)


def accumulated(rank, world, kind):
    """The first process has all examples of every batch, in parts, and the others have none."""
    private = private_of(placed(kind))
    x, y = data_of(22).tensors
    for step in range(private.run.steps):
        batch = private.order.batch(step) if rank == 0 else []
        for first in range(0, max(len(batch), 1), 3):
            part = batch[first : first + 3]
            private.accumulate((x[part], y[part]), indices=part)
        private.step()
    return values_of(private)


def frozen(rank, world, kind):
    """Sharded parameters that are not trained."""
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(0)
    model = Uneven()
    model.hidden.requires_grad_(False)
    if kind == "fsdp":
        fully_shard(model)
    private = private_of(model, per_example="vmap", physical_batch_size=1)
    for batch in private.loader:
        private.step(batch)
    return values_of(private)


def goes_on(rank, world, kind, folder, until=None, name="uneven", optimizer="Adam", repeat=False):
    """Begins or goes on from a folder, up to a step, saving every two steps; a digest of all parameters at the end."""
    model = placed(kind, name)
    made = getattr(torch.optim, optimizer)(model.parameters(), lr=0.01)
    private = private_of(model, optimizer=made, key=folder / "run.key", log=folder / "log", epochs=4)
    if (folder / "state").exists():
        private.load(folder / "state", repeat_noise=repeat)
    else:
        private.save(folder / "state")
    for batch in private.loader:
        if private.run.step == until:
            break
        private.step(batch)
        if private.run.step % 2 == 0:
            private.save(folder / "state")
    return hashlib.sha256(values_of(private).tobytes()).hexdigest()


def boxes(rank, world):
    """Ranges of boxes against the tensors themselves: all placements of some shapes. How many there were, and which were wrong."""
    from antiphon.torch._placement import _box, _ranges
    from antiphon.torch._ranks import processes

    ranks, wrong, count = processes(), [], 0
    for shape in [(7,), (1,), (5, 3), (3, 5, 2), (9, 4), (4, 1, 6)]:
        numbers = torch.arange(int(np.prod(shape))).reshape(shape)
        meshes = [(init_device_mesh("cpu", (world,)), [(Shard(i),) for i in range(len(shape))] + [(Replicate(),)])]
        if world % 2 == 0:
            pairs = itertools.product([Replicate(), *(Shard(i) for i in range(len(shape)))], repeat=2)
            meshes.append((init_device_mesh("cpu", (2, world // 2)), list(pairs)))
        for mesh, placements in meshes:
            for placement in placements:
                tensor = distribute_tensor(numbers, mesh, placement)
                found = [i for first, last in _ranges(0, shape, _box("x", tensor, ranks)) for i in range(first, last)]
                count += 1
                if found != tensor.to_local().flatten().tolist():
                    wrong.append((shape, placement))
    return count, wrong


def refused(rank, world, case):
    """What must be refused in all processes."""
    odd = rank == world - 1
    ordinary = placed("one")
    if case == "layout":
        private_of(nn.Sequential(nn.Linear(6, 3 + odd)))
    elif case == "weights":
        private_of(placed("one", seed=rank))
    elif case == "kind":
        private_of(placed("one") if odd else placed("one", "dropping"))
    elif case == "seed":
        private_of(ordinary, shuffle_seed=rank)
    elif case == "batch_size":
        private_of(ordinary, batch_size=4 + odd)
    elif case == "clip":
        private_of(ordinary, max_grad_norm=0.5 + odd)
    elif case == "noise":
        private_of(ordinary, noise_multiplier=0.5 + odd)
    elif case == "data":
        private_of(ordinary, dataset=data_of(22 + odd))
    elif case == "rate":
        private_of(ordinary, optimizer=torch.optim.SGD(ordinary.parameters(), lr=0.1 + odd))
    elif case == "argument":
        private_of(ordinary, epochs=0 if odd else 2)
    elif case == "mechanism":
        private_of(ordinary, mechanism="optimal" if odd else "tree-online")
    elif case == "key":
        private_of(ordinary, key="/no/such/folder/run.key")
    elif case == "DataParallel":
        private_of(nn.DataParallel(ordinary))
    elif case == "mesh":
        from torch.distributed.fsdp import fully_shard

        both = init_device_mesh("cpu", (world, 1), mesh_dim_names=("unused", "alone"))
        private_of(fully_shard(ordinary, mesh=both["alone"]))
    elif case == "DDP of some":
        groups = [dist.new_group([one]) for one in range(world)]
        private_of(nn.parallel.DistributedDataParallel(ordinary, process_group=groups[rank]))
    elif case == "FSDP1":
        from torch.distributed.fsdp import FullyShardedDataParallel

        private_of(FullyShardedDataParallel(ordinary, device_id=torch.device("cpu")))
    elif case == "precision":
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        private_of(fully_shard(ordinary, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16)))
    elif case == "offload":
        from torch.distributed.fsdp import CPUOffloadPolicy, fully_shard

        private_of(fully_shard(ordinary, offload_policy=CPUOffloadPolicy(pin_memory=False)))
    elif case == "partial":
        mesh = init_device_mesh("cpu", (world,))
        model = nn.Linear(6, 3, bias=False)
        model.weight = nn.Parameter(DTensor.from_local(model.weight.detach(), mesh, [Partial()]))
        private_of(model)
    elif case == "tensor parallel":
        from torch.distributed.fsdp import fully_shard
        from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

        mesh = init_device_mesh("cpu", (1, world), mesh_dim_names=("shards", "tensors"))
        model = nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 3))
        parallelize_module(model, mesh["tensors"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
        private_of(fully_shard(model, mesh=mesh["shards"]))
    elif case == "ZeroRedundancyOptimizer":
        from torch.distributed.optim import ZeroRedundancyOptimizer

        private_of(ordinary, optimizer=ZeroRedundancyOptimizer(ordinary.parameters(), torch.optim.SGD, lr=0.1))
    elif case == "state_dict":
        private_of(ordinary).state_dict()
    else:
        raise AssertionError(case)


def keeps(rank, world, how):
    """A model that writes to itself while it computes. The parameters that it writes to are whole copies: later examples would see it."""
    from test_torch_refusals import Keeps
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(0)
    private = private_of(fully_shard(Keeps(how)))
    private.step(next(iter(private.loader)))


def stopped(rank, world, case):
    """What goes wrong during a run, in one process or between them. What was raised, and whether the run can go on after it."""
    odd = rank == world - 1
    broken = [case == "loss" and odd]

    def loss(output, target):
        if broken[0]:
            raise ZeroDivisionError("broken")
        return loss_of(output, target)

    private = private_of(placed("fsdp" if case == "loss" else "one"), loss)
    batches = iter(private.loader)
    private.step(next(batches))
    x, y = data_of(22).tensors
    mine = private.order.batch(1)[rank * 4 // world : (rank + 1) * 4 // world]
    broken[0] = case == "loss later" and odd
    try:
        if case == "twice":
            whole = private.order.batch(1)
            private.step((x[whole], y[whole]), indices=whole)
        elif case == "wrong order":
            whole = private.order.batch(0)[rank * 4 // world : (rank + 1) * 4 // world]
            private.step((x[whole], y[whole]), indices=whole)
        elif case == "no indices":
            private.step((x[:2], y[:2]) if odd else next(batches))
        elif case == "loss later":
            private.accumulate((x[mine], y[mine]), indices=mine)
            private.step()
        elif case == "places" and odd:
            private.save("never")
        elif case == "optimizer" and odd:
            private.optimizer.step = lambda: 1 // 0
            private.step(next(batches))
        else:
            private.step(next(batches))
    except Exception as error:
        broken[0] = False
        found = f"{type(error).__name__}: {error}"
    else:
        found = "nothing"
    if case in ("optimizer",):
        return found, private.run.step
    for step in range(private.run.step, private.run.steps):
        batch = private.order.batch(step)
        mine = batch[rank * len(batch) // world : (rank + 1) * len(batch) // world]
        private.step((x[mine], y[mine]), indices=mine)
    return found, private.run.step


def without_noise(rank, world, kind):
    """Noise that cannot be made in one process: what is raised, whether a parameter changed, and what the next step raises."""
    private = private_of(placed(kind))
    batches = iter(private.loader)
    private.step(next(batches))
    before, found = values_of(private), []
    if rank == world - 1:
        private._with_noise = lambda own: 1 // 0
    for _ in range(2):
        try:
            private.step(next(batches))
        except Exception as error:
            found.append(f"{type(error).__name__}: {error}")
    return found, bool((before == values_of(private)).all())


def digits(rank, world, kind, epochs, batch_size):
    """The accuracy in percent on digits that were not trained on. What the example of two processes does."""
    import fsdp_two_processes as example

    return example.train(kind, epochs=epochs, batch_size=batch_size, epsilon=8.0, key=Key.from_seed(3))[0]


def masks(rank, world):
    """Random numbers after make_private: every process has others."""
    private_of(placed("one"))
    return torch.rand(4).tolist()
