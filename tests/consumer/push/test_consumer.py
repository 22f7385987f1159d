from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
import trio
import trio.testing

from rocketmq_py import Client
from rocketmq_py.broker import EmbeddedBroker
from rocketmq_py.client import core_of
from rocketmq_py.client.namespace import Namespace
from rocketmq_py.consumer import ConsumeLater, PushConsumer
from rocketmq_py.consumer.group.membership import LEAVE_SECONDS
from rocketmq_py.consumer.group.offset_commits import RemoteOffsetStore
from rocketmq_py.consumer.group.rebalancer import BACK_OFF
from rocketmq_py.consumer.pull.queue_puller import PulledMessages, QueuePuller
from rocketmq_py.errors import BrokerError, ClosedError, ConfigurationError
from rocketmq_py.message import MessageQueue, ReceivedMessage
from rocketmq_py.protocol.subscription import make_subscription
from tests.consumer.conftest import Fill
from tests.consumer.push_consumers import QUEUE, RETRIES, RecordingHandler, consumer_of, never

# Settings


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"retries": 3}, "no setting 'retries'; did you mean 'max_reconsume_times'"),
        ({"concurency": 3}, "no setting 'concurency'; did you mean 'concurrency'"),
        ({"concurrency": 0}, "concurrency is 0; it must be above 0"),
        ({"pull_batch_size": 2000}, "pull_batch_size is 2000; it must be from 1 to 1024"),
        ({"batch_size": 0}, "batch_size is 0; it must be from 1 to 1024"),
        ({"consume_timeout": 0}, "consume_timeout is 0; it must be above 0"),
        ({"max_reconsume_times": -1}, "max_reconsume_times is -1; it must be 0 or more"),
        ({"pull_timeout": 10}, "pull_timeout is 10 s; it must be longer than pull_hold, which is 15 s"),
        ({"pull_threshold_size_for_topic": 0}, "pull_threshold_size_for_topic is 0; it must be above 0"),
        ({"group": "a b"}, "group 'a b' may hold only"),
    ],
)
def test_invalid_setting_is_rejected_by_the_constructor(options: dict[str, object], text: str) -> None:
    with pytest.raises(ConfigurationError, match=text.replace("(", r"\(")):
        PushConsumer(**{"group": "g", **options})  # type: ignore[arg-type]  # that is the test


def test_invalid_subscription_is_rejected() -> None:
    consumer = PushConsumer(group="g")
    with pytest.raises(ConfigurationError, match="names no tag"):
        consumer.subscribe("T", " || ")
    with pytest.raises(ConfigurationError, match="topic 'a b'"):
        consumer.subscribe("a b")
    with pytest.raises(ConfigurationError, match="topic must be a str, not list"):
        consumer.subscribe(["a"])  # type: ignore[arg-type]  # that is the test
    with pytest.raises(
        ConfigurationError, match="subscribing to 'T': tags is \\['A'\\]; it must be a string"
    ):
        consumer.subscribe("T", ["A"])  # type: ignore[arg-type]  # and this
    with pytest.raises(ConfigurationError, match="sql is 5; it must be a string"):
        consumer.subscribe("T", sql=5)  # type: ignore[arg-type]  # and this
    with pytest.raises(ConfigurationError, match="group must be a str, not int"):
        PushConsumer(group=5)  # type: ignore[arg-type]  # and this


async def test_run_requires_an_open_consumer(address: str, jumping_clock: trio.testing.MockClock) -> None:
    consumer = consumer_of(address)
    with pytest.raises(ClosedError, match="use it inside"):
        await consumer.run(never)
    async with consumer:
        pass
    with pytest.raises(ClosedError, match=r"PushConsumer is (closed|not open)"):
        await consumer.run(never)


