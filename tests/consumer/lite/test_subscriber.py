"""The subscription of a client to lite topics: renewals, new connections, notices and failures."""

from __future__ import annotations

import logging

import pytest
import trio
import trio.testing

from rocketmq_py import Client, LiteTopicConsumer, Position
from rocketmq_py.client import Route, core_of
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.consumer.lite import subscriber
from rocketmq_py.consumer.pop.messages import PoppedMessage
from rocketmq_py.errors import (
    BrokerError,
    ClosedError,
    ConfigurationError,
    FlowControlError,
    RequestTimeoutError,
    TopicNotFoundError,
    UnsupportedByBrokerError,
)
from rocketmq_py.protocol.headers import NotifyUnsubscribeLiteRequest
from tests.consumer.lite.lite_broker import lite_brokers, lite_message

pytestmark = pytest.mark.usefixtures("jumping_clock")

ADD, REMOVE = "PARTIAL_ADD", "PARTIAL_REMOVE"
ADD_ALL, REMOVE_ALL = "COMPLETE_ADD", "COMPLETE_REMOVE"


@pytest.fixture
def often_renewed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriber, "RENEW_SECONDS", 10.0)


def consumer_of(client: str | Client, group: str = "g") -> LiteTopicConsumer:
    return LiteTopicConsumer(client, group=group, parent="T")


async def test_every_broker_gets_the_subscription() -> None:
    async with lite_brokers(2) as (cluster, brokers), consumer_of(cluster.address) as consumer:
        await consumer.subscribe_lite("s1", "s2", rewind=3)
        await consumer.unsubscribe_lite("s2")
        await consumer.unsubscribe_lite("s9")
        assert consumer.lite_topics == {"s1"}
        client_id = core_of(consumer).client_id
    for broker in brokers:
        assert broker.changes == [
            (ADD, ["s1", "s2"]), (REMOVE, ["s2"]), (REMOVE, ["s9"]), (REMOVE_ALL, []),
        ]  # fmt: skip
        first = broker.subscriptions[0]
        assert (first.client_id, first.group, first.topic) == (client_id, "g", "T")
        assert first.offset_option is not None
        assert (first.offset_option.type, first.offset_option.value) == ("TAIL_N", 3)


async def test_names_on_the_wire_have_the_namespace() -> None:
    async with lite_brokers() as (cluster, [broker]):
        cluster.topics["ns%T"] = cluster.topics["T"]
        async with Client(cluster.address, namespace="ns") as client, consumer_of(client) as consumer:
            await consumer.subscribe_lite("s1")
            await consumer.receive(wait=0)
            (connection,) = cluster.brokers["broker-a"].connections
            notice = NotifyUnsubscribeLiteRequest(
                lite_topic="s1", consumer_group="ns%g", client_id=core_of(client).client_id
            )
            await connection.oneway(notice.code, notice.to_fields())
            await trio.testing.wait_all_tasks_blocked(0.1)
            assert consumer.lite_topics == frozenset()
    assert (broker.subscriptions[0].group, broker.subscriptions[0].topic) == ("ns%g", "ns%T")
    fields = broker.requests[1].fields
    assert (fields["consumerGroup"], fields["topic"]) == ("ns%g", "ns%T")


@pytest.mark.usefixtures("often_renewed")
async def test_the_subscription_is_renewed() -> None:
    async with lite_brokers() as (cluster, [broker]):
        async with consumer_of(cluster.address) as consumer:
            await trio.sleep(15)  # nothing to renew
            await consumer.subscribe_lite("s1", "s2")
            await trio.sleep(20)
        assert broker.changes == [
            (ADD, ["s1", "s2"]), (ADD_ALL, ["s1", "s2"]), (ADD_ALL, ["s1", "s2"]), (REMOVE_ALL, []),
        ]  # fmt: skip


