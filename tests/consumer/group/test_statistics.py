"""Statistics of consumers: counters, rates, and progress in each queue."""

from __future__ import annotations

import attrs
import pytest
import trio
import trio.testing

from rocketmq_py import Client
from rocketmq_py.broker import EmbeddedBroker
from rocketmq_py.client import core_of
from rocketmq_py.consumer import (
    ConsumerStatistics,
    LitePullConsumer,
    PullState,
    PushConsumer,
    QueueStatistics,
    TopicStatistics,
)
from rocketmq_py.consumer.group.counters import RATE_SECONDS, ConsumerCounters
from rocketmq_py.consumer.group.statistics import epoch_ms, topic_statistics
from rocketmq_py.errors import ClosedError, NoQueueError, RocketMQError
from rocketmq_py.message import MessageQueue, ReceivedMessage
from tests.consumer.conftest import Fill
from tests.consumer.lite_pull.test_consumer import consumer_of as lite_pull_consumer_of
from tests.consumer.pop.test_consumer import consumer_of as pop_consumer_of
from tests.consumer.pop_broker import message, pop_brokers
from tests.consumer.push_consumers import QUEUE, RETRIES, RecordingHandler, consumer_of

settled = trio.testing.wait_all_tasks_blocked


async def test_topic_statistics_have_the_rates_of_the_last_minute(
    jumping_clock: trio.testing.MockClock,
) -> None:
    statistics = ConsumerCounters()
    counters = statistics.of("T")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(statistics.keep_sampling)
        counters.handled += 600
        await trio.sleep(30)
        of_topic = topic_statistics(*statistics.topics()["T"])
        assert of_topic.handled_per_second == 20
        await trio.sleep(90)
        counters.handled, counters.pulled, counters.pulls = 660, 120, 2
        counters.pull_seconds, counters.calls, counters.call_seconds, counters.failed = 0.5, 4, 2.0, 30
        of_topic = topic_statistics(*statistics.topics()["T"])
        assert (of_topic.handled_per_second, of_topic.pulled_per_second) == (1, 2)
        assert (of_topic.pull_seconds, of_topic.handle_seconds) == (0.25, 0.5)
        assert (of_topic.handled, of_topic.failed, of_topic.failed_last_hour) == (660, 30, 30)
        await trio.sleep(3700)
        assert topic_statistics(*statistics.topics()["T"]).failed_last_hour == 0
        nursery.cancel_scope.cancel()


async def test_rates_cover_the_last_minute_and_failures_the_last_hour(
    autojump_clock: trio.testing.MockClock,
) -> None:
    statistics = ConsumerCounters()
    counters = statistics.of("T")
    for second in range(2 * 3600):
        if not second % 10:
            statistics.sample()
        counters.handled += 5 if second < 3600 else 2
        counters.failed += 1
        counters.pulls += 1
        counters.pulled += 7
        counters.pull_seconds += 0.01 if second < 7000 else 0.03
        counters.calls += 1
        counters.call_seconds += 0.5
        await trio.sleep(1)
    status = statistics.status("T")
    assert status.consume_ok_tps == pytest.approx(2, rel=0.05)
    assert status.consume_failed_tps == pytest.approx(1, rel=0.05)
    assert status.pull_tps == pytest.approx(7, rel=0.05)
    assert status.pull_rt == pytest.approx(30)
    assert status.consume_rt == pytest.approx(500)
    assert status.consume_failed_msgs == pytest.approx(3600, abs=20)
    assert len(statistics._samples) < 400


async def test_rates_after_the_last_sample(autojump_clock: trio.testing.MockClock) -> None:
    statistics = ConsumerCounters()
    counters = statistics.of("T")
    counters.handled += 600
    statistics.sample()
    counters.handled += 120
    await trio.sleep(RATE_SECONDS * 2)  # a closed consumer takes no samples
    assert statistics.status("T").consume_ok_tps == pytest.approx(1)


async def test_the_rates_of_an_unknown_topic_are_zero(autojump_clock: trio.testing.MockClock) -> None:
    statistics = ConsumerCounters()
    assert statistics.status("T").consume_ok_tps == 0
    await trio.sleep(RATE_SECONDS * 2)
    assert statistics.status("T").pull_rt == 0


