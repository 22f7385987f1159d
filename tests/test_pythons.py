"""The Pythons that `make pythons` finds, and its error for a missing one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from integration import pythons
from integration.pythons import NoPythonError, find_python, supported_versions

SHIM = "#!/bin/sh\necho 'pyenv: python3.99: command not found' >&2\nexit 127\n"


def a_python(path: Path, version: str) -> Path:
    """Create a script that reports itself as a Python of this version."""
    return a_script(path, f"#!/bin/sh\necho {version}\n")


def a_script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture(autouse=True)
def path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The only folder on the PATH. pyenv's folder is empty."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    return folder


def test_supported_versions_begin_with_the_oldest_required_one() -> None:
    assert supported_versions()[0] == "3.11"
    assert pythons.running_version() in supported_versions()


def test_running_version_is_the_current_interpreter() -> None:
    assert find_python(pythons.running_version()) == sys.executable


def test_python_on_the_path_is_found(path: Path) -> None:
    expected = a_python(path / "python3.99", "3.99")
    assert find_python("3.99") == str(expected)


def test_failing_shim_falls_back_to_pyenv(path: Path, tmp_path: Path) -> None:
    a_script(path / "python3.99", SHIM)
    a_python(tmp_path / "pyenv" / "versions" / "3.9.1" / "bin" / "python", "3.9")
    expected = a_python(tmp_path / "pyenv" / "versions" / "3.99.1" / "bin" / "python", "3.99")
    assert find_python("3.99") == str(expected)


def test_missing_python_error_lists_the_attempts(path: Path) -> None:
    with pytest.raises(NoPythonError, match=r"python3\.99 is not on the PATH; pyenv has none"):
        find_python("3.99")
    a_script(path / "python3.99", SHIM)
    with pytest.raises(NoPythonError, match=r"bin/python3\.99: pyenv: python3\.99: command not found"):
        find_python("3.99")
    a_python(path / "python3.99", "3.9")
    with pytest.raises(NoPythonError, match=r"it is 3\.9;"):
        find_python("3.99")


def test_missing_version_is_reported_and_does_not_fail(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ROCKETMQ_INTEGRATION", "required")
    monkeypatch.setattr(pythons, "supported_versions", lambda: ["3.98", "3.99"])
    assert pythons.main(["tests"]) == 0
    errors = capsys.readouterr().err
    assert "*** Python 3.98 is NOT CHECKED: python3.98 is not on the PATH" in errors
    assert "*** Python 3.99 is NOT CHECKED" in errors


def test_failing_version_is_counted_and_the_next_one_tried(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], path: Path
) -> None:
    tried = []

    def check(version: str, python: str, arguments: list[str], *, types: bool) -> bool:
        tried.append((version, python, arguments, types))
        return version != "3.98"

    monkeypatch.setattr(pythons, "check", check)
    monkeypatch.setattr(pythons, "supported_versions", lambda: ["3.98", "3.99", pythons.running_version()])
    for version in ("3.98", "3.99"):
        a_python(path / f"python{version}", version)
    assert pythons.main(["--others", "--tests-only", "-q", "tests"]) == 1
    assert tried == [
        (version, str(path / f"python{version}"), ["-q", "tests"], False) for version in ("3.98", "3.99")
    ]
    assert "failed on Python 3.98" in capsys.readouterr().err
    tried.clear()
    assert pythons.main(["--others", "--newest", "-q", "tests"]) == 0
    assert tried == [("3.99", str(path / "python3.99"), ["-q", "tests"], True)]
