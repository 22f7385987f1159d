"""The example pipeline, shortened: stopped, killed and restarted."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.cli.command import ENVIRONMENT
from tests.spark.session import java_or_skip

ROOT = Path(__file__).parent.parent


def test_pipeline_loses_nothing_when_stopped_and_killed(tmp_path: Path) -> None:
    java = java_or_skip()
    quick = {name: os.environ[name] for name in ("SPARK_HOME", "SPARK_SUBMIT_OPTS")}
    command = [sys.executable, "-m", "examples.spark_pipeline", f"--directory={tmp_path / 'files'}"]
    process = subprocess.run(
        [*command, f"--plot={tmp_path / 'totals.png'}", "--orders=1000", "--seconds=2"],
        cwd=ROOT,
        env={**ENVIRONMENT, "JAVA_HOME": str(java), **quick},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = process.stdout.splitlines()
    assert (process.returncode, process.stderr) == (0, ""), process.stdout
    assert lines[-1].strip() == "All results are complete and correct."
    assert [line.split()[-1] for line in lines if "in the middle" in line] == ["SIGTERM", "SIGKILL"]
    # More than three starts if a driver failed by itself, for example on an overloaded machine.
    assert len((tmp_path / "files" / "starts").read_text().splitlines()) >= 3
