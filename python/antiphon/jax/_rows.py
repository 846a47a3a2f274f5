"""Where rows of noise come from. Another source, as one on a device, is a class with the methods of `Rows`."""

from __future__ import annotations

import _thread
import threading
import weakref
from typing import Any, Protocol

from .. import PrivateRun


class Rows(Protocol):
    """A source of rows for `Noise`, made from the run: `Noise(run, params, rows=Source)` calls `Source(run)`.

    Calls come one at a time. `Noise` admits who takes part before every `take`, so a source never decides who does.
    """

    def run(self) -> PrivateRun:
        """The run, at a moment at which the source does not use it; it does not begin to until the next `take`."""
        ...

    def take(self) -> Any:
        """Takes the step that was admitted and gives its row: float32, one axis, a number for every coordinate; a NumPy or JAX
        array that nobody writes to again."""
        ...

    def restored(self) -> None:
        """The run went on from a saved state: whatever the source made before is void."""
        ...


class HostRows:
    """Rows made by the run on the host. The next one is made in a thread while the device computes: see `PrivateRun.prepare`.

    Every row has a thread of its own, which ends with it. So there is nothing to shut down, whatever happens to the loop. `threading.Thread`
    is not used: `start` waits for the thread to begin, and an interrupt at that moment can leave the thread waiting for ever.
    """

    def __init__(self, run: PrivateRun, *, prefetch: bool = True) -> None:
        self._run, self._prefetch = run, prefetch
        # Held by a thread while it uses the run.
        self._using = threading.Lock()
        #: Which thread may still prepare a row, one or none: one that begins so late that it is not in here does nothing.
        self._asked: set[object] = set()
        self._failed: BaseException | None = None
        # At the end of the process too: no thread may be in the run while Python shuts down.
        weakref.finalize(self, _wait, self._using, self._asked)

    def run(self) -> PrivateRun:
        """Waits for the row that is being made: a run is used by one thread at a time."""
        _wait(self._using, self._asked)
        return self._run

    def take(self) -> Any:
        """A row in memory of its own: the device may still read the one before."""
        run = self.run()
        if self._failed is not None:
            failed, self._failed = self._failed, None
            raise failed
        row = run.row()
        if self._prefetch and run.step < run.steps:
            asked = object()
            self._asked.add(asked)
            _thread.start_new_thread(self._prepare, (asked,))
        return row

    def restored(self) -> None:
        """Nothing is made before the first step of a process."""

    def _prepare(self, asked: object) -> None:
        with self._using:
            if asked in self._asked:
                try:
                    self._run.prepare()
                except BaseException as failed:  # given to the next take, whatever it is
                    self._failed = failed


def _wait(using: threading.Lock, asked: set[object]) -> None:
    """Waits for the thread that makes a row; one that has not begun will not."""
    with using:
        asked.clear()
