from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing

from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.errors import (
    BrokerBusyError,
    BrokerError,
    ClosedError,
    ConfigurationError,
    ConnectError,
    Delivery,
    FlowControlError,
    InvalidMessageError,
    MessageRefusedError,
    NameServerError,
    NoQueueError,
    RequestTimeoutError,
    RocketMQError,
    TopicNotFoundError,
)
from rocketmq_py.message import Message, MessageQueue, SendStatus
from rocketmq_py.metrics import MetricSource
from rocketmq_py.producer import LatencyFaultPolicy, PendingSend, Producer, request_router
from rocketmq_py.protocol.command import Command
from rocketmq_py.remoting import Connection
from tests.environment import created
from tests.scripted import ignore, refuse, scripted_cluster, store

MESSAGE = Message("T", b"body")
SENDS = RequestCode.SEND_MESSAGE_V2
ONE_TRY = {"retries": 0}


def producer_of(address: str, **options: Any) -> Producer:
    return created(Producer, address, group="g", rng=random.Random(1), **options)


async def send_both_ways(producer: Producer, message: Message = MESSAGE) -> list[Exception]:
    """Send awaited and pipelined; return the errors of both."""
    with pytest.raises(Exception) as awaited:
        await producer.send(message)
    pending = await producer.submit(message)
    with pytest.raises(Exception) as pipelined:
        await pending
    return [awaited.value, pipelined.value]


async def test_a_retriable_refusal_is_retried_on_the_other_broker() -> None:
    async with scripted_cluster(refuse(ResponseCode.SYSTEM_ERROR), store) as cluster:
        async with producer_of(cluster.address) as producer:
            for _ in range(10):
                assert (await producer.send(MESSAGE)).queue.broker_name == "broker-b"
            pending = [await producer.submit(MESSAGE) for _ in range(10)]
            assert {(await one).queue.broker_name for one in pending} == {"broker-b"}
        assert len(cluster.brokers["broker-b"].asked(SENDS)) == 20
        ids = [request.fields["i"] for server in cluster.brokers.values() for request in server.asked(SENDS)]
        assert len(set(ids)) == 20, "a retried message keeps its unique id"


async def test_a_final_refusal_is_raised_at_once() -> None:
    answer = refuse(ResponseCode.MESSAGE_ILLEGAL, "too large")
    async with scripted_cluster(answer, answer) as cluster, producer_of(cluster.address) as producer:
        for error in await send_both_ways(producer):
            assert isinstance(error, MessageRefusedError)
            assert error.delivery is Delivery.REFUSED
            assert "MESSAGE_ILLEGAL (13): too large" in str(error)
            assert "127.0.0.1:" in str(error)
        assert sum(len(server.asked(SENDS)) for server in cluster.brokers.values()) == 2


@pytest.mark.parametrize(("option", "tries"), [(0, 1), (2, 3)])
async def test_the_number_of_attempts(option: int, tries: int, jumping_clock: trio.testing.MockClock) -> None:
    async with scripted_cluster(refuse(ResponseCode.SYSTEM_BUSY)) as cluster:
        async with producer_of(cluster.address, retries=option) as producer:
            errors = await send_both_ways(producer)
        assert [type(error) for error in errors] == [BrokerBusyError] * 2
        assert len(cluster.brokers["broker-a"].asked(SENDS)) == 2 * tries


def limit_the_rate(refusals: int) -> Callable[[Connection, Command], None]:
    """Return a broker that refuses the first sends by flow control."""
    left = iter(range(refusals))

    def answer(connection: Connection, request: Command) -> None:
        if request.code == SENDS and next(left, None) is not None:
            connection.respond(request, ResponseCode.FLOW_CONTROL, remark="messages flow control")
        else:
            store(connection, request)

    return answer


@pytest.mark.parametrize("pipelined", [False, True])
async def test_a_send_that_flow_control_refuses_is_retried_after_a_pause(
    pipelined: bool, jumping_clock: trio.testing.MockClock
) -> None:
    async with (
        scripted_cluster(limit_the_rate(2)) as cluster,
        producer_of(cluster.address, latency_faults=LatencyFaultPolicy.JAVA_4) as producer,
    ):
        source = MetricSource()
        source.add(producer)
        started = trio.current_time()
        await ((await producer.submit(MESSAGE)) if pipelined else producer.send(MESSAGE))
        assert trio.current_time() - started == pytest.approx(0.5 + 1.0, abs=0.1)
        assert sum(source.collect("throttled").values()) == 2
        assert sum(source.collect("retries").values()) == 2
        assert producer.statistics.brokers == {}, "the limit is no fault of the broker"


