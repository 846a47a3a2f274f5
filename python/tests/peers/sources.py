"""Where their test files are: both wheels carry them, jax_privacy's in a folder `tests` beside the package."""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import importlib.util
from pathlib import Path

from .run import Suite

#: What the recorded outcomes are for.
VERSIONS = {"jax-privacy": "2.0.0", "dp-accounting": "0.6.0"}
#: What their test files import and their packages do not need.
_TOOLS = {"jax-privacy": ("hypothesis", "chex"), "dp-accounting": ()}


class Unavailable(Exception):
    """Their tests are not to be had here; the words say why."""


def test_file(suite: Suite) -> Path:
    """The test file of a suite, as it was in the wheel."""
    wanted = VERSIONS[suite.package]
    missing = [name for name in _TOOLS[suite.package] if importlib.util.find_spec(name) is None]
    if missing:
        raise Unavailable(f"they need {' and '.join(missing)}: pip install {' '.join(missing)}")
    try:
        distribution = importlib.metadata.distribution(suite.package)
    except importlib.metadata.PackageNotFoundError:
        raise Unavailable(f"{suite.package} is not installed: pip install {suite.package}=={wanted}") from None
    if distribution.version != wanted:
        raise Unavailable(f"the outcomes are recorded for {suite.package} {wanted}, installed is {distribution.version}")
    for entry in distribution.files or []:
        if entry.as_posix() == suite.file:
            break
    else:
        raise Unavailable(f"{suite.package} {wanted} is installed without {suite.file}")
    file = Path(str(entry.locate()))
    # Other packages may have a folder of that name too, and the last one installed wins.
    if not file.exists() or entry.hash is None or _digest(file, entry.hash.mode) != entry.hash.value:
        raise Unavailable(f"{suite.file} is not as {suite.package} {wanted} has it: pip install --force-reinstall {suite.package}=={wanted}")
    return file


def _digest(file: Path, mode: str) -> str:
    """As RECORD of a wheel writes it."""
    return base64.urlsafe_b64encode(hashlib.new(mode, file.read_bytes()).digest()).decode().rstrip("=")

