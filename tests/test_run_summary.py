"""``make test`` ends with a line that says what ran."""

from __future__ import annotations

from integration.run_summary import summary

LOG = """
.venv/bin/ruff check .
EXAMPLES=10 .venv/bin/python -m pytest -q --ignore=tests/behaviours/test_spark_writing.py -m "not long" tests
7300 passed, 7 skipped in 80.50s
.venv/bin/python -m pytest -q tests/spark tests/behaviours/test_spark_writing.py
932 passed, 1 skipped in 99.98s (0:01:39)
.venv/bin/python -m pytest -q --clusters 4.9.7,5.5.0 --clusters 5.5.0 -n 2 tests/behaviours
600 passed in 200.10s
"""


def test_the_runs_are_named_with_the_numbers_of_passed_tests() -> None:
    assert summary(LOG).startswith(
        "Passed: lint, types, 7300 tests on the embedded broker, 932 tests of Spark, "
        "600 behaviours on a real broker 5.5.0. Not run: APIs on real brokers"
    )


def test_runs_without_a_passed_test_are_said_to_be_left_out() -> None:
    log = LOG.replace("932 passed, 1 skipped", "933 skipped").replace("600 passed", "600 skipped")
    assert summary(log).startswith(
        "Passed: lint, types, 7300 tests on the embedded broker. Not run: tests of Spark (see the reason "
        "above), behaviours on a real broker 5.5.0 (see the reason above), APIs"
    )
