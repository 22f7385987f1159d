"""The tests of Spark with every version of pyspark that works.

    python -m integration.spark_matrix [version ...]

Each version has an environment of its own under build/spark, with nothing but what the extra ``spark`` asks
for and what the tests need.
"""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).parent.parent
VERSIONS = ("4.1.4", "4.2.1")
"""The newest of each line that is not the pinned one, which `make test` runs."""
_TOOLS = ("hypothesis", "pytest", "pytest-trio", "pytest-xdist", "lz4", "zstandard", "isal")
_NOT_PINNED = ("pyspark", "py4j")


def python_with(version: str) -> Path:
    """Return the Python of an environment that has a version of pyspark, made if there is none yet."""
    home = ROOT / "build" / "spark" / version
    python = home / "bin" / "python"
    done = home / "installed"
    wanted = "".join([(ROOT / name).read_text() for name in ("pyproject.toml", "constraints.txt")])
    if done.is_file() and done.read_text() == wanted:
        return python
    venv.create(home, with_pip=True, clear=True, symlinks=True)
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    constraints = home / "constraints.txt"
    constraints.write_text("\n".join([line for line in lines if line.split("==")[0] not in _NOT_PINNED]))
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    packages = ["-c", str(constraints), f"pyspark=={version}", *_TOOLS, "--editable", f"{ROOT}[spark]"]
    subprocess.run([*command, *packages], check=True)
    done.write_text(wanted)
    return python


def main(versions: list[str]) -> int:
    """Test with each version; return how many failed."""
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
