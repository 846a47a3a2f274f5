"""Where rows of noise come from. Another source, as one on a device, is a class with the methods of `Rows`."""

from __future__ import annotations

import threading
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

    Every row has a thread of its own, which ends with it. So there is nothing to shut down, whatever happens to the loop.
    """

    def __init__(self, run: PrivateRun, *, prefetch: bool = True) -> None:
        self._run, self._prefetch = run, prefetch
        # Held by a thread while it uses the run.
        self._using = threading.Lock()
        #: Which thread may still prepare a row: one that begins so late that another was asked, or none, does nothing.
        self._asked: object = None
        self._failed: BaseException | None = None

    def run(self) -> PrivateRun:
        """Waits for the row that is being made: a run is used by one thread at a time."""
        with self._using:
            self._asked = None
        return self._run

    def take(self) -> Any:
        """A row in memory of its own: the device may still read the one before."""
        run = self.run()
        if self._failed is not None:
            failed, self._failed = self._failed, None
            raise failed
        row = run.row()
        if self._prefetch and run.step < run.steps:
            self._asked = asked = object()
            threading.Thread(target=self._prepare, args=(asked,), name="antiphon row").start()
        return row

    def restored(self) -> None:
        """Nothing is made before the first step of a process."""

    def _prepare(self, asked: object) -> None:
        with self._using:
            if self._asked is asked:
                try:
                    self._run.prepare()
                except BaseException as failed:  # given to the next take, whatever it is
                    self._failed = failed
