"""The streaming source for invalid options."""

from __future__ import annotations

import pickle

import pytest
from pyspark import cloudpickle
from pyspark.sql.pandas.types import from_arrow_schema

from rocketmq_py.errors import ConfigurationError
from rocketmq_py.spark.arrow_schema import SOURCE_ARROW_SCHEMA
from rocketmq_py.spark.data_source import RocketMQDataSource
from rocketmq_py.spark.source import InvalidStreamSource

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
def test_every_method_raises_the_configuration_error(name: str) -> None:
    data_source = RocketMQDataSource({"nameServer": "127.0.0.1:9876", "topic": "T", "minPartitions": "0"})
    source = data_source.streamReader(from_arrow_schema(SOURCE_ARROW_SCHEMA))
    assert isinstance(source, InvalidStreamSource)
    copy = pickle.loads(cloudpickle.dumps(source))  # type: ignore[no-untyped-call]
    for each in (source, copy):
        with pytest.raises(ConfigurationError, match="minPartitions: invalid value '0'"):
            getattr(each, name)(*CALLS[name])
    source.stop()  # Spark calls it at the end
