import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def binary() -> Path:
    """The command line, for tests that both give the same."""
    named = os.environ.get("ANTIPHON_BINARY")
    for path in [named] if named else [ROOT / "target/release/antiphon", ROOT / "target/debug/antiphon"]:
        if Path(path).exists():
            return Path(path)
    if named:
        pytest.fail(f"ANTIPHON_BINARY names no file: {named}")
    pytest.skip("no antiphon binary: cargo build, or set ANTIPHON_BINARY")
