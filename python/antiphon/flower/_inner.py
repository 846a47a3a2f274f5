"""The strategy inside: which ones fit, what they see, and what they remember.

An inner strategy sees the clients of the cohort when it configures a round, and one reply when it aggregates: the current arrays plus the
noised mean update. So whatever it computes, and whatever it remembers, is post-processing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp import strategy as flower
from flwr.serverapp.strategy import Strategy

from .. import PrivacyError

_SEVERAL = "it chooses among the replies of single clients, and only their noised mean is protected"
_DP = "it would clip and add noise a second time"
#: Flower's strategies that do not fit, and why.
_REFUSED: dict[str, str] = {
    "Bulyan": _SEVERAL,
    "FedMedian": _SEVERAL,
    "FedTrimmedAvg": _SEVERAL,
    "Krum": _SEVERAL,
    "MultiKrum": _SEVERAL,
    "QFedAvg": "it weights clients by their training loss, which no noise protects",
    "FedXgbBagging": "trees have no mean that noise could be added to",
    "FedXgbCyclic": "trees have no mean that noise could be added to",
    "DifferentialPrivacyServerSideFixedClipping": _DP,
    "DifferentialPrivacyClientSideFixedClipping": _DP,
    "DifferentialPrivacyServerSideAdaptiveClipping": _DP,
    "DifferentialPrivacyClientSideAdaptiveClipping": _DP,
}
#: What Flower's strategies remember of aggregated arrays, from round to round: lists or dicts of arrays. Their current_arrays are not among
#: them: they take those from the next configure_train.
_MEMORY: dict[type[Strategy], tuple[str, ...]] = {
    flower.FedAvg: (),
    flower.FedProx: (),
    flower.FedAvgM: ("momentum_vector",),
    flower.FedAdagrad: ("m_t", "v_t"),
    flower.FedAdam: ("m_t", "v_t"),
    flower.FedYogi: ("m_t", "v_t"),
}


def refuse_inner(inner: Any, smallest: int) -> None:
    """Strategies that do not fit, and settings by which one would not do what it says. `smallest` is the smallest cohort."""
    if not isinstance(inner, Strategy):
        raise ValueError(
            f"strategy must be a flwr.serverapp.strategy.Strategy, got {type(inner).__name__}: strategies of flwr.server, with configure_fit, "
            "are the older interface"
        )
    for kind in type(inner).__mro__:
        if kind.__module__.startswith("flwr.") and kind.__name__ in _REFUSED:
            reason = _REFUSED[kind.__name__]
            raise ValueError(f"strategy must be one that averages, such as FedAvg, FedAvgM or FedAdam, got {kind.__name__}: {reason}")
    evaluate, train = getattr(inner, "fraction_evaluate", 0.0), getattr(inner, "fraction_train", 1.0)
    if evaluate != 0.0:
        raise ValueError(
            f"fraction_evaluate of the strategy must be 0.0, got {evaluate}: no noise protects metrics that clients compute on their "
            f"data. Pass {type(inner).__name__}(fraction_evaluate=0.0), and evaluate_fn to start(), for public data"
        )
    if train != 1.0:
        raise ValueError(
            f"fraction_train of the strategy must be 1.0, got {train}: CorrelatedNoise decides who is asked; say how many by clients_per_round"
        )
    for name in ("min_train_nodes", "min_available_nodes"):
        if getattr(inner, name, 0) > smallest:
            raise ValueError(
                f"{name} of the strategy must be at most {smallest}, the size of the smallest cohort, got {getattr(inner, name)}: "
                "CorrelatedNoise waits for the clients of the run itself (wait_for)"
            )
    usual = flower.FedAvg().train_metrics_aggr_fn
    if getattr(inner, "train_metrics_aggr_fn", usual) is not usual:
        raise ValueError(
            "train_metrics_aggr_fn of the strategy must not be given: metrics of clients, such as their training loss, are dropped, because no "
            "noise protects them"
        )
    used = [name for name in ("momentum_vector", "m_t", "v_t", "current_arrays") if getattr(inner, name, None) is not None]
    if used:
        raise ValueError(
            f"strategy must be new, got one that has {', '.join(used)}: it may remember updates that no noise protects. To resume a private run, "
            "pass checkpoint or call load()"
        )


class CohortGrid(Grid):
    """The grid as an inner strategy sees it: the cohort is all there is, and nothing can be sent past the wrapper."""

    def __init__(self, grid: Grid, nodes: list[int]) -> None:
        self._grid, self._nodes = grid, nodes

    def get_node_ids(self) -> Iterable[int]:
        """The cohort."""
        return list(self._nodes)

    def set_run(self, run: Any) -> None:
        """Refused."""
        raise self._refusal("set_run")

    @property
    def run(self) -> Any:
        """That of the real grid."""
        return self._grid.run

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        """A message, which goes out only if it is returned by configure_train."""
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Refused."""
        raise self._refusal("push_messages")

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Refused."""
        raise self._refusal("pull_messages")

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Refused."""
        raise self._refusal("send_and_receive")

    @staticmethod
    def _refusal(name: str) -> PrivacyError:
        return PrivacyError(
            f"the inner strategy called grid.{name}: no noise would protect what clients answer, so CorrelatedNoise alone asks them. Return "
            "the messages from configure_train"
        )


