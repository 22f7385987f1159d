"""A lite pull consumer on the embedded broker: polling, positions, pauses and commits."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
import trio.testing

from rocketmq_py import AssignmentListener, Client, Position
from rocketmq_py.broker import EmbeddedBroker
from rocketmq_py.client import core_of
from rocketmq_py.consumer import LitePullConsumer
from rocketmq_py.errors import (
    ClosedError,
    ConfigurationError,
    NoQueueError,
    NotAssignedError,
    SqlFilterRefusedError,
)
from rocketmq_py.message import MessageQueue, ReceivedMessage
from tests.consumer.conftest import Fill

QUEUE = MessageQueue("T", "broker-a", 0)
OTHER = MessageQueue("T", "broker-a", 1)


def consumer_of(client: Client | str, group: str = "g", **options: object) -> LitePullConsumer:
    return LitePullConsumer(
        client,
        group=group,
        consume_from="earliest",
        **options,  # type: ignore[arg-type]
    )


def numbers(messages: list[ReceivedMessage]) -> list[int]:
    return [int(message.body) for message in messages]


async def poll_all(consumer: LitePullConsumer, count: int) -> list[int]:
    """Poll this number of messages, and return their numbers."""
    polled: list[int] = []
    with trio.fail_after(100):
        while len(polled) < count:
            polled += numbers(await consumer.poll(max_messages=count - len(polled)))
    return polled


class Listener(AssignmentListener):
    """A listener that records its calls."""

    def __init__(self) -> None:
        self.changes: list[tuple[str, list[MessageQueue]]] = []
        self.changed = trio.lowlevel.ParkingLot()

    async def on_assigned(self, queues: list[MessageQueue]) -> None:
        self.changes.append(("+", queues))
        self.changed.unpark_all()

    async def on_revoked(self, queues: list[MessageQueue]) -> None:
        self.changes.append(("-", queues))
        self.changed.unpark_all()


async def committed(client: Client, group: str = "g", queue: MessageQueue = QUEUE) -> int | None:
    return await core_of(client).brokers.committed_offset(group, queue, zero_if_new=False)


# Settings and arguments


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"commit_interval": 0}, "commit_interval is 0; it must be above 0"),
        (
            {"poll_timeout": 7},
            "there is no setting 'poll_timeout'; it is an argument of a call: poll(wait=...)",
        ),
        ({"consume_max_span": 0}, "consume_max_span is 0"),
        ({"pull_batch_size": 2000}, "pull_batch_size is 2000; it must be from 1 to 1024"),
        ({"pull_hold": 40.0}, "pull_timeout is 30 s; it must be longer than pull_hold"),
        ({"pull_treshold_for_all": 1}, "did you mean 'pull_threshold_for_all'?"),
    ],
)
def test_invalid_settings_are_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        consumer_of("127.0.0.1:1", **options)
    assert text in str(caught.value)


async def test_methods_raise_closed_error_outside_of_the_async_with_block(address: str) -> None:
    consumer = consumer_of(address)
    consumer.subscribe("T")
    for call in (
        consumer.poll,
        consumer.commit,
        lambda: consumer.queues("T"),
        lambda: consumer.committed(QUEUE),
        lambda: consumer.seek(QUEUE, 0),
        lambda: consumer.assign([QUEUE]),
        lambda: anext(consumer),
    ):
        with pytest.raises(ClosedError, match="async with LitePullConsumer"):
            await call()
    async with consumer:
        assert await consumer.poll(wait=0) == []
    with pytest.raises(ClosedError):
        await consumer.poll()


async def test_poll_refuses_invalid_arguments_and_missing_subscriptions(client: Client) -> None:
    async with consumer_of(client) as consumer:
        with pytest.raises(ConfigurationError, match="subscribe to a topic or assign queues first"):
            await consumer.poll()
        consumer.subscribe("T")
        with pytest.raises(ConfigurationError, match="max_messages is 0; it must be 1 or more"):
            await consumer.poll(max_messages=0)
        with pytest.raises(ConfigurationError, match="wait is -1; it must be 0 or more"):
            await consumer.poll(wait=-1)
        with pytest.raises(ConfigurationError, match="wait is nan; it must be 0 or more"):
            await consumer.poll(wait=math.nan)
        nothing: Any = None
        with pytest.raises(ConfigurationError, match="wait is None; it must be a number of seconds"):
            await consumer.poll(wait=nothing)


async def test_subscribe_and_assign_exclude_each_other(client: Client, fill: Fill) -> None:
    await fill("T", 1)
    async with consumer_of(client) as consumer:
        consumer.subscribe("T")
        with pytest.raises(ConfigurationError, match="this consumer uses subscribe"):
            await consumer.assign([QUEUE])
    async with consumer_of(client) as consumer:
        await consumer.assign([QUEUE])
        with pytest.raises(ConfigurationError, match="this consumer uses assign"):
            consumer.subscribe("T")
        consumer.unsubscribe("T")
        assert consumer.assignment == [QUEUE]


async def test_assign_refuses_a_consumer_that_has_unsubscribed(client: Client, fill: Fill) -> None:
    """Rebalances of its group would replace the assigned queues."""
    await fill("T", 1)
    async with consumer_of(client) as consumer:
        consumer.subscribe("T")
        consumer.unsubscribe("T")
        with pytest.raises(ConfigurationError, match="this consumer uses subscribe"):
            await consumer.assign([QUEUE])
    consumer = consumer_of(client)
    consumer.subscribe("T")
    consumer.unsubscribe("T")
    async with consumer:
        await consumer.assign([QUEUE])
        assert consumer.assignment == [QUEUE]


async def test_assign_refuses_a_consumer_that_subscribes_in_the_meantime(
    client: Client, fill: Fill, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill("T", 1)

    async def subscribe(_: str) -> list[MessageQueue]:
        consumer.subscribe("T")
        return [QUEUE]

    async with consumer_of(client) as consumer:
        monkeypatch.setattr(consumer, "queues", subscribe)  # while assign() looks up the route
        with pytest.raises(ConfigurationError, match="this consumer uses subscribe"):
            await consumer.assign([QUEUE])


async def test_two_members_of_a_group_need_two_clients(
    client: Client, jumping_clock: trio.testing.MockClock
) -> None:
    async with consumer_of(client) as first:
        first.subscribe("T")
        second = consumer_of(client)
        second.subscribe("T")
        with pytest.raises(ConfigurationError, match="already a member of group 'g'"):
            async with second:
                pytest.fail("not reached")
        start = trio.current_time()
        await second.aclose()
        assert trio.current_time() == start, "a consumer that did not open closes at once"
        async with consumer_of(client) as third:
            with pytest.raises(ConfigurationError, match="already a member of group 'g'"):
                third.subscribe("T")
        assert core_of(client).heartbeats.has_consumer("g")
    assert not core_of(client).heartbeats.has_consumer("g")


# Polling


async def test_the_messages_of_each_queue_are_polled_in_order(client: Client, fill: Fill) -> None:
    await fill("T", 100, queues=2)
    async with consumer_of(client) as consumer:
        consumer.subscribe("T")
        polled = await poll_all(consumer, 100)
    assert [number for number in polled if number % 2 == 0] == list(range(0, 100, 2))
    assert [number for number in polled if number % 2] == list(range(1, 100, 2))


async def test_poll_returns_at_most_max_messages(client: Client, fill: Fill) -> None:
    await fill("T", 10)
    async with consumer_of(client) as consumer:
        consumer.subscribe("T")
        assert numbers(await consumer.poll(max_messages=3)) == [0, 1, 2]
        assert numbers(await consumer.poll(max_messages=1)) == [3]
        assert numbers(await consumer.poll()) == list(range(4, 10))


async def test_queues_are_polled_round_robin(client: Client, fill: Fill) -> None:
    await fill("T", 40, queues=2)
    async with consumer_of(client) as consumer:
        consumer.subscribe("T")
        await trio.testing.wait_all_tasks_blocked(0.05)
        queue_ids = [(await consumer.poll(max_messages=5))[0].queue_id for _ in range(4)]
    assert queue_ids in ([0, 1, 0, 1], [1, 0, 1, 0])


async def test_polled_messages_that_are_put_back_are_polled_again(client: Client, fill: Fill) -> None:
    await fill("T", 4, queues=2)
    async with consumer_of(client) as consumer:
        consumer.subscribe("T")
        assert sorted(await poll_all(consumer, 4)) == [0, 1, 2, 3]
        returned = consumer._queues.buffer.put_back([(QUEUE, 1)])
        assert (QUEUE, 1) in returned
        assert {queue for queue, _ in returned} == {QUEUE}
        again = [(message.queue, message.queue_offset) for message in await consumer.poll()]
        assert set(again) == returned
        await consumer.commit()
        assert await committed(client, queue=OTHER) == 2, "the messages that were not put back"


async def test_poll_waits_as_long_as_it_is_told(
    client: Client, fill: Fill, jumping_clock: trio.testing.MockClock
) -> None:
    await fill("T", 1)
    async with consumer_of(client) as consumer:
        consumer.subscribe("T")
        await poll_all(consumer, 1)
        start = trio.current_time()
        assert await consumer.poll(wait=3) == []
        assert trio.current_time() - start == pytest.approx(3, abs=0.2)
        assert await consumer.poll() == []
        assert trio.current_time() - start == pytest.approx(8, abs=0.2)
        assert await consumer.poll(wait=0) == []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fill, "T", 1)
            assert numbers(await consumer.poll(wait=math.inf)) == [0]


async def test_async_for_returns_and_acknowledges_messages(client: Client, fill: Fill) -> None:
    await fill("T", 200)
    received = []
    async with consumer_of(client) as consumer:
        consumer.subscribe("T")
        async for message in consumer:
            received.append(int(message.body))
            if len(received) == 200:
                break
    assert received == list(range(200))
    assert await committed(client) == 200


async def test_tags_select_messages(client: Client, fill: Fill) -> None:
    await fill("T", 10, tags="Aa")
    await fill("T", 10, tags="BB", first=10)
    async with consumer_of(client) as consumer:
        consumer.subscribe("T", "BB")
        assert await poll_all(consumer, 10) == list(range(10, 20))
    async with consumer_of(client, "h") as consumer:
        await consumer.assign([QUEUE], "BB")
        assert await poll_all(consumer, 10) == list(range(10, 20))


async def test_subscribing_and_unsubscribing_changes_the_assignment(client: Client, fill: Fill) -> None:
    await fill("T", 5)
    await fill("U", 5, first=5)
    listener = Listener()
    async with consumer_of(client, assignment_listener=listener) as consumer:
        consumer.subscribe("T")
        assert await poll_all(consumer, 5) == list(range(5))
        consumer.subscribe("U")
        assert await poll_all(consumer, 5) == list(range(5, 10))
        assert [queue.topic for queue in consumer.assignment] == ["T", "U"]
        consumer.unsubscribe("T")
        while len(listener.changes) < 3:
            await listener.changed.park()
        await trio.testing.wait_all_tasks_blocked()
        assert [queue.topic for queue in consumer.assignment] == ["U"]
    queue_u = MessageQueue("U", "broker-a", 0)
    assert listener.changes == [("+", [QUEUE]), ("+", [queue_u]), ("-", [QUEUE]), ("-", [queue_u])]
    assert await committed(client) == 5


async def test_exceptions_of_a_listener_are_logged(
    client: Client, fill: Fill, caplog: pytest.LogCaptureFixture
) -> None:
    class Failing(AssignmentListener):
        def on_assigned(self, queues: list[MessageQueue]) -> None:
            raise ValueError("not today")

        async def on_revoked(self, queues: list[MessageQueue]) -> None:
            raise ValueError("not now")

    await fill("T", 5)
    async with consumer_of(client, assignment_listener=Failing()) as consumer:
        consumer.subscribe("T")
        assert await poll_all(consumer, 5) == list(range(5))
    assert [record.getMessage() for record in caplog.records] == [
        "assignment listener failed: group=g method=on_assigned",
        "assignment listener failed: group=g method=on_revoked",
    ]
    assert await committed(client) == 5


async def test_a_hanging_listener_leaves_time_for_commits_when_closing(
    client: Client, fill: Fill, caplog: pytest.LogCaptureFixture, jumping_clock: trio.testing.MockClock
) -> None:
    class Hanging(AssignmentListener):
        async def on_revoked(self, queues: list[MessageQueue]) -> None:
            await trio.sleep_forever()

    await fill("T", 5)
    async with consumer_of(client, assignment_listener=Hanging()) as consumer:
        consumer.subscribe("T")
        assert await poll_all(consumer, 5) == list(range(5))
    assert [record.getMessage() for record in caplog.records] == [
        "on_revoked timed out and was cancelled: group=g"
    ]
    assert await committed(client) == 5


async def test_a_listener_cancelled_by_closing_is_called_again(client: Client, fill: Fill) -> None:
    class Slow(Listener):
        async def on_revoked(self, queues: list[MessageQueue]) -> None:
            await super().on_revoked(queues)
            if len(self.changes) == 2:
                await trio.sleep_forever()

    await fill("T", 5)
    listener = Slow()
    async with consumer_of(client, assignment_listener=listener) as consumer:
        consumer.subscribe("T")
        assert await poll_all(consumer, 5) == list(range(5))
        consumer.unsubscribe("T")
        while len(listener.changes) < 2:
            await listener.changed.park()
    assert listener.changes == [("+", [QUEUE]), ("-", [QUEUE]), ("-", [QUEUE])]
    assert await committed(client) == 5


async def test_poll_returns_no_message_of_queues_that_are_being_revoked(client: Client, fill: Fill) -> None:
    class Revoking(Listener):
        async def on_revoked(self, queues: list[MessageQueue]) -> None:
            await super().on_revoked(queues)
            if queues == [OTHER]:
                return
            assert consumer.assignment == [QUEUE]
            assert await consumer.poll(wait=0) == []
            with pytest.raises(ConfigurationError, match="already running"):
                await consumer.assign([QUEUE])
            await consumer.commit()
            assert await committed(client) == 3

    await fill("T", 10, queues=2)
    listener = Revoking()
    async with consumer_of(client, assignment_listener=listener, auto_commit=False) as consumer:
        await consumer.assign([QUEUE])
        assert len(await consumer.poll(max_messages=3)) == 3
        await consumer.assign([OTHER])
        assert consumer.assignment == [OTHER]
        assert await committed(client) == 3
    assert listener.changes == [("+", [QUEUE]), ("-", [QUEUE]), ("+", [OTHER]), ("-", [OTHER])]


# Assigned queues


async def test_assign_raises_closed_error_if_the_consumer_is_closed_meanwhile(
    client: Client, fill: Fill, nursery: trio.Nursery
) -> None:
    class Slow(AssignmentListener):
        async def on_assigned(self, queues: list[MessageQueue]) -> None:
            await trio.sleep(10)

    await fill("T", 3)
    consumer = consumer_of(client, assignment_listener=Slow())
    await consumer.start(nursery)

    async def assign() -> None:
        with pytest.raises(ClosedError):
            await consumer.assign([QUEUE])

    async with trio.open_nursery() as assigning:
        assigning.start_soon(assign)
        await trio.sleep(1)
        await consumer.aclose()


async def test_assigned_queues_are_read_without_joining_the_group(client: Client, fill: Fill) -> None:
    await fill("T", 20, queues=2)
    async with consumer_of(client) as consumer:
        assert await consumer.queues("T") == [QUEUE, OTHER]
        await consumer.assign([OTHER])
        assert await poll_all(consumer, 10) == list(range(1, 20, 2))
        assert consumer.assignment == [OTHER]
        assert not core_of(client).heartbeats.has_consumer("g")
        await consumer.assign([QUEUE])
        assert consumer.assignment == [QUEUE]
        assert await poll_all(consumer, 10) == list(range(0, 20, 2))
        await consumer.assign([])
        assert consumer.assignment == []
    assert [await committed(client, queue=queue) for queue in (QUEUE, OTHER)] == [10, 10]


async def test_assign_refuses_missing_queues(client: Client, fill: Fill) -> None:
    await fill("T", 1)
    async with consumer_of(client) as consumer:
        await consumer.assign([QUEUE])
        with pytest.raises(NoQueueError, match="cannot assign T/broker-a/1: no such readable queue"):
            await consumer.assign([QUEUE, OTHER])
        assert consumer.assignment == [QUEUE]


# Positions


async def test_seek_changes_the_position(client: Client, fill: Fill) -> None:
    await fill("T", 50)
    async with consumer_of(client) as consumer:
        consumer.subscribe("T")
        await poll_all(consumer, 20)
        await consumer.seek(QUEUE, 45)
        assert await poll_all(consumer, 5) == list(range(45, 50))
        await consumer.seek(QUEUE, "earliest")
        assert await poll_all(consumer, 2) == [0, 1]
        await consumer.seek(QUEUE, "latest")
        await fill("T", 1, first=50)
        assert await poll_all(consumer, 1) == [50]
        await consumer.commit()
        assert await consumer.committed(QUEUE) == 51
        await consumer.seek(QUEUE, 7)
        await consumer.commit()
        assert await consumer.committed(QUEUE) == 7, "a commit stores the position of a seek"


async def test_seek_to_time_continues_at_the_first_message_stored_then(
    client: Client, fill: Fill, jumping_clock: trio.testing.MockClock
) -> None:
    await fill("T", 10)
    await trio.sleep(10)
    await fill("T", 10, first=10)
    async with consumer_of(client) as consumer:
        consumer.subscribe("T")
        messages: list[ReceivedMessage] = []
        while len(messages) < 20:
            messages += await consumer.poll()
        time_ms = messages[10].store_time_ms
        await consumer.seek(QUEUE, Position.time(time_ms))
        assert await poll_all(consumer, 10) == list(range(10, 20))


@pytest.mark.parametrize(
    ("offset", "error"),
    [
        (-1, "position is -1; it must be 0 or more"),
        (11, "cannot seek to offset 11 of T/broker-a/0: its offsets are 0 to 10"),
    ],
)
async def test_seek_refuses_offsets_outside_of_the_queue(
    client: Client, fill: Fill, offset: int, error: str
) -> None:
    await fill("T", 10)
    async with consumer_of(client) as consumer:
        await consumer.assign([QUEUE])
        with pytest.raises(ConfigurationError, match=error):
            await consumer.seek(QUEUE, offset)
        assert await poll_all(consumer, 10) == list(range(10))


async def test_seek_and_commit_refuse_unassigned_queues(client: Client, fill: Fill) -> None:
    await fill("T", 10, queues=2)
    async with consumer_of(client) as consumer:
        await consumer.assign([QUEUE])
        calls: list[Callable[[], Awaitable[None]]] = [
            lambda: consumer.seek(OTHER, 0),
            lambda: consumer.seek(OTHER, "earliest"),
            lambda: consumer.seek(OTHER, "latest"),
            lambda: consumer.seek(OTHER, Position.time(0)),
            lambda: consumer.commit({OTHER: 1}),
        ]
        for call in calls:
            with pytest.raises(NotAssignedError, match="T/broker-a/1 is not assigned"):
                await call()
        with pytest.raises(ConfigurationError, match="is -1; it must be 0 or more"):
            await consumer.commit({QUEUE: -1})


# Pauses


async def test_a_paused_queue_keeps_its_position(
    client: Client, fill: Fill, jumping_clock: trio.testing.MockClock
) -> None:
    await fill("T", 20, queues=2)
    async with consumer_of(client) as consumer:
        consumer.subscribe("T")
        polled = await poll_all(consumer, 2)
        await trio.sleep(1)  # both queues have been pulled
        consumer.pause([QUEUE])
        while messages := await consumer.poll(max_messages=3):
            assert {message.queue_id for message in messages} == {1}
            polled += numbers(messages)
        await fill("T", 4, first=20)
        messages = await consumer.poll(wait=10)
        assert numbers(messages) == [21, 23]
        assert await consumer.poll(wait=10) == []
        consumer.resume([QUEUE])
        polled += await poll_all(consumer, 22 - len(polled))
        assert sorted(polled) == [*range(21), 22]


async def test_pause_without_arguments_pauses_all_queues(
    client: Client, fill: Fill, jumping_clock: trio.testing.MockClock
) -> None:
    await fill("T", 20, queues=2)
    async with consumer_of(client) as consumer:
        await consumer.assign([QUEUE, OTHER])
        consumer.pause()
        assert await consumer.poll(wait=10) == []
        await consumer.seek(QUEUE, 5)
        assert await consumer.poll(wait=10) == []
        consumer.resume()
        assert sorted(await poll_all(consumer, 15)) == sorted([*range(1, 20, 2), *range(10, 20, 2)])


# Commits


async def test_polled_messages_are_committed_after_the_next_poll(
    client: Client, fill: Fill, jumping_clock: trio.testing.MockClock
) -> None:
    await fill("T", 10)
    async with consumer_of(client) as consumer:
        consumer.subscribe("T")
        await consumer.poll(max_messages=4)
        await trio.sleep(20)
        assert not await consumer.committed(QUEUE), "the messages are not acknowledged yet"
        await consumer.poll(max_messages=4)
        assert not await consumer.committed(QUEUE), "offsets are committed every five seconds"
        await trio.sleep(5.1)
        assert await consumer.committed(QUEUE) == 4
        await consumer.commit()
        assert await consumer.committed(QUEUE) == 8
    assert await committed(client) == 8


async def test_without_auto_commit_only_commit_commits(
    client: Client, fill: Fill, jumping_clock: trio.testing.MockClock
) -> None:
    await fill("T", 10)
    async with consumer_of(client, auto_commit=False) as consumer:
        consumer.subscribe("T")
        assert await consumer.committed(QUEUE) is None
        await consumer.poll(max_messages=4)
        await consumer.poll(max_messages=2)
        await trio.sleep(60)
        assert await consumer.committed(QUEUE) is None
        await consumer.commit()
        assert await consumer.committed(QUEUE) == 6
        await consumer.poll(max_messages=1)
        await consumer.commit({QUEUE: 3})
        assert await consumer.committed(QUEUE) == 3
        await consumer.poll(max_messages=1)
    assert await committed(client) == 3


async def test_closing_with_an_error_does_not_acknowledge_the_last_poll(client: Client, fill: Fill) -> None:
    async def fail_at_six() -> None:
        async with consumer_of(client) as consumer:
            consumer.subscribe("T")
            async for message in consumer:
                if int(message.body) == 6:
                    raise ValueError("not this one")

    await fill("T", 10)
    with pytest.raises(ValueError, match="not this one"):
        await fail_at_six()
    assert await committed(client) == 6


async def test_messages_excluded_by_a_filter_are_committed(client: Client, fill: Fill) -> None:
    await fill("T", 10, tags="A")
    await fill("T", 10, tags="B")
    async with consumer_of(client) as consumer:
        consumer.subscribe("T", "A")
        await poll_all(consumer, 10)
        await trio.testing.wait_all_tasks_blocked(0.05)
    assert await committed(client) == 20


async def test_a_seek_back_to_a_confirmed_offset_is_committed(
    client: Client, fill: Fill, jumping_clock: trio.testing.MockClock
) -> None:
    """A oneway commit after the confirmed one may have changed the broker's offset."""
    await fill("T", 10)
    async with consumer_of(client) as consumer:
        await consumer.assign([QUEUE])
        await consumer.poll(max_messages=2)
        await consumer.commit()
        await consumer.poll(max_messages=5)
        await consumer.poll(max_messages=1)
        await trio.sleep(6)
        assert await consumer.committed(QUEUE) == 7
        await consumer.seek(QUEUE, 2)
        await consumer.commit()
        assert await consumer.committed(QUEUE) == 2


