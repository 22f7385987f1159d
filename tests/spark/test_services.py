"""The Spark format on managed services."""

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


@pytest.mark.parametrize("setting", [{"startDeliverTime": "true"}, {}])
def test_rows_are_delayed_by_the_property_of_the_service(
    spark: SparkSession, setting: dict[str, str]
) -> None:
    with run_broker(profile="tencent-4", topics=["Later:1"]) as broker:
        keys = broker.client_options["credentials"]
        options = {
            "nameServer": broker.name_server_address,
            "topic": "Later",
            "namespace": broker.client_options["namespace"],
            "accessKey": keys.access_key,
            "secretKey": keys.secret_key,
        }
        rows = spark.sql("select 'x' as body, interval '1' hour as delay")
        rows.write.format("rocketmq").options(**options, **setting).mode("append").save()
        assert len(broker.messages("Later")) == (0 if setting else 1)
        broker.advance("1h")
        assert len(broker.messages("Later")) == 1
