"""The columns of the source."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import StructType

from rocketmq_py.errors import ConfigurationError
from rocketmq_py.spark.arrow_schema import SOURCE_ARROW_SCHEMA
from rocketmq_py.spark.data_source import RocketMQDataSource
from rocketmq_py.spark.pyspark_version import check_pyspark
from rocketmq_py.spark.schema import SOURCE_SCHEMA

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_arrow_schema_is_the_one_spark_derives(spark: SparkSession) -> None:
    from pyspark.sql.pandas.types import to_arrow_schema

    declared = spark.createDataFrame([], SOURCE_SCHEMA).schema
    # Spark 4.1 has no parameter for the time zone, and uses UTC.
    in_utc: dict[str, Any] = {} if check_pyspark() < (4, 2) else {"timezone": "UTC"}
    assert to_arrow_schema(declared, **in_utc).equals(SOURCE_ARROW_SCHEMA)
    assert all(field.nullable for field in declared.fields)


def test_columns_of_the_jvm_connector_come_first() -> None:
    assert SOURCE_ARROW_SCHEMA.names == [
        "topic", "flag", "body", "properties", "brokerName", "queueId", "queueOffset", "bornTimestamp",
        "storeTimestamp", "tags", "keys", "messageId",
    ]  # fmt: skip


def test_custom_schema_is_rejected() -> None:
    source = RocketMQDataSource({"nameServer": "127.0.0.1:9876", "topic": "T"})
    other = StructType().add("body", "string")
    reason = r"its columns are fixed, .* remove it and select"
    with pytest.raises(ConfigurationError, match=reason):
        source.reader(other)
    with pytest.raises(ConfigurationError, match=reason):
        source.streamReader(other).initialOffset()
