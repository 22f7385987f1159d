"""Operators query and control consumers through a broker."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import pytest
import trio
import trio.testing

from rocketmq_py import Client
from rocketmq_py.broker import EmbeddedBroker
from rocketmq_py.client import core_of
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.consumer import (
    CommitOffset,
    ConsumeLater,
    LitePullConsumer,
    PopConsumer,
    PushConsumer,
    RollbackOffset,
    Suspend,
)
from rocketmq_py.consumer.pull.queue_puller import QueuePuller
from rocketmq_py.errors import BrokerError, ClosedError, ConfigurationError, NoQueueError
from rocketmq_py.message import MessageQueue, ReceivedMessage
from rocketmq_py.protocol.bodies import (
    ConsumeMessageDirectlyResult,
    ConsumerOffsets,
    ConsumerRunningInfo,
    ProcessQueueInfo,
)
from rocketmq_py.protocol.headers import (
    ConsumeMessageDirectlyRequest,
    GetConsumerRunningInfoRequest,
    GetConsumerStatusRequest,
    ResetOffsetRequest,
)
from rocketmq_py.protocol.headers.base import Request
from rocketmq_py.protocol.subscription import make_subscription
from rocketmq_py.remoting.answer_errors import broker_error
from tests.cancelling import cancelled_error
from tests.consumer.conftest import Fill, now_ms
from tests.consumer.push_consumers import QUEUE, RecordingHandler, consumer_of
from tests.environment import created


@pytest.fixture
def by_broker() -> bool:
    """Whether the broker resets offsets itself, as 5.x brokers do, or asks the members to do it."""
    return False


@pytest.fixture
async def broker(by_broker: bool) -> AsyncIterator[EmbeddedBroker]:
    async with created(EmbeddedBroker, now_ms=now_ms, use_server_side_reset_offset=by_broker) as broker:
        yield broker


AnyConsumer: TypeAlias = PushConsumer | LitePullConsumer | PopConsumer


class Operator:
    """Sends the requests of RocketMQ's tools to a broker."""

    def __init__(self, broker: EmbeddedBroker, client: Client) -> None:
        self.address = broker.broker_address
        self.client = client

    async def ask(self, header: Request, code: int | None = None) -> bytes:
        answer = await core_of(self.client).connections.request(
            self.address, header.code if code is None else code, header.to_fields(), timeout=12
        )
        if answer.code != ResponseCode.SUCCESS:
            raise broker_error(answer.code, answer.remark, self.address)
        return answer.body

    async def running_info(self, consumer: AnyConsumer, *, jstack: bool = False) -> ConsumerRunningInfo:
        header = GetConsumerRunningInfoRequest(
            consumer_group=consumer.settings.group,
            client_id=core_of(consumer).client_id,
            jstack_enable=jstack,
        )
        return ConsumerRunningInfo.decode(await self.ask(header))

    async def offsets(self, topic: str, group: str = "g") -> dict[str, dict[MessageQueue, int]]:
        header = GetConsumerStatusRequest(topic=topic, group=group)
        code = RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS
        answer = ConsumerOffsets.decode(await self.ask(header, code))
        return {client_id: dict(table) for client_id, table in answer.client_tables.items()}

    async def reset(self, timestamp_ms: int, group: str = "g") -> None:
        header = ResetOffsetRequest(topic="T", group=group, timestamp=timestamp_ms, is_force=True)
        await self.ask(header, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET)

    async def consume(self, consumer: AnyConsumer, message_id: str) -> ConsumeMessageDirectlyResult:
        header = ConsumeMessageDirectlyRequest(
            consumer_group="g", client_id=core_of(consumer).client_id, msg_id=message_id, topic="T"
        )
        return ConsumeMessageDirectlyResult.decode(await self.ask(header))


@pytest.fixture
def operator(broker: EmbeddedBroker, client: Client) -> Operator:
    return Operator(broker, client)


@asynccontextmanager
async def running(consumer: PushConsumer, handle: Callable[[Any], Any]) -> AsyncIterator[PushConsumer]:
    async with consumer, trio.open_nursery() as nursery:
        nursery.start_soon(consumer.run, handle)
        await trio.sleep(2)
        yield consumer
        nursery.cancel_scope.cancel()


# Running info


