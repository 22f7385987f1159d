"""``rocketmq-py check connection`` on real brokers and through a proxy. ``test_acl`` has those with ACL."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from integration.clusters.cluster import Cluster
from integration.clusters.proxy import Proxy
from rocketmq_py import Client
from tests.cli.command import run_cli


@pytest.fixture
def proxy(real: Cluster, real_proxy: Callable[[str], Proxy]) -> Proxy:
    if not real.version.startswith("5."):
        pytest.skip("proxies need brokers from 5.0 on")
    return real_proxy(real.version)


async def check_connection(address: str, *options: str) -> dict[str, Any]:
    ended = await run_cli("check", "connection", "-n", address, "--json", *options)
    result: dict[str, Any] = json.loads(ended.out)
    assert ended.code == (0 if result["failed"] is None else 2)
    return result


async def test_a_topic_is_reached_and_written_to(real: Cluster, topic: str) -> None:
    result = await check_connection(real.name_servers, "-t", topic, "-G", "any", "--send")
    assert result["failed"] is None, result
    assert [one["step"] for one in result["steps"] if one["state"] != "ok"] == ["tls"]


async def test_a_missing_topic_and_a_missing_namespace(real: Cluster, client: Client, topic: str) -> None:
    result = await check_connection(real.name_servers, "-t", f"{topic}x")
    assert result["failed"] == "route", result
    assert "are registered" in result["reason"]
    assert f"Similar topics exist: {topic}" in result["advice"]
    async with client.admin() as admin:
        await admin.topics.create(f"tenant%{topic}-2", queues=1)
    result = await check_connection(real.name_servers, "-t", f"{topic}-2")
    assert result["failed"] == "namespace", result
    assert result["advice"].startswith(f"Pass --namespace 'tenant' and the topic {topic}-2")


async def test_a_topic_that_is_read_only(real: Cluster, client: Client, topic: str) -> None:
    async with client.admin() as admin:
        await admin.topics.alter(topic, permission="R")
    result = await check_connection(real.name_servers, "-t", topic)
    assert result["failed"] == "route", result
    assert "may be written to" in result["reason"]


async def test_the_port_of_a_broker(real: Cluster, topic: str) -> None:
    (address,) = real.brokers.values()
    result = await check_connection(address, "-t", topic)
    assert result["failed"] == "name server", result
    assert "is no name server and no proxy" in result["reason"]


async def test_tls_is_on_and_not_expected(real: Cluster) -> None:
    result = await check_connection(real.name_servers, "--insecure")
    assert result["failed"] in (None, "tls"), result  # servers of 5.x speak TLS on the same port


async def test_through_a_proxy(proxy: Proxy, topic: str) -> None:
    result = await check_connection(proxy.remoting_address, "-t", topic, "-G", "any", "--send")
    assert result["failed"] is None, result
    result = await check_connection(proxy.remoting_address, "-t", f"{topic}x")
    assert result["failed"] == "route", result
    result = await check_connection(proxy.address, "-t", topic)
    assert result["failed"] == "name server", result
    assert "gRPC" in result["reason"]
