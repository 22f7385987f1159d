"""LiteTopicConsumer and LiteTopicPushConsumer with a scripted broker."""

from __future__ import annotations

import logging
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing

from rocketmq_py import ConsumeLater, LiteTopicConsumer, LiteTopicPushConsumer, ReceivedMessage, Suspend
from rocketmq_py.client import core_of
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.consumer.lite import subscriber
from rocketmq_py.errors import (
    BrokerError,
    ConfigurationError,
    ProtocolError,
    RetriableBrokerError,
)
from rocketmq_py.hooks import ConsumeContext, ConsumerHook
from tests.consumer.lite.lite_broker import LiteBroker, lite_brokers, lite_message
from tests.scripted import ScriptedCluster

pytestmark = pytest.mark.usefixtures("jumping_clock")

ACK, CHANGE = RequestCode.ACK_MESSAGE, RequestCode.CHANGE_MESSAGE_INVISIBLETIME
PATIENCE = 600


@asynccontextmanager
async def lite_topic_consumer() -> AsyncIterator[tuple[LiteTopicConsumer, LiteBroker]]:
    async with (
        lite_brokers() as (cluster, [broker]),
        LiteTopicConsumer(cluster.address, group="g", parent="T") as consumer,
    ):
        yield consumer, broker


def push_consumer(cluster: ScriptedCluster, **options: Any) -> LiteTopicPushConsumer:
    return LiteTopicPushConsumer(cluster.address, group="g", parent="T", suspend_current_queue=0.5, **options)


# LiteTopicConsumer


async def test_fields_of_the_requests() -> None:
    async with lite_topic_consumer() as (consumer, broker):
        broker.put(lite_message(7))
        broker.counts = "0 qo0%7 3"
        (message,) = await consumer.receive(max_messages=5, invisible=1.5, wait=7)
        assert (message.queue_id, message.queue_offset, message.reconsume_times) == (0, 7, 3)
        await consumer.change_invisible(message, 2.5, suspend=True)
        await consumer.ack(message)
        pop, change, ack = (request.fields for request in broker.requests)
        assert {name: value for name, value in pop.items() if name != "clientId"} == {
            "consumerGroup": "g", "topic": "T", "maxMsgNum": "5", "invisibleTime": "1500",
            "pollTime": "7000", "bornTime": "0",
        }  # fmt: skip
        assert pop["clientId"] == core_of(consumer).client_id
        receipt = "0 1700000000000 60000 999 0 broker-a 0 7"
        assert ack == {
            "consumerGroup": "g", "topic": "T", "queueId": "0", "extraInfo": receipt, "offset": "7",
            "liteTopic": "s1", "bname": "broker-a",
        }  # fmt: skip
        assert change == {**ack, "invisibleTime": "2500", "suspend": "true"}


@pytest.mark.parametrize(
    ("counts", "expected"),
    [(None, [0, 0]), ("2;3", [2, 3]), ("0 qo0%1 2;0", [2, 0]), ("0 0 4", [0, 0]), ("x;y", [0, 0])],
)
async def test_the_counts_of_redeliveries_are_read(counts: str | None, expected: list[int]) -> None:
    async with lite_topic_consumer() as (consumer, broker):
        broker.put(lite_message(1), lite_message(2))
        broker.counts = counts
        assert [message.reconsume_times for message in await consumer.receive()] == expected


@pytest.mark.parametrize(
    "properties",
    [{"INNER_MULTI_QUEUE_OFFSET": "1,2"}, {"INNER_MULTI_QUEUE_OFFSET": ""}, {"__LITE_TOPIC": ""}],
)
async def test_a_message_without_its_place_in_a_lite_topic_is_a_protocol_error(
    properties: dict[str, Any],
) -> None:
    async with lite_topic_consumer() as (consumer, broker):
        broker.put(lite_message(1, **properties))
        with pytest.raises(ProtocolError, match="The broker needs enableLmq and enableMultiDispatch"):
            await consumer.receive()


