"""Java's console finds and reads the traces that this client writes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import trio

from integration.clusters.cluster import Cluster
from integration.clusters.provider import VERSIONS
from integration.java.peer import client_for, java_peer, run_java_async
from rocketmq_py import Client, ConsumeLater, Message, ReceivedMessage, Suspend
from rocketmq_py.consumer import ConsumeResult
from rocketmq_py.protocol.trace import read_records
from tests.behaviours.conftest import create_topic
from tests.behaviours.reading import read_all

PATIENCE = 60


@pytest.mark.parametrize("version", VERSIONS)
async def test_java_reads_the_trace_of_a_message(
    version: str, real_cluster: Callable[[str], Cluster], unique: str
) -> None:
    cluster = real_cluster(version)
    async with Client(cluster.name_servers) as client:
        await create_topic(client, unique, queues=1)
        async with client.producer("traced", trace=True) as producer:
            results = [
                await producer.send(Message(unique, b"12345", tags="TagA", keys="order-1 order-2")),
                await (await producer.submit(Message(unique, b"x", delay_level=1))),
                *await producer.send_batch([Message(unique, b"1"), Message(unique, b"2", keys="order-3")]),
            ]
    for result, keys in zip(results, ("order-1 order-2", "null", "null", "order-3"), strict=True):
        (view,) = await run_java_async(
            client_for(version), "Trace", "--namesrv", cluster.name_servers, "--id", result.message_id
        )
        assert view["type"] == "Pub"
        assert (view["topic"], view["group"], view["status"]) == (unique, "traced", "success")
        assert (view["id"], view["offsetId"]) == (result.message_id, result.offset_message_id)
        assert view["keys"] == keys
        assert view["storeHost"].startswith("127.0.0.1:")
        assert 0 <= view["costTime"] < 60_000


class FailsFirst:
    """A handler that returns ``later`` for the first delivery of each message. It is done after ``count``
    others.
    """

    def __init__(self, count: int, later: ConsumeResult) -> None:
        self.left = count
        self._later = later
        self.done = trio.Event()

    async def __call__(self, message: ReceivedMessage) -> ConsumeResult | None:
        if not message.reconsume_times:
            return self._later
        self.left -= 1
        if not self.left:
            self.done.set()
        return None


@pytest.mark.parametrize("version", VERSIONS)
async def test_java_reads_the_trace_of_a_consumption(
    version: str, real_cluster: Callable[[str], Cluster], unique: str
) -> None:
    cluster, group = real_cluster(version), f"group-{unique}"
    async with Client(cluster.name_servers) as client:
        await create_topic(client, unique, queues=1)
        async with client.producer("senders") as producer:
            result = await producer.send(Message(unique, b"1", keys="order-1"))
        handle = FailsFirst(1, ConsumeLater())
        async with (
            client.push_consumer(
                group, trace=True, consume_from="earliest", rebalance_interval=1
            ) as consumer,
            trio.open_nursery() as nursery,
        ):
            consumer.subscribe(unique)
            nursery.start_soon(consumer.run, handle)
            with trio.fail_after(PATIENCE):
                await handle.done.wait()
            nursery.cancel_scope.cancel()
    views = await run_java_async(
        client_for(version), "Trace",
        "--namesrv", cluster.name_servers, "--id", result.message_id, "--count", "4",
    )  # fmt: skip
    assert sorted(view["type"] for view in views) == ["SubAfter", "SubAfter", "SubBefore", "SubBefore"]
    assert {(view["group"], view["keys"]) for view in views} == {(group, "order-1")}
    assert sorted(view["status"] for view in views if view["type"] == "SubAfter") == ["failed", "success"]


@pytest.mark.parametrize("orderly", [False, True])
async def test_records_match_those_of_java(
    real: Cluster, client: Client, topic: str, unique: str, orderly: bool
) -> None:
    """Both clients consume the same messages and fail each of them once."""
    here, there, traces = f"here-{unique}", f"java-{unique}", f"{unique}-traces"
    await create_topic(client, traces, queues=1)
    async with client.producer("senders") as producer:
        for keys in ("", "order-1 order-2"):
            await producer.send(Message(topic, b"x", tags="A", keys=keys))
    flags = ["--orderly"] if orderly else []
    handle = FailsFirst(2, Suspend() if orderly else ConsumeLater())
    async with (
        java_peer(
            client_for(real.version), "Consume", "--namesrv", real.name_servers, "--topic", topic,
            "--group", there, "--trace", traces, "--fail-first", *flags,
        ) as peer,
        client.push_consumer(
            here, trace=traces, consume_from="earliest", rebalance_interval=1, orderly=orderly
        ) as consumer,
        trio.open_nursery() as nursery,
    ):  # fmt: skip
        consumer.subscribe(topic)
        nursery.start_soon(consumer.run, handle)
        with trio.fail_after(PATIENCE):
            await handle.done.wait()
            again = 0
            while again < 2:
                line = await peer.next_line()
                again += line.get("reconsumeTimes", 0) > 0
            await peer.leave()
        nursery.cancel_scope.cancel()
    records: list[list[str]] = []
    with trio.fail_after(PATIENCE):
        while len(records) < 16:
            messages = await read_all(client, traces, count=1)
            records = [fields for message in messages for fields in read_records(message.body)]
            await trio.sleep(0.1)
    ours, javas = (described(records, group) for group in (here, there))
    assert len(ours) == 8
    assert ours == javas


def described(records: list[list[str]], group: str) -> list[tuple[str, ...]]:
    """Return a group's records without call ids, times and the group. Their ends have the number of
    retries.
    """
    calls = {fields[4]: fields for fields in records if fields[0] == "SubBefore" and fields[3] == group}
    found: list[tuple[str, ...]] = []
    for fields in records:
        if fields[0] == "SubBefore" and fields[3] == group:
            kind, _, region, _, _, message_id, retries, keys = fields
            found.append((kind, region, message_id, retries, keys))
        elif fields[0] == "SubAfter" and fields[8] == group:
            kind, request_id, message_id, cost_ms, success, keys, code, timestamp_ms, _ = fields
            start = calls[request_id]
            # Each client reads the clock again for the end record, so the two durations may differ.
            assert int(start[1]) <= int(timestamp_ms)
            assert 0 <= int(cost_ms) <= PATIENCE * 1000
            found.append((kind, start[6], message_id, success, keys, code))
    return sorted(found)
