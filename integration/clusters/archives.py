"""Class data sharing (CDS) archives: loaded and verified Java classes that JVMs map into memory.

Loading classes takes half the time of a broker's start or a short program. An archive is created once per JDK
and class path, by a training run, and cached in ``integration/.cache``. If that fails, programs start without
an archive.
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

# By default Java warns about an unsuitable archive on stdout, which callers parse.
_WARN_ASIDE = ("-Xlog:disable", "-Xlog:all=warning:stderr")


def class_path(*jars: Path) -> str:
    """Return the class path of jars and folders of jars, sorted by name to keep it stable."""
    each = (sorted(entry.glob("*.jar")) if entry.is_dir() else [entry] for entry in jars)
    return os.pathsep.join(str(jar) for group in each for jar in group)


def use(name: str, classes: str, make: Callable[[str], object]) -> list[str]:
    """Return the JVM options that use an archive, created on first use. Empty if none can be created.

    Args:
        name: the archive's name. There is one archive per name and class path.
        classes: the class path, made of jars only.
        make: the training run. It runs a program on that class path with the given JVM option until the
            program exits normally, which writes the archive. If it raises, there is no archive.
    """
    archive = maven.CACHE / "archives" / f"{name}-{_fingerprint(classes)}.jsa"
    if not archive.exists():
        with maven.only_one(f"archive-{name}"):
            if not archive.exists():
                _make(archive, make)
    # An empty file records a failure, so that later runs do not try again.
    return [f"-XX:SharedArchiveFile={archive}", *_WARN_ASIDE] if archive.stat().st_size else []


def _make(archive: Path, make: Callable[[str], object]) -> None:
    """Write the archive to a temporary folder, then move it into place atomically."""
    archive.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=archive.parent) as scratch:
        draft = Path(scratch) / archive.name
        try:
            make(f"-XX:ArchiveClassesAtExit={draft}")
        except (OSError, subprocess.SubprocessError, ClusterStartError, ClusterUnavailableError):
            draft.unlink(missing_ok=True)  # it may be incomplete
        draft.touch()
        draft.replace(archive)


def _fingerprint(classes: str) -> str:
    """Return a hash of the JDK and of the jars' paths, sizes and times. An archive fits only these."""
    jars = [(jar, os.stat(jar)) for jar in classes.split(os.pathsep)]
    described = [f"{jar} {status.st_size} {status.st_mtime_ns}" for jar, status in jars]
    return hashlib.sha256("\n".join([_java(), *described]).encode()).hexdigest()[:12]


@cache
def _java() -> str:
    """Return the path and version of the Java on the PATH."""
    said = subprocess.run(["java", "-Xinternalversion"], capture_output=True, text=True, check=False)
    return f"{os.path.realpath(shutil.which('java') or '')} {said.stdout} {said.stderr}"
