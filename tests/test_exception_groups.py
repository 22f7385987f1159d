"""No public call raises an ExceptionGroup: its nurseries raise the error of the task that failed."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeAlias

import pytest
import trio

import rocketmq_py
from rocketmq_py import Client, Message, MessageQueue, ReceivedMessage
from rocketmq_py.broker import EmbeddedBroker
from rocketmq_py.codes import RequestCode
from rocketmq_py.consumer.read.offset_ranges import OffsetRange
from rocketmq_py.remoting import RpcContext, RpcHook

PACKAGE = Path(rocketmq_py.__file__).parent
QUEUE = MessageQueue("T", "broker-a", 0)
IN_BACKGROUND = {RequestCode.HEART_BEAT, RequestCode.UNREGISTER_CLIENT}


class Interruption(BaseException):
    """An exception that the library does not handle, as KeyboardInterrupt is."""


class InterruptBrokerRequests(RpcHook):
    """Raises in the task that sends the request to the broker."""

    def __init__(self, address: str) -> None:
        self._address = address

    def before_request(self, context: RpcContext) -> None:
        if context.address == self._address and context.code not in IN_BACKGROUND:
            raise Interruption


Call: TypeAlias = Callable[[Client], Awaitable[object]]


async def admin_call(client: Client, call: Callable[[rocketmq_py.Admin], Awaitable[object]]) -> None:
    async with client.admin() as admin:
        await call(admin)


async def reader_call(client: Client, call: Callable[[rocketmq_py.Reader], Awaitable[object]]) -> None:
    async with client.reader() as reader:
        await call(reader)


async def pull(reader: rocketmq_py.Reader) -> None:
    async with reader.pull([OffsetRange(QUEUE, 0, 1)]) as chunks:
        async for _ in chunks:
            pass


async def stream(reader: rocketmq_py.Reader) -> None:
    async with reader.open("T", stop_at_end=True) as messages:
        async for _ in messages:
            pass


async def push(client: Client) -> None:
    async with client.push_consumer("g") as consumer:
        consumer.subscribe("T")
        await consumer.run(print)


async def poll(client: Client) -> None:
    async with client.lite_pull_consumer("g") as consumer:
        await consumer.assign([QUEUE])
        await consumer.poll(wait=60)


async def receive(client: Client) -> None:
    async with client.pop_consumer("g") as consumer:
        consumer.subscribe("T")
        await consumer.receive()


async def send(client: Client) -> None:
    async with client.producer("g") as producer:
        await producer.send(Message("T", b"x"))


CALLS: dict[str, Call] = {
    "topics.list": lambda client: admin_call(client, lambda admin: admin.topics.list()),
    "topics.create": lambda client: admin_call(client, lambda admin: admin.topics.create("N")),
    "groups.list": lambda client: admin_call(client, lambda admin: admin.groups.list()),
    "groups.describe": lambda client: admin_call(client, lambda admin: admin.groups.describe("g")),
    "offsets.reset": lambda client: admin_call(client, lambda admin: admin.offsets.reset("g", "T", "latest")),
    "messages.find": lambda client: admin_call(client, lambda admin: admin.messages.find("T", "k")),
    "brokers.list": lambda client: admin_call(client, lambda admin: admin.brokers.list()),
    "access.users": lambda client: admin_call(client, lambda admin: admin.access.users()),
    "messages.get": lambda client: admin_call(client, lambda admin: admin.messages.get("k", topic="T")),
    "reader.offsets": lambda client: reader_call(client, lambda reader: reader.offsets("T")),
    "reader.committed": lambda client: reader_call(client, lambda reader: reader.committed("g", [QUEUE])),
    "reader.pull": lambda client: reader_call(client, pull),
    "reader.open": lambda client: reader_call(client, stream),
    "push_consumer.run": push,
    "lite_pull_consumer.poll": poll,
    "pop_consumer.receive": receive,
    "producer.send": send,
}


@pytest.mark.parametrize("name", CALLS)
async def test_a_public_call_raises_the_error_itself(name: str, jumping_clock: object) -> None:
    async with EmbeddedBroker(topics=["T"]) as broker, Client(broker.name_server_address) as client:
        client.add_rpc_hook(InterruptBrokerRequests(broker.broker_address))
        with pytest.raises(Interruption):
            await CALLS[name](client)


async def test_a_push_consumer_raises_the_error_of_one_of_several_handlers(jumping_clock: object) -> None:
    async def handle(_: ReceivedMessage) -> None:
        try:
            await trio.sleep(1)
        finally:
            raise Interruption

    async with EmbeddedBroker(topics=["T"]) as broker, Client(broker.name_server_address) as client:
        async with client.producer("senders") as producer:
            for _ in range(8):
                await producer.send(Message("T", b"x"))
        async with client.push_consumer("g", consume_from="earliest") as consumer:
            consumer.subscribe("T")
            with pytest.raises(Interruption):
                await consumer.run(handle)


OWN_NURSERIES = (
    "broker/",
    "cli/",
    "handoff/trio_thread.py",
    "testing/",
    "remoting/nurseries.py",
    "remoting/server.py",
)
"""Modules whose nurseries no public call uses, and the module that defines ``open_nursery``."""


def test_nurseries_come_from_the_function_that_unwraps_their_errors() -> None:
    found = [
        path
        for module in PACKAGE.rglob("*.py")
        if re.search(r"trio\.open_nursery|import open_nursery.*trio", module.read_text())
        and not (path := module.relative_to(PACKAGE).as_posix()).startswith(OWN_NURSERIES)
    ]
    assert not found
