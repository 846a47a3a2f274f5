"""Progress of long work: a bar by tqdm where that is installed, or a function of the caller's."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TypeAlias

Progress: TypeAlias = bool | Callable[[str], None] | None


@contextlib.contextmanager
def shown(what: str, progress: Progress) -> Iterator[Callable[[str], None] | None]:
    """Gives the function that is to be told of progress, in words.

    None shows a bar on a terminal if the work takes longer than a second and tqdm is installed; True shows it in any
    case, False never.
    """
    if callable(progress):
        yield progress
        return
    if progress is False:
        yield None
        return
    try:
        from tqdm import tqdm
    except ImportError:
        if progress:
            raise ImportError("progress=True needs the package tqdm: pip install tqdm") from None
        yield None
        return
    bar = tqdm(
        desc=what,
        bar_format="{desc} [{elapsed}]{postfix}",
        leave=False,
        delay=0 if progress else 1,
        disable=False if progress else None,
    )
    try:
        yield bar.set_postfix_str
    finally:
        bar.close()
