"""What is written down runs: docstrings, types, the README, the examples, the notebook."""

import doctest
import re
import subprocess
import sys
import tomllib

import pytest
from conftest import ROOT

import antiphon

PACKAGE = ROOT / "python"


def run_python(*arguments, timeout=300, **options):
    done = subprocess.run([sys.executable, *map(str, arguments)], capture_output=True, text=True, timeout=timeout, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_docstrings():
    """Those of the extension module too: doctest does not find them by itself."""
    finder = doctest.DocTestFinder()
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    runner = doctest.DocTestRunner(optionflags=flags)
    tried = 0
    for name in antiphon.__all__:
        thing = getattr(antiphon, name)
        parts = [(name, thing.__doc__)] if not isinstance(thing, str) else []
        if isinstance(thing, type):
            parts += [(f"{name}.{part}", getattr(thing, part).__doc__) for part in vars(thing) if not part.startswith("_")]
        for title, text in parts:
            test = doctest.DocTestParser().get_doctest(text or "", {"antiphon": antiphon}, title, None, None)
            tried += len(test.examples)
            assert runner.run(test).failed == 0, title
    assert tried > 30
    pytest.importorskip("torch")
    import antiphon.torch._order as order

    for test in finder.find(order):
        assert runner.run(test).failed == 0, test.name


def test_everything_has_a_docstring():
    for name in antiphon.__all__:
        thing = getattr(antiphon, name)
        if not isinstance(thing, str):
            assert thing.__doc__, name
            for part in vars(thing) if isinstance(thing, type) else ():
                if not part.startswith("_") and not hasattr(thing, "__dataclass_fields__"):
                    assert getattr(thing, part).__doc__, f"{name}.{part}"


def test_types(tmp_path):
    """Stubs are what the extension module has, the package is fully typed, and a user's code is checked with them."""
    pytest.importorskip("mypy")
    config = PACKAGE / "pyproject.toml"
    # From another folder: the package that is installed, with its extension module.
    run_python("-m", "mypy.stubtest", "antiphon._antiphon", "--mypy-config-file", config, cwd=tmp_path)
    run_python("-m", "mypy", "--config-file", config, "-p", "antiphon", cwd=tmp_path)
    user = tmp_path / "user.py"
    user.write_text("import antiphon\nrun: antiphon.PrivateRun\nz: str = antiphon.epsilon(1.0, 1e-5)\n")
    done = subprocess.run([sys.executable, "-m", "mypy", str(user)], capture_output=True, text=True, cwd=tmp_path)
    assert "float" in done.stdout and 'variable has type "str"' in done.stdout, done.stdout + done.stderr


def snippets():
    text = (ROOT / "README.md").read_text()
    return re.findall(r"```python\n(.*?)```", text, re.S)


@pytest.mark.parametrize("number", range(len(snippets())))
def test_the_readme(number, tmp_path):
    code = snippets()[number]
    for package in ("torch", "jax", "optax"):
        if f"import {package}" in code:
            pytest.importorskip(package)
    assert "differentially private" in run_python("-c", code, cwd=tmp_path)


def test_the_readme_has_three_fronts():
    assert len(snippets()) >= 3


def test_the_readme_shows_the_changed_lines_of_the_opacus_example():
    shown = re.search(r"```diff\n(.*?)```", (ROOT / "README.md").read_text(), re.S)[1].splitlines()
    before, after = ((PACKAGE / f"examples/opacus_loop{name}.py").read_text() for name in ("", "_changed"))
    plus = [line[1:].strip() for line in shown if line.startswith("+")]
    minus = [line[1:].strip() for line in shown if line.startswith("-")]
    assert len(plus) == 3 and all(line in after and line not in before for line in plus)
    assert minus[0] in before and minus[0] not in after and "engine.get_epsilon" in minus[1] and "engine.get_epsilon" not in after


def test_digits(tmp_path):
    pytest.importorskip("torch")
    out = run_python(PACKAGE / "examples/digits_torch.py", "--seeds", "5", cwd=tmp_path)
    optimal, identity = (float(re.search(rf"{name}\s+([0-9.]+) %", out)[1]) for name in ("optimal", "identity"))
    assert optimal >= 88.0 and identity <= 75.0, out


def test_adapters(tmp_path):
    pytest.importorskip("torch")
    assert "differentially private" in run_python(PACKAGE / "examples/finetune_adapters.py", "--epochs", "5", cwd=tmp_path)


def test_the_notebook(tmp_path):
    pytest.importorskip("torch")
    nbformat = pytest.importorskip("nbformat")
    client = pytest.importorskip("nbclient")
    notebook = nbformat.read(ROOT / "docs/quickstart.ipynb", as_version=4)
    client.NotebookClient(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert list(tmp_path.iterdir()) == [], "it writes into a temporary folder of its own"


def test_versions_agree():
    cargo = tomllib.loads((ROOT / "Cargo.toml").read_text())
    assert antiphon.__version__ == cargo["workspace"]["package"]["version"]