async def test_running_info_of_a_concurrent_push_consumer(
    address: str, operator: Operator, fill: Fill, jumping_clock: trio.testing.MockClock
) -> None:
    await fill("T", 10)
    started_ms = now_ms()

    async def hang_at_four(message: ReceivedMessage) -> None:
        if message.queue_offset == 4:
            await trio.sleep_forever()

    async with (
        created(Client, address, now_ms=now_ms) as client,
        running(consumer_of(client, concurrency=7), hang_at_four) as consumer,
    ):
        await trio.sleep(30)
        info = await operator.running_info(consumer)
        assert {name: value for name, value in info.properties.items() if name.startswith("PROP")} == {
            "PROP_CLIENT_VERSION": "V5_5_0 (rocketmq-py)",
            "PROP_CONSUMEORDERLY": "false",
            "PROP_CONSUMER_START_TIMESTAMP": info.properties["PROP_CONSUMER_START_TIMESTAMP"],
            "PROP_CONSUME_TYPE": "CONSUME_PASSIVELY",
            "PROP_NAMESERVER_ADDR": address,
            "PROP_THREADPOOL_CORE_SIZE": "7",
        }
        assert abs(int(info.properties["PROP_CONSUMER_START_TIMESTAMP"]) - started_ms) < 2000
        assert info.properties["messageModel"] == "CLUSTERING"
        assert {subscription.topic for subscription in info.subscription_set} == {"T", "%RETRY%g"}
        state = info.queue_table[QUEUE]
        assert (state.commit_offset, state.cached_msg_min_offset, state.cached_msg_max_offset) == (4, 4, 4)
        assert (state.cached_msg_count, state.cached_msg_size_in_mib, state.locked, state.dropped) == (
            1,
            0,
            False,
            False,
        )
        assert 0 <= now_ms() - state.last_pull_timestamp <= 20_000
        assert 10_000 <= now_ms() - state.last_consume_timestamp <= 35_000
        status = info.status_table["T"]
        assert status.consume_ok_tps == pytest.approx(9 / 31, rel=0.1)
        assert status.pull_tps == pytest.approx(10 / 31, rel=0.1)
        assert status.consume_failed_msgs == 0
        assert info.jstack is None


async def test_running_info_contains_stack_traces_on_request(
    address: str, operator: Operator, fill: Fill, jumping_clock: trio.testing.MockClock
) -> None:
    await fill("T", 1)

    async def wait_in_handler(_: ReceivedMessage) -> None:
        await trio.sleep_forever()

    async with running(consumer_of(address), wait_in_handler) as consumer:
        info = await operator.running_info(consumer, jstack=True)
    assert info.jstack is not None
    assert "in wait_in_handler" in info.jstack
    assert "thread " in info.jstack


async def test_running_info_of_an_orderly_push_consumer(
    address: str, operator: Operator, fill: Fill, jumping_clock: trio.testing.MockClock
) -> None:
    await fill("T", 5)

    async def handle(message: ReceivedMessage) -> None:
        if message.queue_offset == 3:
            await trio.sleep_forever()

    async with (
        created(Client, address, now_ms=now_ms) as client,
        running(consumer_of(client, orderly=True, auto_commit=False), handle) as consumer,
    ):
        info = await operator.running_info(consumer)
    state = info.queue_table[QUEUE]
    assert info.properties["PROP_CONSUMEORDERLY"] == "true"
    assert state.locked
    assert 0 <= now_ms() - state.last_lock_timestamp <= 2000
    assert (
        state.transaction_msg_min_offset,
        state.transaction_msg_max_offset,
        state.transaction_msg_count,
    ) == (
        0,
        2,
        3,
    )
    assert (state.commit_offset, state.cached_msg_count) == (0, 5)


async def test_running_info_of_a_queue_without_its_lock(
    address: str,
    client: Client,
    operator: Operator,
    fill: Fill,
    jumping_clock: trio.testing.MockClock,
) -> None:
    await fill("T", 5)
    await core_of(client).brokers.lock("g", "other", "broker-a", [QUEUE])
    async with running(consumer_of(address, orderly=True), RecordingHandler()) as consumer:
        info = await operator.running_info(consumer)
    assert info.queue_table[QUEUE] == ProcessQueueInfo()


