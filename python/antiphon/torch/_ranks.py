"""The processes that train one model together: what one of them finds wrong all of them raise, and nobody waits for one that is gone.

Everything goes over the process group, un-noised sums and the key of the noise too: the network between the processes must be trusted.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist

from .. import PrivacyError

#: Errors that are raised as what they are in processes where they did not happen.
_KINDS: dict[str, type[Exception]] = {
    kind.__name__: kind for kind in (ValueError, TypeError, KeyError, IndexError, OSError, FileNotFoundError, PrivacyError)
}

#: The default process group that was seen last, and its processes.
_seen: tuple[object, Ranks] | None = None


class Ranks:
    """The processes of a group, of which this is one; or this process alone, for which nothing here does anything."""

    def __init__(self, group: dist.ProcessGroup | None = None) -> None:
        #: For objects and for memory of the CPU.
        self.group = group
        self.rank = 0 if group is None else dist.get_rank(group)
        self.size = 1 if group is None else dist.get_world_size(group)
        self._where = ""
        #: What every process raises already, or what says that there is nobody to talk to.
        self._known: BaseException | None = None
        self._gone: str | None = None

    @contextmanager
    def together(self, where: str, *, ends: bool = True) -> Iterator[None]:
        """An exception in one process is raised in all: in those that are still at work when they next speak. `where` must be the same in all.
        They wait for each other at the end, unless `ends` is False."""
        if self.size == 1 or self._where:  # alone, or within a part of the same work
            yield
            return
        if self._gone is not None:
            raise RuntimeError(self._gone)
        self._where = where
        try:
            yield
            if ends:
                self.exchange("end")
        except Exception as error:
            if error is not self._known:
                self._report(error)
            raise
        except BaseException:
            # An interrupt, perhaps in the middle of an exchange: the others cannot be told.
            self._gone = (
                f"rank {self.rank} was interrupted in {where}, and the others wait for it. Start all processes again and load the last saved state"
            )
            raise
        finally:
            self._where, self._known = "", None

    def exchange(self, phase: str, value: Any = None) -> list[Any]:
        """The values of all processes, which must be at the same place."""
        if self.size == 1:
            return [value]
        said = self._gather((f"{self._where}, {phase}", None, value))
        failed = [(rank, error) for rank, (_, error, _) in enumerate(said) if error is not None]
        if failed:
            rank, (kind, message) = failed[0]
            name = f"rank {rank} of {self.size}" if len(failed) < self.size - 1 or self.size == 2 else "all other ranks"
            other = "" if kind in _KINDS else f": {kind}"
            raise self._remembered(_KINDS.get(kind, RuntimeError)(f"{message} (raised on {name}{other})"))
        places = [place for place, _, _ in said]
        if len(set(places)) > 1:
            listed = "; ".join(f"rank {rank} is at {place!r}" for rank, place in enumerate(places[:8]))
            message = f"all processes must do the same at the same time, but {listed}. Load the last saved state in all of them"
            raise self._remembered(RuntimeError(message))
        return [value for _, _, value in said]

    def agree(self, phase: str, things: dict[str, Any]) -> None:
        """Raises a ValueError in all processes if one of them has another value for one of these things."""
        everywhere = self.exchange(phase, things)
        for name in dict.fromkeys(name for one in everywhere for name in one):
            values = [one.get(name) for one in everywhere]
            other = next((rank for rank, value in enumerate(values) if value != values[0]), None)
            if other is not None:
                ours, theirs = (text if len(text) < 300 else f"{text[:300]}…" for text in (str(values[0]), str(values[other])))
                raise self._remembered(ValueError(f"{name} must be the same on all ranks, got {ours} on rank 0 and {theirs} on rank {other}"))

    def add_up(self, total: torch.Tensor) -> None:
        """Adds a tensor up over all processes, in place."""
        if self.size > 1:
            with self.speaking():
                dist.all_reduce(total, group=self._group_of(total))

    def joined(self, part: torch.Tensor) -> torch.Tensor:
        """The parts of all processes, which have the same length, one after the other."""
        whole = part.new_empty(self.size * len(part))
        with self.speaking():
            dist.all_gather_into_tensor(whole, part.contiguous(), group=self._group_of(part))
        return whole

    def from_first(self, phase: str, content: bytes | None) -> bytes:
        """What the first process has, in all processes."""
        length = self.exchange(phase, None if content is None else len(content))[0]
        buffer = torch.empty(length, dtype=torch.uint8)
        if self.rank == 0 and content is not None and length:
            buffer.copy_(torch.frombuffer(bytearray(content), dtype=torch.uint8))
        with self.speaking():
            dist.broadcast(buffer, src=0, group=self.group)
        return buffer.numpy().tobytes()

    @contextmanager
    def speaking(self) -> Iterator[None]:
        """Says what it means when the others do not answer."""
        try:
            yield
        except RuntimeError as error:
            self._gone = (
                f"rank {self.rank} of {self.size} got no answer from another process ({self._where or 'between steps'}): it was killed, failed, or "
                "is stuck. Nothing of this step may be used. Start all processes again and load the last saved state: steps that are repeated "
                "get the same noise"
            )
            reason = str(error).strip().split("\n")[0]
            raise self._remembered(RuntimeError(f"{self._gone} ({reason})")) from error

    def _gather(self, thing: Any) -> list[Any]:
        everywhere: list[Any] = [None] * self.size
        with self.speaking():
            dist.all_gather_object(everywhere, thing, group=self.group)
        return everywhere

    def _report(self, error: Exception) -> None:
        try:
            self._gather((self._where, (type(error).__name__, str(error)), None))
        except RuntimeError:
            pass  # nobody is there to be told; the error itself is raised

    def _remembered(self, error: Exception) -> Exception:
        self._known = error
        return error

    def _group_of(self, tensor: torch.Tensor) -> dist.ProcessGroup | None:
        return self.group if tensor.device.type == "cpu" else None


def processes() -> Ranks:
    """The processes of the default group of torch.distributed, or this one alone where there is none."""
    global _seen
    if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
        return Ranks()
    world: Any = dist.group.WORLD
    if _seen is None or _seen[0] is not world:
        # Objects and memory of the CPU need gloo, whatever gradients on accelerators go over.
        group: Any = world if dist.get_backend() == "gloo" else dist.new_group(backend="gloo")
        _seen = (world, Ranks(group))
    return _seen[1]


@contextmanager
def all_together(where: str) -> Iterator[None]:
    """`Ranks.together` of the default group."""
    with processes().together(where):
        yield
