"""The files under .github and the other files that tools of the project read."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

from integration.pythons import supported_versions

yaml = pytest.importorskip("yaml", reason="reads the workflows")
ROOT = Path(__file__).resolve().parent.parent
CONFIGURATION = ROOT / ".github" / "ISSUE_TEMPLATE" / "config.yml"
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
FORMS = sorted({*(ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml")} - {CONFIGURATION})


def load(path: Path) -> dict[str, Any]:
    return yaml.safe_load(path.read_text())  # type: ignore[no-any-return]


def steps(workflow: dict[str, Any]) -> list[dict[str, Any]]:
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


@pytest.fixture(params=WORKFLOWS, ids=lambda path: path.stem)
def workflow(request: pytest.FixtureRequest) -> dict[str, Any]:
    return load(request.param)


def test_expected_workflows_exist() -> None:
    assert [path.stem for path in WORKFLOWS] == ["checks", "docs", "integration", "nightly", "release"]


def test_actionlint_accepts_the_workflows() -> None:
    actionlint = shutil.which("actionlint")
    if actionlint is None:
        pytest.skip(
            "actionlint is not on the PATH: go install github.com/rhysd/actionlint/cmd/actionlint@v1.7.7"
        )
    linted = subprocess.run([actionlint], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (linted.returncode, linted.stdout) == (0, "")


def test_workflows_may_only_read_by_default(workflow: dict[str, Any]) -> None:
    assert workflow["permissions"] == {"contents": "read"}


def test_every_job_has_a_time_limit(workflow: dict[str, Any]) -> None:
    assert all("timeout-minutes" in job for job in workflow["jobs"].values())


def test_checkouts_keep_no_credentials(workflow: dict[str, Any]) -> None:
    checkouts = [step for step in steps(workflow) if step.get("uses", "").startswith("actions/checkout@")]
    assert all(step["with"]["persist-credentials"] is False for step in checkouts)


def test_commands_of_make_exist(workflow: dict[str, Any]) -> None:
    used = {name for step in steps(workflow) for name in re.findall(r"make ([a-z-]+)", step.get("run", ""))}
    assert used <= make_targets()


def test_parts_of_the_integration_workflow_are_all_parts_on_real_brokers() -> None:
    parts = load(ROOT / ".github/workflows/integration.yml")["jobs"]["real"]["strategy"]["matrix"]["part"]
    [real] = re.findall(r"^REAL_PARTS = (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert sorted(parts) == sorted(real.split())


def test_checks_run_on_all_systems_and_supported_pythons() -> None:
    matrix = load(ROOT / ".github/workflows/checks.yml")["jobs"]["tests"]["strategy"]["matrix"]
    assert matrix["python"] == supported_versions()
    assert {system.partition("-")[0] for system in matrix["os"]} == {"ubuntu", "macos", "windows"}


def test_paths_of_the_checks_exist() -> None:
    commands = "\n".join(step.get("run", "") for step in steps(load(ROOT / ".github/workflows/checks.yml")))
    ignored = re.findall(r"--ignore=(\S+)", commands)
    assert ignored
    assert all((ROOT / path).exists() for path in ignored)


def test_only_the_job_that_publishes_gets_an_identity() -> None:
    jobs = load(ROOT / ".github/workflows/release.yml")["jobs"]
    allowed = {name for name, job in jobs.items() if job.get("permissions", {}).get("id-token") == "write"}
    assert allowed == {"publish"}
    uses = [step.get("uses", "") for step in jobs["publish"]["steps"]]
    assert any(use.startswith("pypa/gh-action-pypi-publish@") for use in uses)
    assert any(use.startswith("actions/attest-build-provenance@") for use in uses)
    assert "password" not in str(jobs["publish"])


@pytest.mark.parametrize(
    "form", [path for path in FORMS if path.stem != "config"], ids=lambda path: path.stem
)
def test_issue_forms_have_unique_ids_and_labels(form: Path) -> None:
    loaded = load(form)
    assert {"name", "description", "body"} <= loaded.keys()
    ids = [part["id"] for part in loaded["body"]]
    assert len(set(ids)) == len(ids)
    assert all(part["attributes"]["label"] for part in loaded["body"])


def test_pre_commit_runs_the_pinned_ruff() -> None:
    repositories = {repo["repo"]: repo["rev"] for repo in load(ROOT / ".pre-commit-config.yaml")["repos"]}
    [pinned] = re.findall(r"^ruff==(.*)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert repositories["https://github.com/astral-sh/ruff-pre-commit"] == f"v{pinned}"


def test_editorconfig_and_ruff_have_the_same_line_length() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    text = (ROOT / ".editorconfig").read_text()
    [length] = re.findall(r"\[\*\.\{py,toml\}\][^\[]*max_line_length = (\d+)", text)
    assert int(length) == settings["tool"]["ruff"]["line-length"]


def test_citation_is_complete() -> None:
    citation = load(ROOT / "CITATION.cff")
    assert {"cff-version", "message", "title", "authors", "version", "license"} <= citation.keys()
