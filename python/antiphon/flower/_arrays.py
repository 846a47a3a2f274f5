"""The arrays of a model as one vector: how the coordinates are numbered."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from flwr.app import Array, ArrayRecord

#: Array types that a mean with noise can be added to.
_FLOATS = ("float16", "float32", "float64")


class WrongArrays(ValueError):
    """What makes arrays unfit: they are not those of the model."""


@dataclass(frozen=True)
class Layout:
    """Names, shapes and types of the arrays, in the order in which their numbers come in the vector."""

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]

    @staticmethod
    def of(arrays: ArrayRecord) -> Layout:
        """The layout of a model; or ValueError for a model that cannot be trained privately as it is."""
        if not arrays:
            raise ValueError("arrays must have at least one array, got an empty ArrayRecord")
        found = {name: array.numpy() for name, array in arrays.items()}
        for name, values in found.items():
            if values.dtype.name not in _FLOATS:
                raise ValueError(
                    f"arrays must be arrays of {', '.join(_FLOATS)}, got {values.dtype} for {name!r}: noise is added to everything that "
                    "clients send. Leave out what is no parameter, such as the counters of BatchNorm"
                )
            if not np.isfinite(values).all():
                raise ValueError(f"arrays must be finite, got NaN or infinity in {name!r}: the training diverged, or began so")
        layout = Layout(tuple(found), tuple(v.shape for v in found.values()), tuple(v.dtype.name for v in found.values()))
        if layout.params == 0:
            raise ValueError("arrays must have at least one number, got empty arrays only")
        return layout

    @property
    def params(self) -> int:
        """Numbers in all arrays."""
        return sum(self._sizes)

    @property
    def _sizes(self) -> list[int]:
        return [int(np.prod(shape, dtype=np.int64)) for shape in self.shapes]

    @property
    def digest(self) -> str:
        """A name for the layout."""
        lines = [f"{name} {shape} {dtype}" for name, shape, dtype in zip(self.names, self.shapes, self.dtypes)]
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()

    def flat(self, arrays: ArrayRecord) -> npt.NDArray[np.float64]:
        """The numbers of arrays that have this layout, whatever the order of their names; WrongArrays for any other."""
        if set(arrays) != set(self.names):
            differ = sorted(set(arrays) ^ set(self.names))
            raise WrongArrays(f"other arrays than the model has ({', '.join(differ[:3])}{', and more' if len(differ) > 3 else ''})")
        vector = np.empty(self.params, np.float64)
        first = 0
        for name, shape, dtype, size in zip(self.names, self.shapes, self.dtypes, self._sizes):
            try:
                values = arrays[name].numpy()
            except Exception as error:  # whatever a client may send
                raise WrongArrays(f"array {name!r} cannot be read ({type(error).__name__})") from error
            # What is there counts, and not what the record says of itself.
            if values.shape != shape or values.dtype.name != dtype:
                raise WrongArrays(f"array {name!r} is {values.dtype} of shape {values.shape} instead of {dtype} of shape {shape}")
            vector[first : first + size] = values.reshape(-1)
            first += size
        return vector

    def record(self, vector: npt.NDArray[np.float64]) -> ArrayRecord:
        """The arrays of a vector."""
        parts, first = {}, 0
        for name, shape, dtype, size in zip(self.names, self.shapes, self.dtypes, self._sizes):
            # A number too large for the type becomes infinite, and is found out before the next round.
            with np.errstate(over="ignore"):
                parts[name] = Array(vector[first : first + size].astype(dtype).reshape(shape))
            first += size
        return ArrayRecord(parts)

    def cast(self, arrays: ArrayRecord) -> ArrayRecord:
        """Arrays of these names and shapes in the types of the layout: FedAdam, FedYogi and FedAdagrad turn float32 into float64, and
        clients would get another type in the second round than in the first."""
        if set(arrays) != set(self.names) or any(tuple(arrays[n].numpy().shape) != s for n, s in zip(self.names, self.shapes)):
            raise ValueError("the inner strategy must return arrays of the names and shapes of the model, got others")
        with np.errstate(over="ignore"):
            return ArrayRecord({n: Array(np.asarray(arrays[n].numpy().astype(d))) for n, d in zip(self.names, self.dtypes)})
