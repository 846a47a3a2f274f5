"""The noise of a private run for a tree of parameters: one row per step, or the rows of a chunk of steps."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from .. import FixedOrderBatches, Key, Mechanism, PrivacyError, PrivateRun, Verified
from .._arguments import check_budget, check_norm, whole
from .._choice import NAMES, mechanism_for
from .._elsewhere import device_key, made_on, refuse_mechanism
from .._progress import Progress
from . import _files
from ._device import DeviceRows
from ._layout import Layout
from ._mean import NoiseRow
from ._rows import HostRows, Rows


_waited_for: Any = jax.block_until_ready


def private_noise(
    params: Any,
    *,
    order: FixedOrderBatches,
    delta: float,
    clip_norm: float,
    key: Key | str | os.PathLike[str],
    epsilon: float | None = None,
    noise_multiplier: float | None = None,
    mechanism: str | os.PathLike[str] | Mechanism | Verified = "optimal",
    stamps: int = 1,
    momentum: float | None = None,
    learning_rates: Sequence[float] | None = None,
    adjacency: str = "zero-out",
    log: str | os.PathLike[str] | None = None,
    noise_memory: int = 1 << 30,
    noise: str = "host",
    prefetch: bool = True,
    rows: Callable[[PrivateRun], Rows] | None = None,
    progress: Progress = None,
) -> Noise:
    """Makes the private run for a tree of parameters, and its noise.

    params           the tree of all trained parameters, or of their shapes (`jax.eval_shape`): floating-point arrays
    order            the order of the data: FixedOrderBatches(examples, batch_size, epochs). Sums are divided by its batch_size
    epsilon, delta   the privacy of the whole run; or noise_multiplier and delta. Choose delta well below one over the number of
                     examples
    clip_norm        the gradient of every example, over all parameters together, must be clipped to this norm: `clipped_sum`
    key              a file for the key of the noise: made with a fresh key, or read to resume a run. Or a Key
    mechanism        "optimal", another name that `antiphon.make` knows (with `stamps`), a Mechanism, or a mechanism file. For thousands of
                     steps, or millions of parameters, "comb-blt" takes far less time
    momentum         optimize the noise for SGD with this momentum and for `learning_rates`, one per step, of which only the ratios
                     matter. Without it both are post-processing. The privacy is the same
    log              a file for who took part when, for antiphon.audit. Keep it as private as the data
    noise_memory     bytes for noise while training
    noise            where it is made: "host", or "device", on the first device of JAX by JAX operations with the same bits. "device" needs the
                     mechanism comb-blt, blt or identity and a key of ChaCha20, which a new file gets; the device is compared with the host first,
                     and refused if a bit differs. See DeviceRows
    prefetch, rows   as for Noise
    """
    if jax.process_count() > 1:
        raise PrivacyError(
            f"private_noise in {jax.process_count()} processes of JAX is refused: each would have a key, and so noise, of its own, and sums that are "
            "published with the noise of several have less noise than the statement says. Make a PrivateRun and its Noise in one process, and send its rows "
            "to the others"
        )
    layout = Layout(params)
    if not isinstance(order, FixedOrderBatches):
        raise ValueError(f"order must be an antiphon.FixedOrderBatches, got {type(order).__name__}")
    clip_norm = check_norm("clip_norm", clip_norm)
    noise_memory = whole("noise_memory", noise_memory, (1 << 63) - 1)
    check_budget(epsilon, noise_multiplier, delta)
    if noise not in ("host", "device"):
        raise ValueError(f'noise must be "host" or "device", got {noise!r}')
    if noise == "device":
        refuse_mechanism(mechanism)
        if rows is not None:
            raise ValueError('rows must be left out with noise="device": that is a source of rows')
        rows = DeviceRows
    named = isinstance(mechanism, str) and mechanism in NAMES
    if not named and momentum is not None:
        raise ValueError("momentum must be given for a mechanism that is made here only, got a mechanism that exists")
    if learning_rates is not None and momentum is None:
        raise ValueError("learning_rates must be given with momentum (0.0 for plain SGD): otherwise the noise does not depend on them")
    name, made = mechanism_for(
        order,
        mechanism,
        momentum=None if momentum is None else lambda: momentum,
        learning_rates=learning_rates,
        stamps=stamps,
        progress=progress,
    )
    run = PrivateRun(
        made,
        epsilon=epsilon,
        noise_multiplier=noise_multiplier,
        delta=delta,
        clip_norm=clip_norm,
        params=layout.size,
        key=device_key(key) if noise == "device" else key,
        units=order.examples,
        adjacency=adjacency,
        layout=layout.digest,
        memory=noise_memory,
        log=log,
    )
    return Noise(run, params, order=order, prefetch=prefetch, rows=rows, name=name)


class Chunk(NamedTuple):
    """Some steps in a row, for `jax.lax.scan(body, carry, chunk)`: all arrays have the steps as their first axis."""

    #: Who takes part in each step; the smaller last batch of an epoch is filled up with zeros.
    indices: npt.NDArray[np.int64]
    #: False where an index only fills up: pass it to clipped_sum(..., present=present). private_mean refuses a sum without it if any batch of the run is
    #: filled up.
    present: npt.NDArray[np.bool_]
    #: The noise of each step.
    rows: NoiseRow


class Noise:
    """The noise of a private run for a tree of parameters.

        for indices, row in noise: ...               # every step that is left, in the order of the data
        row = noise.next(indices)                    # or one step, with the indices of its examples
        for chunk in noise.chunks(10): ...           # or several at a time, for jax.lax.scan

    run         a PrivateRun with params=number of all coordinates and layout=layout_of(params). Use `noise.run` from then on: the run itself is
                used by a thread
    params      the tree of parameters, or of their shapes
    batch_size  what `private_mean` divides by; or order, which has it
    order       who takes part when. Without it, give the indices of every step
    prefetch    make the next row in a thread while the device computes. Who takes part in a step is checked before its row is given out, with
                or without it
    rows        another source of rows, a function of the run: see `Rows`
    name        of the mechanism, for the statement
    """

    def __init__(
        self,
        run: PrivateRun,
        params: Any,
        *,
        batch_size: int | None = None,
        order: FixedOrderBatches | None = None,
        prefetch: bool = True,
        rows: Callable[[PrivateRun], Rows] | None = None,
        name: str | None = None,
    ) -> None:
        if (batch_size is None) == (order is None):
            raise ValueError(f"batch_size or order must be given, one of them, got {'neither' if order is None else 'both'}")
        self.layout = Layout(params)
        state = run.state_dict()
        if run.coordinates != self.layout.size or state["params"] != self.layout.size:
            raise ValueError(f"run must be for all {self.layout.size} coordinates of params, got one for {run.coordinates} of {state['params']}")
        if state["layout"] != self.layout.digest:
            raise ValueError("run must have the layout of params: pass layout=antiphon.jax.layout_of(params) to PrivateRun")
        if order is not None:
            if order.steps != run.steps:
                raise ValueError(f"order must have as many steps as the run, {run.steps}, got {order.steps}")
            order.position = run.step
            run.rehearse(order.batch)  # refused now, not in the middle of the run
        self.order = order
        self.batch_size = order.batch_size if order is not None else whole("batch_size", batch_size)
        self._rows: Rows = HostRows(run, prefetch=prefetch) if rows is None else rows(run)
        self._name = run.mechanism.kind if name is None else name
        self._clip_norm, self._own_indices = run.clip_norm, False
        # Known without waiting for the thread that uses the run.
        self._step, self._steps, self._epsilon = run.step, run.steps, run.epsilon
        # Callbacks come from threads of the device.
        self._lock = threading.RLock()

    @property
    def run(self) -> PrivateRun:
        """The run. Waits for the row that is being made; from then on nothing uses the run until the next step is asked for."""
        with self._lock:
            return self._rows.run()

    @property
    def step(self) -> int:
        """Steps whose noise was given out; also the step that is next."""
        return self._step

    @property
    def steps(self) -> int:
        """Steps in all."""
        return self._steps

    @property
    def epsilon(self) -> float:
        """An upper bound on ε for the whole run."""
        return self._epsilon

    def next(self, indices: Any = None) -> NoiseRow:
        """The noise of the next step, in which the examples of these indices take part (default: those of the order).

        What the guard refuses, and a step past the end, raises PrivacyError, and nothing has happened then. Once the row is given out the step is
        done: use it for the sum of these examples, and for nothing else.
        """
        return self._row_of(jnp.asarray(self._draw(indices)))

    def chunk(self, steps: int, indices: Sequence[Any] | None = None) -> Chunk:
        """The noise of the next `steps` steps at once, for jax.lax.scan: the same rows as `next` gives. `indices` has a list for every step
        (default: those of the order). Takes memory for as many rows. JAX computes in the background: ask for the next chunk before you look at
        what came out of the last one, and its rows are made meanwhile.

        All steps are checked before the first one is taken. If it is interrupted, the steps that it has taken are done, and their noise is lost.
        """
        with self._lock:
            run = self.run
            steps = whole("steps", steps)
            first, own = run.step, indices is not None
            if steps > run.steps - first:
                raise PrivacyError(f"steps {first} to {first + steps - 1} are refused: the run has {run.steps} steps")
            if indices is None:
                indices = [self._ordered(step) for step in range(first, first + steps)]
            if len(indices) != steps:
                raise ValueError(f"indices must have {steps} lists, one for each step, got {len(indices)}")
            listed = [np.asarray(who) for who in indices]
            most = max(self.batch_size, *(who.size for who in listed))
            if own or self._own_indices:
                # Nobody after the chunk: who takes part there is checked then.
                run.rehearse(lambda step: listed[step - first] if step < first + steps else [])
            places, present = np.zeros((steps, most), np.int64), np.zeros((steps, most), bool)
            taken = []
            for place, who in enumerate(listed):
                taken.append(self._draw(who if own else None))
                places[place, : who.size], present[place, : who.size] = who, True
        # Known from the order, so that chunks with a smaller batch and chunks without one are compiled once.
        filled = not present.all() or (not own and self.order is not None and self.order.examples % self.batch_size != 0)
        # Not while others wait: a device may have to end something first.
        stacked = np.stack(taken) if isinstance(taken[0], np.ndarray) else jnp.stack(taken)
        return Chunk(places, present, self._row_of(jnp.asarray(stacked), filled=bool(filled)))

    def chunks(self, steps: int) -> Iterator[Chunk]:
        """All steps that are left, in chunks; the last chunk may be shorter."""
        steps = whole("steps", steps)
        while (left := self.steps - self.step) > 0:
            yield self.chunk(min(steps, left))

    def __iter__(self) -> Iterator[tuple[npt.NDArray[np.int64], NoiseRow]]:
        """The indices and the noise of every step that is left."""
        while self.step < self.steps:
            indices = np.asarray(self._ordered(self.step), np.int64)
            yield indices, self.next()

    def _draw(self, indices: Any) -> Any:
        """Admits, takes the step, and gives its numbers."""
        with self._lock:
            run = self.run
            if indices is None:
                # Past the end the guard is asked too: it has the words for it.
                indices = self._ordered(run.step) if run.step < run.steps else []
            else:
                self._own_indices = True
            step = run.step
            try:
                run.admit(indices)
                row = self._rows.take()
                self._stands_at(step + 1)  # without asking the run: that would wait for the next row
            except BaseException:
                self._stands_at(self.run.step)  # an interrupt can come before the row was drawn or after it
                raise
            return row

    def _stands_at(self, step: int) -> None:
        self._step = step
        if self.order is not None:
            self.order.position = step

    def _ordered(self, step: int) -> list[int]:
        if self.order is None:
            raise PrivacyError(
                "a step without indices is refused: the privacy statement holds for who takes part when. Give the indices of its "
                "examples, or make the noise with order="
            )
        return self.order.batch(step)

    def _row_of(self, flat: Any, *, filled: bool = False) -> NoiseRow:
        return NoiseRow(flat, self.layout, self._clip_norm, self.batch_size, filled)

    def statement(self) -> str:
        """What ε means, what it does not cover, and what was not checked."""
        unchecked = (
            f"Not checked: that the sum of a step has the gradients of those examples whose indices were given for it and no others, each "
            f"clipped as a whole to the clip norm {self._clip_norm:g}; that the noise of a step was added to this sum and to nothing else; and what "
            "rounding does to sums in floating-point arithmetic, which JAX does not add up exactly."
        )
        if isinstance(self._rows, DeviceRows):
            unchecked += f" {made_on(self._rows.device)}"
        elif not isinstance(self._rows, HostRows):
            unchecked += " Nor that the noise is that of the run: another source gave it."
        return self.run._statement_of_training(self._name, unchecked)

    def state_dict(self) -> dict[str, Any]:
        """All that another process needs to go on after the last step whose noise was given out, except the key. Plain data, for JSON."""
        with self._lock:
            return {
                "antiphon_jax": 1,
                "run": self.run.state_dict(),
                "order": None if self.order is None else self.order.state_dict(),
                "batch_size": self.batch_size,
                "own_indices": self._own_indices,
            }

    def load_state_dict(self, state: dict[str, Any], *, repeat_noise: bool = False) -> None:
        """Goes on after the last step of a state. The run must be the same: mechanism, noise, clip norm, layout, order and key are
        compared, and no step may have been taken before.

        A state is for going on after a crash, from parameters that were saved with it. Steps after it that were already made get the same noise
        again: do not go back to a state to try other settings, the difference of two such runs has no noise. Once a later state was kept
        (`save`, or `run.state_is_kept`), an earlier one is refused, unless repeat_noise=True says that the later one is lost and that nothing
        that followed from it was published.
        """
        if not isinstance(state, dict) or state.get("antiphon_jax") != 1:
            raise ValueError("state must be what state_dict() of a Noise gave, version 1")
        if state["batch_size"] != self.batch_size:
            raise ValueError(f"batch_size must be {state['batch_size']}, as in the state, got {self.batch_size}")
        if (state["order"] is None) != (self.order is None):
            raise ValueError(f"order must be given as in the state, got {'none' if self.order is None else 'one'}")
        with self._lock:
            run = self.run
            if self.order is not None:
                position = self.order.position
                self.order.load_state_dict(state["order"])
                self.order.position = position
                if state["order"]["position"] != state["run"]["step"]:
                    raise ValueError("the state must have the same number of steps for the order of the data and for the run")
            run.load_state_dict(state["run"], repeat_noise=repeat_noise)
            self._rows.restored()
            self._own_indices = bool(state["own_indices"])
            self._stands_at(run.step)

    def save(self, path: str | os.PathLike[str], tree: Any = ()) -> None:
        """Writes the state and a tree of arrays (parameters, state of the optimizer) to a file, whole or not at all: a kill leaves the old
        file or the new one. Save once before the first step too: a key begins one run, so a run that is killed before its first state is saved
        needs a new key. Keep the file as private as the data.

        The tree must be that after the last step whose noise was given out.
        """
        _waited_for(tree)  # before others wait: a callback may have to come first
        with self._lock:
            _files.write(path, self.state_dict(), tree, lambda: self.run.state_is_kept())

    def load(self, path: str | os.PathLike[str], like: Any = (), *, repeat_noise: bool = False) -> Any:
        """Goes on from a file that `save` wrote, as `load_state_dict` does, and returns the tree, in the structure of `like`."""
        state, tree = _files.read(path, like)
        self.load_state_dict(state, repeat_noise=repeat_noise)
        return tree

    def __repr__(self) -> str:
        return f"Noise({self.run!r}, {self.layout!r})"
