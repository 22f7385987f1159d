"""The Spark format on a managed service that needs the namespace as a field of every request."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rocketmq_py.testing import run_broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_namespace_v2_reaches_all_requests_of_a_job(spark: SparkSession) -> None:
    with run_broker(profile="alibaba-5-serverless", topics=["Orders"]) as broker:
        settings = broker.client_options
        keys = settings["credentials"]
        options = {
            "nameServer": broker.name_server_address,
            "topic": "Orders",
            "accessKey": keys.access_key,
            "secretKey": keys.secret_key,
        }
        instance = {"namespaceV2": settings["namespace_v2"]}
        rows = spark.createDataFrame([("one",), ("two",)], "body string")
        rows.write.format("rocketmq").options(**options, **instance).mode("append").save()
        read = spark.read.format("rocketmq").options(**options, **instance).load()
        assert sorted(bytes(row.body) for row in read.collect()) == [b"one", b"two"]
        assert {one.fields.get("ns") for one in broker.requests()} == {settings["namespace_v2"]}
        with pytest.raises(Exception, match="do not name the instance rmq-cn-test1234"):
            spark.read.format("rocketmq").options(**options).load().count()