async def test_a_send_that_flow_control_refuses_again_and_again_fails_within_its_timeout(
    jumping_clock: trio.testing.MockClock,
) -> None:
    async with scripted_cluster(limit_the_rate(100)) as cluster, producer_of(cluster.address) as producer:
        for timeout, seconds in ((3.0, 1.5), (1.2, 0.5), (0.4, 0.0)):
            started = trio.current_time()
            with pytest.raises(FlowControlError, match=r"FLOW_CONTROL \(215\): messages flow") as caught:
                await producer.send(MESSAGE, timeout=timeout)
            assert trio.current_time() - started == pytest.approx(seconds, abs=0.1)
            assert caught.value.delivery is Delivery.REFUSED


async def test_the_timeout_covers_all_attempts(jumping_clock: trio.testing.MockClock) -> None:
    async with scripted_cluster(ignore) as cluster, producer_of(cluster.address) as producer:
        for error in await send_both_ways(producer):
            assert isinstance(error, RequestTimeoutError)
            assert error.delivery is Delivery.UNKNOWN
        start = trio.current_time()
        with pytest.raises(RequestTimeoutError):
            await producer.send(MESSAGE, timeout=1.5)
        assert trio.current_time() - start == pytest.approx(1.5, abs=0.1)


@pytest.mark.parametrize("seed", range(4))  # whichever broker comes first
@pytest.mark.parametrize("way", [0, 1])
async def test_one_attempt_that_may_have_arrived_makes_the_delivery_unknown(seed: int, way: int) -> None:
    def break_at_send(connection: Connection, request: Command) -> None:
        if request.code == SENDS:
            connection.close()
        else:
            store(connection, request)

    async with (
        scripted_cluster(break_at_send, refuse(ResponseCode.SYSTEM_ERROR)) as cluster,
        created(Producer, cluster.address, rng=random.Random(seed), retries=1) as producer,
    ):
        with pytest.raises(RocketMQError) as caught:
            await ((await producer.submit(MESSAGE)) if way else producer.send(MESSAGE))
        assert caught.value.delivery is Delivery.UNKNOWN
        assert "after 2 attempts" in caught.value.__notes__[0]


async def test_a_stopped_broker_is_skipped() -> None:
    async with scripted_cluster(store, store) as cluster:
        cluster.brokers["broker-a"].stop()
        await trio.testing.wait_all_tasks_blocked()
        async with producer_of(cluster.address) as producer:
            results = [await producer.send(MESSAGE) for _ in range(8)]
            pending = [await producer.submit(MESSAGE) for _ in range(8)]
            results += [await one for one in pending]
        assert {result.queue.broker_name for result in results} == {"broker-b"}


async def test_a_stopped_lone_broker_is_one_clear_error(
    jumping_clock: trio.testing.MockClock,
) -> None:
    async with scripted_cluster(store) as cluster:
        cluster.brokers["broker-a"].stop()
        await trio.testing.wait_all_tasks_blocked()
        async with producer_of(cluster.address) as producer:
            for error in await send_both_ways(producer):
                assert isinstance(error, ConnectError)
                assert error.delivery is Delivery.NOT_SENT
                assert re.search(r": Connection refused \(\d+ attempts in \d\.\d s; unreachable ", str(error))


async def test_a_broker_that_does_not_know_the_topic_invalidates_the_route(
    jumping_clock: trio.testing.MockClock,
) -> None:
    async with scripted_cluster(refuse(ResponseCode.TOPIC_NOT_EXIST), store) as cluster:
        async with producer_of(cluster.address) as producer:
            for _ in range(2):
                await producer.send(MESSAGE)
            await trio.sleep(1)
        assert len(cluster.name_server.asked(RequestCode.GET_ROUTEINFO_BY_TOPIC)) >= 2


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (ResponseCode.FLUSH_DISK_TIMEOUT, SendStatus.FLUSH_DISK_TIMEOUT),
        (ResponseCode.SLAVE_NOT_AVAILABLE, SendStatus.SLAVE_NOT_AVAILABLE),
        (ResponseCode.FLUSH_SLAVE_TIMEOUT, SendStatus.FLUSH_SLAVE_TIMEOUT),
    ],
)
async def test_a_status_other_than_send_ok_is_a_result(code: int, status: SendStatus) -> None:
    def answer(connection: Connection, request: Command) -> None:
        connection.respond(request, code, {"msgId": "id", "queueId": "3", "queueOffset": "9"})

    async with scripted_cluster(answer) as cluster, producer_of(cluster.address) as producer:
        result = await producer.send(MESSAGE)
        assert (result.status, result.queue.queue_id, result.queue_offset) == (status, 3, 9)


