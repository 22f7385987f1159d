"""The Python environment that jobs ship to the executors, as the page on Spark describes it."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

from integration.environments import ROOT, environment

NAME = "environment"
"""The folder of the unpacked archive in an executor's working directory."""
EXECUTOR_PYTHON = f"./{NAME}/bin/python"
_FOLDER = ROOT / "build" / "spark-cluster"
_PACKAGES = ("pyarrow", "numpy")
"""The extra ``spark`` without pyspark, which executors take from Spark's own files."""


def shipped_archive() -> Path:
    """Return an archive with this tree's package. Make it if the sources changed."""
    archive, made_from = _FOLDER / f"{NAME}.tar.gz", _FOLDER / "made-from"
    sources = _fingerprint()
    if archive.is_file() and made_from.is_file() and made_from.read_text() == sources:
        return archive
    python = environment("spark-cluster/executor", sys.executable, [*_PACKAGES, "."])
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--no-deps", "--force-reinstall", "."], cwd=ROOT, check=True)
    packer = environment("spark-cluster/packer", sys.executable, ["venv-pack"])
    command = [str(packer.with_name("venv-pack")), "--prefix", str(python.parent.parent)]
    subprocess.run(
        [*command, "--output", str(archive), "--force", "--quiet", "--compress-level", "1"], check=True
    )
    made_from.write_text(sources)
    return archive


def bare_python() -> Path:
    """Return a Python without any package, as on a machine of a cluster that has only the system's."""
    python = _FOLDER / "bare" / "bin" / "python3"
    if not python.exists():
        subprocess.run(
            [sys.executable, "-m", "venv", "--without-pip", python.parent.parent], cwd=ROOT, check=True
        )
    return python


def _fingerprint() -> str:
    files = [ROOT / "pyproject.toml", ROOT / "constraints.txt", *sorted((ROOT / "src").rglob("*.py"))]
    return hashlib.sha256(b"".join([file.read_bytes() for file in files])).hexdigest()
