from __future__ import annotations

import logging
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import wait_all_tasks_blocked

from rocketmq_py import Client, Position
from rocketmq_py.broker import EmbeddedBroker
from rocketmq_py.client import Route, core_of
from rocketmq_py.client.lifespan import nursery_of
from rocketmq_py.codes import RequestCode, ResponseCode, version_ordinal
from rocketmq_py.consumer import ConsumeContext, ConsumerHook, PopConsumer, PoppedMessage
from rocketmq_py.consumer.group.counters import ConsumerCounters
from rocketmq_py.consumer.group.subscriptions import subscription_of
from rocketmq_py.consumer.pop.requests import PopRequests, PopSpec
from rocketmq_py.errors import (
    BrokerError,
    ClosedError,
    ConfigurationError,
    ConnectError,
    FlowControlError,
    NoQueueError,
    ProtocolError,
    RequestTimeoutError,
    RetriableBrokerError,
    TopicNotFoundError,
    UnsupportedByBrokerError,
)
from rocketmq_py.message import Message
from rocketmq_py.metrics import MetricSource
from rocketmq_py.position import PositionKind
from rocketmq_py.producer import Producer
from rocketmq_py.protocol.bodies import BatchAcks, Heartbeat
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.handles import TopicKind
from rocketmq_py.protocol.headers import INIT_FROM_MIN
from rocketmq_py.remoting import Connection
from tests.cancelling import cancel_at_each_await
from tests.consumer.conftest import Fill
from tests.consumer.pop_broker import POP_TIME, message, pop_brokers
from tests.consumer.received import stored_at
from tests.scripted import scripted_cluster


def consumer_of(client: str | Client, **options: Any) -> PopConsumer:
    consumer = PopConsumer(client, group="g", **options)
    consumer.subscribe("T")
    return consumer


def numbers(messages: list[PoppedMessage]) -> list[int]:
    return [int(message.body) for message in messages]


# Requests


async def test_fields_of_a_pop_request() -> None:
    async with (
        pop_brokers() as (cluster, [broker]),
        consumer_of(cluster.address, consume_from="earliest") as consumer,
    ):
        broker.put(message(0), message(1), message(2))
        consumer.subscribe("T", "A || B")
        broker.put(message(3, TAGS="A"))
        await consumer.receive(max_messages=5, invisible=1.5, wait=7)
    [fields] = broker.pops
    assert int(fields["pollTime"]) in range(6000, 7001)
    assert {name: fields[name] for name in fields if name != "pollTime"} == {
        "consumerGroup": "g", "topic": "T", "queueId": "-1", "maxMsgNums": "5", "invisibleTime": "1500",
        "bornTime": "0", "initMode": "0", "expType": "TAG", "exp": "A || B", "order": "false",
        "bname": "broker-a",
    }  # fmt: skip


async def test_message_has_a_receipt_handle() -> None:
    async with pop_brokers() as (cluster, [broker]), consumer_of(cluster.address) as consumer:
        broker.put(message(4, KEYS="k"), message(5))
        broker.fields = {"startOffsetInfo": "0 0 4", "msgOffsetInfo": "0 0 4,5"}
        first, second = await consumer.receive()
        assert (first.body, first.keys, first.queue.queue_id, first.reconsume_times) == (b"4", ("k",), 0, 0)
        assert str(second.receipt) == f"4 {POP_TIME} 60000 3 0 broker-a 0 5"
        assert second.invisible_until_ms == POP_TIME + 60_000
        await consumer.ack(second)
        assert broker.acked == [str(second.receipt)]


async def test_message_of_the_retry_topic_contains_its_receipt_handle() -> None:
    handle = f"7 {POP_TIME} 60000 3 1 broker-a 0 8"
    async with pop_brokers() as (cluster, [broker]), consumer_of(cluster.address) as consumer:
        broker.put(message(8, POP_CK=handle))
        broker.fields = {"startOffsetInfo": "1 0 7", "msgOffsetInfo": "1 0 8"}
        [popped] = await consumer.receive()
        assert str(popped.receipt) == handle
        await consumer.ack(popped)
    [request] = cluster.brokers["broker-a"].asked(RequestCode.ACK_MESSAGE)
    assert (request.fields["topic"], request.fields["offset"]) == ("%RETRY%g_T", "8")


async def test_requests_contain_the_namespace() -> None:
    async with pop_brokers() as (cluster, [broker]):
        cluster.topics["tenant%T"] = cluster.topics["T"]
        async with consumer_of(cluster.address, namespace="tenant") as consumer:
            broker.put(message(0), message(8, POP_CK=f"7 {POP_TIME} 60000 3 1 broker-a 0 8"), message(1))
            first, retried, last = await consumer.receive()
            await consumer.ack(retried)
            await consumer.ack(first, last, retried)
    [pop] = broker.pops
    assert (pop["consumerGroup"], pop["topic"]) == ("tenant%g", "tenant%T")
    [ack] = cluster.brokers["broker-a"].asked(RequestCode.ACK_MESSAGE)
    assert (ack.fields["consumerGroup"], ack.fields["topic"]) == ("tenant%g", "%RETRY%tenant%g_tenant%T")
    [_, batch] = broker.acked
    assert isinstance(batch, BatchAcks)
    assert {(each.consumer_group, each.topic) for each in batch.acks} == {("tenant%g", "tenant%T")}


