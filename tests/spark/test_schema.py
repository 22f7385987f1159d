from __future__ import annotations

from typing import TYPE_CHECKING

from rocketmq_py.spark.schema import ARROW_SCHEMA, SOURCE_SCHEMA

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_both_schemas_are_the_same_to_spark(spark: SparkSession) -> None:
    from pyspark.sql.pandas.types import to_arrow_schema

    declared = spark.createDataFrame([], SOURCE_SCHEMA).schema
    assert to_arrow_schema(declared, timezone="UTC").equals(ARROW_SCHEMA)
    assert all(field.nullable for field in declared.fields)


def test_the_old_connectors_columns_come_first() -> None:
    assert ARROW_SCHEMA.names == [
        "topic", "flag", "body", "properties", "brokerName", "queueId", "queueOffset", "bornTimestamp",
        "storeTimestamp", "tags", "keys", "msgId",
    ]  # fmt: skip
