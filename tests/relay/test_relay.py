"""A relay that is killed, whose disk is full, or whose messages have expired."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from functools import partial
from pathlib import Path

import pytest
import trio

from rocketmq_py import Client, ConsumeFrom, LitePullConsumer, Message, MessageQueue
from rocketmq_py.broker import EmbeddedBroker
from rocketmq_py.errors import ClosedError, ConfigurationError
from rocketmq_py.relay import MESSAGE_ID, Relay, wait_in
from rocketmq_py.relay.store import Store

KILLS = 4
QUEUE = MessageQueue("Buffer", "broker-a", 0)


async def kill_process(process: trio.Process) -> None:
    process.kill()


async def create_topic(client: Client, topic: str, queues: int) -> None:
    info = await client.name_servers.cluster_info()
    for broker in info.broker_addr_table.values():
        await client.brokers.create_topic(broker.broker_addrs[0], topic, queues=queues)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"max_rate": 0}, "max_rate is 0; it must be above 0"),
        ({"batch_size": -1}, "batch_size is -1"),
        ({"topic": "no topic!"}, "no topic!"),
        ({"progres_interval": 1}, "did you mean 'progress_interval'?"),
    ],
)
def test_a_wrong_setting_is_refused_where_it_is_written(options: dict[str, object], text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Relay("127.0.0.1:1", **{"topic": "Buffer", "store": "unused", **options})  # type: ignore[arg-type]
    assert text in str(caught.value)


async def test_two_relays_on_one_store_are_refused(tmp_path: Path) -> None:
    async with EmbeddedBroker() as broker:
        async with Relay(broker.name_server_address, topic="Buffer", store=tmp_path) as relay:
            with pytest.raises(ConfigurationError, match="in use by another relay"):
                async with Relay(broker.name_server_address, topic="Buffer", store=tmp_path):
                    pass
        with pytest.raises(ClosedError):
            await relay.run()


def test_a_full_disk_ends_it_and_loses_nothing(tmp_path: Path) -> None:
    program = [sys.executable, "-m", "tests.relay.full_disk_program", str(tmp_path)]
    result = subprocess.run(program, capture_output=True, text=True, timeout=60, check=True)
    told, figures, after = result.stdout.splitlines()
    assert "the store cannot be written" in told
    assert str(tmp_path) in told
    committed, next_offset, kept = map(int, figures.split())
    assert 0 < committed <= next_offset == kept < 200
    assert after == "200"


async def test_what_has_expired_before_it_was_read_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def min_offset(_: MessageQueue) -> int:
        await trio.lowlevel.checkpoint()
        return 4

    with Store(tmp_path) as store:
        store.queue(QUEUE).write([], 3)
    async with EmbeddedBroker() as broker, Client(broker.name_server_address) as client:
        await create_topic(client, "Buffer", 1)
        async with client.producer("senders") as producer:
            for _ in range(5):
                await producer.send(Message("Buffer", b"x"))
        monkeypatch.setattr(client.brokers, "min_offset", min_offset)
        async with Relay(client, topic="Buffer", store=tmp_path) as relay:
            with trio.fail_after(20):
                while not relay.queues:
                    await trio.sleep(0.02)
    assert "messages 3 to 3 of buffer queue" in caplog.text


async def test_kills_at_any_moment_lose_nothing(tmp_path: Path) -> None:
    rng = random.Random(20261122)
    async with EmbeddedBroker() as broker, Client(broker.name_server_address) as client:
        await create_topic(client, "Buffer", 2)
        await create_topic(client, "T", 4)
        program = [
            sys.executable,
            "-m",
            "tests.relay.relay_program",
            broker.name_server_address,
            str(tmp_path),
        ]
        sent: dict[str, int] = {}
        received: Counter[str] = Counter()

        async def send() -> None:
            async with client.producer("senders") as producer:
                for _ in range(40 * (KILLS + 1)):
                    due_ms = client.now_ms() + rng.randrange(4000)
                    result = await producer.send(wait_in("Buffer", Message("T", b"%d" % due_ms), due_ms))
                    sent[result.message_id] = due_ms
                    await trio.sleep(0.01)

        async def kill() -> None:
            for _ in range(KILLS):
                with trio.move_on_after(0.6 + 2 * rng.random()):
                    await trio.run_process(program, deliver_cancel=kill_process)
            nursery.start_soon(partial(trio.run_process, program, deliver_cancel=kill_process))

        async def receive() -> None:
            async with LitePullConsumer(client, group="g", consume_from=ConsumeFrom.FIRST) as consumer:
                consumer.subscribe("T")
                async for message in consumer:
                    assert message.store_time_ms >= int(message.body), "it came before it was due"
                    received[message.user_properties[MESSAGE_ID]] += 1

        async with trio.open_nursery() as nursery:
            nursery.start_soon(receive)
            async with trio.open_nursery() as work:
                work.start_soon(send)
                work.start_soon(kill)
            with trio.fail_after(60):
                while received.keys() != sent.keys():
                    await trio.sleep(0.05)
            nursery.cancel_scope.cancel()
    assert received.keys() == sent.keys()
