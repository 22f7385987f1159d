"""The integrations with other libraries on a real broker."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime

import pytest

from integration.clusters.cluster import Cluster
from integration.clusters.provider import VERSIONS
from rocketmq_py import Position
from rocketmq_py.blocking import Client
from rocketmq_py.integrations.log_handler import RocketMQHandler

PATIENCE = 60


@pytest.fixture
def name_servers(real_cluster: Callable[[str], Cluster]) -> str:
    return real_cluster(VERSIONS[-1]).name_servers


@pytest.fixture
def topic(name_servers: str, unique: str) -> Iterator[str]:
    with Client(name_servers) as client, client.admin() as admin:
        admin.topics.create(unique, queues=4)
        yield unique


def wait_until_readable(client: Client, topic: str, count: int) -> None:
    """Wait until a topic has ``count`` messages. Brokers index them shortly after the acknowledgement."""
    deadline = time.monotonic() + PATIENCE
    with client.reader() as reader:
        while sum(end - first for first, end in reader.offsets(topic).values()) < count:
            assert time.monotonic() < deadline


def test_log_records(name_servers: str, topic: str) -> None:
    handler = RocketMQHandler(topic, name_servers, close_timeout=PATIENCE)
    log = logging.Logger("shop")
    log.addHandler(handler)
    for number in range(2000):
        log.info("%d", number)
    handler.close()
    with Client(name_servers) as client:
        wait_until_readable(client, topic, 2000)
        with (
            client.reader() as reader,
            reader.open(topic, start="earliest", stop_at_end=True) as messages,
        ):
            records = [json.loads(message.body)["message"] for message in messages]
    assert sorted(records, key=int) == [str(number) for number in range(2000)]
    assert handler.dropped == 0


def test_cloud_events(name_servers: str, topic: str) -> None:
    pytest.importorskip("cloudevents.core")
    from cloudevents.core.v1.event import CloudEvent

    from rocketmq_py.integrations.cloudevents import from_message, to_binary, to_structured

    attributes = {"type": "order.placed", "source": "/shop", "datacontenttype": "application/json"}
    event = CloudEvent({**attributes, "subject": "grün", "partitionkey": "7"}, {"order": 7})
    without_data = CloudEvent(attributes)
    with Client(name_servers) as client, client.producer("shop") as producer, client.admin() as admin:
        sent = [
            producer.send(message)
            for message in (
                to_binary(event, topic),
                to_structured(event, topic),
                to_binary(without_data, topic),
            )
        ]
        found = [admin.messages.get(one.offset_message_id, topic=topic) for one in sent]
    assert None not in found
    received = [from_message(one) for one in found if one is not None]
    assert [one.get_data() for one in received] == [{"order": 7}, {"order": 7}, None]
    assert received[0].get_attributes() == received[1].get_attributes() == event.get_attributes()
    assert sent[0].queue == sent[1].queue


def test_data_frames(name_servers: str, topic: str) -> None:
    pa = pytest.importorskip("pyarrow")
    from rocketmq_py.integrations.data_frames import commit_messages, read_messages, write_messages

    group = f"{topic}-reports"
    frame = pa.table(
        {
            "body": [b"%d" % number for number in range(5000)],
            "tags": ["odd" if number % 2 else "even" for number in range(5000)],
            "sharding_key": [str(number % 7) for number in range(5000)],
        }
    )
    began = datetime.now(UTC)
    with Client(name_servers) as client, client.admin() as admin:
        admin.groups.create(group)
        assert write_messages(frame, topic, client) == 5000
        wait_until_readable(client, topic, 5000)
        table = read_messages(topic, client, start=Position.time(began), tags="odd")
        assert sorted(map(int, table.column("body").to_pylist())) == list(range(1, 5000, 2))
        assert read_messages(topic, client, max_messages=10).num_rows == 10
        first = read_messages(topic, client, group=group)
        assert first.num_rows == 5000
        commit_messages(first, group, client)
        assert write_messages(frame.slice(0, 100), topic, client) == 100
        wait_until_readable(client, topic, 5100)
        assert read_messages(topic, client, group=group).num_rows == 100
        assert read_messages(topic, client, end=Position.time(began)).num_rows == 0


def test_taskiq(name_servers: str, topic: str) -> None:
    pytest.importorskip("taskiq")
    from taskiq.acks import AcknowledgeType
    from taskiq.api import run_receiver_task

    from rocketmq_py.integrations.taskiq import RocketMQBroker

    broker = RocketMQBroker(name_servers, topic=topic, group=f"{topic}-workers", invisible=2)
    runs: list[str] = []

    @broker.task
    async def note(name: str, seconds: float = 0) -> None:
        runs.append(name)
        await asyncio.sleep(seconds)
        if runs[-1] == name == "last":
            finished.set()

    @broker.task(ack_type="manual")
    async def unacknowledged() -> None:
        runs.append("unacknowledged")
        if runs.count("unacknowledged") == 2:
            again.set()
            await asyncio.Event().wait()

    async def main() -> None:
        await broker.startup()
        worker = asyncio.create_task(run_receiver_task(broker, ack_time=AcknowledgeType.WHEN_EXECUTED))
        await note.kiq("long", 5)  # longer than `invisible`
        await unacknowledged.kiq()
        for number in range(50):
            await note.kiq(str(number))
        await note.kicker().with_labels(delay=8).kiq("last")
        await finished.wait()
        await again.wait()
        worker.cancel()
        with suppress(asyncio.CancelledError):
            await worker
        await broker.shutdown()

    finished, again = asyncio.Event(), asyncio.Event()
    asyncio.run(asyncio.wait_for(main(), PATIENCE))
    done = [run for run in runs if run != "unacknowledged"]
    assert sorted(done) == sorted([*map(str, range(50)), "long", "last"])
    assert done[-1] == "last"
