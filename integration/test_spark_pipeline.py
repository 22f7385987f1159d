"""The pipeline of examples/, all of it in short: stopped, killed, and started again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.cli.command import ENVIRONMENT
from tests.spark.session import java_or_skip

ROOT = Path(__file__).parent.parent


def test_the_pipeline_is_stopped_and_killed_and_loses_nothing(tmp_path: Path) -> None:
    java = java_or_skip()
    quick = {name: os.environ[name] for name in ("SPARK_HOME", "SPARK_SUBMIT_OPTS")}
    command = [sys.executable, "-m", "examples.spark_pipeline", f"--directory={tmp_path / 'kept'}"]
    ended = subprocess.run(
        [*command, f"--plot={tmp_path / 'totals.png'}", "--orders=1000", "--seconds=2"],
        cwd=ROOT,
        env={**ENVIRONMENT, "JAVA_HOME": str(java), **quick},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = ended.stdout.splitlines()
    assert (ended.returncode, ended.stderr) == (0, ""), ended.stdout
    assert lines[-1].strip() == "Nothing is missing, and everything is there once."
    assert [line.split()[-1] for line in lines if "in the middle" in line] == ["SIGTERM", "SIGKILL"]
    # A driver that fails by itself, as on a machine that is short of processors, is started again, too.
    assert len((tmp_path / "kept" / "starts").read_text().splitlines()) >= 3