async def test_a_malformed_answer_is_not_a_success(
    jumping_clock: trio.testing.MockClock,
) -> None:
    async with (
        scripted_cluster(refuse(ResponseCode.SUCCESS)) as cluster,
        producer_of(cluster.address, **ONE_TRY) as producer,
    ):
        for error in await send_both_ways(producer):
            assert "to a send: field 'msgId' is missing" in str(error)


async def test_a_missing_topic_is_sent_to_a_broker_that_creates_it() -> None:
    async with scripted_cluster(store, queues=8) as cluster, producer_of(cluster.address) as producer:
        results = [await producer.send(Message("new", b"x")) for _ in range(8)]
        assert {result.queue.queue_id for result in results} == {0, 1, 2, 3}
        (request, *_) = cluster.brokers["broker-a"].asked(SENDS)
        assert (request.fields["c"], request.fields["d"]) == ("TBW102", "4")


async def test_a_topic_without_queues_is_a_one_line_error() -> None:
    async with scripted_cluster(store, topics=["T"]) as cluster:
        cluster.topics["read-only"] = (4, 4, 4)
        async with producer_of(cluster.address) as producer:
            for error in await send_both_ways(producer, Message("missing", b"x")):
                assert isinstance(error, TopicNotFoundError)
                assert str(error) == f"topic 'missing' does not exist (asked {cluster.address})"
            for error in await send_both_ways(producer, Message("read-only", b"x")):
                assert isinstance(error, NoQueueError)
                assert "'read-only' has no queue that may be written to" in str(error)


async def test_an_unreachable_name_server_is_a_one_line_error(
    jumping_clock: trio.testing.MockClock,
) -> None:
    async with scripted_cluster(store) as cluster:
        cluster.name_server.stop()
        await trio.testing.wait_all_tasks_blocked()
        async with producer_of(cluster.address) as producer:
            for error in await send_both_ways(producer):
                assert isinstance(error, NameServerError)
                assert f"cannot connect to {cluster.address}: Connection refused" in str(error)


async def test_pipelined_sends_wait_for_max_in_flight() -> None:
    held: list[tuple[Connection, Command]] = []

    def hold(connection: Connection, request: Command) -> None:
        if request.code == SENDS:
            held.append((connection, request))
        else:
            store(connection, request)

    async with (
        scripted_cluster(hold) as cluster,
        producer_of(cluster.address, max_in_flight=3) as producer,
        trio.open_nursery() as nursery,
    ):
        pending: list[PendingSend] = []

        async def send_five() -> None:
            for _ in range(5):
                pending.append(await producer.submit(MESSAGE))  # noqa: PERF401 - one after the other

        nursery.start_soon(send_five)
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert (len(pending), len(held)) == (3, 3)
        store(*held[0])
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert (len(pending), len(held)) == (4, 4)
        for one in held[1:]:
            store(*one)
        await trio.testing.wait_all_tasks_blocked(0.05)
        store(*held[4])
        for one_pending in pending:
            await one_pending


async def test_closing_fails_unanswered_sends(jumping_clock: trio.testing.MockClock) -> None:
    async with scripted_cluster(ignore) as cluster:
        async with producer_of(cluster.address, send_timeout=1000) as producer:
            pending = [await producer.submit(MESSAGE) for _ in range(5)]
        for one in pending:
            with pytest.raises(ClosedError, match="closed before the broker answered") as caught:
                await one
            assert caught.value.delivery is Delivery.UNKNOWN


async def test_a_oneway_message_has_one_attempt_and_no_answer() -> None:
    async with scripted_cluster(store) as cluster:
        async with producer_of(cluster.address) as producer:
            await producer.send_oneway(MESSAGE)
        (request,) = cluster.brokers["broker-a"].asked(SENDS)
        assert request.is_oneway