async def test_samples_of_an_idle_topic_share_one_object() -> None:
    statistics = ConsumerCounters()
    statistics.of("T").handled += 1
    statistics.sample()
    statistics.sample()
    first, second = [sample["T"] for _, sample in list(statistics._samples)[1:]]
    assert first is second


async def test_new_counters_are_empty(jumping_clock: trio.testing.MockClock) -> None:
    assert ConsumerCounters().topics() == {}
    assert ConsumerCounters().status("T").pull_tps == 0
    assert epoch_ms(float("-inf"), 5) is None
    assert epoch_ms(trio.current_time() - 2, 5000) == 3000


@pytest.mark.parametrize("orderly", [False, True])
async def test_a_push_consumer_reports_its_progress(
    client: Client, fill: Fill, orderly: bool, jumping_clock: trio.testing.MockClock
) -> None:
    await fill("T", 5)
    handled: list[int] = []

    async def handle(message: ReceivedMessage) -> None:
        if int(message.body) == 3:
            await trio.sleep_forever()
        handled.append(int(message.body))

    consumer = consumer_of(client, orderly=orderly, concurrency=1, pull_threshold_for_queue=1)
    async with consumer, trio.open_nursery() as nursery:
        assert consumer.statistics == ConsumerStatistics(topics={}, queues={})
        with pytest.raises(ClosedError, match="not running"):
            await consumer.lag()
        nursery.start_soon(consumer.run, handle)
        while len(handled) < 3:
            await trio.sleep(0.5)
        await trio.sleep(1)
        statistics = consumer.statistics
        queue = statistics.queues[QUEUE]
        assert (queue.handled_to, queue.pulled_to, queue.end) == (3, 5, 5)
        assert (queue.cached, queue.cached_bytes, queue.in_flight) == (2, 2, 1)
        assert queue.state is PullState.FULL_BY_COUNT
        assert queue.locked is (True if orderly else None)
        assert queue.pulled_ms is not None
        assert queue.handled_ms is not None
        assert 1000 <= queue.handled_ms - queue.pulled_ms <= 2000
        await trio.sleep(5)  # offsets are committed every 5 s
        assert consumer.statistics.queues[QUEUE].committed == 3
        assert consumer.statistics.queues[QUEUE].lag == 2
        assert consumer.statistics.lag == 2
        assert (await consumer.lag())[QUEUE] == 2
        assert (statistics.pulled, statistics.handled, statistics.failed) == (5, 3, 0)
        assert (statistics.cached, statistics.cached_bytes, statistics.in_flight) == (2, 2, 1)
        nursery.cancel_scope.cancel()
    statistics = consumer.statistics
    assert (statistics.handled, statistics.queues) == (3, {})


async def test_failures_and_redeliveries_are_counted(
    client: Client, fill: Fill, jumping_clock: trio.testing.MockClock
) -> None:
    await fill("T", 3)
    done = trio.Event()

    async def handle(message: ReceivedMessage) -> None:
        if not message.reconsume_times and message.body == b"1":
            raise ValueError("the first delivery fails")
        if message.reconsume_times:
            done.set()

    async with consumer_of(client, rebalance_interval=0.1) as consumer, trio.open_nursery() as nursery:
        nursery.start_soon(consumer.run, handle)
        await done.wait()
        await settled()
        statistics = consumer.statistics
        assert (statistics.pulled, statistics.redelivered, statistics.handled) == (4, 1, 3)
        assert (statistics.failed, statistics.sent_back) == (1, 1)
        retries = statistics.topics["%RETRY%g"]
        assert (retries.pulled, retries.redelivered) == (1, 1)
        assert statistics.queues.keys() == {QUEUE, RETRIES}
        nursery.cancel_scope.cancel()


async def test_the_state_of_a_paused_queue_is_paused(client: Client, fill: Fill) -> None:
    await fill("T", 1)
    kept = RecordingHandler()
    async with consumer_of(client) as consumer, trio.open_nursery() as nursery:
        nursery.start_soon(consumer.run, kept)
        await kept.until(1)
        assert consumer.statistics.queues[QUEUE].state is PullState.PULLING
        consumer.pause()
        assert consumer.statistics.queues[QUEUE].state is PullState.PAUSED
        consumer.resume()
        assert consumer.statistics.queues[QUEUE].state is PullState.PULLING
        nursery.cancel_scope.cancel()


