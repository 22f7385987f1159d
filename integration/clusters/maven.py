"""Official artifacts from Maven Central, kept in ``integration/.cache``."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from integration.clusters.cluster import ClusterUnavailableError

CACHE = (Path(__file__).resolve().parents[1] / ".cache").resolve()
"""Cache of downloaded jars and compiled classes. Git ignores it, and it may be deleted at any time.

It may be a link to a folder that several checkouts share.
"""

DOWNLOAD_TIMEOUT = 600.0
"""Seconds that one download may take."""

_GOAL = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"


def server_jars(version: str) -> Path:
    """Return the folder of the jars that run a name server, a broker and the admin tools of ``version``.

    Raises:
        ClusterUnavailableError: the jars are not cached and cannot be downloaded.
    """
    return _rocketmq(f"server-{version}", version, "rocketmq-namesrv", "rocketmq-broker", "rocketmq-tools")


def proxy_jars(version: str) -> Path:
    """Return the folder of the jars that run the gRPC proxy of ``version``, a 5.x version.

    Raises:
        ClusterUnavailableError: the jars are not cached and cannot be downloaded.
    """
    return _rocketmq(f"proxy-{version}", version, "rocketmq-proxy")


def client_jars(version: str) -> Path:
    """Return the folder of the jars of the Java client ``version``, and of the admin client.

    Raises:
        ClusterUnavailableError: the jars are not cached and cannot be downloaded.
    """
    # Maven Central has client 4.9.8, but no tools 4.9.8.
    tools = "4.9.7" if version == "4.9.8" else version
    client = f"org.apache.rocketmq:rocketmq-client:{version}"
    return jars(f"client-{version}", [client, f"org.apache.rocketmq:rocketmq-tools:{tools}"])


def jars(name: str, artifacts: Sequence[str], *, dependencies: bool = True) -> Path:
    """Return a folder with the jars of artifacts.

    Args:
        name: the folder's name in the cache.
        artifacts: the artifacts, as ``group:artifact:version``.
        dependencies: whether to include the jars that the artifacts need.

    Raises:
        ClusterUnavailableError: the jars are not cached and cannot be downloaded.
    """
    final = CACHE / name / "lib"
    if final.is_dir():
        return final
    if missing := missing_program("mvn"):
        raise ClusterUnavailableError(f"{missing} is not on the PATH, and {final} is not filled yet")
    with only_one("maven"):
        # Another run may have filled it meanwhile.
        if not final.is_dir():
            _download(final, artifacts, dependencies)
    return final


def _rocketmq(name: str, version: str, *artifacts: str) -> Path:
    return jars(name, [f"org.apache.rocketmq:{artifact}:{version}" for artifact in artifacts])


def missing_program(*programs: str) -> str | None:
    """Return the first of ``programs`` that is not on the PATH, or None."""
    return next((program for program in programs if shutil.which(program) is None), None)


@contextmanager
def only_one(name: str) -> Iterator[None]:
    """Lock a part of the cache against other processes until the block ends."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _download(final: Path, artifacts: Sequence[str], dependencies: bool) -> None:
    """Fill a temporary folder, then move it to ``final`` atomically."""
    final.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE, prefix="download-") as scratch:
        pom = Path(scratch) / "pom.xml"
        pom.write_text(_pom(artifacts, dependencies), encoding="utf-8")
        lib = Path(scratch) / "lib"
        command = [
            "mvn",
            "-B",
            "-q",
            "-f",
            str(pom),
            _GOAL,
            f"-DoutputDirectory={lib}",
            "-DincludeScope=runtime",
        ]
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=DOWNLOAD_TIMEOUT
            )
        except subprocess.TimeoutExpired:
            raise ClusterUnavailableError(
                f"mvn did not fetch {list(artifacts)} in {DOWNLOAD_TIMEOUT:g} s"
            ) from None
        if done.returncode != 0:
            raise ClusterUnavailableError(f"mvn cannot fetch {list(artifacts)}:\n{done.stdout[-2000:]}")
        lib.rename(final)


_WITHOUT_DEPENDENCIES = (
    "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
)


def _pom(artifacts: Sequence[str], dependencies: bool) -> str:
    excluded = "" if dependencies else _WITHOUT_DEPENDENCIES
    lines = "\n".join(
        f"    <dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{version}</version>{excluded}</dependency>"
        for group, artifact, version in (name.split(":") for name in artifacts)
    )
    return f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>local</groupId>
  <artifactId>integration</artifactId>
  <version>1</version>
  <dependencies>
{lines}
  </dependencies>
</project>
"""
