"""The noise of a run, made on the device that trains: no row of it crosses the bus."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import torch

from .. import PrivateRun
from .._elsewhere import FMA_CASES, STEPS, Places, Recurrence, first_of_stamp, hard_buffers, refuse, refuse_small, row_by_numpy, rows_by_rust, same, sampled
from ._field import _fma, normals

#: Keeps torch.compile from compiling a function: products and sums would be fused.
_as_it_is: Callable[[Callable[[int], torch.Tensor]], Callable[[int], torch.Tensor]] = torch.compiler.disable


class DeviceRows:
    """Rows of the noise of a run, made in PyTorch operations on a device: the bits of `PrivateRun.row`.

    run     a run with a key of ChaCha20 (`Key.fresh(path, cipher="chacha20")`) and the mechanism comb-blt, blt or identity
    device  of the rows

        rows = DeviceRows(run, "cuda")
        run.admit(indices)
        total += rows.row()        # float32, to a sum of float64 on the device; the step is done then

    Tested on the CPU backend of PyTorch only: accelerators were not at hand. The code uses 32- and 64-bit integers and float64 additions, products, square
    roots and conversions, one operation at a time, whose results IEEE 754 fixes. What could differ on an accelerator: products and sums that are
    contracted to a fused multiply-add within one operation, square roots or conversions that are not correctly rounded, numbers near zero that are
    flushed to zero, no float64 at all (as on "mps"). So `check` is run first, here: it compares with the Rust code and raises PrivacyError if a bit differs.

    Memory on the device: 8 bytes per coordinate and buffer of the mechanism, 8 for the row and its copy, 0.5 for the numbers of the groups, and up to about
    200 MB for what is drawn at a time (20 MB on the CPU).

    Refused: other ciphers and mechanisms, and a standard deviation below 1e-15, whose smallest numbers a device may flush to zero.

    The buffers are never saved. After `load_state_dict` of the run they are made again from the first step of the stamp: that takes as long as all those
    rows together. They are as secret as the key: they tell about noise of later steps.
    """

    def __init__(self, run: PrivateRun, device: torch.device | str) -> None:
        refuse_small(run)
        self._prepare(run, run.ranges, torch.device(device))
        self.check()

    def _prepare(self, run: PrivateRun, ranges: list[tuple[int, int]], device: torch.device) -> None:
        self.run, self.ranges, self.device = run, ranges, device
        self._key = run._field_key()
        run._recurrence(0)  # or it raises: other mechanisms need more than a few buffers
        places = Places.of(ranges)
        self._groups = torch.from_numpy(places.groups).to(device)
        self._slices = places.slices
        self._buffers = torch.empty(0)
        #: The step whose row the buffers are for. None: they are to be made from the beginning.
        self._at: int | None = None
        #: A row that was made, and its step.
        self._ready: tuple[int, torch.Tensor] | None = None
        self._chunk = 1 << (13 if device.type == "cpu" else 17)

    def row(self) -> torch.Tensor:
        """The noise of the step whose participants were admitted, float32: a new tensor on the device. The step is done then."""
        self.prepare()
        self.run._made_elsewhere()  # or it raises, and the row waits
        assert self._ready is not None
        row, self._ready = self._ready[1], None
        return row

    def prepare(self) -> None:
        """Makes the row of the next step ahead of time, so that `row` only gives it out. No step is taken. Does nothing after the last step."""
        step = self.run.step
        if step < self.run.steps and (self._ready is None or self._ready[0] != step):
            self._ready = (step, _as_it_is(self._seek)(step))

    def check(self) -> None:
        """Compares the device with the Rust code, or raises PrivacyError: rows of the first steps for a sample of coordinates, the arithmetic of the last step,
        and the rare cases of the fused multiply-add. Takes no step of the run."""
        ranges = sampled(self.ranges)
        if not ranges:
            return
        try:
            self._check_fma()
            self._check_rows(ranges)
            self._check_recurrence()
        except (RuntimeError, TypeError, NotImplementedError) as error:
            if isinstance(error, torch.cuda.OutOfMemoryError) or type(error).__module__.startswith("antiphon"):
                raise
            refuse(self.device, f"it lacks an operation that is needed ({error})")

    def _check_fma(self) -> None:
        a, b, c, wanted = torch.tensor(FMA_CASES, dtype=torch.float64).to(self.device).unbind(1)
        if not same(_fma(a, b, c).cpu(), wanted.cpu()):
            refuse(self.device, "its additions in double precision are not rounded as IEEE 754 says")

    def _check_rows(self, ranges: list[tuple[int, int]]) -> None:
        sample = DeviceRows.__new__(DeviceRows)
        sample._prepare(self.run, ranges, self.device)
        steps = min(STEPS, self.run.steps)
        wanted = rows_by_rust(self.run, ranges, steps)
        for step in range(steps):
            got = sample._seek(step).cpu().numpy()
            if not same(got, wanted[step]):
                differ = int((got.view(np.int32) != wanted[step].view(np.int32)).sum())
                refuse(self.device, f"{differ} of {len(got)} numbers of step {step} differ from those of the Rust code")

    def _check_recurrence(self) -> None:
        """The arithmetic of the last step, which has the most rows of Z, from any normals."""
        recurrence = self.run._recurrence(self.run.steps - 1)
        z = normals(self._key, 0, self._groups[:64])
        rows = [z.roll(i) for i in range(len(recurrence[0]))]
        by_numpy = [z.cpu().numpy() for z in rows]
        before = hard_buffers(recurrence, by_numpy)
        wanted, after = row_by_numpy(recurrence, by_numpy, before)
        buffers = torch.from_numpy(before).to(self.device, copy=True)
        got = _recurrence_row(recurrence, rows, buffers)
        if not (same(got.cpu(), wanted) and same(buffers.cpu(), after)):
            refuse(self.device, "its products and sums in double precision are not rounded one by one")

    def _seek(self, step: int) -> torch.Tensor:
        """The row of any step; rows before it are made as far as the buffers need them."""
        at = self._at
        if at is None or at != step:
            first = first_of_stamp(self.run, step)
            at = first if at is None or not first <= at <= step else at
        for before in range(at, step):
            self._next(before)
        return self._next(step)

    def _next(self, step: int) -> torch.Tensor:
        """The row of a step whose buffers are there, and the buffers after it."""
        recurrence = self.run._recurrence(step)
        inputs, factors, _, first = recurrence
        self._at = None  # what is interrupted halfway is made again
        numbers = 16 * len(self._groups)
        if first:
            self._buffers = torch.zeros((len(factors), numbers), dtype=torch.float64, device=self.device)
        drawn = torch.empty(numbers, dtype=torch.float32, device=self.device)
        for start in range(0, len(self._groups), self._chunk):
            groups = self._groups[start : start + self._chunk]
            columns = slice(16 * start, 16 * (start + len(groups)))
            z = (normals(self._key, row, groups) for row, _ in inputs)
            drawn[columns] = _recurrence_row(recurrence, z, self._buffers[:, columns])
        self._at = step + 1
        # A stamp ends where the next begins: its buffers are zero then, which `first` says.
        parts = [drawn[first:end] for first, end in self._slices]
        return torch.cat(parts) if parts else drawn


def _recurrence_row(recurrence: Recurrence, rows: Iterable[torch.Tensor], buffers: torch.Tensor) -> torch.Tensor:
    """A row from rows of Z, in double precision, every product and sum an operation of its own; the buffers [q, columns] are advanced in place."""
    inputs, factors, scale, _ = recurrence
    mixed = torch.zeros(buffers.shape[1], dtype=torch.float64, device=buffers.device)
    for (_, weight), z in zip(inputs, rows):
        mixed += weight * z.to(torch.float64)
    row = mixed.clone()
    for buffer, (taken, kept) in zip(buffers, factors):
        row -= taken * buffer
        # One after the other: addcmul and the alpha of add may be fused.
        buffer.mul_(kept)
        buffer.add_(mixed)
    return row.mul_(scale).to(torch.float32)