async def test_invalid_queues_and_offsets_are_rejected(client: Client) -> None:
    async with consumer_of(client) as consumer:
        with pytest.raises(ConfigurationError, match="queue must be a MessageQueue, not int"):
            await consumer.seek(0, 1)  # type: ignore[arg-type]  # that is the test
        with pytest.raises(ConfigurationError, match="queue must be a MessageQueue, not int"):
            await consumer.committed(0)  # type: ignore[arg-type]  # and this
        with pytest.raises(ConfigurationError, match=r"position is '1'; it must be 'earl.* or an off"):
            await consumer.seek(QUEUE, "1")
        with pytest.raises(ConfigurationError, match="position is -1; it must be 0 or more"):
            await consumer.seek(QUEUE, -1)


async def test_second_concurrent_run_is_rejected(
    address: str, nursery: trio.Nursery, jumping_clock: trio.testing.MockClock
) -> None:
    async with consumer_of(address) as consumer:
        nursery.start_soon(consumer.run, never)
        await trio.sleep(1)
        with pytest.raises(ConfigurationError, match="is running already"):
            await consumer.run(never)


async def test_client_has_one_member_per_group(
    client: Client, nursery: trio.Nursery, jumping_clock: trio.testing.MockClock
) -> None:
    async with consumer_of(client) as one, consumer_of(client) as two:
        nursery.start_soon(one.run, never)
        await trio.sleep(1)
        with pytest.raises(ConfigurationError, match="already a member of group 'g'"):
            await two.run(never)


# Start and end


async def test_stop_ends_the_run_and_commits(
    client: Client, fill: Fill, jumping_clock: trio.testing.MockClock
) -> None:
    await fill("T", 100)
    handled: list[int] = []
    async with consumer_of(client) as consumer:

        async def handle(message: ReceivedMessage) -> None:
            handled.append(message.queue_offset)
            if len(handled) == 10:
                consumer.stop()

        await consumer.run(handle)
        assert handled == list(range(10)), "no further message is dispatched"
        assert await core_of(client).brokers.committed_offset("g", QUEUE) == 10
        assert not core_of(client).heartbeats.has_consumer("g")
        with pytest.raises(BrokerError, match="no consumer for this group"):
            await core_of(client).brokers.consumer_ids("g", "broker-a")


async def test_stop_waits_for_running_handlers(
    client: Client, fill: Fill, jumping_clock: trio.testing.MockClock
) -> None:
    await fill("T", 4)
    done: list[int] = []
    async with consumer_of(client) as consumer:

        async def handle(message: ReceivedMessage) -> None:
            consumer.stop()
            await trio.sleep(1)
            done.append(message.queue_offset)

        await consumer.run(handle)
    assert done
    assert await core_of(client).brokers.committed_offset("g", QUEUE) == len(done)


async def test_closing_cancels_handlers_after_close_timeout(
    client: Client,
    fill: Fill,
    nursery: trio.Nursery,
    jumping_clock: trio.testing.MockClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "rocketmq_py.consumer")
    await fill("T", 3)
    ended = trio.Event()

    async def handle(message: ReceivedMessage) -> None:
        if message.queue_offset == 1:
            await trio.sleep_forever()

    async with consumer_of(client, close_timeout=4) as consumer:

        async def run() -> None:
            await consumer.run(handle)
            ended.set()

        nursery.start_soon(run)
        await trio.sleep(1)
        start = trio.current_time()
    assert trio.current_time() - start == pytest.approx(4, abs=0.2)
    await ended.wait()
    assert await core_of(client).brokers.committed_offset("g", QUEUE) == 1
    waiting, cut_off = [
        record for record in caplog.records if "waiting for" in record.message or "cut off" in record.message
    ]
    assert waiting.message == "waiting for 1 handlers group=g up to 4 s"
    assert (waiting.levelno, cut_off.levelno) == (logging.INFO, logging.WARNING)
    assert "topic=T broker=broker-a queue=0 offset=1: the message is delivered again" in cut_off.message
    assert consumer.statistics.cut_off == consumer.statistics.topics["T"].cut_off == 1