async def test_lag_raises_the_error_of_an_unavailable_broker(
    broker: EmbeddedBroker, client: Client, fill: Fill, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(queue: MessageQueue) -> int:
        raise NoQueueError("the broker is gone")

    await fill("T", 1)
    kept = RecordingHandler()
    async with consumer_of(client) as consumer, trio.open_nursery() as nursery:
        nursery.start_soon(consumer.run, kept)
        await kept.until(1)
        monkeypatch.setattr(core_of(client).brokers, "max_offset", fail)
        with pytest.raises(RocketMQError, match="the broker is gone"):
            await consumer.lag()
        nursery.cancel_scope.cancel()


async def test_a_lite_pull_consumer_reports_its_progress(client: Client, fill: Fill) -> None:
    await fill("T", 6, queues=2)
    async with lite_pull_consumer_of(client, auto_commit=False) as consumer:
        await consumer.assign(await consumer.queues("T"))
        assert sum((await consumer.lag()).values()) == 6
        polled = 0
        while polled < 6:
            polled += len(await consumer.poll())
        statistics = consumer.statistics
        assert (statistics.pulled, statistics.in_flight) == (6, 6 - statistics.handled)
        assert [queue.end for queue in statistics.queues.values()] == [3, 3]
        await consumer.commit()
        statistics = consumer.statistics
        assert (statistics.handled, statistics.in_flight, statistics.lag) == (6, 0, 0)
        assert [queue.committed for queue in statistics.queues.values()] == [3, 3]
        await fill("T", 1, queues=2)
        lag = await consumer.lag()
        assert sorted(lag.values()) == [0, 1]
        assert list(lag) == consumer.assignment


async def test_statistics_can_be_read_after_closing_in_another_thread(client: Client, fill: Fill) -> None:
    await fill("T", 3)
    async with lite_pull_consumer_of(client) as consumer:
        await consumer.assign(await consumer.queues("T"))
        polled = len(await consumer.poll())
    statistics = await trio.to_thread.run_sync(lambda: consumer.statistics)
    assert (statistics.pulled, statistics.handled) == (3, polled)
    assert [queue.committed for queue in statistics.queues.values()] == [polled]


async def test_a_pop_consumer_counts_its_messages() -> None:
    async with pop_brokers() as (cluster, [broker]), pop_consumer_of(cluster.address) as consumer:
        broker.put(message(0), message(1), message(2))
        first, second, third = await consumer.receive()
        await consumer.ack(first, second)
        await consumer.change_invisible(third, 5)
        of_topic = consumer.statistics.topics["T"]
        assert (of_topic.pulled, of_topic.handled, of_topic.sent_back) == (3, 2, 1)
        assert consumer.statistics.queues == {}


def test_statistics_are_formatted_for_people() -> None:
    topic = TopicStatistics(
        pulled=5, redelivered=1, handled=3, failed=1, failed_last_hour=1, sent_back=1, dead_letters=2,
        cut_off=0,
        pulled_per_second=0.5, pull_seconds=0.002, handled_per_second=0.25, failed_per_second=0.0,
        handle_seconds=0.1,
    )  # fmt: skip
    queue = QueueStatistics(
        state=PullState.PAUSED, committed=None, handled_to=3, pulled_to=5, end=9, cached=2, cached_bytes=20,
        in_flight=1, locked=True, pulled_ms=None, handled_ms=None,
    )  # fmt: skip
    statistics = ConsumerStatistics(topics={"T": topic}, queues={QUEUE: queue})
    assert str(statistics).splitlines() == [
        "pulled 5, handled 3, failed 1, redelivered 1, sent back 1, dead letters 2; 1 in flight, lag 6",
        "T: pulled 5 (0.5/s, 2.0 ms), handled 3 (0.2/s, 100.0 ms), failed 1, redelivered 1, sent back 1, "
        "dead letters 2",
        "T, broker-a, queue 0: paused by the user, locked; committed ?, handled to 3, pulled to 5 of 9, "
        "lag 6; 2 cached (20 bytes), 1 in flight",
    ]
    unknown = attrs.evolve(queue, end=None, locked=None)
    assert unknown.lag is None
    assert str(unknown).startswith("paused by the user; committed ?")
    assert ConsumerStatistics(topics={}, queues={QUEUE: unknown}).lag == 0


def test_consumers_can_be_created_outside_of_trio() -> None:
    for consumer in (LitePullConsumer(group="g"), PushConsumer(group="g")):
        assert consumer.statistics == ConsumerStatistics(topics={}, queues={})