def check_messages(messages: list[Message], nodes: list[int]) -> None:
    """That an inner strategy asks the cohort, every client once, to train."""
    asked = sorted(message.metadata.dst_node_id for message in messages)
    kinds = {message.metadata.message_type.split(".")[0] for message in messages}
    if asked != sorted(nodes) or not kinds <= {MessageType.TRAIN}:
        raise PrivacyError(
            f"the inner strategy must ask every client of the cohort once, to train, got {len(asked)} messages "
            f"({', '.join(sorted(kinds)) or 'none'}) for {len(nodes)} clients: who takes part is settled before the run"
        )


def only_reply(inner: Strategy, arrays: ArrayRecord) -> Message:
    """What an inner strategy aggregates: one reply, with the weight 1."""
    key, weight = getattr(inner, "arrayrecord_key", "arrays"), getattr(inner, "weighted_by_key", "num-examples")
    content = RecordDict({key: arrays, "metrics": MetricRecord({weight: 1})})
    return Message(content, dst_node_id=0, message_type=MessageType.TRAIN)


def refuse_forgetful(inner: Strategy) -> None:
    """Strategies whose memory cannot be kept in a state."""
    own = callable(getattr(inner, "state_dict", None)) and callable(getattr(inner, "load_state_dict", None))
    if not own and type(inner) not in _MEMORY:
        raise ValueError(
            f"strategy must be one whose state can be kept, got {type(inner).__name__}: give it state_dict(), which returns a dict of NumPy "
            "arrays, and load_state_dict(state); an empty dict if it remembers nothing between rounds"
        )


def memory_of(inner: Strategy) -> dict[str, Any]:
    """What an inner strategy remembers, as arrays by name."""
    refuse_forgetful(inner)
    if type(inner) not in _MEMORY:
        found: dict[str, Any] = {f"own/{name}": np.asarray(values) for name, values in inner.state_dict().items()}  # type: ignore[attr-defined]
        return found
    memory: dict[str, Any] = {}
    for name in _MEMORY[type(inner)]:
        value = getattr(inner, name)
        if isinstance(value, dict):
            memory.update({f"dict/{name}/{key}": array for key, array in value.items()})
        elif value is not None:
            memory.update({f"list/{name}/{number}": array for number, array in enumerate(value)})
    return memory


def remember(inner: Strategy, memory: dict[str, Any]) -> None:
    """Gives an inner strategy what `memory_of` found."""
    refuse_forgetful(inner)
    if type(inner) not in _MEMORY:
        inner.load_state_dict({name.removeprefix("own/"): values for name, values in memory.items()})  # type: ignore[attr-defined]
        return
    for name in _MEMORY[type(inner)]:
        by_key = {key.removeprefix(f"dict/{name}/"): array for key, array in memory.items() if key.startswith(f"dict/{name}/")}
        by_number = [array for key, array in memory.items() if key.startswith(f"list/{name}/")]
        setattr(inner, name, by_key or by_number or None)