async def test_running_info_of_a_consumer_in_a_namespace(
    broker: EmbeddedBroker, operator: Operator, jumping_clock: trio.testing.MockClock
) -> None:
    kept = RecordingHandler()
    async with Client(broker.name_server_address, namespace="ns") as client:
        await core_of(client).brokers.create_topic(broker.broker_address, "T", queues=1)
        async with running(consumer_of(broker.name_server_address, namespace="ns"), kept) as consumer:
            header = GetConsumerRunningInfoRequest(
                consumer_group="ns%g", client_id=core_of(consumer).client_id
            )
            info = ConsumerRunningInfo.decode(await operator.ask(header))
    assert {queue.topic for queue in info.queue_table} == {"ns%T", "%RETRY%ns%g"}
    assert set(info.status_table) == {"ns%T", "%RETRY%ns%g"}
    assert info.properties["consumerGroup"] == "ns%g"


async def test_consumers_of_a_client_answer_for_their_own_group(
    client: Client, operator: Operator, fill: Fill, jumping_clock: trio.testing.MockClock
) -> None:
    await fill("T", 3)
    async with (
        running(consumer_of(client, group="one"), RecordingHandler()) as one,
        running(consumer_of(client, group="two"), RecordingHandler()) as two,
    ):
        for consumer in (one, two):
            info = await operator.running_info(consumer)
            assert info.properties["consumerGroup"] == consumer.settings.group


async def test_a_closed_consumer_does_not_answer(
    client: Client, operator: Operator, fill: Fill, jumping_clock: trio.testing.MockClock
) -> None:
    await fill("T", 3)
    async with running(consumer_of(client), RecordingHandler()) as consumer:
        pass
    with pytest.raises(BrokerError, match="not online"):
        await operator.running_info(consumer)
    assert not [
        server
        for servers in core_of(client)._request_handlers.values()
        for server in servers
        if "OperatorRequests" in repr(server)
    ]


async def test_running_info_counts_failures(
    address: str, operator: Operator, fill: Fill, jumping_clock: trio.testing.MockClock
) -> None:
    await fill("T", 10)

    async def handle(message: ReceivedMessage) -> ConsumeLater | None:
        return ConsumeLater(-1) if message.queue_offset % 2 else None

    async with running(consumer_of(address), handle) as consumer:
        status = (await operator.running_info(consumer)).status_table["T"]
    assert status.consume_failed_msgs == 5
    assert status.consume_ok_tps == pytest.approx(5 / 10), "rates cover at least 10 s"


# Offsets


async def test_operators_can_query_the_offsets_of_a_topic(
    address: str, operator: Operator, fill: Fill, jumping_clock: trio.testing.MockClock
) -> None:
    await fill("T", 20, queues=2)
    async with running(consumer_of(address), RecordingHandler()) as consumer:
        assert await operator.offsets("T") == {
            core_of(consumer).client_id: {MessageQueue("T", "broker-a", number): 10 for number in range(2)}
        }


async def test_two_groups_of_a_client_have_separate_offsets(
    client: Client, operator: Operator, fill: Fill, jumping_clock: trio.testing.MockClock
) -> None:
    await fill("T", 3)
    first, second = RecordingHandler(), RecordingHandler()
    async with (
        running(consumer_of(client), first),
        running(consumer_of(client, group="another"), second),
    ):
        for group in ("g", "another"):
            assert await operator.offsets("T", group) == {core_of(client).client_id: {QUEUE: 3}}
            await operator.reset(0, group)
        await first.until(6)
        await second.until(6)


@pytest.mark.parametrize("by_broker", [False, True], ids=["4.x", "5.x"])
@pytest.mark.parametrize("orderly", [False, True])
async def test_an_operator_resets_the_offsets_of_a_group(
    address: str,
    client: Client,
    operator: Operator,
    fill: Fill,
    jumping_clock: trio.testing.MockClock,
    orderly: bool,
) -> None:
    await fill("T", 5)
    await trio.sleep(10)
    time = now_ms()
    await trio.sleep(10)
    await fill("T", 5, first=5)
    kept = RecordingHandler()
    async with running(consumer_of(address, orderly=orderly), kept):
        await operator.reset(time)
        await kept.until(15)
        assert kept.numbers == [*range(10), *range(5, 10)]
        await operator.reset(-1)
        await fill("T", 2, first=10)
        await kept.until(17)
        assert kept.numbers[15:] == [10, 11]
    assert await core_of(client).brokers.committed_offset("g", QUEUE) == 12