async def test_commit_raises_the_error_of_a_failed_commit(client: Client, fill: Fill) -> None:
    await fill("T", 10)
    async with consumer_of(client) as consumer:
        await consumer.assign([QUEUE])
        await consumer.poll(max_messages=2)
        core_of(client).routes._brokers.clear()
        with pytest.raises(NoQueueError, match="broker-a"):
            await consumer.commit()


# Rebalancing and closing


async def test_members_share_the_queues_and_continue_at_each_others_offsets(
    address: str, client: Client, fill: Fill, jumping_clock: trio.testing.MockClock
) -> None:
    await fill("T", 40, queues=2)
    async with consumer_of(address) as first:
        first.subscribe("T")
        polled = await poll_all(first, 20)
        polled += numbers(await first.poll(max_messages=1, wait=0))  # acknowledges the messages polled before
        async with consumer_of(address) as second:
            second.subscribe("T")
            while len(second.assignment) != 1 or len(first.assignment) != 1:
                await trio.sleep(0.5)
            assert {*first.assignment, *second.assignment} == {QUEUE, OTHER}
            await fill("T", 20, first=40)
            for member in (first, second):
                while messages := await member.poll(wait=30):
                    polled += numbers(messages)
                    assert {message.queue for message in messages} <= {*member.assignment}
        while len(first.assignment) != 2:
            await trio.sleep(0.5)
        while messages := await first.poll(wait=30):
            polled += numbers(messages)
    assert set(polled) == set(range(60))
    assert [await committed(client, queue=queue) for queue in (QUEUE, OTHER)] == [30, 30]


