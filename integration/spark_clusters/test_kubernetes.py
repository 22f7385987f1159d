"""The manifest for the Spark operator fits the schema of its custom resource.

The schema is a file of the operator's repository, which the tests cannot download:
SPARK_OPERATOR_DEFINITION names config/crd/bases/sparkoperator.k8s.io_sparkapplications.yaml of a copy.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from integration.environments import ROOT, environment

MANIFEST = ROOT / "examples" / "spark_kubernetes" / "application.yaml"
PROGRAM = Path(__file__).parent / "programs" / "manifest_check.py"
VARIABLE = "SPARK_OPERATOR_DEFINITION"


@pytest.fixture(scope="module")
def checker() -> Path:
    """A Python with the packages of the check."""
    return environment("spark-cluster/manifests", sys.executable, ["jsonschema", "pyyaml"])


def mistakes(checker: Path, manifest: Path) -> list[str]:
    """Return the mistakes in a manifest. Skip the test without the schema."""
    if VARIABLE not in os.environ:
        pytest.skip(f"{VARIABLE} does not name the operator's sparkapplications.yaml")
    command = [str(checker), str(PROGRAM), os.environ[VARIABLE], str(manifest)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert not ended.stderr
    return ended.stdout.splitlines()


def test_manifest_fits_the_schema_of_the_operator(checker: Path) -> None:
    assert mistakes(checker, MANIFEST) == []


def test_check_finds_mistakes(checker: Path, tmp_path: Path) -> None:
    manifest = tmp_path / "application.yaml"
    manifest.write_text(MANIFEST.read_text().replace("instances: 2", "instances: two\n    instanses: 2"))
    found = mistakes(checker, manifest)
    assert len(found) == 2
    assert "instances" in found[0] + found[1]
    assert "instanses" in found[0] + found[1]
