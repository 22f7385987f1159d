"""The checks before a release."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from integration import release_check
from integration.file_server import serve_files
from integration.release_check import ReleaseError, check_version, check_wheel, lowest, project, write_index

ROOT = Path(__file__).resolve().parent.parent
CHANGELOG = "# Changelog\n\n## [Unreleased]\n\n## [1.2.0] - 2027-01-31\n"
CITATION = "title: rocketmq-py\nversion: 1.2.0\nlicense: Apache-2.0\n"


def test_lowest_versions_are_the_lower_bounds() -> None:
    assert lowest(["trio>=0.29", "rich>=13"]) == ["trio==0.29", "rich==13"]


@pytest.mark.parametrize("requirement", ["trio", "trio==0.29", "trio>=0.29,<1"])
def test_requirement_without_a_plain_lower_bound_is_an_error(requirement: str) -> None:
    with pytest.raises(ReleaseError, match="is not of the form name>=version"):
        lowest([requirement])


def test_all_dependencies_have_a_lower_bound() -> None:
    assert len(lowest(project()["dependencies"])) == len(project()["dependencies"])


def test_version_agrees_everywhere() -> None:
    check_version("v1.2.0", "1.2.0", CITATION, CHANGELOG)


@pytest.mark.parametrize(
    ("tag", "citation", "changelog", "text"),
    [
        ("v1.2.1", CITATION, CHANGELOG, "the tag is v1.2.1 and the version in pyproject.toml is 1.2.0"),
        ("v1.2.0", CITATION.replace("1.2.0", "1.1.0"), CHANGELOG, "CITATION.cff does not have version 1.2.0"),
        ("v1.2.0", CITATION, CHANGELOG.replace("[1.2.0] - 2027-01-31", "[1.2.0]"), "has no section"),
    ],
)
def test_version_that_differs_is_an_error(tag: str, citation: str, changelog: str, text: str) -> None:
    with pytest.raises(ReleaseError, match=text):
        check_version(tag, "1.2.0", citation, changelog)


def test_citation_has_the_current_version() -> None:
    assert f"\nversion: {project()['version']}\n" in (ROOT / "CITATION.cff").read_text()


def wheel_of(path: Path, *names: str) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, "")
    return path


MARKS = ("rocketmq_py/py.typed", "pyspark_rocketmq/py.typed", "rocketmq_py-1.2.0.dist-info/METADATA")


def test_wheel_has_the_packages_and_their_type_marks(tmp_path: Path) -> None:
    check_wheel(wheel_of(tmp_path / "a.whl", *MARKS))


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ((*MARKS, "tests/test_docs.py"), r"unexpected \['tests'\]"),
        (MARKS[1:], r"missing \['rocketmq_py/py.typed'\]"),
    ],
)
def test_wheel_with_other_contents_is_an_error(tmp_path: Path, names: tuple[str, ...], text: str) -> None:
    with pytest.raises(ReleaseError, match=text):
        check_wheel(wheel_of(tmp_path / "a.whl", *names))


def test_pip_finds_the_distributions_of_a_local_index(tmp_path: Path) -> None:
    wheel = wheel_of(tmp_path / "rocketmq_py-1.2.0-py3-none-any.whl", *MARKS)
    source = wheel_of(tmp_path / "rocketmq_py-1.2.0.tar.gz")
    write_index(tmp_path / "index", wheel, source)
    with serve_files(tmp_path / "index") as server:
        options = ("--isolated", "--no-deps", "--no-cache-dir", "--dest", str(tmp_path / "found"))
        address = ("--index-url", f"{server.url}simple/")
        command = [sys.executable, "-m", "pip", "download", *options, *address, "rocketmq-py==1.2.0"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "/simple/rocketmq-py/" in server.requested
    assert f"/simple/rocketmq-py/{wheel.name}" in server.requested, done.stderr


def test_wrong_tag_is_one_line_on_stderr(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(release_check, "build", lambda: pytest.fail("nothing is built"))
    assert release_check.main(["--tag", "v99.0.0"]) == 1
    assert capsys.readouterr().err.startswith("not ready for a release: the tag is v99.0.0")
