"""A cluster to inspect: two brokers, groups with lag, members in two languages, dead letters,
traces.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import attrs
import trio

from integration.java.peer import client_for, java_peer
from rocketmq_py import Admin, Client, Message, Position, ReceivedMessage
from rocketmq_py.admin import TraceKind
from rocketmq_py.client import core_of
from rocketmq_py.message import SendResult

TOPIC, SENDERS = "Orders", "senders"
LAGGING, MIXED, FAILING = "lagging", "mixed", "failing"
COUNT = 40
PATIENCE = 90


@attrs.frozen
class Scene:
    """The state of the cluster, which no longer changes.

    Attributes:
        admin: an admin client of the cluster.
        sent: the messages of TOPIC, five in each queue; the first one was traced.
        java: the client id of the Java member of MIXED.
        python: the client id of its Python member, whose client also has the member of FAILING and the
            producer.
    """

    admin: Admin
    sent: tuple[SendResult, ...]
    java: str
    python: str


@asynccontextmanager
async def scene(version: str, name_servers: str) -> AsyncIterator[Scene]:
    """Set up the scene on a cluster of two brokers that has a trace topic.

    Args:
        version: the version of the brokers and of the Java client.
        name_servers: the addresses of the name servers.
    """
    to = ("--namesrv", name_servers, "--group", MIXED, "--topic", TOPIC)
    async with (
        Admin(name_servers) as admin,
        Client(name_servers) as client,
        client.producer(SENDERS, trace=True) as producer,
    ):
        await admin.topics.create(TOPIC, queues=4)
        for group in (LAGGING, MIXED, FAILING):
            await admin.groups.create(group, max_reconsume_times=1 if group == FAILING else 16)
            # mqadmin finds a group's brokers through its retry topic, which members would create.
            await admin.topics.create(f"%RETRY%{group}", queues=1)
        queues = (await core_of(client).routes.refresh(TOPIC)).write_queues
        sent = []
        for number in range(COUNT):
            message = Message(TOPIC, b"%d" % number, "A", f"order-{number}")
            sent.append(await producer.send(message, queue=queues[number % len(queues)]))
        await admin.offsets.reset(LAGGING, TOPIC, Position.offset(2))
        async with java_peer(client_for(version), "Consume", *to) as peer, trio.open_nursery() as nursery:
            java = await peer.ready()
            # The Java member of MIXED may take the traced message, FAILING has no other member.
            for group, handle in ((MIXED, _take), (FAILING, _fail)):
                consumer = client.push_consumer(
                    group, consume_from="earliest", commit_interval=0.2, trace=group == FAILING,
                    max_reconsume_times=1,
                )  # fmt: skip
                nursery.start_soon(_run, consumer, handle)
            await _until(lambda: _is_settled(admin, sent[0]))
            yield Scene(admin, tuple(sent), java, core_of(client).client_id)
            nursery.cancel_scope.cancel()


async def _run(consumer: Any, handle: Callable[[ReceivedMessage], Awaitable[None]]) -> None:
    async with consumer:
        consumer.subscribe(TOPIC)
        await consumer.run(handle)


async def _take(message: ReceivedMessage) -> None:
    pass


async def _fail(message: ReceivedMessage) -> None:
    if message.body in (b"3", b"4"):
        raise ValueError("never")


async def _is_settled(admin: Admin, traced: SendResult) -> bool:
    mixed, failing = await admin.groups.describe(MIXED), await admin.groups.describe(FAILING)
    return (
        len(mixed.members) == 2
        and all(len(member.queues or ()) > 3 for member in mixed.members)
        and mixed.lag == failing.lag == 0
        # Brokers report a topic, including a retry topic, once the group has committed an offset in it.
        and sum(len(one.queues) for one in mixed.topics) == 10
        and (await admin.dead_letters.list(FAILING)).total == 2
        and {one.kind for one in (await admin.messages.trace(traced.message_id)).events}
        == {TraceKind.SENT, TraceKind.CONSUMED}
    )


async def _until(condition: Callable[[], Awaitable[bool]]) -> None:
    with trio.fail_after(PATIENCE):
        while not await condition():
            await trio.sleep(0.2)
