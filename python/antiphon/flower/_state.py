"""State files: one .npz of plain arrays, with everything else as JSON in one of them. No pickle, so that reading a file runs nothing."""

from __future__ import annotations

import json
import os
from typing import Any, cast

import numpy as np

from .._whole import write_whole

_HEADER = "antiphon_flower.json"


def write(path: str | os.PathLike[str], state: dict[str, Any]) -> None:
    """Writes a state, whole or not at all: a kill leaves the old file or the new one."""
    groups = {name: dict(part) for name, part in state.items() if name in ("arrays", "memory")}
    plain = {name: part for name, part in state.items() if name not in groups}
    plain["names"] = {name: list(part) for name, part in groups.items()}
    # Numbered, because names of arrays may be anything and those of files may not.
    arrays = {f"{group}.{number}": np.asarray(a) for group, part in groups.items() for number, a in enumerate(part.values())}
    arrays[_HEADER] = np.frombuffer(json.dumps(plain).encode(), np.uint8)
    if any(array.dtype.hasobject for array in arrays.values()):
        raise ValueError("a state must consist of plain numbers, got arrays of Python objects from the inner strategy")
    write_whole(path, lambda file: cast(Any, np.savez)(file, **arrays))  # NumPy's types take the names for options


def stamp(path: str | os.PathLike[str]) -> tuple[int, ...] | None:
    """By which a file is known again: whoever writes a state replaces the file. None if there is none."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def read(path: str | os.PathLike[str]) -> dict[str, Any]:
    """A state that `write` wrote."""
    try:
        with np.load(path, allow_pickle=False) as file:
            state: dict[str, Any] = json.loads(bytes(file[_HEADER]))
            for group, names in state.pop("names").items():
                state[group] = {name: file[f"{group}.{number}"] for number, name in enumerate(names)}
    except FileNotFoundError:
        raise
    except Exception as error:
        raise ValueError(f"{os.fspath(path)} must be a state that CorrelatedNoise saved, got something else ({error})") from error
    return state
