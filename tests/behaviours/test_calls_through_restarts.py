"""Calls that are made while all brokers are away for some seconds: they wait, and go on soon afterwards."""

from __future__ import annotations

import itertools
import math
from collections.abc import Awaitable, Callable
from pathlib import Path

import attrs
import pytest
import trio

from rocketmq_py import Admin, Client, Message, ReceivedMessage, TransactionState
from rocketmq_py.client import core_of
from rocketmq_py.client.features import POP, REPLIES
from rocketmq_py.relay import Relay, wait_in
from tests.behaviours.apis import THREADS, TRIO
from tests.behaviours.conftest import ClusterUnderTest, create_topic
from tests.behaviours.outages import Outage
from tests.behaviours.reading import PATIENCE, until_readable
from tests.behaviours.test_restarts import slack

DOWNTIME = 2.0
TIMEOUT = 10.0
INTERVAL = 0.05
"""Seconds between two calls of one caller."""
WORK = 0.3
"""Seconds of the local work of a transaction."""


@pytest.fixture(autouse=True)  # before the first connection
def outage(monkeypatch: pytest.MonkeyPatch) -> Outage:
    return Outage(monkeypatch)


@attrs.define
class Calls:
    """Repeats a call, one after the other, and records when each ended or its error."""

    call: Callable[[int], Awaitable[object]]
    ended: list[float] = attrs.field(factory=list)
    errors: list[str] = attrs.field(factory=list)

    def first_since(self, time: float) -> float:
        return min((ended for ended in self.ended if ended >= time), default=math.inf)

    async def run(self) -> None:
        for number in itertools.count():
            began = trio.current_time()
            try:
                await self.call(number)
            except Exception as error:  # noqa: BLE001 - the test shows it
                self.errors.append(f"{number} after {trio.current_time() - began:.2f} s: {error!r}")
            else:
                self.ended.append(trio.current_time())
            await trio.sleep(INTERVAL)


async def call_through(
    outage: Outage, client: Client, *calls: Callable[[int], Awaitable[object]], within: float
) -> None:
    """Repeat calls through an outage. None may fail, and each kind goes on ``within`` seconds after it."""
    await outage.add_brokers(client)
    callers = [Calls(call) for call in calls]
    async with trio.open_nursery() as nursery:
        for caller in callers:
            nursery.start_soon(caller.run)
        with trio.fail_after(PATIENCE):
            while not all(caller.ended or caller.errors for caller in callers):
                await trio.sleep(INTERVAL)
        await trio.sleep(0.5)
        back_at = await outage.last(DOWNTIME)
        await trio.sleep(1)  # so that errors show, too
        with trio.move_on_after(within):
            while not all(caller.first_since(back_at) < math.inf for caller in callers):
                await trio.sleep(INTERVAL)
        nursery.cancel_scope.cancel()
    for caller in callers:
        assert not caller.errors, caller.errors[0]
        assert caller.first_since(back_at) - back_at <= within, caller.call


@pytest.mark.apis
async def test_requests_and_replies_wait_for_the_brokers(
    cluster: ClusterUnderTest, api: str, client: Client, topic: str, unique: str, outage: Outage
) -> None:
    cluster.needs(REPLIES)
    async with (
        client.producer("askers") as producer,
        client.producer("repliers") as replier,
        client.push_consumer(unique, consume_from="earliest") as consumer,
        trio.open_nursery() as nursery,
    ):

        async def reply(message: ReceivedMessage) -> None:
            await replier.reply(message, message.body.upper())

        async def ask(number: int) -> None:
            answer = await producer.request(Message(topic, b"number %d" % number), timeout=TIMEOUT)
            assert answer.body == b"NUMBER %d" % number

        consumer.subscribe(topic)
        nursery.start_soon(consumer.run, reply)
        # Of ten, some wait for their reply when the outage begins.
        await call_through(outage, client, *[ask] * 10, within=1 + slack(cluster, api))
        nursery.cancel_scope.cancel()


@pytest.mark.apis
async def test_transactions_and_their_reports_wait_for_the_brokers(
    cluster: ClusterUnderTest, api: str, client: Client, topic: str, outage: Outage
) -> None:
    async def check(_: ReceivedMessage) -> TransactionState:
        return TransactionState.COMMIT

    async def work(*_: object) -> TransactionState:
        await trio.sleep(WORK)  # of ten, some work when the outage begins
        return TransactionState.COMMIT

    async with client.transaction_producer(f"senders-{topic}", check, send_timeout=TIMEOUT) as producer:

        async def transact(_: int) -> None:
            result = await producer.send_in_transaction(Message(topic, b"x"), work)
            if result.end_error is not None:
                raise result.end_error

        await call_through(outage, client, *[transact] * 10, within=1 + WORK + slack(cluster, api))


