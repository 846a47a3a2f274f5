"""The noise of a run, made on the device that trains: no row of it crosses the bus. A pure function for jit and scan, and rows one by one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax import Array, lax

from .. import PrivateRun
from .._elsewhere import FMA_CASES, STEPS, Places, Recurrence, first_of_stamp, hard_buffers, refuse, refuse_small, row_by_numpy, rows_by_rust, same, sampled
from ._field import fma, kept, never, normals

#: Groups of sixteen coordinates that are drawn together, on the CPU and elsewhere: bounds what is in memory beside the state.
_TILES = (1 << 14, 1 << 17)


@partial(jax.tree_util.register_dataclass, data_fields=["groups", "buffers", "step"], meta_fields=["slices"])
@dataclass(frozen=True)
class State:
    """What `row` keeps between steps. It is as secret as the key: do not save it. `DeviceRows.state` makes it again for any step."""

    #: Numbers of the groups, low and high words: uint32 [tiles, 2, groups].
    groups: Any
    #: Float64 as low and high words, which no setting of JAX shortens: uint32 [tiles, buffers, coordinates, 2].
    buffers: Any
    #: Where the coordinates of the row are among those that are drawn.
    slices: tuple[tuple[int, int], ...]
    #: The step that it is for: int32.
    step: Any


@partial(
    jax.tree_util.register_dataclass, data_fields=["key", "inputs", "weights", "count", "taken", "kept", "scale", "first", "step"], meta_fields=[]
)
@dataclass(frozen=True)
class Coefficients:
    """What `row` needs for a step, the same shapes for all steps of a run. It holds the key: pass it as an argument of a compiled function, not as a
    constant, and do not save it. Float64 is there as low and high words."""

    key: Any
    inputs: Any
    weights: Any
    count: Any
    taken: Any
    kept: Any
    scale: Any
    first: Any
    step: Any


def row(state: State, coefficients: Coefficients) -> tuple[State, Array]:
    """The noise of a step, float32, and the state after it: a pure function, also within jit and lax.scan, whatever `jax_enable_x64` says.

    Steps come in order, from the one that the state is for. Coefficients are those of `DeviceRows.coefficients`. If a step is left out, or comes twice, as
    after an exception between `coefficients` and `row`, its noise would be that of no mechanism: this and all later rows are then NaN, until
    `DeviceRows.state` is asked for a new state.
    """
    with jax.enable_x64(True):
        state, coefficients = jax.tree.map(jnp.asarray, (state, coefficients))
        if len(state.groups) == 1:
            buffers, drawn = _tile(coefficients, state.groups[0], state.buffers[0])
            buffers, drawn = buffers[None], drawn[None]
        else:
            buffers, drawn = lax.map(lambda tile: _tile(coefficients, *tile), (state.groups, state.buffers))
        drawn = jnp.where(state.step == coefficients.step, drawn.reshape(-1), jnp.float32(jnp.nan))
        parts = [drawn[first:end] for first, end in state.slices]
        return State(state.groups, buffers, state.slices, state.step + 1), jnp.concatenate(parts) if parts else drawn[:0]


def _tile(coefficients: Coefficients, groups: Array, buffers: Array) -> tuple[Array, Array]:
    """The numbers of some groups, and their buffers after the step. Every product is `kept`: XLA would fuse it with the sum that follows."""
    weights, scale = _double(coefficients.weights), _double(coefficients.scale)
    taken, held = _double(coefficients.taken), _double(coefficients.kept)

    def add(i: Array, mixed: Array) -> Array:
        z = normals(coefficients.key, coefficients.inputs[i], groups)
        zero = never(lax.bitcast_convert_type(z, jnp.uint32))
        return mixed + kept(weights[i] * z.astype(jnp.float64), zero)

    # As many turns as the step has rows of Z: what the arrays are filled up with is not touched.
    mixed = lax.fori_loop(jnp.int32(0), coefficients.count, add, jnp.zeros(16 * groups.shape[1], jnp.float64))
    zero = never(lax.bitcast_convert_type(mixed, jnp.uint32)[:, 0])
    before = jnp.where(coefficients.first, jnp.float64(0.0), _double(buffers))
    drawn, after = mixed, []
    for q in range(len(buffers)):
        drawn = drawn - kept(taken[q] * before[q], zero)
        after.append(kept(held[q] * before[q], zero) + mixed)
    # Kept too: a caller in double precision would otherwise get more digits than the row has.
    single = kept((scale * drawn).astype(jnp.float32), zero)
    return lax.bitcast_convert_type(jnp.stack(after), jnp.uint32) if after else buffers, single


def _double(words: Array) -> Array:
    return lax.bitcast_convert_type(jnp.asarray(words), jnp.float64)


_compiled = jax.jit(row, donate_argnums=0)


class DeviceRows:
    """Rows of the noise of a run, made in JAX operations on a device: the bits of `PrivateRun.row`.

    run     a run with a key of ChaCha20 (`Key.fresh(path, cipher="chacha20")`) and the mechanism comb-blt, blt or identity
    device  of the rows; None: the first one of JAX

        rows = DeviceRows(run)
        run.admit(indices)
        noise = rows.row()         # float32 on the device; the step is done then

    or, within a compiled function, with the pure function `row`:

        state = rows.state()                                # before the next step
        run.admit(indices)
        coefficients = rows.coefficients()                  # the step is done then: its noise must be added
        state, noise = row(state, coefficients)             # for lax.scan: stack the coefficients of several steps

    Tested on the CPU backend of JAX only: accelerators were not at hand. The code uses 32- and 64-bit integers and float32 and float64 additions, products,
    square roots and conversions, and keeps XLA from fusing or leaving out roundings. What could differ on an accelerator: products and sums that are
    contracted all the same, square roots or conversions that are not correctly rounded, numbers near zero that are flushed to zero, float64 that is not
    IEEE's (as on TPU, which makes it of several float32). So `check` is run first, here: it compares with the Rust code and raises PrivacyError if a bit
    differs. Flags that let XLA change arithmetic (xla_cpu_enable_fast_math) must stay off. `check` compiles `row` by itself; what is compiled around
    `row` in a program of yours is not checked there, so compare once with the rows of `row()` on a new kind of device.

    Memory on the device: 8 bytes per coordinate and buffer of the mechanism (twice that while a row is made, if the device cannot reuse the old ones), 4 for
    the row, 0.5 for the numbers of the groups, and up to about
    100 MB for what is drawn at a time (15 MB on the CPU).

    Refused: other ciphers and mechanisms, and a standard deviation below 1e-15, whose smallest numbers a device may flush to zero.

    The buffers are never saved. After `load_state_dict` of the run they are made again from the first step of the stamp: that takes as long as all those
    rows together.
    """

    def __init__(self, run: PrivateRun, device: Any = None) -> None:
        refuse_small(run)
        self._prepare(run, run.ranges, jax.devices()[0] if device is None else device)
        self.check()

    def _prepare(self, run: PrivateRun, ranges: list[tuple[int, int]], device: Any) -> None:
        self._run, self.ranges, self.device = run, ranges, device
        self._key = np.array(run._field_key(), dtype=np.uint32)
        self._buffers = len(run._recurrence(0)[1])  # or it raises: other mechanisms need more than a few buffers
        # Epochs begin one after the other, so no step has more rows of Z than the last.
        self._inputs = len(run._recurrence(run.steps - 1)[0])
        self._places = Places.of(ranges)
        self._state: State | None = None
        #: The step that the state is for.
        self._at = 0
        #: A row that was made, and its step.
        self._ready: tuple[int, Array] | None = None

    def run(self) -> PrivateRun:
        """The run."""
        return self._run

    def row(self) -> Array:
        """The noise of the step whose participants were admitted, float32, on the device. The step is done then."""
        self.prepare()
        self._run._made_elsewhere()  # or it raises, and the row waits
        assert self._ready is not None
        made, self._ready = self._ready[1], None
        return made

    take = row

    def restored(self) -> None:
        """Nothing to do: what is kept knows the step that it is for."""

    def prepare(self) -> None:
        """Makes the row of the next step ahead of time, so that `row` only gives it out. No step is taken. Does nothing after the last step."""
        step = self._run.step
        if step < self._run.steps and (self._ready is None or self._ready[0] != step):
            self._ready = (step, self._next(step))

    def coefficients(self) -> Coefficients:
        """Takes the step whose participants were admitted; its noise is what `row` makes of these, and must be added."""
        step = self._run.step
        return self._coefficients(self._run._made_elsewhere(), step)

    def state(self) -> State:
        """The state before the next step of the run, on the device."""
        step = self._run.step
        if step < self._run.steps:
            self._seek(step)
        # Given away: whoever has it may pass it to a function that reuses its memory.
        state, self._state = self._state or self._zero(step), None
        return state

    def check(self) -> None:
        """Compares the device with the Rust code, or raises PrivacyError: rows of the first steps for a sample of coordinates, the arithmetic of the last step,
        and the rare cases of the fused multiply-add. Takes no step of the run."""
        ranges = sampled(self.ranges)
        if not ranges:
            return
        try:
            self._check(ranges)
        except jax.errors.JaxRuntimeError as error:
            if "RESOURCE_EXHAUSTED" in str(error):
                raise
            refuse(self.device, f"it lacks an operation that is needed ({error})")

    def _check(self, ranges: list[tuple[int, int]]) -> None:
        a, b, c, wanted = jax.device_put(np.array(FMA_CASES, np.float32).T, self.device)
        if not same(_fma(a, b, c), wanted):
            refuse(self.device, "its additions in double precision are not rounded as IEEE 754 says")
        sample = DeviceRows.__new__(DeviceRows)
        sample._prepare(self._run, ranges, self.device)
        steps = min(STEPS, self._run.steps)
        for step, by_rust in enumerate(rows_by_rust(self._run, ranges, steps)):
            got = np.asarray(sample._next(step))
            if not same(got, by_rust):
                differ = int((got.view(np.int32) != by_rust.view(np.int32)).sum())
                refuse(self.device, f"{differ} of {len(got)} numbers of step {step} differ from those of the Rust code")
        sample._check_recurrence()

    def _check_recurrence(self) -> None:
        """The arithmetic of the last step, which has the most rows of Z, from buffers with all digits."""
        inputs, factors, scale, _ = self._run._recurrence(self._run.steps - 1)
        state, z = self._zero(0), []
        for turn, (number, _) in enumerate(inputs):
            alone = ([(number, 1.0)], [(0.0, 0.0)] * len(factors), 1.0, True)
            state, normals_of_it = self._row(state, alone, turn)
            z.append(np.asarray(normals_of_it))
        recurrence = (inputs, factors, scale, False)
        # A sample is whole groups in one tile, so the row is all that is drawn.
        before = hard_buffers(recurrence, z)
        words = jax.device_put(before.view(np.uint32).reshape(state.buffers.shape), self.device)
        wanted, after = row_by_numpy(recurrence, z, before)
        state, got = self._row(State(state.groups, words, state.slices, state.step), recurrence, len(inputs))
        got_after = np.asarray(state.buffers).view(np.float64).reshape(before.shape)
        if not (same(got, wanted) and same(got_after, after)):
            refuse(self.device, "its products and sums in double precision are not rounded one by one")

    def _zero(self, step: int) -> State:
        """Before a step whose buffers are zero."""
        groups = self._places.groups
        tile = min(max(len(groups), 1), _TILES[self.device.platform != "cpu"])
        tiles = max(-(-len(groups) // tile), 1)
        groups = np.pad(groups, (0, tiles * tile - len(groups))).reshape(tiles, 1, tile)
        words = np.concatenate([groups & 0xFFFF_FFFF, groups >> 32], axis=1).astype(np.uint32)
        with jax.default_device(self.device):
            buffers = jnp.zeros((tiles, self._buffers, 16 * tile, 2), jnp.uint32)
        slices = tuple(self._places.slices)
        return State(jax.device_put(words, self.device), jax.device_put(buffers, self.device), slices, jax.device_put(np.int32(step), self.device))

    def _coefficients(self, recurrence: Recurrence, step: int) -> Coefficients:
        inputs, factors, scale, first = recurrence
        missing = self._inputs - len(inputs)
        if missing < 0 or len(factors) != self._buffers:
            raise RuntimeError(f"a step with {len(inputs)} rows of Z and {len(factors)} buffers was not expected")
        numbers = np.array([number for number, _ in inputs] + [0] * missing, dtype="<u8")
        return Coefficients(
            key=self._key,
            inputs=numbers.view(np.uint32).reshape(-1, 2),
            weights=_words([weight for _, weight in inputs] + [0.0] * missing),
            count=np.int32(len(inputs)),
            taken=_words([taken for taken, _ in factors]),
            kept=_words([held for _, held in factors]),
            scale=_words([scale])[0],
            first=np.bool_(first),
            step=np.int32(step),
        )

    def _seek(self, step: int) -> None:
        """The state for a step; rows before it are made as far as it needs them."""
        if self._state is None or self._at != step:
            first = first_of_stamp(self._run, step)
            if self._state is None or not first <= self._at <= step:
                self._state, self._at = self._zero(first), first
            while self._at < step:
                self._advance()

    def _next(self, step: int) -> Array:
        self._seek(step)
        return self._advance()

    def _advance(self) -> Array:
        """The row of the step that the state is for."""
        state, self._state = self._state, None  # what is interrupted is made again from the beginning
        assert state is not None
        self._state, made = self._row(state, self._run._recurrence(self._at), self._at)
        self._at += 1
        return made

    def _row(self, state: State, recurrence: Recurrence, step: int) -> tuple[State, Array]:
        """The row of any recurrence; the memory of the state is used again."""
        made: tuple[State, Array] = _compiled(state, jax.device_put(self._coefficients(recurrence, step), self.device))
        return made


def _words(numbers: list[float]) -> npt.NDArray[np.uint32]:
    """Float64 as low and high words."""
    return np.array(numbers, dtype="<f8").view(np.uint32).reshape(-1, 2)


@jax.jit
def _fma(a: Array, b: Array, c: Array) -> Array:
    with jax.enable_x64(True):
        return fma(a, b, c, never(lax.bitcast_convert_type(a, jnp.uint32)))

