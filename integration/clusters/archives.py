"""Archives of Java classes: what one Java has read and checked of its classes, for others to map into memory.

Half of what a broker's start or a short program takes is that. An archive is made once for each JDK and class
path, by a run that is there for nothing else, and kept in ``integration/.cache``. Where none can be made,
programs start without one.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

from integration.clusters import maven
from integration.clusters.cluster import ClusterStartError, ClusterUnavailableError

# Java would warn on standard output of one that does not fit, where programs print what is read.
_WARN_ASIDE = ("-Xlog:disable", "-Xlog:all=warning:stderr")


def class_path(*jars: Path) -> str:
    """Return the class path of these jars and folders of jars: by name, so that it is the same every time."""
    each = (sorted(entry.glob("*.jar")) if entry.is_dir() else [entry] for entry in jars)
    return os.pathsep.join(str(jar) for group in each for jar in group)


def use(name: str, classes: str, make: Callable[[str], object]) -> list[str]:
    """Return the options of a Java that shall use an archive; none where there is none, nor can be.

    Args:
        name: the archive's; of one name and class path there is one.
        classes: the class path, of jars alone.
        make: runs a program on that class path with the option that it gets, to a regular end, which writes
            the archive; or raises an error, and there is none.
    """
    archive = maven.CACHE / "archives" / f"{name}-{_fingerprint(classes)}.jsa"
    if not archive.exists():
        with maven.only_one(f"archive-{name}"):
            if not archive.exists():
                _make(archive, make)
    # An empty one stands for one that could not be made: nobody shall try that again.
    return [f"-XX:SharedArchiveFile={archive}", *_WARN_ASIDE] if archive.stat().st_size else []


def _make(archive: Path, make: Callable[[str], object]) -> None:
    """Have it written beside ``archive``, and move it there whole."""
    archive.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=archive.parent) as scratch:
        draft = Path(scratch) / archive.name
        try:
            make(f"-XX:ArchiveClassesAtExit={draft}")
        except (OSError, subprocess.SubprocessError, ClusterStartError, ClusterUnavailableError):
            draft.unlink(missing_ok=True)  # it may be the half of one
        draft.touch()
        draft.replace(archive)


def _fingerprint(classes: str) -> str:
    """Return what changes when the JDK does, or a jar, or where it is: an archive fits one of each."""
    jars = [(jar, os.stat(jar)) for jar in classes.split(os.pathsep)]
    described = [f"{jar} {status.st_size} {status.st_mtime_ns}" for jar, status in jars]
    return hashlib.sha256("\n".join([_java(), *described]).encode()).hexdigest()[:12]


@cache
def _java() -> str:
    """Return where the Java is that programs are started with, and what it says of its version."""
    said = subprocess.run(["java", "-Xinternalversion"], capture_output=True, text=True, check=False)
    return f"{os.path.realpath(shutil.which('java') or '')} {said.stdout} {said.stderr}"