@pytest.mark.apis
async def test_receiving_and_acknowledging_wait_for_the_brokers(
    cluster: ClusterUnderTest, api: str, client: Client, topic: str, unique: str, outage: Outage
) -> None:
    cluster.needs(POP)
    sent: list[bytes] = []
    received: list[bytes] = []
    async with (
        client.pop_consumer(unique, consume_from="earliest") as consumer,
        client.producer("senders", send_timeout=TIMEOUT) as producer,
    ):
        consumer.subscribe(topic)

        async def send(number: int) -> None:
            sent.append(b"number %d" % number)
            await producer.send(Message(topic, sent[-1]))

        async def receive(_: int) -> None:
            if messages := await consumer.receive(wait=1):
                received.extend(message.body for message in messages)
                await consumer.ack(*messages)

        await call_through(outage, client, send, receive, within=1 + slack(cluster, api))
        with trio.fail_after(PATIENCE):
            while not set(sent[:-1]) <= set(received):  # the last send may be cut off
                await receive(0)


@pytest.mark.apis
async def test_polls_commits_and_lookups_wait_for_the_brokers(
    cluster: ClusterUnderTest, api: str, client: Client, topic: str, unique: str, outage: Outage
) -> None:
    async with (
        client.lite_pull_consumer(unique, consume_from="earliest", auto_commit=False) as consumer,
        client.producer("senders", send_timeout=TIMEOUT) as producer,
        client.reader() as reader,
    ):
        consumer.subscribe(topic)
        polled: list[bytes] = []

        async def send(number: int) -> None:
            await producer.send(Message(topic, b"number %d" % number))

        async def poll(_: int) -> None:
            polled.extend(message.body for message in await consumer.poll(wait=1))
            await consumer.commit()

        async def look_up(_: int) -> None:
            await reader.offsets(topic)

        calls = (send, poll, *[look_up] * 5)  # of five, some wait for answers when the outage begins
        await call_through(outage, client, *calls, within=1 + slack(cluster, api))
        assert polled


async def test_administration_waits_for_the_brokers(
    cluster: ClusterUnderTest, client: Client, topic: str, unique: str, outage: Outage
) -> None:
    async with Admin(client) as admin:

        async def create(number: int) -> None:
            await admin.topics.create(f"{unique}-{number}", queues=1)

        async def describe(_: int) -> None:
            await admin.topics.describe(topic)

        async def list_brokers(_: int) -> None:
            await admin.brokers.list()

        calls = (create, *[describe, list_brokers] * 5)
        await call_through(outage, client, *calls, within=1 + slack(cluster, TRIO))


async def test_a_relay_goes_on_after_the_brokers_restart(
    cluster: ClusterUnderTest, client: Client, topic: str, unique: str, outage: Outage, tmp_path: Path
) -> None:
    pytest.importorskip("rocksdict", reason="the extra relay is not installed")
    await create_topic(client, buffer := f"B-{unique}", queues=2)
    await outage.add_brokers(client)
    due: dict[str, float] = {}
    async with Relay(client, topic=buffer, store=tmp_path) as relay, client.producer("senders") as producer:
        with trio.fail_after(PATIENCE):
            while len(relay.assignment) < 2:
                await trio.sleep(INTERVAL)
        now_ms, now = core_of(client).now_ms(), trio.current_time()
        for number in range(40):  # due before, during and after the outage
            message = Message(topic, b"%d" % number)
            await producer.send(wait_in(buffer, message, now_ms + 1000 + number * 100))
            due[f"{number}"] = now + 1 + number / 10
        await trio.sleep_until(now + 2)
        back_at = await outage.last(DOWNTIME)
        delivered: dict[str, float] = {}
        async with client.reader() as reader, reader.open(topic, start="earliest") as stream:
            with trio.fail_after(PATIENCE):
                async for received in stream:
                    delivered.setdefault(received.body.decode(), received.store_time_ms / 1000)
                    if delivered.keys() == due.keys():
                        break
    clock = core_of(client).now_ms() / 1000 - trio.current_time()
    for body, time in delivered.items():
        late = time - clock - max(due[body], back_at if due[body] > now + 1.9 else 0)
        assert late < 1.5 + slack(cluster, TRIO), body


@pytest.mark.sockets
@pytest.mark.long
async def test_tasks_of_spark_wait_for_the_brokers(
    cluster: ClusterUnderTest, client: Client, topic: str, outage: Outage
) -> None:
    pytest.importorskip("pyspark", reason="the extra spark is not installed")
    from rocketmq_py.spark import connections
    from rocketmq_py.spark.options import ConnectionOptions
    from tests.behaviours.test_spark_reading import ranges_of, read
    from tests.behaviours.test_spark_writing import write

    connection = ConnectionOptions(name_server=cluster.address)
    async with client.producer("senders") as producer:
        for number in range(100):
            await producer.send(Message(topic, b"%d" % number))
    await until_readable(client, topic, count=100)
    ranges = await ranges_of(client, topic)

    async def write_rows(number: int) -> None:
        summary = await write(connection, [{"topic": topic, "body": b"%d" % number}] * 10)
        assert summary.rows == 10

    async def read_rows(_: int) -> None:
        assert len(await read(connection, ranges)) == 100

    try:
        await call_through(outage, client, write_rows, read_rows, within=1 + slack(cluster, THREADS))
    finally:
        await trio.to_thread.run_sync(connections.close_all)
