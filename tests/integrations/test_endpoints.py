"""Every integration, the relay and every API accept the endpoints of managed services."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

import rocketmq_py
from rocketmq_py import aio, blocking
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.integrations import faststream, taskiq
from rocketmq_py.integrations.faststream.broker import server_urls
from rocketmq_py.integrations.log_handler import RocketMQHandler
from rocketmq_py.relay import Relay

ENDPOINT = " http://MQ_INST_1380_BbXb.cn-hangzhou.mq-internal.aliyuncs.com:8080/ "
OF_HTTP_PRODUCT = "http://1380.mqrest.cn-hangzhou.aliyuncs.com"

PLACES: Mapping[str, Callable[[str, Path], object]] = {
    "trio": lambda address, _: rocketmq_py.Producer(address, group="g"),
    "asyncio": lambda address, _: aio.Client(address),
    "threads": lambda address, _: blocking.Client(address).close(),
    "relay": lambda address, folder: Relay(address, topic="delays", store=folder / "store"),
    "FastStream": lambda address, _: faststream.RocketMQBroker(address),
    "Taskiq": lambda address, _: taskiq.RocketMQBroker(address),
    "logging": lambda address, _: RocketMQHandler("logs", address).close(),
}


@pytest.mark.parametrize("place", PLACES)
def test_an_endpoint_is_accepted_and_that_of_the_http_product_refused(place: str, tmp_path: Path) -> None:
    PLACES[place](ENDPOINT, tmp_path)
    with pytest.raises(ConfigurationError, match="use the TCP endpoint of the instance"):
        PLACES[place](OF_HTTP_PRODUCT, tmp_path)


def test_documents_of_faststream_show_the_addresses_without_schemes() -> None:
    assert server_urls("http://a:1/;https://b:2") == ["a:1", "b:2"]
    assert server_urls("http://a:1/nsaddr") == ["http://a:1/nsaddr"]
