"""Registration of the format, and pickling of its parts for the workers."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest
from pyspark import cloudpickle
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

import rocketmq_py.spark
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.spark.arrow_schema import SOURCE_ARROW_SCHEMA
from rocketmq_py.spark.data_source import RocketMQDataSource
from rocketmq_py.spark.pyspark_version import check_pyspark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OPTIONS = {"nameServer": "127.0.0.1:9876", "topic": "T"}
COLUMNS = from_arrow_schema(SOURCE_ARROW_SCHEMA)
ROWS = StructType().add("body", "string")


def test_spark_discovers_the_format_by_its_name(spark: SparkSession) -> None:
    rows = spark.read.format("RocketMQ").options(**OPTIONS).load()
    assert rows.columns[:3] == ["topic", "flag", "body"]


def test_format_can_be_registered(spark: SparkSession) -> None:
    rocketmq_py.spark.register(spark)
    rows = spark.readStream.format("rocketmq").options(**OPTIONS).load()
    assert rows.columns[:3] == ["topic", "flag", "body"]


@pytest.mark.parametrize("version", ["3.5.8", "4.0.5"])
def test_too_old_spark_is_rejected(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyspark, "__version__", version)
    with pytest.raises(
        ConfigurationError, match=rf"needs pyspark 4\.1 or newer, and pyspark {version} is installed"
    ):
        RocketMQDataSource({})


@pytest.mark.parametrize("version", ["4.1.0", "4.3.0.dev1", "5.0.0", "custom build"])
def test_newer_and_unknown_versions_are_accepted(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyspark, "__version__", version)
    assert check_pyspark() >= (4, 1)


def test_missing_spark_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(ConfigurationError, match=r"install rocketmq-py\[spark\]"):
        check_pyspark()


def test_discovery_of_the_format_imports_nothing_heavy() -> None:
    program = (
        "import sys, pyspark.sql.datasource; before = set(sys.modules); import pyspark_rocketmq; "
        "print({'trio', 'pyarrow', 'numpy'} & (set(sys.modules) - before))"
    )
    process = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert process.stdout == "set()\n"


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """A directory with Spark's packages but without this project."""
    directory = tmp_path / "packages"
    directory.mkdir()
    installed = Path(pyspark.__file__).parent.parent
    for name in ("pyspark", "py4j"):
        (directory / name).symlink_to(installed / name)
    return directory


def _reader() -> object:
    return RocketMQDataSource(OPTIONS).reader(COLUMNS)


def _stream_reader() -> object:
    return RocketMQDataSource(OPTIONS).streamReader(COLUMNS)


def _sink() -> object:
    return RocketMQDataSource(OPTIONS).writer(ROWS, overwrite=False)


def _stream_sink() -> object:
    return RocketMQDataSource(OPTIONS).streamWriter(ROWS, overwrite=False)


def _format() -> object:
    return RocketMQDataSource


PARTS = [_reader, _stream_reader, _sink, _stream_sink]
"""Factories of the parts that Spark pickles to its workers."""


@pytest.mark.parametrize("make", [_format, *PARTS])
def test_worker_without_this_package_names_its_python(
    make: Callable[[], object], packages: Path, tmp_path: Path
) -> None:
    pickled = tmp_path / "pickle"
    pickled.write_bytes(_pickle(make()))
    program = Path(__file__).with_name("unpickle_program.py")
    command = [sys.executable, "-I", "-S", str(program), str(packages), str(pickled)]
    process = subprocess.run(command, check=True, capture_output=True, text=True, cwd=tmp_path)
    assert process.stdout.startswith(
        "No module named 'rocketmq_py': the format rocketmq needs it in the Python that runs Spark's "
        f"workers, which is {sys.executable}, {sys.version.split()[0]}. Install rocketmq-py[spark] there"
    )


def _pickle(part: object) -> bytes:
    pickled: bytes = cloudpickle.dumps(part)  # type: ignore[no-untyped-call]
    return pickled


@pytest.mark.parametrize("make", PARTS)
def test_parts_survive_pickling(make: Callable[[], object]) -> None:
    part = make()
    copy = pickle.loads(_pickle(part))
    assert type(copy) is type(part)
    assert copy.__dict__ == part.__dict__