async def test_closing_ends_a_waiting_poll(address: str, broker: EmbeddedBroker, fill: Fill) -> None:
    await fill("T", 1)
    errors = []

    async def poll(consumer: LitePullConsumer) -> None:
        with pytest.raises(ClosedError) as caught:
            await consumer.poll(wait=math.inf)
        errors.append(caught.value)

    async with trio.open_nursery() as nursery:
        async with consumer_of(address) as consumer:
            await consumer.assign([QUEUE])
            await poll_all(consumer, 1)
            nursery.start_soon(poll, consumer)
            await trio.testing.wait_all_tasks_blocked(0.05)
        assert len(errors) == 1


@pytest.mark.parametrize(
    ("error", "sql"), [(SqlFilterRefusedError, "size >"), (ClosedError, None)], ids=["refused", "closed"]
)
async def test_a_poll_sees_changes_made_during_its_first_checkpoint(
    client: Client, fill: Fill, monkeypatch: pytest.MonkeyPatch, error: type[Exception], sql: str | None
) -> None:
    await fill("T", 0)
    async with trio.open_nursery() as nursery, consumer_of(client) as consumer:
        consumer.subscribe("T", sql=sql)

        async def change_and_checkpoint() -> None:
            monkeypatch.undo()
            if error is ClosedError:
                nursery.start_soon(consumer.aclose)
            while consumer.is_open and not consumer._subscriptions.refused:
                await trio.sleep(0.01)

        monkeypatch.setattr(trio.lowlevel, "checkpoint", change_and_checkpoint)
        with trio.fail_after(100), pytest.raises(error):
            await consumer.poll(wait=math.inf)


