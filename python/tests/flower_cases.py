"""What the tests of antiphon.flower have in common: a grid in memory, whose clients may do anything, and small models."""

import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg
from flwr.supercore.task_identity import TaskIdentity

from antiphon import Key
from antiphon.flower import CorrelatedNoise

# Flower sets this where a server app runs; messages can be made only then.
TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1

SHAPES = {"w": (3, 2), "b": (4,), "s": ()}
PARAMS = 11


def record(vector, dtype=np.float32):
    """The model of the tests, of a vector of numbers."""
    vector, first, parts = np.asarray(vector), 0, {}
    for name, shape in SHAPES.items():
        size = int(np.prod(shape))
        parts[name] = Array(np.ascontiguousarray(vector[first : first + size].reshape(shape).astype(dtype)))
        first += size
    return ArrayRecord(parts)


def vector(arrays):
    return np.concatenate([arrays[name].numpy().ravel() for name in SHAPES])


def reply_of(message, arrays, **metrics):
    content = {"metrics": MetricRecord({"num-examples": 7, **metrics})}
    if arrays is not None:
        content["arrays"] = arrays
    return Message(RecordDict(content), reply_to=message)


def pull(node):
    """What an ordinary client of the tests wants its model to become."""
    return np.random.default_rng(node).normal(size=PARAMS)


def train(message):
    """An ordinary client: deterministic, and a little different for every node, round and model."""
    current = vector(message.content["arrays"]).astype(np.float64)
    number = message.content["config"]["server-round"]
    new = current + 0.1 * (pull(message.metadata.dst_node_id) - current) + 0.01 * number
    return [reply_of(message, record(new), loss=3.0)]


class MemoryGrid(Grid):
    """Nodes as functions from a message to replies, in this process."""

    def __init__(self, nodes, behave=None):
        self.nodes, self.behave = list(nodes), dict(behave or {})
        self.asked = []

    def set_run(self, run):
        raise NotImplementedError

    @property
    def run(self):
        raise NotImplementedError

    def create_message(self, content, message_type, dst_node_id, group_id, ttl=None):
        raise NotImplementedError

    def get_node_ids(self):
        return list(self.nodes)

    def push_messages(self, messages):
        raise NotImplementedError

    def pull_messages(self, message_ids):
        raise NotImplementedError

    def send_and_receive(self, messages, *, timeout=None):
        messages = list(messages)
        if messages:
            self.asked.append(sorted(message.metadata.dst_node_id for message in messages))
        replies = []
        for message in messages:
            replies += self.behave.get(message.metadata.dst_node_id, train)(message)
        return replies


def fedavg(**changed):
    return FedAvg(**{"fraction_evaluate": 0.0, "min_train_nodes": 1, "min_available_nodes": 1, **changed})


def private_of(strategy=None, **changed):
    settings = dict(clients=12, clients_per_round=3, epochs=2, noise_multiplier=1.0, delta=1e-3, clip_norm=0.5, key=changed.pop("key", None) or Key.from_seed(1))
    settings.update(changed)
    return CorrelatedNoise(strategy if strategy is not None else fedavg(), **settings)


NODES = [100 + 7 * i for i in range(12)]
START = np.linspace(-1, 1, PARAMS)
