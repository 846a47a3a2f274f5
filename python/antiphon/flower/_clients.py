"""Which node is which client.

Flower numbers nodes at random, and anew in every simulation. The unit of privacy is the client, so a node has a client id: its node id, or
what the user's `client_id` says.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from logging import INFO, WARNING, getLogger

import numpy as np
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.serverapp import Grid

from .. import PrivacyError
from .._arguments import whole

#: A name of a client that stays the same when the server is started again.
ClientId = int | str

_log = getLogger("flwr").log
_ACTION = "antiphon_partition_id"


class Clients:
    """The clients of a run, in the order of their indices, once they are settled; and the nodes through which they are reached."""

    def __init__(
        self,
        clients: int | Sequence[ClientId],
        client_id: Callable[[int], ClientId] | Mapping[int, ClientId] | None,
        wait_for: int | None,
    ) -> None:
        #: Settled by the user, by a state, or when the first round begins.
        self.ids: list[ClientId] | None = None
        if isinstance(clients, (str, bytes)) or not isinstance(clients, (int, np.integer, Sequence)):
            raise ValueError(f"clients must be the number of clients or a list of their ids, got {clients!r}")
        if not isinstance(clients, Sequence):
            self.count = whole("clients", clients)
        else:
            self.ids = in_order(clients)
            self.count = whole("the length of clients", len(self.ids))
        self.wait_for = self.count if wait_for is None else whole("wait_for", wait_for, self.count)
        if isinstance(client_id, Mapping):
            self._id_of: Callable[[int], ClientId | None] = client_id.get
        elif client_id is None or callable(client_id):
            self._id_of = client_id or (lambda node: node)
        else:
            raise ValueError(f"client_id must be a function of a node id or a dict by node id, got {client_id!r}")
        self._told: set[ClientId] = set()

    def settle(self, grid: Grid, pause: float = 1.0) -> None:
        """Waits until enough clients are connected and, unless it is known, settles who they are."""
        told = None
        while True:
            connected = self._connected(grid)
            known = connected if self.ids is None else connected.keys() & set(self.ids)
            needed = self.count if self.ids is None else self.wait_for
            if len(known) >= needed:
                break
            if self.ids is not None and len(connected) >= self.count and not known:
                raise PrivacyError(
                    f"none of the {len(connected)} connected clients is one of the {self.count} of this run, such as {self.ids[0]!r}: only "
                    "they may take part. Node ids are new in every simulation: pass client_id to CorrelatedNoise, so that a client keeps its id"
                )
            if told != len(known):
                nodes = len(list(grid.get_node_ids()))
                _log(INFO, "antiphon: waiting for clients: %d of %d connected (%d nodes)", len(known), needed, nodes)
                told = len(known)
            time.sleep(pause)
        if self.ids is None:
            found = in_order(connected)
            self.ids = found[: self.count]
            if found[self.count :]:
                _log(WARNING, "antiphon: %d connected nodes take no part: the run is for %d clients", len(found) - self.count, self.count)

    def nodes(self, grid: Grid, cohort: Sequence[int]) -> dict[int, int | None]:
        """By index, the node of every client of a cohort, or None for those who are not connected."""
        assert self.ids is not None
        connected = self._connected(grid)
        return {index: connected.get(self.ids[index]) for index in cohort}

    def _connected(self, grid: Grid) -> dict[ClientId, int]:
        found: dict[ClientId, int] = {}
        for node in sorted(grid.get_node_ids()):
            client = self._id_of(node)
            if client is None:
                continue
            client = int(client) if isinstance(client, np.integer) else client
            if isinstance(client, bool) or not isinstance(client, (int, str)):
                raise ValueError(f"client_id must give a whole number or a string, got {client!r} for node {node}")
            if client not in found:
                found[client] = node
            elif client not in self._told:
                self._told.add(client)
                _log(WARNING, "antiphon: client %r has several nodes: only node %d is asked", client, found[client])
        return found


def in_order(ids: Iterable[ClientId]) -> list[ClientId]:
    """Client ids in an order that does not depend on how they came; each must be there once."""
    listed = [int(one) if isinstance(one, np.integer) else one for one in ids]
    kinds = {type(one) for one in listed}
    if kinds - {int} and kinds - {str}:
        names = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise ValueError(f"client ids must be whole numbers or strings, all of one kind, got {names}")
    if len(set(listed)) < len(listed):
        raise ValueError("client ids must differ: a client that takes part under several indices is protected less than the statement says")
    return sorted(listed)


def tell_partition_id(message: Message, context: Context) -> Message:
    """Tells the server which partition of the data a simulated node has. In the client app:

    app.query("antiphon_partition_id")(antiphon.flower.tell_partition_id)
    """
    told = ConfigRecord({"partition-id": int(context.node_config["partition-id"])})
    return Message(RecordDict({"config": told}), reply_to=message)


def partition_ids(grid: Grid, nodes: int, *, timeout: float = 300.0) -> dict[int, int]:
    """The partition of the data that every node of a simulation has, by node id: for `CorrelatedNoise(client_id=partition_ids(grid, 100))`,
    which makes a simulation repeatable. It waits for so many nodes and asks them all; their client app must register `tell_partition_id`.

    For simulations only: nodes are believed. A real federation has ids of its users that nodes cannot choose.
    """
    wanted = whole("nodes", nodes)
    end = time.monotonic() + timeout
    while len(list(grid.get_node_ids())) < wanted:  # a server app may begin before the nodes of its simulation are there
        if time.monotonic() > end:
            raise TimeoutError(f"{wanted} nodes must be connected within {timeout} seconds, got {len(list(grid.get_node_ids()))}")
        time.sleep(0.1)
    messages = [Message(RecordDict(), dst_node_id=node, message_type=f"query.{_ACTION}") for node in grid.get_node_ids()]
    found: dict[int, int] = {}
    for reply in grid.send_and_receive(messages, timeout=timeout):
        if reply.has_error():
            raise ValueError(
                f"node {reply.metadata.src_node_id} must tell its partition, got an error: {reply.error.reason}. "
                f'Register app.query("{_ACTION}")(antiphon.flower.tell_partition_id) in the client app'
            )
        told = reply.content.config_records["config"]["partition-id"]
        assert isinstance(told, int)
        found[reply.metadata.src_node_id] = told
    if len(found) < len(messages):
        raise TimeoutError(f"{len(messages)} nodes must tell their partitions within {timeout} seconds, got {len(found)}")
    return found