@pytest.mark.parametrize("stop", [True, False])
async def test_blocked_thread_does_not_delay_closing(
    client: Client, fill: Fill, nursery: trio.Nursery, stop: bool
) -> None:
    """In real time, because threads do not follow a mock clock."""
    await fill("T", 3)
    stuck, go = threading.Event(), threading.Event()

    def handle(message: ReceivedMessage) -> None:
        if message.queue_offset == 1:
            stuck.set()
            go.wait()

    try:
        async with consumer_of(client, close_timeout=0.2) as consumer, trio.open_nursery() as inner:
            inner.start_soon(consumer.run, handle)
            while not stuck.is_set():
                await trio.sleep(0.001)
            if stop:
                consumer.stop()
            else:
                inner.cancel_scope.cancel()
        assert await core_of(client).brokers.committed_offset("g", QUEUE) == 1
    finally:
        go.set()


@pytest.mark.parametrize("how", ["cancelled", "stopped twice", "block cancelled", "closing cancelled"])
@pytest.mark.parametrize("orderly", [False, True])
async def test_running_handlers_in_threads_do_not_delay_an_end_at_once(
    client: Client,
    fill: Fill,
    jumping_clock: trio.testing.MockClock,
    caplog: pytest.LogCaptureFixture,
    how: str,
    orderly: bool,
) -> None:
    """With a close_timeout of an hour the thread outlasts the run."""
    await fill("T", 1)
    stuck, go = trio.Event(), threading.Event()

    def handle(_: ReceivedMessage) -> None:
        trio.from_thread.run_sync(stuck.set)
        go.wait()

    try:
        async with trio.open_nursery() as outer:
            with trio.fail_after(10), trio.CancelScope() as block:
                async with consumer_of(client, close_timeout=3600, orderly=orderly) as consumer:
                    outer.start_soon(consumer.run, handle)
                    await stuck.wait()
                    if how == "cancelled":
                        outer.cancel_scope.cancel()
                    elif how == "stopped twice":
                        consumer.stop()
                        assert await consumer.committed(QUEUE) in (0, None)
                        consumer.stop()
                    elif how == "block cancelled":
                        block.cancel()
                        await trio.lowlevel.checkpoint()
                    else:
                        block.deadline = trio.current_time() + 0.01
        assert await core_of(client).brokers.committed_offset("g", QUEUE) in (0, None)
        (warning,) = [record for record in caplog.records if "cut off" in record.message]
        assert "queue=0 offset=0" in warning.message
    finally:
        go.set()


@pytest.mark.parametrize("options", [{}, {"orderly": True}, {"batch_size": 2}])
async def test_handlers_may_stop_their_consumer_repeatedly_and_are_waited_for(
    client: Client,
    fill: Fill,
    jumping_clock: trio.testing.MockClock,
    caplog: pytest.LogCaptureFixture,
    options: dict[str, Any],
) -> None:
    await fill("T", 4)
    done: list[int] = []

    async def handle(_: object) -> None:
        consumer.stop()
        await trio.sleep(20)
        consumer.stop()
        done.append(1)

    async with consumer_of(client, **options) as consumer:
        await consumer.run(handle)
        count = len(done)
    assert count
    assert len(done) == count, "no handler was left behind"
    assert await core_of(client).brokers.committed_offset("g", QUEUE) == count * options.get("batch_size", 1)
    assert "cut off" not in caplog.text


async def test_cancelled_run_commits_and_can_be_run_again(
    client: Client, fill: Fill, jumping_clock: trio.testing.MockClock
) -> None:
    await fill("T", 10)
    first, second = RecordingHandler(), RecordingHandler()

    async def hang_at_five(message: ReceivedMessage) -> None:
        if message.queue_offset == 5:
            await trio.sleep_forever()
        await first(message)

    async with consumer_of(client) as consumer:
        with trio.move_on_after(3) as scope:
            await consumer.run(hang_at_five)
        assert scope.cancelled_caught
        assert await core_of(client).brokers.committed_offset("g", QUEUE) == 5
        assert first.numbers == [0, 1, 2, 3, 4, 6, 7, 8, 9]
        with trio.move_on_after(3):
            await consumer.run(second)
    assert second.numbers == [5, 6, 7, 8, 9]