async def test_running_handler_calls_do_not_change_the_offset_after_a_reset(
    address: str,
    client: Client,
    operator: Operator,
    fill: Fill,
    jumping_clock: trio.testing.MockClock,
) -> None:
    await fill("T", 10)
    started: list[int] = []

    async def handle(message: ReceivedMessage) -> None:
        started.append(message.queue_offset)
        await trio.sleep(20)

    async with running(consumer_of(address, concurrency=2), handle):
        assert started == [0, 1]
        await operator.reset(-1)
        await trio.sleep(10)
        assert await core_of(client).brokers.committed_offset("g", QUEUE) == 10
        await trio.sleep(30)
    assert started == [0, 1]
    assert await core_of(client).brokers.committed_offset("g", QUEUE) == 10


async def test_the_user_queries_and_seeks_offsets(
    address: str, fill: Fill, jumping_clock: trio.testing.MockClock
) -> None:
    await fill("T", 10)
    kept = RecordingHandler()
    async with running(consumer_of(address), kept) as consumer:
        await kept.until(10)
        await trio.sleep(6)
        assert await consumer.committed(QUEUE) == 10
        await consumer.seek(QUEUE, 7)
        assert await consumer.committed(QUEUE) == 7
        await kept.until(13)
        assert kept.numbers == [*range(10), 7, 8, 9]
        await consumer.seek(QUEUE, 1000)
        await fill("T", 1, first=10)
        await kept.until(14)
        assert kept.numbers[-1] == 10, "the broker corrects an offset beyond the end"


async def test_seek_refuses_invalid_offsets_and_queues(
    address: str, fill: Fill, jumping_clock: trio.testing.MockClock
) -> None:
    await fill("T", 1)
    consumer = consumer_of(address)
    for call in (consumer.committed(QUEUE), consumer.seek(QUEUE, 0)):
        with pytest.raises(ClosedError, match="not running"):
            await call
    async with running(consumer, RecordingHandler()):
        with pytest.raises(ConfigurationError, match="position is -1"):
            await consumer.seek(QUEUE, -1)
        with pytest.raises(NoQueueError, match="T/broker-a/5 is not assigned to this consumer"):
            await consumer.seek(MessageQueue("T", "broker-a", 5), 0)


# Direct consumption


async def message_id(client: Client, offset: int) -> str:
    """Return the broker's id of the message at an offset."""
    puller = QueuePuller(core_of(client), "p", QUEUE, batch_size=1, hold=0, timeout=3)
    pulled = await puller.pull(offset, make_subscription("T", version_ms=1))
    return pulled.messages[0].offset_message_id


@pytest.mark.parametrize(
    ("result", "code", "options"),
    [
        (None, "CR_SUCCESS", {}),
        (ConsumeLater(), "CR_LATER", {}),
        (None, "CR_SUCCESS", {"batch_size": 4}),
        (Suspend(), "CR_LATER", {"orderly": True}),
        (CommitOffset(), "CR_COMMIT", {"orderly": True, "auto_commit": False}),
        (RollbackOffset(), "CR_ROLLBACK", {"orderly": True, "auto_commit": False}),
    ],
)
async def test_an_operator_lets_a_consumer_handle_one_message(
    address: str,
    client: Client,
    operator: Operator,
    fill: Fill,
    jumping_clock: trio.testing.MockClock,
    result: object,
    code: str,
    options: dict[str, Any],
) -> None:
    await fill("T", 3)
    ready, handled = trio.Event(), []

    async def handle(item: Any) -> object:
        (message,) = item if isinstance(item, list) else (item,)
        if ready.is_set():
            handled.append((message.topic, message.body, message.broker_name))
            await trio.sleep(2)
            return result
        return None

    async with running(consumer_of(address, **options), handle) as consumer:
        ready.set()
        answer = await operator.consume(consumer, await message_id(client, 1))
    assert handled == [("T", b"1", "broker-a")]
    assert answer == ConsumeMessageDirectlyResult(
        consume_result=code,
        order=options.get("orderly", False),
        auto_commit=options.get("auto_commit", True),
        spent_time_mills=2000,
    )


