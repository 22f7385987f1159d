"""Pyright knows the type of every public symbol."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from integration.environments import ROOT, environment

FETCH_SECONDS = 300.0
"""The timeout in seconds for the download of pyright."""


def test_pyright_finds_every_symbol_complete(tmp_path: Path) -> None:
    """Pyright checks the package as an installed one, together with the other packages installed for these
    tests.
    """
    try:
        python = environment("pyright", sys.executable, ["pyright"])
        # The first call fetches Node and pyright.
        subprocess.run([python, "-m", "pyright", "--version"], check=True, timeout=FETCH_SECONDS)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        pytest.skip(f"pyright cannot be had here: {error}")
    (packages,) = python.parent.parent.glob("lib/python*/site-packages")
    (packages / "beside.pth").write_text(sysconfig.get_path("purelib"))
    installed = packages / "rocketmq_py"
    shutil.rmtree(installed, ignore_errors=True)
    shutil.copytree(ROOT / "src" / "rocketmq_py", installed, ignore=shutil.ignore_patterns("__pycache__"))
    completed = subprocess.run(
        [python, "-m", "pyright", "--verifytypes", "rocketmq_py", "--ignoreexternal", "--outputjson"],
        cwd=tmp_path,
        # Pyright asks the first Python on the PATH where packages are.
        env={**os.environ, "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert completed.stdout.startswith("{"), completed.stderr
    found = json.loads(completed.stdout)["typeCompleteness"]
    assert Path(found["packageRootDirectory"]) == installed
    exported = [symbol for symbol in found["symbols"] if symbol["isExported"]]
    assert len(exported) > 8000
    assert [one["name"] for one in exported if one["isTypeAmbiguous"] or not one["isTypeKnown"]] == []
    assert found["completenessScore"] == 1
