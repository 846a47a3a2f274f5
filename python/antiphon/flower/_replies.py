"""From replies to a clipped sum: what is dropped, and what counts as zero.

Only clients of the cohort are in the sum, each at most once, each with an update of at most the clip norm over all arrays together. Weights
such as num-examples are not used: with them one client could add more than the clip norm, and the sum of the weights would be private too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from logging import INFO, WARNING, getLogger

import numpy as np
import numpy.typing as npt
from flwr.app import Message

from .. import Clip
from ._arrays import Layout, WrongArrays

_log = getLogger("flwr").log
#: Replies per round whose trouble is written to the log.
_SHOWN = 5


@dataclass
class RoundReport:
    """What became of the replies of a round, for whoever runs the server. No noise protects these numbers: do not give them out."""

    round: int
    #: Clients of the cohort. All of them take part as far as privacy is concerned.
    asked: int
    #: Updates in the sum.
    counted: int = 0
    #: Clients that were not connected, or did not reply in time. They count as zero, as do the next four.
    missing: int = 0
    #: Replies with an error.
    failed: int = 0
    #: Updates with NaN or infinity.
    not_finite: int = 0
    #: Replies without exactly the arrays of the model: names, shapes, types.
    wrong_arrays: int = 0
    #: Updates with an entry beyond zero_threshold.
    zeroed: int = 0
    #: Second replies of a client in the same round. They are dropped: the first one counts.
    duplicates: int = 0
    #: Replies of nodes that were not asked. They are dropped.
    not_asked: int = 0
    #: What was wrong with replies, by node.
    reasons: list[str] = field(default_factory=list, repr=False)

    def __str__(self) -> str:
        names = {
            "missing": "without a reply",
            "failed": "with an error",
            "not_finite": "not finite",
            "wrong_arrays": "with wrong arrays",
            "zeroed": "beyond zero_threshold",
            "duplicates": "sent twice (dropped)",
            "not_asked": "from nodes that were not asked (dropped)",
        }
        odd = [f"{getattr(self, name)} {words}" for name, words in names.items() if getattr(self, name)]
        return ", ".join([f"round {self.round}: {self.counted} of {self.asked} updates in the sum", *odd])

    def tell(self) -> None:
        """Writes it to Flower's log."""
        _log(INFO, "antiphon: %s", self)
        for reason in self.reasons[:_SHOWN]:
            _log(WARNING, "antiphon: %s", reason)
        if self.reasons[_SHOWN:]:
            _log(WARNING, "antiphon: and %d more", len(self.reasons) - _SHOWN)


def add_up(
    replies: Iterable[Message],
    asked: Mapping[int, int],
    current: npt.NDArray[np.float64],
    layout: Layout,
    clip: Clip,
    zero_threshold: float | None,
    report: RoundReport,
) -> npt.NDArray[np.float64]:
    """The sum of the clipped updates of those who were asked. `asked` has the index of a client by node.

    The sum is exact, so it does not depend on the order of the replies.
    """
    total = np.zeros(layout.params, np.float64)
    seen: set[int] = set()
    for reply in replies:
        node = reply.metadata.src_node_id
        if node not in asked:
            report.not_asked += 1
            report.reasons.append(f"a reply of node {node} is dropped: it was not asked in this round")
            continue
        if asked[node] in seen:
            report.duplicates += 1
            report.reasons.append(f"another reply of node {node} is dropped: its first one counts")
            continue
        seen.add(asked[node])
        if reply.has_error():
            report.failed += 1
            report.reasons.append(f"node {node} counts as zero: it replied with an error ({reply.error.reason})")
            continue
        records = list(reply.content.array_records.values()) if reply.has_content() else []
        try:
            if len(records) != 1:
                raise WrongArrays(f"{len(records)} array records instead of one")
            with np.errstate(invalid="ignore", over="ignore"):
                update = layout.flat(records[0]) - current
        except WrongArrays as error:
            report.wrong_arrays += 1
            report.reasons.append(f"node {node} counts as zero: {error}")
            continue
        with np.errstate(over="ignore"):
            finite = bool(np.isfinite(np.dot(update, update)))
        if not finite:
            report.not_finite += 1
            report.reasons.append(f"node {node} counts as zero: its update is not finite")
        elif zero_threshold is not None and max(update.max(), -update.min()) > zero_threshold:
            report.zeroed += 1
        else:
            clip.add([update[None, :]], total)
            report.counted += 1
    report.missing = report.asked - len(seen)
    return total