async def test_retries_keep_a_fixed_queue(jumping_clock: trio.testing.MockClock) -> None:
    queue = MessageQueue("T", "broker-a", 2)
    async with scripted_cluster(refuse(ResponseCode.SYSTEM_ERROR), store) as cluster:
        async with producer_of(cluster.address) as producer:
            with pytest.raises(BrokerError):
                await producer.send(MESSAGE, queue=queue)
            with pytest.raises(InvalidMessageError, match="does not belong to topic"):
                await producer.send(MESSAGE, queue=MessageQueue("other", "broker-a", 0))
        assert {request.fields["e"] for request in cluster.brokers["broker-a"].asked(SENDS)} == {"2"}
        assert not cluster.brokers["broker-b"].asked(SENDS)


async def test_the_group_is_registered_and_unregistered() -> None:
    async with scripted_cluster(store) as cluster:
        async with producer_of(cluster.address) as producer:
            await producer.send(MESSAGE)
            await trio.testing.wait_all_tasks_blocked(0.05)
        (heartbeat,) = cluster.brokers["broker-a"].asked(RequestCode.HEART_BEAT)
        assert b'"producerDataSet":[{"groupName":"g"}]' in heartbeat.body
        (leave,) = cluster.brokers["broker-a"].asked(RequestCode.UNREGISTER_CLIENT)
        assert leave.fields["producerGroup"] == "g"


async def test_a_producer_must_be_open() -> None:
    producer = Producer("127.0.0.1:1", group="g")
    with pytest.raises(ClosedError, match="async with"):
        await producer.send(MESSAGE)
    async with producer:
        pass
    for sending in (producer.send, producer.submit, producer.send_oneway):
        with pytest.raises(ClosedError):
            await sending(MESSAGE)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"timeout": 3}, "no setting 'timeout'; did you mean 'send_timeout'"),
        ({"send_timeuot": 3}, "no setting 'send_timeuot'; did you mean 'send_timeout'"),
        ({"send_timeout": 0}, "send_timeout is 0; it must be above 0"),
        ({"retries": -1}, "retries is -1; it must be 0 or more"),
        ({"heartbeat_interval": -1.0}, "heartbeat_interval is -1.0; it must be above 0"),
        ({"delay_relay": 5}, "delay_relay is 5; it must be the name of a topic, or None"),
        ({"group": ""}, "the group name is empty"),
        ({"group": "a b"}, "may hold only letters"),
    ],
)
def test_invalid_options_fail_in_the_constructor(options: dict[str, object], text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        Producer("127.0.0.1:1", **options)  # type: ignore[arg-type]  # that is the test


async def test_a_name_server_slower_than_the_send_timeout_times_out_the_send(
    jumping_clock: trio.testing.MockClock,
) -> None:
    async with scripted_cluster(store) as cluster:
        cluster.name_server.answer = ignore
        async with producer_of(cluster.address, send_timeout=1.0) as producer:
            for error in await send_both_ways(producer):
                assert isinstance(error, RequestTimeoutError)
                assert error.delivery is Delivery.NOT_SENT
                assert f"{cluster.address} within 1 s" in str(error)


async def test_queues_of_many_topics_are_forgotten_and_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_router, "MAX_CACHED_TARGETS", 2)
    async with scripted_cluster(store, topics="ABC") as cluster, producer_of(cluster.address) as producer:
        queues = [(await producer.send(Message(topic, b"x"))).queue for topic in "ABCABC"]
        assert len(producer._sender.router._cached_targets) <= 2
    assert [queue.topic for queue in queues] == list("ABCABC")
    assert all(first != second for first, second in zip(queues[:3], queues[3:], strict=True))  # round robin


async def test_a_send_after_a_change_of_routes_does_not_prepare_all_queues(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[MessageQueue] = []

    class CountedTarget(request_router.QueueTarget):
        def __init__(self, queue: MessageQueue, *args: Any) -> None:
            made.append(queue)
            super().__init__(queue, *args)

    monkeypatch.setattr(request_router, "QueueTarget", CountedTarget)
    async with (
        scripted_cluster(store, topics="ABC", queues=1000) as cluster,
        producer_of(cluster.address) as producer,
    ):
        chosen = [(await producer.send(Message(topic, b"x"))).queue for topic in "ABCABC"]
    assert made == chosen
