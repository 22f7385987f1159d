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
from rocketmq_py.spark.data_source import RocketMQDataSource
from rocketmq_py.spark.registration import check_pyspark
from rocketmq_py.spark.schema import ARROW_SCHEMA

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OPTIONS = {"nameServer": "127.0.0.1:9876", "topic": "T"}
COLUMNS = from_arrow_schema(ARROW_SCHEMA)
ROWS = StructType().add("body", "string")


def test_spark_finds_the_format_by_its_name(spark: SparkSession) -> None:
    rows = spark.read.format("RocketMQ").options(**OPTIONS).load()
    assert rows.columns[:3] == ["topic", "flag", "body"]


def test_it_can_be_registered(spark: SparkSession) -> None:
    rocketmq_py.spark.register(spark)
    rows = spark.readStream.format("rocketmq").options(**OPTIONS).load()
    assert rows.columns[:3] == ["topic", "flag", "body"]


@pytest.mark.parametrize("version", ["3.5.8", "4.0.5"])
def test_an_older_spark_is_refused(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyspark, "__version__", version)
    with pytest.raises(
        ConfigurationError, match=rf"^pyspark is {version}; the format rocketmq needs 4\.1 or"
    ):
        RocketMQDataSource({})


@pytest.mark.parametrize("version", ["4.1.0", "4.3.0.dev1", "5.0.0", "of one's own"])
def test_others_are_not(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyspark, "__version__", version)
    assert check_pyspark() >= (4, 1)


def test_without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(ConfigurationError, match=r"pip install rocketmq-py\[spark\]"):
        check_pyspark()


def test_looking_for_the_format_loads_nothing_heavy() -> None:
    program = (
        "import sys, pyspark.sql.datasource; before = set(sys.modules); import pyspark_rocketmq; "
        "print({'trio', 'pyarrow', 'numpy'} & (set(sys.modules) - before))"
    )
    ended = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert ended.stdout == "set()\n"


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """A directory with Spark's packages, and without this project."""
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
"""What Spark asks the format for, and sends to workers."""


@pytest.mark.parametrize("make", [_format, *PARTS])
def test_a_worker_that_lacks_this_package_says_so(
    make: Callable[[], object], packages: Path, tmp_path: Path
) -> None:
    pickled = tmp_path / "pickle"
    pickled.write_bytes(_pickle(make()))
    program = Path(__file__).with_name("lacking.py")
    command = [sys.executable, "-I", "-S", str(program), str(packages), str(pickled)]
    ended = subprocess.run(command, check=True, capture_output=True, text=True, cwd=tmp_path)
    assert ended.stdout.startswith(
        "No module named 'rocketmq_py': the format rocketmq needs it in the Python of Spark's workers, and "
        f"this one is {sys.executable}, {sys.version.split()[0]}. Install rocketmq-py[spark]"
    )


def _pickle(thing: object) -> bytes:
    pickled: bytes = cloudpickle.dumps(thing)  # type: ignore[no-untyped-call]
    return pickled


@pytest.mark.parametrize("make", PARTS)
def test_what_travels_arrives(make: Callable[[], object]) -> None:
    part = make()
    again = pickle.loads(_pickle(part))
    assert type(again) is type(part)
    assert again.__dict__ == part.__dict__
