"""Members of a group are replaced one by one under load, as by a rolling update."""

from __future__ import annotations

import logging
import os
import random
from collections import Counter

import pytest
import trio

from rocketmq_py import AssignmentListener, Client, Message, PushConsumer, ReceivedMessage
from rocketmq_py.message import MessageQueue
from rocketmq_py.names import retry_topic
from tests.behaviours.conftest import ClusterUnderTest, create_topic
from tests.behaviours.reading import PATIENCE

MEMBERS = 4
QUEUES = 8
REPLACEMENTS = int(os.environ.get("REPLACEMENTS", "0"))
"""How many members are replaced. 0: 20 on the embedded broker, in virtual time, and 4 on real brokers."""
LONGEST = 8.0
"""Seconds that the longest handlers take."""


class Group:
    """The messages that the members of a group have handled, and those that they may handle again.

    Attributes:
        handled: how often each message was handled to its end.
        cut_off: messages whose handler was cancelled.
        running_when_moved: messages whose handler was running when their queue was revoked.
    """

    def __init__(self, name: str, seed: int) -> None:
        self.name = name
        self.handled: Counter[int] = Counter()
        self.cut_off: set[int] = set()
        self.running_when_moved: set[int] = set()
        self._random = random.Random(seed)

    def seconds(self) -> float:
        """How long the next handler takes: mostly short, and sometimes as long as a handler may."""
        return self._random.choice((0.01, 0.01, 0.1, 0.5, 2.0, LONGEST))


class Member(AssignmentListener):
    """A member of the group in a process of its own."""

    def __init__(self, address: str, topic: str, group: Group, **options: object) -> None:
        self._group = group
        self._running: dict[MessageQueue, set[int]] = {}
        self._topic = topic
        self.ended = trio.Event()
        self.consumer = PushConsumer(
            address,
            group=group.name,
            consume_from="earliest",
            assignment_listener=self,
            **options,  # type: ignore[arg-type]  # options of the test
        )
        self.consumer.subscribe(topic)

    async def run(self) -> None:
        async with self.consumer:
            await self.consumer.run(self._handle)
        self.ended.set()

    async def _handle(self, message: ReceivedMessage) -> None:
        number, queue = int(message.body), message.queue
        if message.reconsume_times and not self.consumer.settings.orderly:
            queue = MessageQueue(retry_topic(self._group.name), queue.broker_name, queue.queue_id)
        running = self._running.setdefault(queue, set())
        running.add(number)
        try:
            await trio.sleep(self._group.seconds())
        except trio.Cancelled:
            self._group.cut_off.add(number)
            raise
        finally:
            running.discard(number)
        self._group.handled[number] += 1

    def on_revoked(self, queues: list[MessageQueue]) -> None:
        for queue in queues:
            self._group.running_when_moved |= self._running.get(queue, set())


async def send(client: Client, topic: str, sent: set[int], per_second: float) -> None:
    async with client.producer("senders") as producer:
        while True:
            number = len(sent)
            await producer.send(Message(topic, b"%d" % number))
            sent.add(number)
            await trio.sleep(1 / per_second)


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, id="concurrent", marks=pytest.mark.long),
        pytest.param({"orderly": True}, id="orderly"),
    ],
)
async def test_members_are_replaced_one_by_one(
    cluster: ClusterUnderTest,
    client: Client,
    unique: str,
    options: dict[str, object],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """No handler is cut off, nothing is lost, and only messages in progress as their queue moved repeat."""
    replacements = REPLACEMENTS or (20 if cluster.name == "embedded" else 4)
    caplog.set_level(logging.INFO, "rocketmq_py.consumer")
    await create_topic(client, unique, queues=QUEUES)
    group, sent = Group(f"group-{unique}", seed=7), set[int]()
    sending = trio.CancelScope()

    async def load() -> None:
        with sending:
            await send(client, unique, sent, 2 if options else 20)

    async with trio.open_nursery() as nursery:
        members = []

        def start() -> None:
            members.append(Member(cluster.address, unique, group, **options))
            nursery.start_soon(members[-1].run)

        for _ in range(MEMBERS):
            start()
        nursery.start_soon(load)
        await trio.sleep(5)
        for _ in range(replacements):
            start()
            await trio.sleep(5)
            oldest = members.pop(0)
            oldest.consumer.stop()
            with trio.fail_after(LONGEST + 30):
                await oldest.ended.wait()
        sending.cancel()
        with trio.fail_after(PATIENCE + 2 * LONGEST):
            while len(group.handled) < len(sent):
                await trio.sleep(0.5)
        await trio.sleep(2 * LONGEST)
        for member in members:
            member.consumer.stop()
    assert not group.cut_off
    assert "cut off" not in caplog.text
    assert sent <= set(group.handled)
    repeated = {number for number, count in group.handled.items() if count > 1}
    assert repeated <= group.running_when_moved