async def test_run_ends_within_three_seconds_if_brokers_do_not_answer(
    client: Client,
    fill: Fill,
    jumping_clock: trio.testing.MockClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def never_confirm(*_: object) -> None:
        await trio.sleep_forever()

    await fill("T", 3)
    kept = RecordingHandler()
    async with consumer_of(client) as consumer:
        with monkeypatch.context() as patch:
            patch.setattr(RemoteOffsetStore, "commit_and_wait", never_confirm)
            started = trio.current_time()
            with trio.move_on_after(3):
                await consumer.run(never)
            assert trio.current_time() - started < 3 + LEAVE_SECONDS
        assert not core_of(client).heartbeats.has_consumer("g")
        with trio.move_on_after(3):
            await consumer.run(kept)
    assert kept.numbers == [0, 1, 2]


async def test_closing_closes_only_an_own_client(
    address: str, client: Client, jumping_clock: trio.testing.MockClock
) -> None:
    for shared in (address, client):
        async with consumer_of(shared, group="other") as consumer:
            with trio.move_on_after(1):
                await consumer.run(never)
            assert core_of(consumer).is_open
        assert core_of(consumer).is_open == (shared is client)


async def test_consumer_in_a_nursery_of_the_caller(
    address: str, fill: Fill, jumping_clock: trio.testing.MockClock
) -> None:
    await fill("T", 5)
    kept = RecordingHandler()
    consumer = consumer_of(address)
    async with trio.open_nursery() as nursery:
        await consumer.start(nursery)
        nursery.start_soon(consumer.run, kept)
        await kept.until(5)
        await consumer.aclose()
    assert sorted(kept.numbers) == list(range(5))


async def test_system_exit_of_the_handler_is_not_wrapped(
    client: Client, fill: Fill, jumping_clock: trio.testing.MockClock
) -> None:
    await fill("T", 5)

    async def handle(message: ReceivedMessage) -> None:
        if message.queue_offset == 2:
            raise SystemExit(3)

    with pytest.raises(SystemExit) as caught:
        async with consumer_of(client) as consumer:
            await consumer.run(handle)
    assert caught.value.code == 3
    assert await core_of(client).brokers.committed_offset("g", QUEUE) == 2


async def test_exception_of_an_allocation_strategy_is_raised(
    address: str, fill: Fill, jumping_clock: trio.testing.MockClock
) -> None:
    await fill("T", 1)

    def broken(*_: object) -> Sequence[MessageQueue]:
        raise ZeroDivisionError("a bug")

    async with consumer_of(address, allocate=broken) as consumer:
        with pytest.raises(ZeroDivisionError):
            await consumer.run(never)


# Processing


async def test_synchronous_handler_runs_in_threads(
    address: str, fill: Fill, jumping_clock: trio.testing.MockClock
) -> None:
    await fill("T", 20)
    here = threading.current_thread()
    numbers: list[int] = []
    async with consumer_of(address) as consumer:

        def handle(message: ReceivedMessage) -> None:
            assert threading.current_thread() is not here
            numbers.append(int(message.body))
            if len(numbers) == 20:
                trio.from_thread.run_sync(consumer.stop)

        await consumer.run(handle)
    assert sorted(numbers) == list(range(20))


async def test_pull_threshold_for_queue_limits_pulled_messages(
    address: str, fill: Fill, jumping_clock: trio.testing.MockClock
) -> None:
    await fill("T", 100)
    started: list[int] = []

    async def handle(message: ReceivedMessage) -> None:
        started.append(message.queue_offset)
        await trio.sleep_forever()

    async with consumer_of(
        address, concurrency=1000, pull_threshold_for_queue=10, pull_batch_size=4
    ) as consumer:
        with trio.move_on_after(60):
            await consumer.run(handle)
    assert started == list(range(12)), "the limit may be reached, and a pull returns four messages"


async def test_the_threshold_of_a_topic_is_divided_among_the_assigned_queues(
    address: str, fill: Fill, nursery: trio.Nursery, jumping_clock: trio.testing.MockClock
) -> None:
    await fill("T", 400, queues=4, first=100)  # bodies of 3 bytes
    started: Counter[int] = Counter()

    async def handle(message: ReceivedMessage) -> None:
        if not message.reconsume_times:  # those of revoked queues are sent back
            started[message.queue_id] += 1
        await trio.sleep_forever()

    consumer = consumer_of(address, concurrency=1000, pull_threshold_size_for_topic=40 * 3, pull_batch_size=1)
    async with consumer as one:
        nursery.start_soon(one.run, handle)
        await trio.sleep(5)
        assert started == dict.fromkeys(range(4), 11), "a quarter of the limit for each queue"
        async with consumer_of(address) as two:
            nursery.start_soon(two.run, never)
            await trio.sleep(5)
            kept = {queue.queue_id for queue in one.assignment if queue.topic == "T"}
            assert len(kept) == 2
            assert {queue: count for queue, count in started.items() if queue in kept} == dict.fromkeys(
                kept, 21
            )


async def test_stalled_pull_is_restarted(
    address: str,
    fill: Fill,
    nursery: trio.Nursery,
    jumping_clock: trio.testing.MockClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Pulls time out, so this needs a suspended process or a jump of the clock."""
    await fill("T", 5)
    kept = RecordingHandler()
    pull = QueuePuller.pull
    defective = True

    async def hang_while_defective(puller: QueuePuller, *arguments: Any, **options: Any) -> PulledMessages:
        if defective and puller.queue == QUEUE:
            await trio.sleep_forever()
        return await pull(puller, *arguments, **options)

    monkeypatch.setattr(QueuePuller, "pull", hang_while_defective)
    async with consumer_of(address) as consumer:
        nursery.start_soon(consumer.run, kept)
        await trio.sleep(100)
        defective = False
        assert kept.numbers == []
        await trio.sleep(41)
    assert kept.numbers == list(range(5))
    assert "pull stalled for more than 120 s, restarting it: T/broker-a/0" in caplog.text


async def test_all_queues_share_one_connection(
    broker: EmbeddedBroker, address: str, fill: Fill, jumping_clock: trio.testing.MockClock
) -> None:
    await fill("T", 200, queues=100)
    kept = RecordingHandler()
    async with consumer_of(address) as consumer, trio.open_nursery() as nursery:
        nursery.start_soon(consumer.run, kept)
        await kept.until(200)
        connections = core_of(consumer).connections.open_connections()
        assert sorted(connection.address for connection in connections) == sorted(
            [address, broker.broker_address]
        )
        pulls = next(connection for connection in connections if connection.address == broker.broker_address)
        assert pulls.pending >= 100, "each queue has a pending pull"
        nursery.cancel_scope.cancel()


async def test_failed_message_is_redelivered_and_becomes_a_dead_letter(
    client: Client,
    address: str,
    fill: Fill,
    caplog: pytest.LogCaptureFixture,
    jumping_clock: trio.testing.MockClock,
) -> None:
    caplog.set_level(logging.CRITICAL)
    await fill("T", 3)
    tries: list[tuple[str, int, int]] = []

    async def handle(message: ReceivedMessage) -> None:
        tries.append((message.topic, int(message.body), message.reconsume_times))
        if int(message.body) == 1:
            raise ValueError("poison")

    async with consumer_of(address, max_reconsume_times=2) as consumer:
        with trio.move_on_after(60):
            await consumer.run(handle)
    assert [one for one in tries if one[1] == 1] == [("T", 1, 0), ("T", 1, 1), ("T", 1, 2)]
    assert len(tries) == 5
    assert await core_of(client).brokers.committed_offset("g", QUEUE) == 3
    assert await core_of(client).brokers.committed_offset("g", RETRIES) == 2
    await core_of(client).routes.get("%DLQ%g")
    assert await core_of(client).brokers.max_offset(MessageQueue("%DLQ%g", "broker-a", 0)) == 1


async def test_max_reconsume_times_of_zero_makes_failures_dead_letters(
    client: Client, address: str, fill: Fill, jumping_clock: trio.testing.MockClock
) -> None:
    await fill("T", 2)
    tries: list[int] = []

    async def handle(message: ReceivedMessage) -> ConsumeLater:
        tries.append(int(message.body))
        return ConsumeLater()

    async with consumer_of(address, max_reconsume_times=0) as consumer:
        with trio.move_on_after(10):
            await consumer.run(handle)
    assert sorted(tries) == [0, 1]
    await core_of(client).routes.get("%DLQ%g")
    assert await core_of(client).brokers.max_offset(MessageQueue("%DLQ%g", "broker-a", 0)) == 2


async def test_handler_gets_lists_with_batch_size(
    client: Client, address: str, fill: Fill, jumping_clock: trio.testing.MockClock
) -> None:
    await fill("T", 20)
    lists: list[list[int]] = []
    async with consumer_of(address, batch_size=8, concurrency=1) as consumer:

        async def handle(messages: list[ReceivedMessage]) -> ConsumeLater | None:
            lists.append([int(message.body) for message in messages])
            return ConsumeLater(1, done=1) if lists[-1][0] == 0 else None

        with trio.move_on_after(10):
            await consumer.run(handle)
    assert [len(one) for one in lists[:3]] == [8, 8, 4]
    assert sorted(number for one in lists for number in one) == sorted([*range(20), *range(1, 8)])
    assert await core_of(client).brokers.committed_offset("g", QUEUE) == 20


async def test_corrupt_message_is_redelivered_and_becomes_a_dead_letter(
    client: Client,
    address: str,
    fill: Fill,
    caplog: pytest.LogCaptureFixture,
    jumping_clock: trio.testing.MockClock,
) -> None:
    await fill("T", 1)
    compressed = 1
    fields = {
        "producerGroup": "p", "topic": "T", "defaultTopic": "TBW102", "defaultTopicQueueNums": "4",
        "queueId": "0", "sysFlag": str(compressed), "bornTimestamp": "1", "flag": "0",
        "properties": "UNIQ_KEY\x017F01\x02", "reconsumeTimes": "0",
    }  # fmt: skip
    broker_address = core_of(client).routes.broker_address("broker-a")
    answer = await core_of(client).connections.request(
        broker_address, 10, fields, b"not zlib at all", timeout=3
    )
    assert answer.code == 0
    kept = RecordingHandler()
    async with consumer_of(address, max_reconsume_times=1) as consumer:
        with trio.move_on_after(60):
            await consumer.run(kept)
    assert kept.numbers == [0]
    assert "handler failed: message=7F01 topic=T" in caplog.text
    assert "its body cannot be read" in caplog.text
    assert await core_of(client).brokers.committed_offset("g", QUEUE) == 2
    await core_of(client).routes.get("%DLQ%g")
    assert await core_of(client).brokers.max_offset(MessageQueue("%DLQ%g", "broker-a", 0)) == 1


# Offsets


async def test_offsets_are_committed_every_5_seconds(
    client: Client, fill: Fill, nursery: trio.Nursery, jumping_clock: trio.testing.MockClock
) -> None:
    await fill("T", 10)
    kept = RecordingHandler()
    async with consumer_of(client) as consumer:
        nursery.start_soon(consumer.run, kept)
        await trio.sleep(2)
        assert await core_of(client).brokers.committed_offset("g", QUEUE) == 10, "the first commit is early"
        await fill("T", 10, first=10)
        await kept.until(20)
        await trio.sleep(6)
        assert await core_of(client).brokers.committed_offset("g", QUEUE) == 20


async def test_pulls_carry_offsets(
    client: Client, fill: Fill, nursery: trio.Nursery, jumping_clock: trio.testing.MockClock
) -> None:
    await fill("T", 10)
    kept = RecordingHandler()
    async with consumer_of(client, commit_interval=1000) as consumer:
        nursery.start_soon(consumer.run, kept)
        await trio.sleep(2)
        await fill("T", 10, first=10)
        await trio.sleep(16)
        assert await core_of(client).brokers.committed_offset("g", QUEUE) == 20


async def test_offsets_of_filtered_messages_are_committed(
    client: Client, fill: Fill, jumping_clock: trio.testing.MockClock
) -> None:
    await fill("T", 10, tags="A")
    await fill("T", 10, tags="B")
    kept = RecordingHandler()
    async with consumer_of(client) as consumer:
        consumer.subscribe("T", "A")
        with trio.move_on_after(5):
            await consumer.run(kept)
    assert kept.numbers == list(range(10))
    assert await core_of(client).brokers.committed_offset("g", QUEUE) == 20


# Changes during a run


async def test_subscriptions_may_change_during_a_run(
    address: str, fill: Fill, nursery: trio.Nursery, jumping_clock: trio.testing.MockClock
) -> None:
    await fill("T", 5, tags="A")
    await fill("U", 5, first=10)
    kept = RecordingHandler()
    async with consumer_of(address) as consumer:
        nursery.start_soon(consumer.run, kept)
        await kept.until(5)
        consumer.subscribe("U")
        await kept.until(10)
        consumer.unsubscribe("U")
        consumer.subscribe("T", "B")
        await trio.sleep(1)
        assert {queue.topic for queue in consumer.assignment} == {"T", "%RETRY%g"}
        await fill("U", 5, first=20)
        await fill("T", 5, tags="B", first=30)
        await fill("T", 5, tags="A", first=40)
        await trio.sleep(30)
    assert sorted(kept.numbers) == [*range(5), *range(10, 15), *range(30, 35)]


def test_unsubscribing_between_runs_ends_the_retries_of_an_earlier_pop() -> None:
    consumer = PushConsumer("a:1", group="g")
    consumer.subscribe("T")
    retries = Namespace().popped_topic("T", "g")
    consumer._subscriptions.put(make_subscription(retries, version_ms=1))  # as a run with pull assigned does
    consumer.unsubscribe("T")
    assert consumer._subscriptions.topics == ["%RETRY%g"]


async def test_topic_created_later_is_consumed(
    address: str,
    fill: Fill,
    nursery: trio.Nursery,
    caplog: pytest.LogCaptureFixture,
    jumping_clock: trio.testing.MockClock,
) -> None:
    kept = RecordingHandler()
    async with consumer_of(address) as consumer:
        nursery.start_soon(consumer.run, kept)
        await trio.sleep(100)
        lines = [record.message for record in caplog.records if record.levelno >= logging.WARNING]
        error = f"error=topic 'T' does not exist (asked {address})"
        assert lines[0] == f"route lookup failed, retrying: group=g topic=T {error}"
        assert [line.partition("seconds=")[2].partition(" ")[0] for line in lines] == ["", "32", "92"]
        await fill("T", 5)
        with trio.fail_after(BACK_OFF.longest + 1):
            await kept.until(5)


async def test_name_server_outage_is_logged_at_growing_intervals_and_at_its_end(
    caplog: pytest.LogCaptureFixture, jumping_clock: trio.testing.MockClock
) -> None:
    caplog.set_level(logging.INFO, "rocketmq_py")
    [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listener.socket.getsockname()[1]
    await listener.aclose()
    async with PushConsumer(f"127.0.0.1:{port}", group="billing") as consumer, trio.open_nursery() as nursery:
        consumer.subscribe("Payments")
        consumer.subscribe("Orders")
        nursery.start_soon(consumer.run, print)
        await trio.sleep(600)
        first, *lines = [record.message for record in caplog.records]
        assert first.startswith(f"address unreachable, connecting again: address=127.0.0.1:{port} error=")
        where = f"group=billing topics=Payments,Orders name_servers=127.0.0.1:{port}"
        assert lines[0].startswith(f"route lookup failed, retrying: {where} error=no name server answered")
        assert all(line.startswith(f"route lookup failed, retrying: {where} ") for line in lines)
        assert {record.levelname for record in caplog.records} == {"WARNING"}
        assert 4 <= len(lines) <= 5, "after 0, 30, 90, 210 and 450 seconds"
        caplog.clear()
        async with EmbeddedBroker(namesrv_port=port, topics=["Payments", "Orders"]):
            await trio.sleep(60)
            (line,) = [record.message for record in caplog.records if "succeeded again" in record.message]
            nursery.cancel_scope.cancel()
    assert line.startswith("route lookup succeeded again: group=billing failures=")


async def test_pause_and_resume(
    address: str, fill: Fill, nursery: trio.Nursery, jumping_clock: trio.testing.MockClock
) -> None:
    await fill("T", 5)
    kept = RecordingHandler()
    async with consumer_of(address) as consumer:
        consumer.pause()
        nursery.start_soon(consumer.run, kept)
        await trio.sleep(100)
        assert kept.numbers == []
        consumer.resume()
        await kept.until(5)
        consumer.pause()
        await trio.sleep(20)
        await fill("T", 5, first=5)
        await trio.sleep(100)
        assert kept.numbers == list(range(5))
        consumer.resume()
        await kept.until(10)


async def test_pause_and_resume_single_queues(
    address: str, fill: Fill, nursery: trio.Nursery, jumping_clock: trio.testing.MockClock
) -> None:
    await fill("T", 4, queues=2)
    kept = RecordingHandler()
    async with consumer_of(address) as consumer:
        nursery.start_soon(consumer.run, kept)
        await kept.until(4)
        paused = MessageQueue("T", "broker-a", 1)
        consumer.pause([paused, MessageQueue("T", "elsewhere", 0)])
        await trio.sleep(100)
        await fill("T", 4, first=4)
        await trio.sleep(100)
        assert sorted(kept.numbers) == [0, 1, 2, 3, 4, 6]
        consumer.resume([paused])
        await kept.until(8)


async def test_rebalance_commits_revoked_queues(
    address: str, client: Client, fill: Fill, jumping_clock: trio.testing.MockClock
) -> None:
    await fill("T", 40, queues=4)
    first, second = RecordingHandler(), RecordingHandler()

    def share(consumer: PushConsumer) -> set[MessageQueue]:
        return {queue for queue in consumer.assignment if queue.topic == "T"}

    async with trio.open_nursery() as nursery, consumer_of(address, commit_interval=1000) as one:
        nursery.start_soon(one.run, first)
        await first.until(40)
        async with consumer_of(address, commit_interval=1000) as two:
            nursery.start_soon(two.run, second)
            await trio.sleep(4)
            assert len(share(one)) == len(share(two)) == 2
            assert not share(one) & share(two)
            for queue in share(two):
                assert await core_of(client).brokers.committed_offset("g", queue) == 10
            await fill("T", 40, first=40)
            await trio.sleep(4)
        await trio.sleep(4)
        assert len(share(one)) == 4, "all queues again"
        await fill("T", 4, first=80)
        await trio.sleep(4)
    # The previous owner commits before the new one reads the offset.
    assert sorted(first.numbers + second.numbers) == list(range(84))
    assert len([number for number in second.numbers if number >= 40]) == 20
