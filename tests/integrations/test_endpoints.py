"""Every integration, the relay and every API accept the endpoints of managed services.

``test_delays_of_services`` sends to them, ``test_airflow`` has those of Airflow's connections.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from kombu import Connection

import rocketmq_py
from rocketmq_py import aio, blocking
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.integrations import taskiq
from rocketmq_py.integrations.kombu.cluster import Cluster
from rocketmq_py.integrations.kombu.options import TransportOptions, address_of, client_options_of
from rocketmq_py.integrations.log_handler import RocketMQHandler
from rocketmq_py.relay import Relay
from rocketmq_py.spark.options import Role
from rocketmq_py.spark.sink_options import SinkOptions

ENDPOINT = " http://MQ_INST_1380_BbXb.cn-hangzhou.mq-internal.aliyuncs.com:8080/ "
OF_HTTP_PRODUCT = "http://1380.mqrest.cn-hangzhou.aliyuncs.com"


def cluster_of_url(url: str) -> Cluster:
    """Return the cluster of a broker URL of Celery."""
    connection = Connection(url)
    options = TransportOptions.of(connection.transport_options)
    return Cluster(address_of(connection), options, client_options_of(connection, options))


def broker_of_faststream(address: str, _: Path) -> object:
    pytest.importorskip("faststream", reason="the extra faststream is not installed")
    from rocketmq_py.integrations.faststream import RocketMQBroker

    return RocketMQBroker(address)


PLACES: Mapping[str, Callable[[str, Path], object]] = {
    "trio": lambda address, _: rocketmq_py.Producer(address, group="g"),
    "asyncio": lambda address, _: aio.Client(address),
    "threads": lambda address, _: blocking.Client(address).close(),
    "relay": lambda address, folder: Relay(address, topic="delays", store=folder / "store"),
    "FastStream": broker_of_faststream,
    "Taskiq": lambda address, _: taskiq.RocketMQBroker(address),
    "kombu": lambda address, _: cluster_of_url(f"rocketmq://key:secret@{address.strip()}").close(),
    "Spark": lambda address, _: SinkOptions.parse({"nameServer": address, "topic": "T"}, Role.BATCH_SINK),
    "logging": lambda address, _: RocketMQHandler("logs", address).close(),
}


@pytest.mark.parametrize("place", PLACES)
def test_an_endpoint_is_accepted_and_that_of_the_http_product_refused(place: str, tmp_path: Path) -> None:
    PLACES[place](ENDPOINT, tmp_path)
    with pytest.raises(ConfigurationError, match="use the TCP endpoint of the instance"):
        PLACES[place](OF_HTTP_PRODUCT, tmp_path)


def test_a_celery_url_with_the_host_of_the_http_product_is_refused_when_it_connects() -> None:
    for url in (f"rocketmq://k:s@{OF_HTTP_PRODUCT}", f"rocketmq://{OF_HTTP_PRODUCT.removeprefix('http://')}"):
        with pytest.raises(ConfigurationError, match="use the TCP endpoint of the instance"):
            Connection(url).connect()


def test_documents_of_faststream_show_the_addresses_without_schemes() -> None:
    pytest.importorskip("faststream", reason="the extra faststream is not installed")
    from rocketmq_py.integrations.faststream.broker import server_urls

    assert server_urls("http://a:1/;https://b:2") == ["a:1", "b:2"]
    assert server_urls("http://a:1/nsaddr") == ["http://a:1/nsaddr"]
