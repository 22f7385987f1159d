"""A stream whose options are wrong."""

from __future__ import annotations

import pickle

import pytest
from pyspark import cloudpickle
from pyspark.sql.pandas.types import from_arrow_schema

from rocketmq_py.errors import ConfigurationError
from rocketmq_py.spark.data_source import RocketMQDataSource
from rocketmq_py.spark.refusing import RefusedStream
from rocketmq_py.spark.schema import ARROW_SCHEMA

CALLS: dict[str, tuple[object, ...]] = {
    "initialOffset": (),
    "latestOffset": ({}, None),
    "getDefaultReadLimit": (),
    "prepareForTriggerAvailableNow": (),
    "reportLatestOffset": (),
    "partitions": ({}, {}),
    "read": (None,),
    "commit": ({},),
}


@pytest.mark.parametrize("name", CALLS)
def test_whatever_is_asked_the_mistake_is_told(name: str) -> None:
    source = RocketMQDataSource({"nameServer": "127.0.0.1:9876", "topic": "T", "minPartitions": "0"})
    refused = source.streamReader(from_arrow_schema(ARROW_SCHEMA))
    assert isinstance(refused, RefusedStream)
    again = pickle.loads(cloudpickle.dumps(refused))  # type: ignore[no-untyped-call]
    for stream in (refused, again):
        with pytest.raises(ConfigurationError, match="minPartitions is '0'"):
            getattr(stream, name)(*CALLS[name])
    refused.stop()  # Spark does so at the end
