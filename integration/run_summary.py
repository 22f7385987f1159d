"""Say in one line what a run of ``make test`` has tested, what it left out, and how to run the rest.

python -m integration.run_summary LOG
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

_COMMAND = re.compile(r"-m pytest (.*)")
_PASSED = re.compile(r"\b(\d+) passed\b")


def _runs(log: str) -> Iterator[tuple[str, int]]:
    """Yield the arguments of each pytest run and the number of tests that passed."""
    commands = list(_COMMAND.finditer(log))
    ends = [command.start() for command in commands[1:]] + [len(log)]
    for command, end in zip(commands, ends, strict=True):
        passed = _PASSED.findall(log, command.end(), end)
        yield command[1], int(passed[-1]) if passed else 0


def _name(arguments: str) -> str:
    if version := re.search(r".*--clusters (\S+)", arguments):
        return f"behaviours on a real broker {version[1]}"
    return "tests of Spark" if arguments.endswith("test_spark_writing.py") else "tests on the embedded broker"


def summary(log: str) -> str:
    """Return the line for the output of a run that passed."""
    counts = {_name(arguments): passed for arguments, passed in _runs(log)}
    ran = [f"{passed} {name}" for name, passed in counts.items() if passed]
    missing = [f"{name} (see the reason above)" for name, passed in counts.items() if not passed]
    left_out = [*missing, "APIs on real brokers, other versions of brokers and Pythons, faults, kills"]
    return f"Passed: lint, types, {', '.join(ran)}. Not run: {', '.join(left_out)}. They run with: make rest"


if __name__ == "__main__":
    print(summary(Path(sys.argv[1]).read_text(errors="replace")))