@pytest.mark.usefixtures("often_renewed")
async def test_a_failed_renewal_is_repeated(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="rocketmq_py.consumer")
    async with lite_brokers() as (cluster, [broker]):
        async with consumer_of(cluster.address) as consumer:
            await consumer.subscribe_lite("s1")
            broker.refused[RequestCode.LITE_SUBSCRIPTION_CTL] = ResponseCode.SYSTEM_ERROR
            await trio.sleep(11)
            broker.refused.clear()
            await trio.sleep(10)
            broker.refused[RequestCode.LITE_SUBSCRIPTION_CTL] = ResponseCode.SYSTEM_ERROR
        assert broker.changes[-3:] == [(ADD_ALL, ["s1"]), (ADD_ALL, ["s1"]), (REMOVE_ALL, [])]
    text = caplog.text
    assert "renewal of lite topics failed, retrying: group=g broker=broker-a" in text
    assert "unsubscribing from lite topics failed: group=g parent=T" in text


async def test_a_subscription_waits_and_is_repeated_while_the_service_limits_the_rate() -> None:
    async with lite_brokers(2) as (cluster, [limited, other]), consumer_of(cluster.address) as consumer:
        limited.refused[RequestCode.LITE_SUBSCRIPTION_CTL] = ResponseCode.FLOW_CONTROL
        started = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(consumer.subscribe_lite, "s1")
            await trio.sleep(1)
            limited.refused.clear()
        # It waits for half a second, and then for twice as long.
        assert trio.current_time() - started == pytest.approx(1.5, abs=0.1)
        assert limited.changes == [(ADD, ["s1"])] * 3
        assert other.changes == [(ADD, ["s1"])]
        assert consumer.lite_topics == {"s1"}


async def test_a_subscription_that_is_refused_until_its_timeout_raises_flow_control() -> None:
    async with lite_brokers(2) as (cluster, [limited, other]):
        async with (
            Client(cluster.address, request_timeout=4) as client,
            consumer_of(client) as consumer,
        ):
            await consumer.subscribe_lite("s1")
            limited.refused[RequestCode.LITE_SUBSCRIPTION_CTL] = ResponseCode.FLOW_CONTROL
            started = trio.current_time()
            with pytest.raises(FlowControlError, match="FLOW_CONTROL"):
                await consumer.subscribe_lite("s2")
            assert 2 < trio.current_time() - started <= 4
            assert consumer.lite_topics == {"s1"}
            with pytest.raises(FlowControlError):
                await consumer.unsubscribe_lite("s1")
            limited.refused.clear()
        assert (ADD, ["s2"]) in other.changes


