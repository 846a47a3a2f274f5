"""The tests of jax_privacy and dp_accounting, run against antiphon. `README.md` has the outcome of each.

Nothing of theirs is in this folder. `sources` finds their test files in the installed packages, `run` loads one of them with
the module under test exchanged for a stand-in, `record` groups and writes the outcomes, and the modules dp_* and jax_* are
the stand-ins: functions with their names and arguments that translate the question, ask antiphon, and translate the answer.
"""
