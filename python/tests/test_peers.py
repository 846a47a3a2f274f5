"""The tests of jax_privacy and dp_accounting, run against antiphon: see peers/README.md."""

import json

import pytest
from peers import record, sources
from peers.run import SUITES

RECORDED = json.loads(record.RECORDED.read_text())


@pytest.mark.long
@pytest.mark.parametrize("name", SUITES)
def test_their_tests_say_what_is_recorded(name):
    try:
        found = record.outcome(name)
    except sources.Unavailable as reason:
        pytest.skip(f"the tests of {SUITES[name].package} are not to be had: {reason}")
    failed = found.pop("failed")
    assert not failed, "\n".join(f"{test}: {said}" for test, said in failed.items())
    for outcome in ("passed", "blind", "differs", "not_applicable"):
        assert found[outcome] == RECORDED[name][outcome], outcome


def test_the_tables_are_those_of_the_record():
    """And every file has tests that see an answer, but for the one that only asks for distributions antiphon does not give out."""
    assert list(RECORDED) == list(SUITES)
    assert record.README.read_text().endswith(record.tables(RECORDED))
    for name, one in RECORDED.items():
        assert one["passed"] != one["blind"] or name == "privacy_loss_distribution"