async def test_messages_popped_together_are_acknowledged_together() -> None:
    handle = f"7 {POP_TIME} 60000 3 1 broker-a 0 8"
    async with pop_brokers() as (cluster, [broker]), consumer_of(cluster.address) as consumer:
        broker.put(message(0), message(8, POP_CK=handle), message(3))
        await consumer.ack(*await consumer.receive())
        await consumer.ack()
    [batch] = broker.acked
    assert isinstance(batch, BatchAcks)
    assert batch.broker_name == "broker-a"
    assert [(each.topic_kind, each.start_offset, each.bits) for each in batch.acks] == [
        ("0", 0, b"\x09"),
        ("1", 7, b"\x02"),
    ]


async def test_brokers_before_5_1_3_get_single_acknowledgements(monkeypatch: pytest.MonkeyPatch) -> None:
    """They do not know acknowledgements of several messages."""
    monkeypatch.setattr("rocketmq_py.protocol.command.VERSION", version_ordinal("5.1.2"))
    async with pop_brokers() as (cluster, [broker]), consumer_of(cluster.address) as consumer:
        broker.put(message(0), message(1), message(2))
        await consumer.ack(*await consumer.receive())
        requests = cluster.brokers["broker-a"].asked(RequestCode.ACK_MESSAGE)
        assert sorted(request.fields["offset"] for request in requests) == ["0", "1", "2"]
        assert not cluster.brokers["broker-a"].asked(RequestCode.BATCH_ACK_MESSAGE)


async def test_a_single_acknowledgement_that_fails_does_not_prevent_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rocketmq_py.protocol.command.VERSION", version_ordinal("5.1.2"))
    async with pop_brokers() as (cluster, [broker]), consumer_of(cluster.address) as consumer:

        def refuse_first(connection: Connection, request: Command) -> None:
            if request.code == RequestCode.ACK_MESSAGE and request.fields["offset"] == "0":
                connection.respond(request, ResponseCode.SYSTEM_ERROR, remark="scripted")
            else:
                broker(connection, request)

        cluster.brokers["broker-a"].answer = refuse_first
        broker.put(message(0), message(1), message(2))
        messages = await consumer.receive()
        with pytest.raises(BrokerError, match="scripted"):
            await consumer.ack(*messages)
        assert len(broker.acked) == 2


async def test_change_invisible_returns_a_new_receipt_handle() -> None:
    async with pop_brokers() as (cluster, [broker]), consumer_of(cluster.address) as consumer:
        broker.put(message(0), message(1))
        _, second = await consumer.receive()
        changed = await consumer.change_invisible(second, 2.5)
        assert str(changed.receipt) == f"1 {POP_TIME} 60000 3 0 broker-a 0 1"
        assert (changed.body, changed.properties) == (second.body, second.properties)
    [request] = cluster.brokers["broker-a"].asked(RequestCode.CHANGE_MESSAGE_INVISIBLETIME)
    assert (request.fields["extraInfo"], request.fields["invisibleTime"]) == (str(second.receipt), "2500")


async def test_a_rejected_message_becomes_a_dead_letter() -> None:
    """Integrations reject messages that are not theirs."""
    async with pop_brokers() as (cluster, [broker]), consumer_of(cluster.address) as consumer:
        broker.put(message(0))
        [received] = await consumer.receive()
        await consumer._reject(received)
        assert (consumer.statistics.failed, consumer.statistics.sent_back) == (1, 1)
    [request] = cluster.brokers["broker-a"].asked(RequestCode.CONSUMER_SEND_MSG_BACK)
    assert request.fields["delayLevel"] == "-1"
    assert broker.acked == [str(received.receipt)]


# Brokers


async def test_single_broker_holds_the_pop_during_the_wait(
    jumping_clock: trio.testing.MockClock,
) -> None:
    async with pop_brokers() as (cluster, [broker]), consumer_of(cluster.address) as consumer:
        started = trio.current_time()
        assert await consumer.receive(wait=10) == []
        assert trio.current_time() - started == pytest.approx(10, abs=0.5)
        assert len(broker.pops) == 1
        assert await consumer.receive(wait=0) == []
        assert broker.pops[-1]["pollTime"] == "0"


