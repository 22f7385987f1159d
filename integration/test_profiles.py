"""Java's and Go's clients on the profiles of managed services: what works for them works for this client."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import trio

from integration.cloud_traces import comparable
from integration.clusters.plugin import skip_or_fail
from integration.go.peer import GoUnavailableError, built, go_peer, run_go
from integration.java.peer import QUICK, java_peer, run_java_async
from integration.peers import PeerError
from integration.profiles import JAVA, PATIENCE, access, bodies_of, consume_here, jvm
from rocketmq_py import Client, Message, ReceivedMessage
from rocketmq_py.broker.profiles import PROFILES
from rocketmq_py.errors import RocketMQError
from rocketmq_py.protocol.trace import read_records
from rocketmq_py.testing import TestBroker, run_broker

TOPICS = ["Orders:1", "Delayed:1:DELAY"]
OWN_DELAYS = ("alibaba-4", "tencent-4")
HOUR_MS = 3_600_000

pytestmark = pytest.mark.usefixtures("java_and_maven")


@pytest.fixture(params=PROFILES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def go() -> None:
    try:
        built("peer")
    except GoUnavailableError as error:
        skip_or_fail(error)


async def test_java_and_this_client_exchange_messages(name: str) -> None:
    with run_broker(profile=name, topics=TOPICS) as broker:
        there, options = access(broker), jvm(broker)
        await run_java_async(JAVA, "Send", *there, "--topic", "Orders", "--body", "of Java", jvm=options)
        delayed = ["--body", "later", "--topic", "Delayed"]
        if name in OWN_DELAYS:
            delayed += ["--property.__STARTDELIVERTIME", str(int(time.time() * 1000) + HOUR_MS)]
        else:
            delayed += ["--delay-level", "17"]
        await run_java_async(JAVA, "Send", *there, *delayed, jvm=options)
        async with (
            Client(broker.name_server_address, **broker.client_options) as client,
            client.producer("python", start_deliver_time=name in OWN_DELAYS) as producer,
        ):
            await producer.send(Message("Orders", b"of Python"))
            await producer.send(Message("Delayed", b"later", deliver_at_ms=int(time.time() * 1000) + HOUR_MS))
        both = {b"of Java", b"of Python"}
        assert {one.body for one in await consume_here(broker, "Orders", 2)} == both
        async with java_peer(
            JAVA, "Consume", *there, "--topic", "Orders", "--group", "java", jvm=options
        ) as peer:
            await peer.ready()
            assert set(await bodies_of(peer, 2)) == both
        assert [one.body for one in await consume_here(broker, "Delayed", 2)] == [b"later"] * 2


async def test_java_takes_the_namespace_from_the_host_as_this_client_does(tmp_path: Path) -> None:
    with run_broker(profile="alibaba-4", topics=TOPICS) as broker:
        namespace = broker.client_options["namespace"]
        host = f"{namespace}.cn-hangzhou.mq-internal.aliyuncs.com"
        hosts = tmp_path / "hosts"
        hosts.write_text(f"127.0.0.1 {host}\n")
        port = broker.name_server_address.rpartition(":")[2]
        there = ["--namesrv", f"http://{host}:{port}", *access(broker, with_namespace=False)[2:]]
        options = jvm(broker, f"-Djdk.net.hosts.file={hosts}")
        await run_java_async(JAVA, "Send", *there, "--topic", "Orders", "--body", "of Java", jvm=options)
        [message] = await consume_here(broker, "Orders", 1)
        assert (message.topic, message.body) == ("Orders", b"of Java")
        assert [one.topic for one in broker.messages("Orders")] == [f"{namespace}%Orders"]


async def test_unsigned_requests_of_java_and_this_client_fail(name: str) -> None:
    with run_broker(profile=name, topics=TOPICS) as broker:
        arguments = ["--namesrv", broker.name_server_address, "--topic", "Orders", "--body", "x"]
        with pytest.raises(PeerError):
            await run_java_async(JAVA, "Send", *arguments, jvm=jvm(broker))
        options = {**broker.client_options, "credentials": None}
        async with Client(broker.name_server_address, **options) as client, client.producer("p") as producer:
            with pytest.raises(RocketMQError):
                await producer.send(Message("Orders", b"x"))
        assert broker.messages("Orders") == []


CLOUD_TOPICS = ("rmq_sys_TRACE_DATA_cn-test", "rmq_sys_TRACE_DATA_DefaultRegion", "RMQ_SYS_TRACE_TOPIC")


def cloud_records(broker: TestBroker) -> dict[str, list[list[str]]]:
    """Return the trace records by topic."""
    return {
        topic: [fields for message in broker.messages(topic) for fields in read_records(message.body)]
        for topic in CLOUD_TOPICS
    }


@pytest.mark.parametrize("region", ["cn-test", "DefaultRegion"])
async def test_java_and_this_client_write_the_same_traces_of_a_cloud(region: str) -> None:
    """Their records are in the topic of the region that the broker names, and in no other."""
    with run_broker(profile="alibaba-4", topics=["Orders:1", *CLOUD_TOPICS], region_id=region) as broker:
        there = [*access(broker), "--access-channel", "CLOUD", "--trace", "ignored", "--topic", "Orders"]
        sent = ["--body", "12345", "--tags", "A", "--keys", "k1 k2", "--group", "java"]
        await run_java_async(JAVA, "Send", *there, *sent, jvm=QUICK)
        received: list[ReceivedMessage] = []

        async def handle(message: ReceivedMessage) -> None:
            received.append(message)
            if len(received) == 2:
                consumer.stop()

        async with Client(broker.name_server_address, **broker.client_options) as client:
            async with client.producer("python", trace="cloud") as producer:
                await producer.send(Message("Orders", b"12345", tags="A", keys="k1 k2"))
            async with client.push_consumer(
                "python", trace="cloud", consume_from="earliest", rebalance_interval=0.2
            ) as consumer:
                consumer.subscribe("Orders")
                with trio.fail_after(PATIENCE):
                    await consumer.run(handle)
        async with java_peer(JAVA, "Consume", *there, "--group", "java", jvm=QUICK) as peer:
            await peer.ready()
            await bodies_of(peer, 2)
            with trio.fail_after(PATIENCE):
                await peer.leave()
        found = cloud_records(broker)
    assert [topic for topic, records in found.items() if records] == [f"rmq_sys_TRACE_DATA_{region}"]
    records = found[f"rmq_sys_TRACE_DATA_{region}"]
    javas, ours = (comparable(records, group) for group in ("java", "python"))
    assert [fields[0] for fields in ours] == ["Pub", "SubAfter", "SubAfter", "SubBefore", "SubBefore"]
    assert ours == javas


# The releases of Go's client have no TLS and no second namespace. They send sharding keys as another property
# than __SHARDINGKEY.
@pytest.mark.parametrize(
    "name",
    [name for name, one in PROFILES.items() if one.untrusted_tls is None and one.namespace_v2 is None],
    indirect=True,
)
@pytest.mark.usefixtures("go")
async def test_go_and_this_client_exchange_messages(name: str) -> None:
    with run_broker(profile=name, topics=TOPICS) as broker:
        there = [*access(broker), "--topic", "Orders"]
        await run_go("send", *there, "--body", "of Go ", "--count", "2")
        async with (
            Client(broker.name_server_address, **broker.client_options) as client,
            client.producer("python") as producer,
        ):
            await producer.send(Message("Orders", b"of Python"))
        expected = [b"of Go 0", b"of Go 1", b"of Python"]
        assert [one.body for one in await consume_here(broker, "Orders", 3)] == expected
        async with go_peer("push", *there, "--group", "go", "--orderly") as peer:
            await peer.ready()
            assert await bodies_of(peer, 3) == expected
