"""Run the tests of Spark with every supported version of pyspark.

    python -m integration.spark_matrix [version ...]

Each version has its own environment under build/spark, with only the requirements of the extra
``spark`` and of the tests.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from integration.environments import ROOT, environment

VERSIONS = ("4.1.4", "4.2.1")
"""The newest release of each line other than the pinned one, which `make test-all` runs."""


def python_with(version: str) -> Path:
    """Return the Python of an environment with a version of pyspark. Create the environment if it is
    missing.
    """
    return environment(
        f"spark/{version}",
        sys.executable,
        ["--group", "tests", f"pyspark=={version}", "--editable", ".[spark]"],
        not_pinned=("pyspark", "py4j"),
    )


def main(versions: list[str]) -> int:
    """Run the tests with each version. Return the number of failures."""
    failed = []
    for version in versions or VERSIONS:
        python = python_with(version)
        print(f"pyspark {version}", flush=True)
        if subprocess.run([python, "-m", "pytest", "-q", "tests/spark"], cwd=ROOT, check=False).returncode:
            failed.append(version)
    if failed:
        print(f"failed with pyspark {', '.join(failed)}", file=sys.stderr)
    return len(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
