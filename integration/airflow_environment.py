"""Run the tests of the Airflow provider in an environment with Airflow, under build/airflow.

    python -m integration.airflow_environment

Airflow pins versions that differ from those of this project, so only the tests of its provider run there.
"""

from __future__ import annotations

import subprocess
import sys

from integration.environments import ROOT, environment

TESTS = "tests/integrations/test_airflow.py"
NEEDED = (
    "kombu",
    "pytest>=8.3,<9.2",
    "pytest-trio>=0.8",
    "hypothesis>=6.100",
    "trustme>=1.2",
    "uvloop>=0.21",
)
"""The packages of tests/conftest.py and tests/integrations/conftest.py."""


def main() -> int:
    """Run the tests. Return pytest's exit code."""
    names = [line.split("==")[0] for line in (ROOT / "constraints.txt").read_text().splitlines()]
    python = environment("airflow", sys.executable, ["--editable", ".[airflow]", *NEEDED], not_pinned=names)
    return subprocess.run([python, "-m", "pytest", "-q", TESTS], cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