async def test_brokers_are_asked_round_robin(jumping_clock: trio.testing.MockClock) -> None:
    async with pop_brokers(3) as (cluster, brokers), consumer_of(cluster.address) as consumer:
        for broker in brokers:
            broker.put(message(1))
        found = [await consumer.receive() for _ in brokers]
        assert sorted(each.broker_name for [each] in found) == ["broker-a", "broker-b", "broker-c"]
        assert await consumer.receive(wait=7) == []
        assert all(0 < len(broker.pops) - 2 < 4 for broker in brokers), "each recorder its pops for a second"
        polls = {int(fields["pollTime"]) for broker in brokers for fields in broker.pops}
        assert min(polls) == 0
        assert max(polls) <= 1000


async def test_late_message_is_received_from_any_broker(
    jumping_clock: trio.testing.MockClock,
) -> None:
    async with (
        pop_brokers(2) as (cluster, brokers),
        consumer_of(cluster.address) as consumer,
        trio.open_nursery() as nursery,
    ):
        for broker in brokers:
            found: list[PoppedMessage] = []

            async def wait(found: list[PoppedMessage] = found) -> None:
                found.extend(await consumer.receive(wait=60))

            nursery.start_soon(wait)
            await trio.sleep(3.3)
            broker.put(message(1))
            await trio.sleep(2.1)
            assert numbers(found) == [1]


async def test_receive_from_all_topics_or_one() -> None:
    async with pop_brokers() as (cluster, [broker]), consumer_of(cluster.address) as consumer:
        consumer.subscribe("U")
        assert await consumer.receive(wait=0) == []
        assert sorted(fields["topic"] for fields in broker.pops) == ["T", "U"]
        await consumer.receive("U", wait=0)
        assert [fields["topic"] for fields in broker.pops[2:]] == ["U"]
        consumer.unsubscribe("T")
        await consumer.receive(wait=0)
        assert [fields["topic"] for fields in broker.pops[3:]] == ["U"]


