from __future__ import annotations

import attrs
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_py.codes import ResponseCode
from rocketmq_py.errors import BrokerError, NoQueueError
from rocketmq_py.message import Message, MessageQueue
from rocketmq_py.producer import LatencyFaultPolicy, Producer
from rocketmq_py.producer.statistics import Counters
from tests.scripted import refuse, scripted_cluster, store


def test_a_histogram_without_answers_is_empty() -> None:
    latency = Counters().latency()
    assert (latency.count, latency.mean, latency.longest, latency.quantile(0.99)) == (0, 0.0, 0.0, 0.0)
    assert not latency.buckets


@given(st.lists(st.floats(0, 3600), min_size=1))
def test_quantiles_are_accurate_to_a_fifth(seconds: list[float]) -> None:
    counters = Counters()
    for one in seconds:
        counters.answered(one)
    latency = counters.latency()
    assert latency.count == len(seconds) == sum(latency.buckets.values())
    assert latency.mean == pytest.approx(sum(seconds) / len(seconds))
    assert latency.longest == max(seconds)
    ordered = sorted(seconds)
    for fraction in (0.5, 0.9, 1.0):
        exact = next(one for index, one in enumerate(ordered, 1) if index >= fraction * len(ordered))
        assert exact <= latency.quantile(fraction) + 1e-12
        assert latency.quantile(fraction) <= max(exact * 1.26, 5e-6)


async def test_a_producer_counts_the_outcomes_of_its_messages() -> None:
    async with scripted_cluster(store) as cluster, Producer(cluster.address, retries=0) as producer:
        await producer.send(Message("T", b"1"))
        await (await producer.submit(Message("T", b"2")))
        await producer.send_oneway(Message("T", b"3"))
        statistics = producer.statistics
        assert (statistics.sent, statistics.failed, statistics.retried, statistics.oneway) == (2, 0, 0, 1)
        assert (statistics.in_flight, statistics.in_flight_bytes, statistics.latency.count) == (0, 0, 2)
        assert statistics.brokers == {}


async def test_a_oneway_message_that_cannot_be_sent_counts_as_failed() -> None:
    async with scripted_cluster(store) as cluster, Producer(cluster.address) as producer:
        with pytest.raises(NoQueueError):
            await producer.send_oneway(Message("T", b"x"), queue=MessageQueue("T", "missing", 0))
        assert (producer.statistics.failed, producer.statistics.oneway) == (1, 0)
        last_error = producer.health().last_error
        assert last_error is not None
        assert "missing" in last_error


async def test_failures_retries_and_faulty_brokers_are_counted() -> None:
    async with (
        scripted_cluster(refuse(ResponseCode.SYSTEM_ERROR), store) as cluster,
        Producer(cluster.address, latency_faults=LatencyFaultPolicy.JAVA_4) as producer,
    ):
        for _ in range(4):
            await producer.send(Message("T", b"x"))
            await (await producer.submit(Message("T", b"x")))
        statistics = producer.statistics
        assert (statistics.sent, statistics.failed, statistics.retried) == (8, 0, 1)
        assert list(statistics.brokers) == ["broker-a"]
        assert 590 < statistics.brokers["broker-a"].unavailable_for <= 600
    after_closing = await trio.to_thread.run_sync(lambda: producer.statistics)
    assert after_closing == attrs.evolve(statistics, brokers={})

    answer = refuse(ResponseCode.MESSAGE_ILLEGAL)
    async with scripted_cluster(answer) as cluster, Producer(cluster.address) as producer:
        with pytest.raises(BrokerError):
            await producer.send(Message("T", b"x"))
        with pytest.raises(BrokerError):
            await (await producer.submit(Message("T", b"x")))
        assert (producer.statistics.sent, producer.statistics.failed) == (0, 2)


@pytest.mark.parametrize("policy", [LatencyFaultPolicy.JAVA_4, LatencyFaultPolicy.JAVA_5])
async def test_a_broker_that_was_removed_while_it_was_avoided_is_forgotten(
    policy: LatencyFaultPolicy, jumping_clock: trio.testing.MockClock
) -> None:
    async with (
        scripted_cluster(store, store) as cluster,
        Producer(cluster.address, latency_faults=policy) as producer,
    ):
        await producer.queues("T")
        cluster.brokers.pop("broker-b").stop()
        for _ in range(8):
            await producer.send(Message("T", b"x"))
        assert list(producer.statistics.brokers) == ["broker-b"]
        await trio.sleep(90)  # its name servers, and then the routes, forget it
        await producer.send(Message("T", b"x"))
        assert producer.statistics.brokers == {}
        assert producer._sender.faults is not None
        assert producer._sender.faults.all_clear
