"""Runs one of their test files against a stand-in and prints the outcome as JSON.

    python -m peers.run <suite> <test file> [--wrong]

A process of its own, so that the exchanged module is seen by nobody else. With --wrong antiphon's answers are made wrong:
a test that passes all the same does not look at them.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
import unittest
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Suite:
    """One test file of theirs."""

    package: str
    #: The module that is exchanged.
    module: str
    #: The module of this folder that answers for it.
    answers: str
    #: The test file, from where the package is installed.
    file: str
    #: Whether their own main turns 64 bit numbers on in JAX.
    x64: bool = False
    #: The test classes, or parts of names of tests, that are about what antiphon does. None: the whole file.
    only: tuple[str, ...] | None = None


_MF = "jax_privacy.matrix_factorization"
_PLD = "dp_accounting.pld"
SUITES = {
    "sensitivity": Suite("jax-privacy", f"{_MF}.sensitivity", "jax_sensitivity", "tests/matrix_factorization/sensitivity_test.py"),
    "dense": Suite("jax-privacy", f"{_MF}.dense", "jax_dense", "tests/matrix_factorization/dense_test.py"),
    "noise_addition": Suite("jax-privacy", "jax_privacy.noise_addition", "jax_noise", "tests/noise_addition_test.py", x64=True),
    "gaussian_mechanism": Suite(
        "dp-accounting", "dp_accounting.gaussian_mechanism", "dp_gaussian", "dp_accounting/gaussian_mechanism_test.py"
    ),
    "pld_privacy_accountant": Suite(
        "dp-accounting", f"{_PLD}.pld_privacy_accountant", "dp_accountant", "dp_accounting/pld/pld_privacy_accountant_test.py"
    ),
    "privacy_loss_mechanism": Suite(
        "dp-accounting",
        f"{_PLD}.privacy_loss_mechanism",
        "dp_mechanism",
        "dp_accounting/pld/privacy_loss_mechanism_test.py",
        only=("GaussianPrivacyLossTest.",),
    ),
    "privacy_loss_distribution": Suite(
        "dp-accounting",
        f"{_PLD}.privacy_loss_distribution",
        "dp_distribution",
        "dp_accounting/pld/privacy_loss_distribution_test.py",
        only=("GaussianPrivacyLossDistributionTest.",),
    ),
    "accountant": Suite(
        "dp-accounting",
        f"{_PLD}.accountant",
        "dp_calibration",
        "dp_accounting/pld/accountant_test.py",
        only=("test_get_smallest_gaussian_noise", "test_get_smallest_subsampled_gaussian_noise"),
    ),
}
def _short(test: unittest.TestCase) -> str:
    """Class.test: what is the same wherever the file lies."""
    return f"{type(test).__name__}.{test._testMethodName}"


def _flat(suite: unittest.TestSuite) -> list[unittest.TestCase]:
    found: list[unittest.TestCase] = []
    for one in suite:
        found += _flat(one) if isinstance(one, unittest.TestSuite) else [one]
    return found


def _in_scope(name: str, only: tuple[str, ...] | None) -> bool:
    # A class name must begin the name: "GaussianX." is also the end of "MixtureGaussianX.".
    return only is None or any(name.startswith(part) if part.endswith(".") else part in name for part in only)


def run(name: str, file: Path) -> dict[str, Any]:
    """The outcome of every test: passed, not_applicable {name: reason}, failed {name: what was said}."""
    from . import shim

    suite = SUITES[name]
    answers = importlib.import_module(f".{suite.answers}", __package__)
    if suite.x64:
        import jax

        jax.config.update("jax_enable_x64", True)
    shim.exchange(suite.module, answers)
    spec = importlib.util.spec_from_file_location(f"peer_{name}", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    np.random.seed(0)  # Some of their cases are drawn when the file is loaded.
    spec.loader.exec_module(module)

    # absl's assertions read its flags.
    from absl import flags

    flags.FLAGS(["peers"])
    outcome: dict[str, Any] = {"passed": [], "not_applicable": {}, "failed": {}}
    for test in _flat(unittest.defaultTestLoader.loadTestsFromModule(module)):
        short = _short(test)
        if not _in_scope(short, suite.only):
            continue
        reasons = [reason for key, reason in answers.NOT_APPLICABLE.items() if short.startswith(key)]
        if reasons:
            outcome["not_applicable"][short] = reasons[0]
            continue
        result = unittest.TestResult()
        test.run(result)
        if result.skipped:
            outcome["not_applicable"][short] = result.skipped[0][1]
        elif result.wasSuccessful() and result.testsRun == 1:
            outcome["passed"].append(short)
        else:
            outcome["failed"][short] = "\n".join(text for _, text in result.errors + result.failures)
    return outcome


if __name__ == "__main__":
    if "--wrong" in sys.argv:
        from .wrong import make_wrong

        make_wrong()
    print(json.dumps(run(sys.argv[1], Path(sys.argv[2]))))
