"""Which number of a row belongs to which parameter: leaves in the order of their flattened paths, each row-major."""

from __future__ import annotations

import hashlib
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


class Layout:
    """The coordinates of a tree of parameters. Two layouts are equal if paths, shapes, types and structure are."""

    def __init__(self, params: Any) -> None:
        leaves, self.structure = jax.tree_util.tree_flatten_with_path(params)
        if not leaves:
            raise ValueError("params must have at least one array, got an empty tree")
        self.paths = tuple(jax.tree_util.keystr(path) for path, _ in leaves)
        self.shapes = tuple(shape_of(leaf) for _, leaf in leaves)
        self.dtypes = tuple(jnp.dtype(jnp.result_type(leaf)) for _, leaf in leaves)
        for path, dtype in zip(self.paths, self.dtypes):
            if not jnp.issubdtype(dtype, jnp.floating):
                raise ValueError(f"params must be real floating-point numbers, got {dtype} at {path or 'its root'}: leave out what is not trained")
        sizes = [math.prod(shape) for shape in self.shapes]
        self.offsets = tuple(int(end) for end in np.cumsum([0, *sizes]))
        described = [[path, list(shape), str(dtype)] for path, shape, dtype in zip(self.paths, self.shapes, self.dtypes)]
        self.digest = hashlib.sha256(repr(described).encode()).hexdigest()

    @property
    def size(self) -> int:
        """Coordinates in all."""
        return self.offsets[-1]

    def tree(self, flat: Any) -> Any:
        """The numbers of a row (the last axis) as a tree of the shapes of the parameters. Axes before the last one stay in front."""
        before = flat.shape[:-1]
        parts = [
            flat[..., first:last].reshape(before + shape) for first, last, shape in zip(self.offsets, self.offsets[1:], self.shapes)
        ]
        return jax.tree_util.tree_unflatten(self.structure, parts)

    def check(self, name: str, tree: Any, *, types: bool) -> list[Any]:
        """The leaves of a tree, which must be that of the parameters; with `types` also in its types."""
        found = jax.tree_util.tree_flatten_with_path(tree)[0]
        paths = tuple(jax.tree_util.keystr(path) for path, _ in found)
        if paths != self.paths:
            differ = sorted(set(paths) ^ set(self.paths)) or ["their order"]
            raise ValueError(f"{name} must have the leaves of the parameters of the noise, which differ in {', '.join(differ[:5])}")
        for (_, leaf), path, shape, dtype in zip(found, self.paths, self.shapes, self.dtypes):
            there = shape_of(leaf), jnp.dtype(jnp.result_type(leaf))
            if there[0] != shape or (types and there[1] != dtype):
                raise ValueError(
                    f"{name} must have shape {shape}{f' and type {dtype}' if types else ''} at {path or 'its root'}, as the parameters of the "
                    f"noise, got {there[0]}{f' and {there[1]}' if types else ''}"
                )
        return [leaf for _, leaf in found]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Layout) and (self.digest, self.structure) == (other.digest, other.structure)

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"Layout({len(self.paths)} arrays, {self.size} numbers, {self.digest[:8]})"


def shape_of(leaf: Any) -> tuple[int, ...]:
    """The shape of an array, a traced array, a description of one, or a number."""
    return tuple(leaf.shape) if hasattr(leaf, "shape") else np.shape(leaf)


def layout_of(params: Any) -> str:
    """The `layout` of a `PrivateRun` for a tree of parameters: a digest of their paths, shapes and types."""
    return Layout(params).digest