async def test_each_message_is_acknowledged_by_a_request_of_its_own() -> None:
    async with lite_topic_consumer() as (consumer, broker):
        broker.put(lite_message(1), lite_message(2), lite_message(0, "s2"))
        messages = await consumer.receive()
        await consumer.ack(*messages)
        assert sorted(request.fields["offset"] for request in broker.requests if request.code == ACK) == [
            "0", "1", "2",
        ]  # fmt: skip
        broker.refused[ACK] = ResponseCode.SYSTEM_ERROR
        with pytest.raises(RetriableBrokerError):
            await consumer.ack(*messages)
        broker.refused[CHANGE] = ResponseCode.SYSTEM_ERROR
        with pytest.raises(RetriableBrokerError):
            await consumer.change_invisible(messages[0], 1)


async def test_an_expired_lite_topic_raises_an_error_with_its_code() -> None:
    async with lite_topic_consumer() as (consumer, broker):
        broker.put(lite_message(1))
        (message,) = await consumer.receive()
        broker.refused = {ACK: ResponseCode.NO_MESSAGE, CHANGE: ResponseCode.NO_MESSAGE}
        with pytest.raises(BrokerError, match="NO_MESSAGE"):
            await consumer.ack(message)
        with pytest.raises(BrokerError, match="NO_MESSAGE"):
            await consumer.change_invisible(message, 1)


async def test_a_refused_pop_raises() -> None:
    async with lite_topic_consumer() as (consumer, broker):
        broker.refused[RequestCode.POP_LITE_MESSAGE] = ResponseCode.INVALID_PARAMETER
        with pytest.raises(BrokerError, match="INVALID_PARAMETER"):
            await consumer.receive()


async def test_hooks_get_received_messages() -> None:
    class Note(ConsumerHook):
        def before_consume(self, context: ConsumeContext) -> None:
            seen.append((context.queue.queue_id, len(context.messages)))

    seen: list[tuple[int, int]] = []
    async with lite_topic_consumer() as (consumer, broker):
        consumer.add_hook(Note())
        broker.put(lite_message(1), lite_message(2))
        await consumer.receive()
    assert seen == [(0, 2)]


async def test_a_held_message_is_renewed_and_then_acknowledged() -> None:
    async with lite_topic_consumer() as (consumer, broker):
        broker.put(lite_message(7))
        (message,) = await consumer.receive(max_messages=1)
        broker.log.clear()
        async with consumer.holding(message, invisible=60):
            await trio.sleep(45)
        assert broker.log == [CHANGE.name] * 3 + [ACK.name], "at once, and every 20 s"
        renewal, acknowledgement = broker.requests[-2:]
        assert renewal.fields["liteTopic"] == acknowledgement.fields["liteTopic"] == message.lite_topic
        assert (renewal.fields["suspend"], renewal.fields["invisibleTime"]) == ("false", "60000")
        with pytest.raises(ConfigurationError, match="invisible is 0; it must be above 0"):
            async with consumer.holding(message, invisible=0):
                raise AssertionError("the block ran")


# LiteTopicPushConsumer


async def test_a_message_that_cannot_become_a_dead_letter_is_handled_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    calls = []
    async with (
        lite_brokers() as (cluster, [broker]),
        push_consumer(cluster, max_reconsume_times=0) as consumer,
    ):
        broker.refused[RequestCode.CONSUMER_SEND_MSG_BACK] = ResponseCode.SYSTEM_ERROR

        async def handle(message: ReceivedMessage) -> None:
            calls.append(message.reconsume_times)
            if len(calls) == 2:
                broker.refused.clear()
                consumer.stop()
            raise ValueError("no")

        broker.put(lite_message(1))
        with trio.fail_after(PATIENCE):
            await consumer.run(handle)
        sent = [name for name in broker.log if name in ("CONSUMER_SEND_MSG_BACK", "ACK_MESSAGE")]
        assert sent == ["CONSUMER_SEND_MSG_BACK", "CONSUMER_SEND_MSG_BACK", "ACK_MESSAGE"]
    assert calls == [0, 1]
    assert "send back failed, retrying: group=g broker=broker-a" in caplog.text