async def test_start_runs_the_consumer_in_a_given_nursery(client: Client, fill: Fill) -> None:
    await fill("T", 10)
    async with trio.open_nursery() as nursery:
        consumer = consumer_of(client)
        consumer.subscribe("T")
        await consumer.start(nursery)
        await poll_all(consumer, 4)
        await consumer.aclose()
        assert await committed(client) == 4
        assert not core_of(client).heartbeats.has_consumer("g")
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            consumer = consumer_of(client)
            consumer.subscribe("T")
            await consumer.start(nursery)
            await poll_all(consumer, 4)
            scope.cancel()
    assert not core_of(client).heartbeats.has_consumer("g")
    assert await committed(client) == 4, "the last poll of a cancelled consumer is not committed"


@pytest.mark.parametrize("checkpoints", range(6))
async def test_another_task_may_subscribe_while_the_consumer_opens(
    address: str, fill: Fill, checkpoints: int
) -> None:
    await fill("T", 3)
    consumer = consumer_of(address)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(consumer.start, nursery)
        for _ in range(checkpoints):
            await trio.lowlevel.checkpoint()
        consumer.subscribe("T")
        await trio.testing.wait_all_tasks_blocked()
        assert sorted(await poll_all(consumer, 3)) == [0, 1, 2]
        await consumer.aclose()


async def test_position_is_the_next_offset(client: Client, fill: Fill) -> None:
    await fill("T", 20, queues=2)
    async with consumer_of(client) as consumer:
        await consumer.assign([QUEUE])
        assert await consumer.position(QUEUE) == 0
        await consumer.poll(max_messages=4)
        assert await consumer.position(QUEUE) == 4
        await consumer.seek(QUEUE, 7)
        assert await consumer.position(QUEUE) == 7
        with pytest.raises(NotAssignedError):
            await consumer.position(OTHER)