async def test_a_handler_that_raises_a_cancellation_for_an_operator_does_not_end_the_consumer(
    address: str, client: Client, operator: Operator, fill: Fill, jumping_clock: trio.testing.MockClock
) -> None:
    await fill("T", 1)
    error = await cancelled_error()
    handled: list[bytes] = []

    async def handle(message: ReceivedMessage) -> None:
        handled.append(message.body)
        if len(handled) == 2:
            raise error

    async with running(consumer_of(address), handle) as consumer:
        answer = await operator.consume(consumer, await message_id(client, 0))
        await fill("T", 1, first=1)
        await trio.sleep(5)
    assert answer.remark == "RuntimeError: it raised Cancelled, but nothing had cancelled it"
    assert handled == [b"0", b"0", b"1"]


def fail() -> None:
    raise ValueError("scripted")


@pytest.mark.parametrize(
    ("outcome", "text"),
    [(fail, "ValueError: scripted"), (lambda: "ok", "ConfigurationError: the handler returned 'ok'")],
)
async def test_the_operator_receives_the_error_of_the_handler(
    address: str,
    client: Client,
    operator: Operator,
    fill: Fill,
    jumping_clock: trio.testing.MockClock,
    outcome: Callable[[], object],
    text: str,
) -> None:
    await fill("T", 1)
    calls = 0

    async def handle(_: ReceivedMessage) -> object:
        nonlocal calls
        calls += 1
        if calls == 2:
            return outcome()
        return None

    async with running(consumer_of(address), handle) as consumer:
        answer = await operator.consume(consumer, await message_id(client, 0))
        await trio.sleep(60)
    assert answer.consume_result == "CR_THROW_EXCEPTION"
    assert answer.remark is not None
    assert answer.remark.startswith(text)
    assert calls == 2, "the message is not redelivered"


async def test_a_message_of_the_retry_topic_has_its_original_topic(
    address: str, client: Client, operator: Operator, fill: Fill, jumping_clock: trio.testing.MockClock
) -> None:
    await fill("T", 1)
    handled = []

    async def handle(message: ReceivedMessage) -> ConsumeLater | None:
        handled.append(message)
        return ConsumeLater(1) if len(handled) == 1 else None

    async with running(consumer_of(address), handle) as consumer:
        await trio.sleep(5)
        await operator.consume(consumer, handled[1].offset_message_id)
    assert [(message.topic, message.reconsume_times) for message in handled] == [("T", 0), ("T", 1), ("T", 1)]


# Consumers without a handler


async def test_running_info_of_a_lite_pull_consumer(
    address: str, operator: Operator, fill: Fill, jumping_clock: trio.testing.MockClock
) -> None:
    await fill("T", 10)
    async with (
        created(Client, address, now_ms=now_ms) as client,
        LitePullConsumer(client, group="g", consume_from="earliest", auto_commit=False) as consumer,
    ):
        consumer.subscribe("T", "*")
        while len(await consumer.poll(max_messages=4)) < 4:
            pass
        await consumer.commit()
        await trio.sleep(11)
        info = await operator.running_info(consumer)
        assert (info.properties["PROP_CONSUME_TYPE"], info.properties["autoCommit"]) == (
            "CONSUME_ACTIVELY",
            "false",
        )
        assert info.properties["instanceName"] == core_of(client).client_id
        assert [one.topic for one in info.subscription_set] == ["T"]
        state = info.queue_table[QUEUE]
        assert (state.commit_offset, state.cached_msg_count, state.cached_msg_max_offset) == (4, 6, 9)
        assert info.status_table["T"].pull_tps > 0
        assert await operator.offsets("T") == {core_of(client).client_id: {QUEUE: 4}}
        with pytest.raises(BrokerError, match="does not serve request"):
            await operator.consume(consumer, await message_id(client, 1))
    with pytest.raises(BrokerError):
        await operator.running_info(consumer)


async def test_running_info_of_a_pop_consumer(
    address: str, operator: Operator, fill: Fill, jumping_clock: trio.testing.MockClock
) -> None:
    await fill("T", 4)
    async with (
        created(Client, address, now_ms=now_ms) as client,
        PopConsumer(client, group="g", consume_from="earliest") as consumer,
    ):
        consumer.subscribe("T", "*")
        await consumer.ack(*await consumer.receive())
        await trio.sleep(11)
        info = await operator.running_info(consumer)
        assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_POP"
        assert [one.topic for one in info.subscription_set] == ["T"]
        assert not info.queue_table
        assert info.status_table["T"].consume_ok_tps > 0
        assert await operator.offsets("T") == {core_of(client).client_id: {}}