async def test_a_lite_topic_that_the_broker_cannot_suspend_waits_here(
    caplog: pytest.LogCaptureFixture,
) -> None:
    times: list[float] = []
    async with lite_brokers() as (cluster, [broker]), push_consumer(cluster) as consumer:
        broker.refused[CHANGE] = ResponseCode.SYSTEM_ERROR

        async def handle(_: ReceivedMessage) -> Suspend | None:
            times.append(trio.current_time())
            if len(times) == 1:
                return Suspend(3)
            consumer.stop()
            return None

        broker.put(lite_message(1))
        with trio.fail_after(PATIENCE):
            await consumer.run(handle)
    assert times[1] - times[0] == pytest.approx(3, abs=0.5)
    assert "suspending a lite topic failed, waiting here instead: topic=T lite_topic=s1" in caplog.text


async def test_suspend_without_a_time_uses_the_setting() -> None:
    async with lite_brokers() as (cluster, [broker]), push_consumer(cluster) as consumer:

        async def handle(message: ReceivedMessage) -> Suspend | ConsumeLater | None:
            if message.queue_offset == 1:
                return Suspend()
            consumer.stop()
            return None

        broker.put(lite_message(1), lite_message(2), lite_message(3, "s2"))
        with trio.fail_after(PATIENCE):
            await consumer.run(handle)
        changes = [request.fields for request in broker.requests if request.code == CHANGE]
        assert [(one["offset"], one["invisibleTime"], one["suspend"]) for one in changes] == [
            ("1", "500", "true")
        ]
        acks = [request.fields["offset"] for request in broker.requests if request.code == ACK]
        assert acks == ["3"]


async def test_an_unsupported_result_is_a_failure(caplog: pytest.LogCaptureFixture) -> None:
    results = iter([ConsumeLater(), None])
    async with lite_brokers() as (cluster, [broker]), push_consumer(cluster) as consumer:

        async def handle(message: ReceivedMessage) -> ConsumeLater | None:
            result = next(results)
            if result is None:
                consumer.stop()
            return result

        broker.put(lite_message(1))
        with trio.fail_after(PATIENCE):
            await consumer.run(handle)
    assert "which ordered consumers do not support" in caplog.text


async def test_a_redelivered_lite_topic_waits_for_the_running_call() -> None:
    running = 0
    ended: list[int] = []
    async with lite_brokers() as (cluster, [broker]), push_consumer(cluster) as consumer:

        async def handle(message: ReceivedMessage) -> Suspend | None:
            nonlocal running
            assert not running
            running += 1
            if not ended:
                broker.put(lite_message(1), lite_message(2))  # as after the invisible time
                await trio.sleep(20)
            running -= 1
            ended.append(message.queue_offset)
            if len(ended) == 3:
                consumer.stop()
            return Suspend(1) if len(ended) == 1 else None

        broker.put(lite_message(1))
        with trio.fail_after(PATIENCE):
            await consumer.run(handle)
    assert ended == [1, 1, 2]
    assert CHANGE not in [request.code for request in broker.requests], "the delivery is obsolete"


async def test_a_failed_renewal_of_the_invisible_time_is_repeated(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="rocketmq_py.consumer")
    async with lite_brokers() as (cluster, [broker]), push_consumer(cluster, invisible=8.0) as consumer:
        broker.refused[CHANGE] = ResponseCode.SYSTEM_ERROR

        async def handle(_: ReceivedMessage) -> None:
            await trio.sleep(6)
            broker.refused.clear()
            await trio.sleep(6)
            consumer.stop()

        broker.put(lite_message(1))
        with trio.fail_after(PATIENCE):
            await consumer.run(handle)
    assert "renewal of invisible messages failed, retrying: group=g broker=broker-a" in caplog.text
    assert "lite_topic=s1" in caplog.text


