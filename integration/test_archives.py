"""Archives of Java classes: classes are loaded from an archive that fits, and other archives are
ignored.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from integration.clusters import archives, maven
from integration.clusters.cluster import ClusterStartError
from integration.clusters.local import start_local_cluster
from integration.clusters.provider import VERSIONS
from integration.java.peer import QUICK, client_for, run_java
from tests.spark.session import java_or_skip

pytestmark = pytest.mark.usefixtures("java_and_maven")
FROM_ARCHIVE = "source: shared objects file (top)"


class Maker:
    """Makes archives that cannot be used."""

    def __init__(self) -> None:
        self.made: list[Path] = []

    def __call__(self, option: str) -> None:
        name, _, path = option.partition("=")
        assert name == "-XX:ArchiveClassesAtExit"
        self.made.append(Path(path))
        Path(path).write_text("classes")


@pytest.fixture
def jar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(maven, "CACHE", tmp_path / "cache")
    path = tmp_path / "a.jar"
    path.write_bytes(b"first")
    return path


def used(options: list[str]) -> Path:
    name, _, path = options[0].partition("=")
    assert name == "-XX:SharedArchiveFile"
    return Path(path)


def test_concurrent_requests_make_an_archive_once(jar: Path) -> None:
    make, together = Maker(), threading.Barrier(8)

    def use(_: int) -> list[str]:
        together.wait()
        return archives.use("some", str(jar), make)

    with ThreadPoolExecutor(8) as threads:
        (archive,) = {used(options) for options in threads.map(use, range(8))}
    assert len(make.made) == 1
    assert archive.read_text() == "classes"
    assert [file for file in archive.parent.iterdir() if file != archive] == []


def test_another_jar_or_java_needs_another_archive(jar: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make = Maker()
    first = used(archives.use("some", str(jar), make))
    status = jar.stat()
    os.utime(jar, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    second = used(archives.use("some", str(jar), make))
    monkeypatch.setattr(archives, "_java", lambda: "another one")
    third = used(archives.use("some", str(jar), make))
    assert len({first, second, third}) == len(make.made) == 3


def test_an_incomplete_archive_is_neither_used_nor_made_again(jar: Path) -> None:
    make = Maker()

    def fail(option: str) -> None:
        make(option)
        raise ClusterStartError("it was killed in between")

    assert archives.use("some", str(jar), fail) == []
    assert archives.use("some", str(jar), fail) == []
    assert len(make.made) == 1


def test_a_java_that_writes_no_archive_runs_without(jar: Path) -> None:
    assert archives.use("some", str(jar), lambda option: None) == []


@pytest.mark.parametrize("version", VERSIONS)
def test_brokers_and_programs_load_classes_from_the_archive(version: str, tmp_path: Path) -> None:
    log = f"-Xlog:class+load:file={tmp_path}"
    with start_local_cluster(version, jvm=[f"{log}/server-%p"]):
        run_java(client_for(version), "Allocate", "--cases", "1", jvm=[*QUICK, f"{log}/program"])
    for pattern, count, name in (
        ("server-*", 2, "remoting.netty.NettyRemotingServer"),  # the name server's and the broker's
        ("program", 1, "client.consumer.AllocateMessageQueueStrategy"),
    ):
        lines = [line for file in tmp_path.glob(pattern) for line in file.read_text().splitlines()]
        loaded = [line for line in lines if f" org.apache.rocketmq.{name} " in line]
        assert len(loaded) == count
        assert all(FROM_ARCHIVE in line for line in loaded)


def test_spark_loads_classes_from_the_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "")
    java_or_skip()
    log = tmp_path / "spark"
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", f"{os.environ['SPARK_SUBMIT_OPTS']} -Xlog:class+load:file={log}")
    start = "from pyspark.sql import SparkSession; SparkSession.builder.master('local').getOrCreate()"
    subprocess.run([sys.executable, "-c", start], check=True)
    (loaded,) = [line for line in log.read_text().splitlines() if " org.apache.spark.SparkContext " in line]
    assert FROM_ARCHIVE in loaded
