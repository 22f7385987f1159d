"""Run the tests of the Airflow provider in an environment with Airflow, under build/airflow.

    python -m integration.airflow_environment                             # on the embedded broker
    python -m integration.airflow_environment --clusters embedded,5.5.0  # and on a real one

The arguments are those of pytest. Clusters are those of ``integration.clusters.plugin``.

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
    "pytest-xdist>=3.6",
    "hypothesis>=6.100",
    "trustme>=1.2",
    "uvloop>=0.21",
)
"""The packages of tests/conftest.py, tests/integrations/conftest.py and integration/clusters/plugin.py."""


def main() -> int:
    """Run the tests. Return pytest's exit code."""
    names = [line.split("==")[0] for line in (ROOT / "constraints.txt").read_text().splitlines()]
    python = environment("airflow", sys.executable, ["--editable", ".[airflow]", *NEEDED], not_pinned=names)
    command = [str(python), "-m", "pytest", "-q", "-p", "integration.clusters.plugin", *sys.argv[1:], TESTS]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
