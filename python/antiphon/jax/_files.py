"""A state and the arrays of a training in one file, whole or not at all."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._whole import write_whole


def _named(tree: Any) -> list[tuple[str, Any]]:
    return [(jax.tree_util.keystr(path), leaf) for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]]


def write(path: str | os.PathLike[str], state: dict[str, Any], tree: Any, kept: Callable[[], None]) -> None:
    """Writes a state and a tree, and calls `kept` once they are safely there. A kill leaves the old file or the new one."""
    described, arrays = [], {}
    for number, (name, leaf) in enumerate(_named(tree)):
        if jnp.issubdtype(jnp.result_type(leaf), jax.dtypes.prng_key):
            raise ValueError(f"tree must have arrays of numbers, got a random key at {name}: save jax.random.key_data(key)")
        array = np.asarray(leaf)
        described.append([name, list(array.shape), str(array.dtype)])
        # As bytes: a NumPy file does not know the types of JAX, such as bfloat16.
        arrays[f"leaf{number}"] = np.frombuffer(array.tobytes(), np.uint8)
    header = json.dumps({"state": state, "tree": described})
    write_whole(path, lambda file: np.savez(file, header=np.frombuffer(header.encode(), np.uint8), **arrays))  # type: ignore[arg-type]
    kept()


def read(path: str | os.PathLike[str], like: Any) -> tuple[dict[str, Any], Any]:
    """The state, and the tree in the structure of `like`, which must have the same paths, shapes and types."""
    names = _named(like)
    with np.load(path, allow_pickle=False) as file:
        if "header" not in file:
            raise ValueError(f"path must be a file that Noise.save wrote, got {os.fspath(path)}")
        header = json.loads(file["header"].tobytes().decode())
        expected = [[name, list(np.shape(leaf)), str(np.asarray(leaf).dtype)] for name, leaf in names]
        if header["tree"] != expected:
            differ = [f"{b or 'nothing'} where {a or 'nothing'} was saved" for a, b in _pairs(header["tree"], expected) if a != b]
            raise ValueError(f"like must be a tree as it was saved, got {differ[0]}")
        leaves = [
            jnp.asarray(np.frombuffer(file[f"leaf{number}"].tobytes(), jnp.dtype(dtype)).reshape(shape))
            for number, (_, shape, dtype) in enumerate(header["tree"])
        ]
    return header["state"], jax.tree_util.tree_unflatten(jax.tree_util.tree_structure(like), leaves)


def _pairs(first: list[Any], second: list[Any]) -> list[tuple[Any, Any]]:
    length = max(len(first), len(second))
    return list(zip(first + [None] * (length - len(first)), second + [None] * (length - len(second))))