async def test_messages_whose_invisible_time_ends_while_they_wait_are_left_to_the_broker(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Otherwise two members would handle a lite topic at once."""
    handled: list[str] = []
    async with (
        lite_brokers() as (cluster, [broker]),
        push_consumer(cluster, invisible=8.0, concurrency=1) as consumer,
    ):

        async def handle(message: ReceivedMessage) -> None:
            handled.append(message.lite_topic)
            if len(handled) == 1:
                await trio.sleep(10)
                broker.refused.clear()
                broker.put(lite_message(1, "s3"))
            else:
                consumer.stop()

        broker.refused[CHANGE] = ResponseCode.SYSTEM_ERROR
        broker.put(lite_message(1, "s1"), lite_message(1, "s2"))
        with trio.fail_after(PATIENCE):
            await consumer.run(handle)
        assert consumer.statistics.topics["T"].handled == 2
    assert handled == ["s1", "s3"]
    assert "not processed within the invisible time" in caplog.text


async def test_a_renewal_leaves_out_messages_that_were_acknowledged_meanwhile() -> None:
    async with lite_brokers() as (cluster, [broker]), push_consumer(cluster, invisible=8.0) as consumer:

        async def handle(_: ReceivedMessage) -> None:
            while not renewals():
                await trio.sleep(0.1)
            broker.answer_late()

        def renewals() -> list[str]:
            return [request.fields["offset"] for request in broker.requests if request.code == CHANGE]

        broker.ignored.add(CHANGE)
        broker.put(lite_message(1), lite_message(2), lite_message(3))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(consumer.run, handle)
            await trio.sleep(20)
            nursery.cancel_scope.cancel()
    assert renewals() == ["1"]


async def test_no_renewal_follows_a_request_to_suspend() -> None:
    async with lite_brokers() as (cluster, [broker]), push_consumer(cluster, invisible=8.0) as consumer:

        async def handle(_: ReceivedMessage) -> Suspend:
            await trio.sleep(3)
            broker.ignored.add(CHANGE)
            return Suspend(1)

        broker.put(lite_message(1))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(consumer.run, handle)
            await trio.sleep(5)
            broker.answer_late()
            await trio.sleep(20)
            nursery.cancel_scope.cancel()
        changes = [request.fields for request in broker.requests if request.code == CHANGE]
        assert [(one["invisibleTime"], one["suspend"]) for one in changes] == [("1000", "true")]


async def test_a_request_to_suspend_waits_for_a_renewal_in_progress() -> None:
    async with lite_brokers() as (cluster, [broker]), push_consumer(cluster, invisible=8.0) as consumer:

        def changes() -> list[tuple[str, str]]:
            fields = [request.fields for request in broker.requests if request.code == CHANGE]
            return [(one["invisibleTime"], one["suspend"]) for one in fields]

        async def handle(_: ReceivedMessage) -> Suspend:
            while not changes():
                await trio.sleep(0.1)
            return Suspend(1)

        broker.ignored.add(CHANGE)
        broker.put(lite_message(1), lite_message(2))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(consumer.run, handle)
            await trio.sleep(6)
            assert changes() == [("8000", "false")]
            broker.answer_late()
            await trio.sleep(20)
            assert changes() == [("8000", "false"), ("1000", "true")]
            nursery.cancel_scope.cancel()


async def test_a_broker_that_does_not_answer_delays_no_renewal_at_others() -> None:
    async def handle(_: ReceivedMessage) -> None:
        await trio.sleep_forever()

    async with lite_brokers(2) as (cluster, [one, other]), push_consumer(cluster, invisible=2.5) as consumer:
        other.ignored.add(CHANGE)
        one.put(lite_message(1))
        other.put(lite_message(1))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(consumer.run, handle)
            await trio.sleep(1)
            for _ in range(5):
                one.log.clear()
                await trio.sleep(2)
                assert CHANGE.name in one.log
            nursery.cancel_scope.cancel()
        assert other.log.count(CHANGE.name) in (4, 5), "one at a time, and one that releases it at the end"


async def test_a_stopping_consumer_unsubscribes_and_releases_what_waits(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing renews the subscription meanwhile. A broker that refuses it redelivers later."""
    monkeypatch.setattr(subscriber, "RENEW_SECONDS", 2.0)
    may_end = trio.Event()

    async def handle(_: ReceivedMessage) -> None:
        await may_end.wait()

    async with (
        lite_brokers(2) as (cluster, [one, other]),
        push_consumer(cluster, concurrency=1) as consumer,
        trio.open_nursery() as nursery,
    ):
        await consumer.subscribe_lite("s1", "s2")
        nursery.start_soon(consumer.run, handle)
        one.put(lite_message(1))
        await trio.sleep(0.5)
        one.put(lite_message(2, "s2"))
        other.put(lite_message(3, "s2"))
        other.refused[CHANGE] = ResponseCode.NO_MESSAGE
        await trio.sleep(0.5)
        consumer.stop()
        await trio.sleep(10)
        for broker in (one, other):
            assert str(broker.subscriptions[-1].action) == "COMPLETE_REMOVE"
            released = [request.fields for request in broker.requests if request.code == CHANGE]
            assert [(one["liteTopic"], one["invisibleTime"], one["suspend"]) for one in released] == [
                ("s2", "0", "true")
            ]
        assert "renewal of invisible messages failed" in caplog.text
        may_end.set()


async def test_brokers_of_a_changed_route_are_popped_from(caplog: pytest.LogCaptureFixture) -> None:
    async with lite_brokers(2) as (cluster, [one, other]):
        removed = cluster.brokers.pop("broker-b")
        topics = dict(cluster.topics)
        cluster.topics.clear()
        async with (
            LiteTopicPushConsumer(
                cluster.address, group="g", parent="T", pull_hold=1, route_refresh_interval=5
            ) as consumer,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(consumer.run, lambda _: None)
            await trio.sleep(3)
            assert not one.log
            cluster.topics.update(topics)
            await trio.sleep(3)
            assert one.log
            assert not other.log
            cluster.brokers["broker-b"] = removed
            await trio.sleep(10)
            assert other.log
            del cluster.brokers["broker-a"]
            await trio.sleep(30)
            count = len(one.log)
            await trio.sleep(30)
            assert len(one.log) == count
            consumer.stop()
    assert "route lookup failed, retrying: group=g topic=T" in caplog.text


@pytest.mark.long
async def test_messages_of_a_broker_that_left_the_route_for_a_while_are_renewed_and_in_order() -> None:
    calls: list[str] = []
    async with lite_brokers(2) as (cluster, [broker, _]):
        consumer = LiteTopicPushConsumer(
            cluster.address, group="g", parent="T", pull_hold=1, invisible=8.0, route_refresh_interval=5
        )

        async def handle(message: ReceivedMessage) -> None:
            calls.append(f"begin {message.queue_offset}")
            await trio.sleep(60)
            calls.append(f"end {message.queue_offset}")

        async with consumer, trio.open_nursery() as nursery:
            nursery.start_soon(consumer.run, handle)
            broker.put(lite_message(1))
            await trio.sleep(2)
            removed = cluster.brokers.pop("broker-a")
            await trio.sleep(10)
            broker.log.clear()
            cluster.brokers["broker-a"] = removed
            await trio.sleep(10)
            assert CHANGE.name in broker.log
            broker.put(lite_message(1), lite_message(2))  # as when the renewals did not arrive
            await trio.sleep(20)
            assert calls == ["begin 1"]
            await trio.sleep(180)
            assert calls == ["begin 1", "end 1", "begin 1", "end 1", "begin 2", "end 2"]
            consumer.stop()


async def test_a_second_run_at_the_same_time_is_rejected() -> None:
    async with (
        lite_brokers() as (cluster, _),
        push_consumer(cluster) as consumer,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(consumer.run, lambda _: None)
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(ConfigurationError, match="this LiteTopicPushConsumer is running already"):
            await consumer.run(lambda _: None)
        consumer.stop()


async def test_a_consumer_that_is_closed_ends_its_run() -> None:
    async with lite_brokers() as (cluster, _), trio.open_nursery() as nursery:
        consumer = push_consumer(cluster)
        consumer.stop()
        async with consumer:
            await consumer.run(lambda _: None)  # stopped before
            nursery.start_soon(consumer.run, lambda _: None)
            await trio.testing.wait_all_tasks_blocked()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"invisible": 1.0}, "invisible is 1.0; it must be finite, and at least 2"),
        ({"pop_batch_nums": 33}, "pop_batch_nums is 33"),
        ({"pull_hold": math.inf}, "pull_hold is inf; it must be finite"),
        ({"batch_size": 0}, "batch_size is 0"),
    ],
)
async def test_settings_out_of_range_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        LiteTopicPushConsumer("127.0.0.1:1", group="g", parent="T", **options)
