"""Files that appear whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO


def write_whole(path: str | os.PathLike[str], write: Callable[[BinaryIO], object]) -> None:
    """Writes a file beside its place and moves it there once it is on disk: a kill, or a loss of power, leaves the old file or the new one."""
    target = Path(path)
    handle, sibling = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(sibling, target)
        settle(target.parent)
    except BaseException:
        Path(sibling).unlink(missing_ok=True)
        raise


def settle(folder: str | os.PathLike[str]) -> None:
    """The names in a folder survive a loss of power too, where the system can promise it."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