async def test_failing_broker_does_not_affect_others(
    jumping_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with pop_brokers(2) as (cluster, brokers), consumer_of(cluster.address) as consumer:
        brokers[0].code = ResponseCode.SYSTEM_BUSY
        brokers[1].put(message(1))
        assert numbers(await consumer.receive()) == [1]
        assert await consumer.receive(wait=3) == []
        [record] = caplog.records
        assert record.message.startswith("pop failed, retrying: group=g broker=broker-a topic=T")
        brokers[1].code = ResponseCode.SYSTEM_ERROR
        with pytest.raises(RetriableBrokerError):
            await consumer.receive()
        for broker in brokers:
            broker.code = 0
        caplog.set_level(logging.INFO, "rocketmq_py.consumer")
        assert await consumer.receive(wait=3) == []
        # The failure of broker-b was raised and not logged.
        [works] = [record.message for record in caplog.records if "succeeded again" in record.message]
        assert works.startswith("pop succeeded again: group=g broker=broker-a topic=T")


async def test_pops_that_flow_control_refuses_are_counted(
    jumping_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with pop_brokers(2) as (cluster, brokers), consumer_of(cluster.address) as consumer:
        source = MetricSource()
        source.add(consumer)
        brokers[0].code = ResponseCode.FLOW_CONTROL
        brokers[1].put(message(1))
        assert numbers(await consumer.receive()) == [1]
        assert await consumer.receive(wait=3) == []
        brokers[0].code = 0
        [(labels, count)] = source.collect("throttled").items()
        assert dict(labels)["topic"] == "T"
        assert count == len(brokers[0].pops)
        assert "pull refused by flow control, retrying: topic=T broker=broker-a queue=-1" in caplog.text


async def test_pops_that_all_brokers_refuse_by_flow_control_are_repeated_with_a_growing_back_off(
    jumping_clock: trio.testing.MockClock,
) -> None:
    async with pop_brokers(2) as (cluster, brokers), consumer_of(cluster.address) as consumer:
        for broker in brokers:
            broker.code = ResponseCode.FLOW_CONTROL
        started = trio.current_time()
        with pytest.raises(FlowControlError):
            await consumer.receive(wait=15)
        assert trio.current_time() - started == pytest.approx(15, abs=0.2)
        for broker in brokers:  # after 0.02, 0.04, … 0.64 s, then once in a second
            assert len(broker.pops) == pytest.approx(21, abs=2)
            broker.code = 0
        brokers[0].put(message(1))
        assert numbers(await consumer.receive()) == [1]


async def test_a_pop_succeeds_when_the_rate_is_no_longer_limited(
    jumping_clock: trio.testing.MockClock,
) -> None:
    async with pop_brokers() as (cluster, [broker]), consumer_of(cluster.address) as consumer:
        source = MetricSource()
        source.add(consumer)
        broker.code = ResponseCode.FLOW_CONTROL
        received: list[PoppedMessage] = []

        async def receive() -> None:
            received.extend(await consumer.receive(wait=15))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(receive)
            await trio.sleep(5)
            broker.code = 0
            refused = len(broker.pops)
            broker.put(message(1))
        assert numbers(received) == [1]
        assert list(source.collect("throttled").values()) == [refused]


async def test_a_pop_that_may_not_wait_is_refused_at_once(caplog: pytest.LogCaptureFixture) -> None:
    async with pop_brokers() as (cluster, [broker]), consumer_of(cluster.address) as consumer:
        broker.code = ResponseCode.FLOW_CONTROL
        with pytest.raises(FlowControlError):
            await consumer.receive(wait=0)
        assert len(broker.pops) == 1
    assert "retrying" not in caplog.text, "the call raises the error instead"


async def test_a_pop_that_is_not_repeated_does_not_log_that_it_is(
    jumping_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with pop_brokers(2) as (cluster, brokers), consumer_of(cluster.address) as consumer:
        for broker in brokers:
            broker.code = ResponseCode.SYSTEM_BUSY
        with pytest.raises(RetriableBrokerError):
            await consumer.receive()
        assert "retrying" not in caplog.text
        brokers[1].code = ResponseCode.FLOW_CONTROL
        brokers[0].code = 0
        assert await consumer.receive(wait=0) == []
        assert "pull refused by flow control, retrying: topic=T broker=broker-b" in caplog.text
        brokers[0].code = ResponseCode.FLOW_CONTROL
        with pytest.raises(FlowControlError):
            await consumer.receive(wait=1)
        assert "pull refused by flow control, retrying: topic=T broker=broker-a" in caplog.text


async def test_error_that_is_not_retriable_is_raised_at_once() -> None:
    async with pop_brokers(2) as (cluster, brokers), consumer_of(cluster.address) as consumer:
        for broker in brokers:
            broker.code = ResponseCode.SUBSCRIPTION_PARSE_FAILED
        with pytest.raises(BrokerError, match="SUBSCRIPTION_PARSE_FAILED"):
            await consumer.receive()
        assert sum(len(broker.pops) for broker in brokers) == 1


async def test_broker_that_holds_too_many_pops_is_retried_after_a_second(
    jumping_clock: trio.testing.MockClock,
) -> None:
    async with pop_brokers() as (cluster, [broker]), consumer_of(cluster.address) as consumer:
        broker.code = ResponseCode.POLLING_FULL
        assert await consumer.receive(wait=5) == []
        assert len(broker.pops) in (5, 6)


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("code", [ResponseCode.PULL_NOT_FOUND, ResponseCode.POLLING_TIMEOUT])
async def test_broker_that_does_not_hold_pops_is_not_polled_in_a_tight_loop(
    jumping_clock: trio.testing.MockClock, count: int, code: ResponseCode
) -> None:
    async with pop_brokers(count) as (cluster, brokers), consumer_of(cluster.address) as consumer:
        for broker in brokers:
            broker.code = code
        assert await consumer.receive(wait=2) == []
        assert 10 < len(brokers[0].pops) <= 2 / 0.05 + 2


async def test_stopped_broker_is_an_error(jumping_clock: trio.testing.MockClock) -> None:
    async with pop_brokers() as (cluster, _), consumer_of(cluster.address) as consumer:
        await consumer.receive(wait=0)
        cluster.brokers["broker-a"].stop()
        await wait_all_tasks_blocked(0.01)
        started = trio.current_time()
        with pytest.raises(ConnectError):
            await consumer.receive(wait=10)
        assert 9.5 <= trio.current_time() - started < 14


async def test_a_receive_goes_on_after_a_lost_connection(jumping_clock: trio.testing.MockClock) -> None:
    async with (
        pop_brokers() as (cluster, [broker]),
        consumer_of(cluster.address) as consumer,
        trio.open_nursery() as nursery,
    ):
        received: list[PoppedMessage] = []

        async def receive() -> None:
            received.extend(await consumer.receive(wait=30))

        nursery.start_soon(receive)
        await trio.sleep(1)
        for connection in cluster.brokers["broker-a"].connections:
            connection.close("the broker restarts")
        await trio.sleep(1)
        broker.put(message(6))  # the answer to the pop that was held, whose connection is gone
        broker.put(message(7))
        await trio.sleep(1)
        assert numbers(received) == [7]


def answer_heartbeats_only(connection: Connection, request: Command) -> None:
    if request.code == RequestCode.HEART_BEAT:
        connection.respond(request, ResponseCode.SUCCESS)


@pytest.mark.parametrize(("options", "wait", "patience"), [
    ({}, 0, 3), ({}, 15, 25), ({"request_timeout": 1.5}, 15, 25), ({"request_timeout": 12.0}, 5, 17),
])  # fmt: skip
async def test_unresponsive_broker_is_an_error(
    jumping_clock: trio.testing.MockClock, options: dict[str, float], wait: float, patience: float
) -> None:
    async with (
        scripted_cluster(answer_heartbeats_only) as cluster,
        consumer_of(cluster.address, **options) as consumer,
    ):
        started = trio.current_time()
        with pytest.raises(RequestTimeoutError):
            await consumer.receive(wait=wait)
        assert trio.current_time() - started == pytest.approx(patience, abs=0.5)


async def test_topic_without_a_readable_queue_is_an_error() -> None:
    async with pop_brokers() as (cluster, [broker]), consumer_of(cluster.address) as consumer:
        cluster.topics["T"] = (4, 4, 2)
        with pytest.raises(NoQueueError, match="has no readable queue"):
            await consumer.receive()
        assert broker.log == []


async def test_missing_topic_is_an_error_only_if_it_is_the_only_one(caplog: pytest.LogCaptureFixture) -> None:
    async with pop_brokers() as (cluster, [broker]), consumer_of(cluster.address) as consumer:
        consumer.subscribe("New")
        broker.put(message(1))
        assert numbers(await consumer.receive()) == [1], "the other topics are still received"
        assert await consumer.receive(wait=0) == []
        assert "topic 'New' does not exist" in caplog.text
        with pytest.raises(TopicNotFoundError):
            await consumer.receive("New")


async def test_sql_filter_is_checked_until_a_broker_accepts_it() -> None:
    async with pop_brokers() as (cluster, [broker]), PopConsumer(cluster.address, group="g") as consumer:
        consumer.subscribe("T", sql="a > 5")
        broker.refused.add(RequestCode.CHECK_CLIENT_CONFIG)
        broker.put(message(1))
        with pytest.raises(RetriableBrokerError, match="SYSTEM_ERROR"):
            await consumer.receive()
        broker.refused.clear()
        assert numbers(await consumer.receive()) == [1]
    assert broker.log[:3] == ["CHECK_CLIENT_CONFIG", "CHECK_CLIENT_CONFIG", "POP_MESSAGE"]


async def test_sql_filter_that_is_replaced_during_its_check_is_checked_again(
    jumping_clock: trio.testing.MockClock,
) -> None:
    async with pop_brokers() as (cluster, [broker]), PopConsumer(cluster.address, group="g") as consumer:
        broker.delays = {RequestCode.CHECK_CLIENT_CONFIG: 1.0}
        broker.put(message(1))
        consumer.subscribe("T", sql="a > 5")

        async def replace_filter() -> None:
            await trio.sleep(0.5)
            consumer.subscribe("T", sql="a > 6")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(replace_filter)
            assert numbers(await consumer.receive()) == [1]
    assert broker.log[:3] == ["CHECK_CLIENT_CONFIG", "CHECK_CLIENT_CONFIG", "POP_MESSAGE"]
    assert broker.pops[0]["exp"] == "a > 6"


async def test_lag_while_another_task_subscribes(address: str, fill: Fill) -> None:
    await fill("T", 3)

    async def subscribe() -> None:
        consumer.subscribe("U")

    async with consumer_of(address) as consumer, trio.open_nursery() as nursery:
        nursery.start_soon(subscribe)  # runs while lag() looks up a route
        assert list((await consumer.lag()).values()) == [3]


async def test_brokers_of_4_x_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rocketmq_py.protocol.command.VERSION", 407)  # the version in answers as well: 4.9.7
    async with pop_brokers() as (cluster, [broker]), consumer_of(cluster.address) as consumer:
        for _ in range(2):
            with pytest.raises(
                UnsupportedByBrokerError,
                match=r"does not support pop consumption, which needs 5\.0\.0 .* Use a PushConsumer",
            ):
                await consumer.receive()
        assert broker.log == []


async def test_answer_without_the_start_offset_is_a_protocol_error() -> None:
    async with pop_brokers() as (cluster, [broker]), consumer_of(cluster.address) as consumer:
        broker.put(message(1))
        broker.fields = {"startOffsetInfo": "0 1 0"}
        with pytest.raises(ProtocolError, match="not the start offset of that queue"):
            await consumer.receive()


async def test_a_message_that_the_broker_names_after_the_retry_topic_has_the_topic_of_the_pop() -> None:
    """Brokers 5.0 answer so."""
    async with pop_brokers() as (cluster, [broker]), consumer_of(cluster.address) as consumer:
        broker.put(stored_at(2, 1, b"1", 1, "%RETRY%g_T"))
        broker.fields = {"startOffsetInfo": "1 0 0"}
        (received,) = await consumer.receive()
        assert (received.topic, received.receipt.topic_kind) == ("T", TopicKind.RETRY)


# Messages that are not delivered


async def test_messages_that_only_have_the_hash_of_a_tag_are_acknowledged() -> None:
    async with pop_brokers() as (cluster, [broker]), consumer_of(cluster.address) as consumer:
        consumer.subscribe("T", "Aa")
        broker.put(message(1, TAGS="BB"), message(2, TAGS="Aa"), message(3))
        assert numbers(await consumer.receive()) == [2]
        await wait_all_tasks_blocked(0.01)
        [batch] = broker.acked
        assert isinstance(batch, BatchAcks)
        assert [batch.acks[0].acknowledges(offset) for offset in (1, 2, 3)] == [True, False, True]


async def test_failed_acknowledgement_of_a_filtered_message_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with pop_brokers() as (cluster, [broker]), consumer_of(cluster.address) as consumer:
        consumer.subscribe("T", "Aa")
        broker.refused = {RequestCode.ACK_MESSAGE}
        broker.put(message(1, TAGS="BB"))
        with trio.move_on_after(1):
            await consumer.receive(wait=0)
        await wait_all_tasks_blocked(0.01)
        assert "acknowledgement failed, retrying: group=g broker=broker-a" in caplog.text


# Cancellation, closing and errors


async def test_pop_of_a_cancelled_receive_is_taken_over_by_the_next(
    jumping_clock: trio.testing.MockClock,
) -> None:
    async with pop_brokers() as (cluster, [broker]), consumer_of(cluster.address) as consumer:
        for _ in range(5):
            with trio.move_on_after(1):
                await consumer.receive(wait=30)
        assert len(broker.pops) == 1
        broker.put(message(1))
        assert numbers(await consumer.receive(wait=30)) == [1]


async def test_messages_of_a_cancelled_receive_are_buffered_by_topic(
    jumping_clock: trio.testing.MockClock,
) -> None:
    async with pop_brokers() as (cluster, [broker]), consumer_of(cluster.address) as consumer:
        consumer.subscribe("U")
        with trio.move_on_after(1):
            await consumer.receive("T", wait=30)
        broker.put(message(1), message(2))
        await trio.sleep(1)
        assert await consumer.receive("U", wait=1) == []
        assert numbers(await consumer.receive("T", max_messages=1, wait=1)) == [1]
        assert numbers(await consumer.receive("T", max_messages=1, wait=1)) == [2]


async def test_buffered_message_is_dropped_after_half_of_its_invisible_time(
    jumping_clock: trio.testing.MockClock,
) -> None:
    async with pop_brokers() as (cluster, [broker]), consumer_of(cluster.address) as consumer:
        with trio.move_on_after(1):
            await consumer.receive(wait=30, invisible=10)
        broker.put(message(1))
        await trio.sleep(5.5)
        assert await consumer.receive(wait=1) == []


async def test_failure_of_a_cancelled_pop_is_logged(
    jumping_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "rocketmq_py.consumer")
    async with pop_brokers() as (cluster, [broker]), consumer_of(cluster.address) as consumer:
        with trio.move_on_after(1):
            await consumer.receive(wait=30)
        broker.fields = {}
        broker.put(message(1))
        await trio.sleep(1)
        assert "pop failed after its caller was cancelled: broker=broker-a" in caplog.text
        assert await consumer.receive(wait=1) == []


@pytest.mark.parametrize(
    ("refuse", "text"),
    [
        (False, ""),
        (True, "messages are redelivered only after their invisible time: group=g broker=broker-a error="),
    ],
)
async def test_messages_that_arrive_after_closing_are_released_while_the_client_is_open(
    jumping_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture, refuse: bool, text: str
) -> None:
    caplog.set_level(logging.INFO, "rocketmq_py.consumer")
    async with pop_brokers() as (cluster, [broker]), Client(cluster.address) as client:
        async with consumer_of(client) as consumer:
            with trio.move_on_after(1):
                await consumer.receive(wait=30)
        if refuse:
            broker.refused.add(RequestCode.CHANGE_MESSAGE_INVISIBLETIME)
        broker.put(message(1), message(2))
        await trio.sleep(1)
    assert broker.log.count("CHANGE_MESSAGE_INVISIBLETIME") == 2
    assert text in caplog.text


async def test_a_defect_in_a_pop_without_a_caller_ends_the_client(
    jumping_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ValueError("a defect")

    async def cancel_a_receive() -> None:
        async with pop_brokers() as (cluster, [broker]), Client(cluster.address) as client:
            async with consumer_of(client) as consumer:
                with trio.move_on_after(1):
                    await consumer.receive(wait=30)
            monkeypatch.setattr("rocketmq_py.consumer.pop.requests.read_popped", fail)
            broker.put(message(1))
            await trio.sleep(1)

    with pytest.RaisesGroup(pytest.RaisesExc(ValueError, match="a defect"), flatten_subgroups=True):
        await cancel_a_receive()


async def test_a_pop_that_fails_after_closing_is_logged(
    jumping_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "rocketmq_py.consumer")
    async with pop_brokers() as (cluster, [broker]), Client(cluster.address) as client:
        async with consumer_of(client) as consumer:
            with trio.move_on_after(1):
                await consumer.receive(wait=30)
        broker.fields = {}
        broker.put(message(1))
        await trio.sleep(1)
    assert "pop failed after its caller was cancelled: group=g broker=broker-a error=" in caplog.text


async def test_a_pop_of_a_client_that_ends_raises_closed_error() -> None:
    async with (
        pop_brokers() as (cluster, [broker]),
        Client(cluster.address) as client,
        trio.open_nursery() as nursery,
    ):
        await core_of(client).routes.get("T")
        spec = PopSpec(subscription_of("T", "*", None, version_ms=1), 1, 60.0, INIT_FROM_MIN)
        requests = PopRequests(core_of(client), "g", ConsumerCounters())

        async def pop() -> None:
            with pytest.raises(ClosedError, match="this Client is closed"):
                await requests.pop_or_release("broker-a", spec, hold=30.0)

        nursery.start_soon(pop)
        await wait_all_tasks_blocked(0.05)
        assert broker.pops
        nursery_of(core_of(client)).cancel_scope.cancel()


async def test_concurrent_receives_get_different_messages() -> None:
    async with pop_brokers() as (cluster, [broker]), consumer_of(cluster.address) as consumer:
        found: list[int] = []

        async def take() -> None:
            found.extend(numbers(await consumer.receive(max_messages=1)))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(take)
            nursery.start_soon(take)
            await wait_all_tasks_blocked(0.05)
            broker.put(message(1))
            await wait_all_tasks_blocked(0.05)
            assert found == [1]
            broker.put(message(2))
        assert found == [1, 2]


async def test_a_receive_cancelled_in_a_hook_leaves_its_messages_to_the_next_one(
    jumping_clock: trio.testing.MockClock,
) -> None:
    class Slow(ConsumerHook):
        async def before_consume(self, context: ConsumeContext) -> None:
            await trio.sleep(10)

    async with pop_brokers() as (cluster, [broker]), consumer_of(cluster.address) as consumer:
        remove_hook = consumer.add_hook(Slow())
        broker.put(message(0), message(1), message(2))
        with trio.move_on_after(1):
            await consumer.receive(max_messages=3)
            pytest.fail("not reached")
        remove_hook()
        assert numbers(await consumer.receive(max_messages=2, wait=0)) == [0, 1]
        assert numbers(await consumer.receive(wait=0)) == [2]


async def test_closing_ends_a_receive() -> None:
    async with pop_brokers() as (cluster, _), trio.open_nursery() as nursery:
        async with consumer_of(cluster.address) as consumer:

            async def wait() -> None:
                with pytest.raises(ClosedError):
                    await consumer.receive(wait=60)

            nursery.start_soon(wait)
            await wait_all_tasks_blocked(0.05)
        with pytest.raises(ClosedError):
            await consumer.receive()
        with pytest.raises(ClosedError):
            await consumer.ack()


async def test_closing_during_a_route_lookup_ends_a_receive(
    jumping_clock: trio.testing.MockClock, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with pop_brokers() as (cluster, _), Client(cluster.address) as client:
        consumer = consumer_of(client)
        await consumer.start(nursery)
        look_up = core_of(client).routes.get

        async def look_up_slowly(topic: str) -> Route:
            await trio.sleep(1)
            return await look_up(topic)

        monkeypatch.setattr(core_of(client).routes, "get", look_up_slowly)

        async def wait() -> None:
            with pytest.raises(ClosedError):
                await consumer.receive(wait=60)

        async with trio.open_nursery() as waiting:
            waiting.start_soon(wait)
            await trio.sleep(0.5)
            await consumer.aclose()


async def test_consumer_registers_and_unregisters_its_group() -> None:
    async with pop_brokers() as (cluster, _):
        async with consumer_of(cluster.address) as consumer:
            await consumer.receive(wait=0)
        server = cluster.brokers["broker-a"]
        *_, heartbeat = server.asked(RequestCode.HEART_BEAT)
        [data] = Heartbeat.decode(heartbeat.body).consumer_data_set
        assert (data.group_name, data.consume_type) == ("g", "CONSUME_POP")
        assert [each.topic for each in data.subscription_data_set] == ["T"]
        [leave] = server.asked(RequestCode.UNREGISTER_CLIENT)
        assert leave.fields["consumerGroup"] == "g"


async def test_client_has_one_consumer_per_group() -> None:
    async with pop_brokers() as (cluster, _), Client(cluster.address) as client:
        async with consumer_of(client):
            with pytest.raises(ConfigurationError, match="is already a member of group 'g'"):
                async with consumer_of(client):
                    pytest.fail("not reached")
        async with consumer_of(client) as consumer:
            assert await consumer.receive(wait=0) == []


@pytest.mark.parametrize(
    "arguments",
    [{"max_messages": 0}, {"max_messages": 33}, {"invisible": 0}, {"wait": -1}, {"topic": "V"}],
)
async def test_arguments_out_of_range_are_rejected(arguments: Any) -> None:
    async with pop_brokers() as (cluster, [broker]), consumer_of(cluster.address) as consumer:
        with pytest.raises(ConfigurationError):
            await consumer.receive(**arguments)
        consumer.unsubscribe("T")
        with pytest.raises(ConfigurationError, match="no topic is subscribed"):
            await consumer.receive()
        assert broker.log == []


def test_invalid_settings_are_rejected() -> None:
    with pytest.raises(ConfigurationError, match=r"Position\.time\(5\); it must be 'earliest' or 'latest'"):
        PopConsumer(group="g", consume_from=Position(PositionKind.TIME, 5))
    with pytest.raises(ConfigurationError, match="max_reconsume_times"):
        PopConsumer(group="g", max_reconsume_times=-1)
    with pytest.raises(ConfigurationError, match="did you mean 'max_reconsume_times'"):
        PopConsumer(group="g", max_reconsume_time=1)  # type: ignore[call-arg]


async def test_negative_time_and_refused_requests_are_errors() -> None:
    async with pop_brokers() as (cluster, [broker]), consumer_of(cluster.address) as consumer:
        broker.put(message(1))
        [popped] = await consumer.receive()
        with pytest.raises(ConfigurationError, match="invisible is -1"):
            await consumer.change_invisible(popped, -1)
        broker.refused = {RequestCode.ACK_MESSAGE, RequestCode.CHANGE_MESSAGE_INVISIBLETIME}
        with pytest.raises(BrokerError):
            await consumer.ack(popped)
        with pytest.raises(BrokerError):
            await consumer.change_invisible(popped, 1)


async def test_failing_broker_does_not_prevent_acknowledgements_at_others() -> None:
    async with pop_brokers(2) as (cluster, brokers), consumer_of(cluster.address) as consumer:
        for broker in brokers:
            broker.put(message(1))
        popped = [*await consumer.receive(), *await consumer.receive()]
        popped.sort(key=lambda each: each.broker_name)
        brokers[0].refused = {RequestCode.ACK_MESSAGE}
        with pytest.raises(BrokerError):
            await consumer.ack(*popped)
        assert (brokers[0].acked, len(brokers[1].acked)) == ([], 1)


async def test_cancellation_at_every_await_loses_no_message() -> None:
    sent: set[bytes] = set()
    done: set[bytes] = set()
    async with EmbeddedBroker() as broker, Producer(broker.name_server_address, group="p") as producer:

        async def send() -> None:
            body = b"%d" % len(sent)
            await producer.send(Message("T", body))
            sent.add(body)

        async def consume() -> None:
            async with consumer_of(
                broker.name_server_address, consume_from="earliest", max_reconsume_times=10_000
            ) as consumer:
                first, *others = await consumer.receive(invisible=0.2, wait=5)
                first = await consumer.change_invisible(first, 0.2)
                for popped in (first, *others):
                    done.add(popped.body)
                    await consumer.ack(popped)

        await send()
        before = trio.lowlevel.current_statistics().tasks_living

        async def check() -> None:
            await send()
            with trio.fail_after(60):
                while trio.lowlevel.current_statistics().tasks_living > before:
                    await wait_all_tasks_blocked()

        assert await cancel_at_each_await(consume, check) > 10
        with trio.fail_after(30):
            while done != sent:
                await consume()


async def test_cancelled_receives_of_an_open_consumer_lose_no_message() -> None:
    async with pop_brokers() as (cluster, [broker]), consumer_of(cluster.address) as consumer:
        received: list[int] = []

        async def receive_one() -> None:
            received.extend(numbers(await consumer.receive(max_messages=1, wait=0)))

        async def check() -> None:
            await wait_all_tasks_blocked(0.001)

        broker.put(*[message(offset) for offset in range(100)])
        cancelled = await cancel_at_each_await(receive_one, check)
        assert cancelled >= 2
        received += numbers(await consumer.receive())
        assert received == list(range(len(received))), "no message is lost"


# Arguments


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"max_messages": "5"}, "max_messages is '5'; it must be a whole number"),
        ({"max_messages": 33}, "max_messages is 33; it must be from 1 to 32"),
        ({"invisible": "60"}, "invisible is '60'; it must be a number of seconds"),
        ({"invisible": 0}, "invisible is 0; it must be above 0"),
        ({"invisible": float("inf")}, "invisible is inf; it must be a number of seconds"),
        ({"wait": None}, "wait is None; it must be a number of seconds"),
        ({"wait": -1}, "wait is -1; it must be 0 or more"),
        ({"topic": ["T"]}, "topic must be a str, not list"),
    ],
)
async def test_receive_refuses_wrong_arguments(client: Client, arguments: dict[str, Any], text: str) -> None:
    async with consumer_of(client) as consumer:
        with pytest.raises(ConfigurationError, match=text):
            await consumer.receive(**arguments)


async def test_only_received_messages_can_be_acknowledged(client: Client) -> None:
    async with consumer_of(client) as consumer:
        with pytest.raises(ConfigurationError, match=r"not list\. For a list, use ack\(\*messages\)"):
            await consumer.ack([])  # type: ignore[arg-type]  # that is the test
        with pytest.raises(
            ConfigurationError, match="expected a message returned by receive\\(\\), not Message"
        ):
            await consumer.change_invisible(Message("T", b"x"), 3)  # type: ignore[arg-type]  # and this
