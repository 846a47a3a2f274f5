"""Runs all suites, groups the outcomes, and writes `recorded.json` and the tables of README.md.

    cd python/tests && python -m peers.record

Whoever runs this for a new version of theirs reads the difference: a test that passes no more is a finding.
"""

from __future__ import annotations

import ast
import importlib
import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from . import sources
from .run import SUITES

HERE = Path(__file__).resolve().parent
RECORDED = HERE / "recorded.json"
README = HERE / "README.md"
_MARK = "<!-- What follows is written by record.py. -->\n"


def outcome(name: str) -> dict[str, Any]:
    """What every test of a suite says: passed, blind (passes with wrong answers too), differs, not_applicable, failed.

    A failed test with a reason in DIFFERS of the stand-in is under `differs`; `failed` is for those without.
    """
    suite = SUITES[name]
    file = sources.test_file(suite)
    told, wrong = _run(name, file), _run(name, file, "--wrong")
    reasons = importlib.import_module(f".{suite.answers}", __package__).DIFFERS
    written = [node.name for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.FunctionDef)]
    aside = Counter((_function(test, written), reason) for test, reason in told["not_applicable"].items())
    differs = {test: reasons[test] for test in sorted(told["failed"]) if test in reasons}
    return {
        "passed": _grouped(told["passed"], written),
        "blind": _grouped(set(told["passed"]) & set(wrong["passed"]), written),
        "differs": [[_function(test, written), test, reason] for test, reason in differs.items()],
        "not_applicable": [[test, reason, count] for (test, reason), count in sorted(aside.items())],
        "failed": {test: said for test, said in told["failed"].items() if test not in reasons},
    }


def _run(name: str, file: Path, *options: str) -> dict[str, Any]:
    path = os.pathsep.join([str(HERE.parent), *(one for one in sys.path if one)])
    command = [sys.executable, "-m", "peers.run", name, str(file), *options]
    environment = {**os.environ, "PYTHONPATH": path, "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise RuntimeError(f"{name}: their test file was not run:\n{done.stderr}")
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


def _function(test: str, written: list[str]) -> str:
    """The function as it is written, of which a test with parameters is one case."""
    group, _, method = test.partition(".")
    # A case has the name of its function, and a number or _name after it.
    fitting = [one for one in written if re.fullmatch(rf"{re.escape(one)}(\d+|_.*)?", method)]
    return f"{group}.{max(fitting, key=len)}" if fitting else f"{group}.{method.rstrip('0123456789')}"


def _grouped(tests: Iterable[str], written: list[str]) -> dict[str, str]:
    """Function -> its cases, by what their names have after the function's. "" for the function itself."""
    cases: dict[str, list[str]] = {}
    for test in sorted(tests):
        function = _function(test, written)
        cases.setdefault(function, []).append(test.removeprefix(function))
    return {function: ", ".join(found) for function, found in cases.items()}


def tables(recorded: dict[str, Any]) -> str:
    """The tables of README.md."""
    text = ""
    total: Counter[str] = Counter()
    for name, one in recorded.items():
        suite = SUITES[name]
        rows: dict[str, dict[str, int]] = {}
        why: dict[str, list[str]] = {}

        def count(function: str, column: str, number: int = 1, reason: str | None = None) -> None:
            rows.setdefault(function, Counter())[column] += number
            total[column] += number
            if reason is not None and reason not in why.setdefault(function, []):
                why[function].append(reason)

        for column in ("passed", "blind"):
            for function, cases in one[column].items():
                count(function, column, 1 + cases.count(", "))
        for function, _, reason in one["differs"]:
            count(function, "differs", 1, reason)
        for function, reason, number in one["not_applicable"]:
            count(function, "aside", number, reason)
        version = sources.VERSIONS[suite.package]
        text += f"\n## {suite.package} {version}, {suite.file}\n\n"
        text += "| test | pass | of these blind | differ | not applicable | why |\n|---|--:|--:|--:|--:|---|\n"
        for function in sorted(rows):
            cells = [str(rows[function][column] or "") for column in ("passed", "blind", "differs", "aside")]
            text += f"| `{function}` | {' | '.join(cells)} | {'; '.join(why.get(function, []))} |\n"
    head = f"{total['passed']} pass ({total['blind']} of them blind), {total['differs']} differ, {total['aside']} are not applicable.\n"
    return head + text


def main() -> None:
    found = {name: outcome(name) for name in SUITES}
    for name, one in found.items():
        for test, said in one.pop("failed").items():
            print(f"FAILED without a reason in DIFFERS: {name} {test}\n{said}")
    RECORDED.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    head = README.read_text().split(_MARK)[0]
    README.write_text(head + _MARK + "\n" + tables(found))


if __name__ == "__main__":
    main()
