"""Assignment listeners are called before commits, and before other members lock revoked queues."""

from __future__ import annotations

from collections import Counter

import attrs
import pytest
import trio

from rocketmq_py import (
    AssignmentListener,
    Client,
    LitePullConsumer,
    MessageQueue,
    PushConsumer,
    ReceivedMessage,
)
from rocketmq_py.client import core_of
from rocketmq_py.names import RETRY_PREFIX
from tests.behaviours.apis import new
from tests.behaviours.conftest import ClusterUnderTest
from tests.behaviours.reading import PATIENCE
from tests.behaviours.test_consuming import Collector, fill, numbers
from tests.behaviours.test_lite_pulling import assigned, bodies, fill_evenly, poll

pytestmark = pytest.mark.apis

NEVER = 1e6
"""A commit interval that is longer than any test."""


@attrs.define
class RevocationListener(AssignmentListener):
    """Records the committed offsets of revoked queues.

    Attributes:
        consumer: if set, ``on_revoked`` commits with it.
        may_return: ``on_revoked`` waits for it.
        assigned: the assigned queues.
        revoked: the revoked queues, with their committed offsets at that time.
    """

    client: Client
    group: str
    consumer: LitePullConsumer | None = None
    may_return: trio.Event = attrs.field(factory=trio.Event)
    assigned: list[MessageQueue] = attrs.field(factory=list)
    revoked: dict[MessageQueue, int | None] = attrs.field(factory=dict)

    async def on_assigned(self, queues: list[MessageQueue]) -> None:
        self.assigned += queues

    async def on_revoked(self, queues: list[MessageQueue]) -> None:
        for queue in queues:
            self.revoked[queue] = await committed(self.client, self.group, queue)
        if self.consumer is not None:
            await self.consumer.commit()
        if not is_retry_topic(queues[0].topic):
            await self.may_return.wait()

    async def wait_until_revoked(self, count: int) -> None:
        with trio.fail_after(PATIENCE):
            while len(self.revoked) < count:
                await trio.sleep(0.02)


def is_retry_topic(topic: str) -> bool:
    return topic.startswith(RETRY_PREFIX)


async def committed(client: Client, group: str, queue: MessageQueue) -> int | None:
    # 4.x brokers answer 0 for a queue that the group has never consumed.
    return await core_of(client).brokers.committed_offset(group, queue, zero_if_new=False) or None


def lite_topic_consumer(
    client: Client,
    address: str,
    group: str,
    listener: AssignmentListener | None = None,
    *,
    auto_commit: bool = True,
) -> LitePullConsumer:
    return new(
        client,
        LitePullConsumer,
        address,
        group=group,
        consume_from="earliest",
        auto_commit=auto_commit,
        commit_interval=NEVER,
        assignment_listener=listener,
    )


async def test_offsets_are_committed_after_on_revoked_has_returned(
    cluster: ClusterUnderTest, client: Client, topic: str, unique: str
) -> None:
    await fill_evenly(client, topic, 80)
    listener = RevocationListener(client, unique)
    async with lite_topic_consumer(client, cluster.address, unique, listener) as first:
        first.subscribe(topic)
        assert bodies(await poll(first, 80)) == numbers(range(80))
        assert sorted(listener.assigned) == first.assignment
        assert await first.poll(wait=0) == []  # acknowledges the polled messages
        async with lite_topic_consumer(client, cluster.address, unique) as second:
            second.subscribe(topic)
            await listener.wait_until_revoked(2)
            lost = list(listener.revoked)
            assert list(listener.revoked.values()) == [None, None]
            assert set(lost) < set(first.assignment), "the queues stay assigned until the listener returns"
            await trio.sleep(1)
            assert [await committed(client, unique, queue) for queue in lost] == [None, None]
            listener.may_return.set()
            await assigned(first, 2)
            with trio.fail_after(PATIENCE):
                while [await committed(client, unique, queue) for queue in lost] != [20, 20]:
                    await trio.sleep(0.05)
    assert set(listener.revoked) == set(listener.assigned), "closing revokes the other queues"


async def test_a_listener_can_commit_when_queues_are_revoked(
    cluster: ClusterUnderTest, client: Client, topic: str, unique: str
) -> None:
    await fill_evenly(client, topic, 80)
    received: list[ReceivedMessage] = []
    listener = RevocationListener(client, unique)
    listener.may_return.set()
    async with lite_topic_consumer(client, cluster.address, unique, listener, auto_commit=False) as first:
        listener.consumer = first
        first.subscribe(topic)
        received += await poll(first, 80)
        await fill_evenly(client, topic, 80, start=80)
        received += await poll(first, 80)
        assert listener.revoked == {}
    assert list(listener.revoked.values()) == [None] * 4, "on_revoked is called when the consumer closes"
    assert [await committed(client, unique, queue) for queue in listener.revoked] == [40] * 4
    async with lite_topic_consumer(client, cluster.address, unique) as second:
        second.subscribe(topic)
        await fill_evenly(client, topic, 4, start=160)
        received += await poll(second, 4)
    assert bodies(received) == numbers(range(164))


async def test_a_listener_can_seek_newly_assigned_queues(
    cluster: ClusterUnderTest, client: Client, topic: str, unique: str
) -> None:
    class SeekingListener(AssignmentListener):
        async def on_assigned(self, queues: list[MessageQueue]) -> None:
            for queue in queues:
                await consumer.seek(queue, 15)

    await fill_evenly(client, topic, 80)
    async with lite_topic_consumer(client, cluster.address, unique, SeekingListener()) as consumer:
        consumer.subscribe(topic)
        messages = await poll(consumer, 20)
    assert Counter(message.queue_offset for message in messages) == dict.fromkeys(range(15, 20), 4)


async def test_no_member_locks_a_queue_before_on_revoked_of_its_owner_has_returned(
    cluster: ClusterUnderTest, client: Client, topic: str, unique: str
) -> None:
    def consumer(listener: AssignmentListener | None = None) -> PushConsumer:
        return new(
            client,
            PushConsumer,
            cluster.address,
            group=unique,
            orderly=True,
            consume_from="earliest",
            commit_interval=NEVER,
            assignment_listener=listener,
        )

    first, second = Collector(80), Collector(1)
    listener = RevocationListener(client, unique)
    async with trio.open_nursery() as nursery, consumer(listener) as one:
        one.subscribe(topic)
        nursery.start_soon(one.run, first)
        await fill(client, topic, 80)
        with trio.fail_after(PATIENCE):
            await first.full.wait()
        async with consumer() as two:
            two.subscribe(topic)
            nursery.start_soon(two.run, second)
            with trio.fail_after(PATIENCE):
                while (
                    len(lost := [queue for queue in listener.revoked if not is_retry_topic(queue.topic)]) < 2
                ):
                    await trio.sleep(0.02)
            await fill_evenly(client, topic, 80, start=80)
            await trio.sleep(2)
            assert not second.messages
            assert not [message for message in first.messages[80:] if message.queue in lost]
            listener.may_return.set()
            with trio.fail_after(PATIENCE):
                while len(first.messages) + len(second.messages) < 160:
                    await trio.sleep(0.05)
            two.stop()
            one.stop()
    assert {message.queue for message in second.messages} == set(lost)
    assert sorted([*first.bodies, *second.bodies], key=int) == numbers(range(160)), (
        "each message is handled once"
    )