@pytest.mark.usefixtures("often_renewed")
async def test_a_renewal_is_repeated_while_the_service_limits_the_rate(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with lite_brokers() as (cluster, [broker]):
        async with consumer_of(cluster.address) as consumer:
            await consumer.subscribe_lite("s1")
            broker.refused[RequestCode.LITE_SUBSCRIPTION_CTL] = ResponseCode.FLOW_CONTROL
            await trio.sleep(11)
            broker.refused.clear()
            await trio.sleep(4)
            renewals = broker.changes[1:]
        assert len(renewals) > 1
        assert set(map(str, renewals)) == {str((ADD_ALL, ["s1"]))}
    assert "failed" not in caplog.text


async def test_lite_pops_wait_while_the_service_limits_the_rate(caplog: pytest.LogCaptureFixture) -> None:
    async with lite_brokers() as (cluster, [broker]), consumer_of(cluster.address) as consumer:
        await consumer.subscribe_lite("s1")
        broker.refused[RequestCode.POP_LITE_MESSAGE] = ResponseCode.FLOW_CONTROL
        with pytest.raises(FlowControlError):
            await consumer.receive(wait=0)
        assert "retrying" not in caplog.text
        received: list[PoppedMessage] = []

        async def receive() -> None:
            received.extend(await consumer.receive(wait=15))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(receive)
            await trio.sleep(3)
            broker.put(lite_message(1))
            broker.refused.clear()
        assert [message.body for message in received] == [b"1"]
        assert broker.log.count("POP_LITE_MESSAGE") > 4
        assert "pull refused by flow control, retrying: topic=T broker=broker-a" in caplog.text


@pytest.mark.usefixtures("often_renewed")
async def test_a_renewal_waits_for_the_route_of_the_parent_topic(caplog: pytest.LogCaptureFixture) -> None:
    async with lite_brokers() as (cluster, [broker]):
        del cluster.topics["T"]
        async with consumer_of(cluster.address) as consumer:
            with pytest.raises(TopicNotFoundError):
                await consumer.subscribe_lite("s1")
            await trio.sleep(11)
    assert "renewal of lite topics failed, retrying" in caplog.text
    assert broker.changes == []


async def test_closing_during_a_subscription_leaves_no_lite_topics_on_brokers(
    nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with lite_brokers() as (cluster, [broker]), Client(cluster.address) as client:
        consumer = consumer_of(client)
        await consumer.start(nursery)
        look_up = core_of(client).routes.get

        async def look_up_slowly(topic: str) -> Route:
            await trio.sleep(1)
            return await look_up(topic)

        monkeypatch.setattr(core_of(client).routes, "get", look_up_slowly)

        async def subscribe() -> None:
            with pytest.raises(ClosedError):
                await consumer.subscribe_lite("s1")

        async with trio.open_nursery() as subscribing:
            subscribing.start_soon(subscribe)
            await trio.sleep(0.5)
            await consumer.aclose()
        assert broker.changes == []


async def test_a_new_connection_gets_the_subscription_before_a_pop() -> None:
    async with lite_brokers() as (cluster, [broker]), consumer_of(cluster.address) as consumer:
        await consumer.subscribe_lite("s1", "s2")
        await consumer.receive(wait=0)
        (connection,) = cluster.brokers["broker-a"].connections
        connection.close()
        await trio.testing.wait_all_tasks_blocked()
        await consumer.receive(wait=0)
        await consumer.receive(wait=0)
        sent = [name for name in broker.log if name != "POP_LITE_MESSAGE"]
        assert sent == ["LITE_SUBSCRIPTION_CTL"] * 2
        assert broker.changes == [(ADD, ["s1", "s2"]), (ADD_ALL, ["s1", "s2"])]


async def test_a_start_position_is_sent_before_its_lite_topic_over_a_new_connection() -> None:
    async with lite_brokers() as (cluster, [broker]), consumer_of(cluster.address) as consumer:
        await consumer.subscribe_lite("s1")
        (connection,) = cluster.brokers["broker-a"].connections
        connection.close()
        await trio.testing.wait_all_tasks_blocked()
        await consumer.subscribe_lite("s2", start="latest")
        assert broker.changes == [(ADD, ["s1"]), (ADD_ALL, ["s1"]), (ADD, ["s2"])]


@pytest.mark.usefixtures("often_renewed")
async def test_a_refused_subscription_is_not_renewed() -> None:
    async with lite_brokers(2) as (cluster, [one, other]):
        async with consumer_of(cluster.address) as consumer:
            await consumer.subscribe_lite("s1")
            other.refused[RequestCode.LITE_SUBSCRIPTION_CTL] = ResponseCode.LITE_SUBSCRIPTION_QUOTA_EXCEEDED
            with pytest.raises(BrokerError, match="LITE_SUBSCRIPTION_QUOTA_EXCEEDED"):
                await consumer.subscribe_lite("s1", "s2")
            assert consumer.lite_topics == {"s1"}
            other.refused.clear()
            await trio.sleep(11)
        assert one.changes == [(ADD, ["s1"]), (ADD, ["s1", "s2"]), (ADD_ALL, ["s1"]), (REMOVE_ALL, [])]


@pytest.mark.usefixtures("often_renewed")
async def test_a_renewal_drops_a_lite_topic_that_only_some_brokers_added() -> None:
    async with lite_brokers(2) as (cluster, [one, other]):
        async with consumer_of(cluster.address) as consumer:
            other.refused[RequestCode.LITE_SUBSCRIPTION_CTL] = ResponseCode.LITE_SUBSCRIPTION_QUOTA_EXCEEDED
            with pytest.raises(BrokerError, match="LITE_SUBSCRIPTION_QUOTA_EXCEEDED"):
                await consumer.subscribe_lite("s1")
            other.refused.clear()
            await trio.sleep(31)
        assert one.changes == other.changes == [(ADD, ["s1"]), (REMOVE_ALL, [])]


@pytest.mark.usefixtures("often_renewed")
async def test_a_renewal_drops_the_last_lite_topic_if_a_broker_did_not_remove_it() -> None:
    async with lite_brokers() as (cluster, [broker]):
        async with consumer_of(cluster.address) as consumer:
            await consumer.subscribe_lite("s1")
            broker.refused[RequestCode.LITE_SUBSCRIPTION_CTL] = ResponseCode.SYSTEM_ERROR
            with pytest.raises(BrokerError, match="SYSTEM_ERROR"):
                await consumer.unsubscribe_lite("s1")
            await trio.sleep(11)
            broker.refused.clear()
            await trio.sleep(21)
        assert broker.changes == [(ADD, ["s1"]), (REMOVE, ["s1"]), (REMOVE_ALL, []), (REMOVE_ALL, [])]


@pytest.mark.usefixtures("often_renewed")
async def test_the_subscription_is_removed_after_a_renewal_in_progress_has_ended() -> None:
    async with lite_brokers() as (cluster, [broker]):
        async with consumer_of(cluster.address) as consumer:
            await consumer.subscribe_lite("s1")
            broker.is_silent = True
            await trio.sleep(10.5)
            assert broker.changes == [(ADD, ["s1"]), (ADD_ALL, ["s1"])]
            async with trio.open_nursery() as nursery:
                nursery.start_soon(consumer.aclose)
                await trio.sleep(0.5)
                assert broker.changes[2:] == []
                broker.answer_late()
        assert broker.changes[2:] == [(REMOVE_ALL, [])]


async def test_a_cancelled_subscription_is_not_renewed() -> None:
    async with lite_brokers() as (cluster, [broker]), consumer_of(cluster.address) as consumer:
        broker.is_silent = True
        with trio.move_on_after(1):
            await consumer.subscribe_lite("s1")
        assert consumer.lite_topics == frozenset()
        with pytest.raises(RequestTimeoutError):
            await consumer.subscribe_lite("s1")
        broker.is_silent = False
        await consumer.subscribe_lite("s1")
        assert consumer.lite_topics == {"s1"}


async def test_a_cancelled_call_does_not_undo_another_one_for_the_same_lite_topic() -> None:
    async with lite_brokers() as (cluster, [broker]), consumer_of(cluster.address) as consumer:
        scope = trio.CancelScope()

        async def subscribe() -> None:
            with scope:
                await consumer.subscribe_lite("s1")

        broker.is_silent = True
        async with trio.open_nursery() as nursery:
            nursery.start_soon(subscribe)
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(consumer.subscribe_lite, "s1")
            await trio.testing.wait_all_tasks_blocked()
            broker.is_silent = False
            scope.cancel()
        assert consumer.lite_topics == {"s1"}


async def test_an_unsubscription_during_a_subscription_removes_the_lite_topic() -> None:
    async with lite_brokers() as (cluster, [broker]), consumer_of(cluster.address) as consumer:
        broker.is_silent = True
        async with trio.open_nursery() as nursery:
            nursery.start_soon(consumer.subscribe_lite, "s1")
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(consumer.subscribe_lite, "s2")
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(consumer.unsubscribe_lite, "s1", "s2")
            await trio.testing.wait_all_tasks_blocked()
            broker.answer_late()
        assert consumer.lite_topics == frozenset()
        assert broker.changes[-1] == (REMOVE, ["s1", "s2"])


async def test_notices_for_others_are_ignored() -> None:
    async with lite_brokers() as (cluster, [broker]), consumer_of(cluster.address) as consumer:
        await consumer.subscribe_lite("s1", "s2")
        (connection,) = cluster.brokers["broker-a"].connections
        own = core_of(consumer).client_id
        for lite_topic, group, client_id in (("s1", "other", own), ("s1", "g", "other"), ("s9", "g", own)):
            notice = NotifyUnsubscribeLiteRequest(
                lite_topic=lite_topic, consumer_group=group, client_id=client_id
            )
            await connection.oneway(notice.code, notice.to_fields())
        await consumer.receive(wait=0)
        assert consumer.lite_topics == {"s1", "s2"}
    assert broker.log.count("LITE_SUBSCRIPTION_CTL") == 2


async def test_a_client_has_one_consumer_of_lite_topics() -> None:
    async with lite_brokers() as (cluster, _), Client(cluster.address) as client:
        async with consumer_of(client):
            with pytest.raises(
                ConfigurationError, match="another consumer of this client subscribes to lite"
            ):
                async with consumer_of(client, "other"):
                    raise AssertionError
        async with consumer_of(client, "other"):
            pass


async def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(TypeError, match="argument: 'parent'"):
        LiteTopicConsumer("127.0.0.1:1", group="g")  # type: ignore[call-arg]
    with pytest.raises(ConfigurationError, match="topic 'a b' may hold only"):
        LiteTopicConsumer("127.0.0.1:1", group="g", parent="a b")
    async with lite_brokers() as (cluster, _), consumer_of(cluster.address) as consumer:
        with pytest.raises(ConfigurationError, match="no lite topic was given"):
            await consumer.subscribe_lite()
        with pytest.raises(ConfigurationError, match="lite_topic is 'a b'"):
            await consumer.subscribe_lite("a b")
        with pytest.raises(ConfigurationError, match="start is 'middle'"):
            await consumer.subscribe_lite("s1", start="middle")
        with pytest.raises(ConfigurationError, match=r"must be 'earliest', 'latest' or Position\.offset\("):
            await consumer.subscribe_lite("s1", start=Position.last(5))
        with pytest.raises(ConfigurationError, match="rewind is -1; it must be 0 or more"):
            await consumer.subscribe_lite("s1", rewind=-1)
        with pytest.raises(ConfigurationError, match="start and rewind exclude each other"):
            await consumer.subscribe_lite("s1", start="earliest", rewind=1)


async def test_a_start_goes_to_the_brokers_as_in_java() -> None:
    async with lite_brokers() as (cluster, [broker]), consumer_of(cluster.address) as consumer:
        for start in ("earliest", "latest", Position.offset(7), None):
            await consumer.subscribe_lite("s1", start=start)
    options = [one.offset_option for one in broker.subscriptions[:4]]
    assert [option and (option.type, option.value) for option in options] == [
        ("POLICY", 1), ("POLICY", 2), ("OFFSET", 7), None,
    ]  # fmt: skip


async def test_a_refusal_of_one_broker_is_raised_after_the_others_answered() -> None:
    async with lite_brokers(2) as (cluster, [one, other]), consumer_of(cluster.address) as consumer:
        one.refused[RequestCode.LITE_SUBSCRIPTION_CTL] = ResponseCode.ILLEGAL_OPERATION
        with pytest.raises(BrokerError, match="ILLEGAL_OPERATION"):
            await consumer.subscribe_lite("s1")
        assert other.changes == [(ADD, ["s1"])]


async def test_an_older_broker_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rocketmq_py.protocol.command.VERSION", 511)  # 5.4.9, the last version before 5.5.0
    text = r"does not support lite topics, which needs 5\.5\.0 or newer"
    async with lite_brokers() as (cluster, [broker]), consumer_of(cluster.address) as consumer:
        with pytest.raises(UnsupportedByBrokerError, match=text):
            await consumer.subscribe_lite("s1")
        with pytest.raises(UnsupportedByBrokerError, match=text):
            await consumer.receive(wait=0)
        assert consumer.lite_topics == frozenset()
    assert broker.log == ["UNREGISTER_CLIENT"]
