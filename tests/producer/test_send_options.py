"""Sends with different settings and kinds of messages."""

from __future__ import annotations

import random
import zlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
import trio
import trio.testing

from rocketmq_py.client import core, core_of
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.errors import (
    BatchError,
    BrokerError,
    Delivery,
    InvalidMessageError,
    MessageTooLargeError,
    RequestTimeoutError,
    UnsupportedByBrokerError,
)
from rocketmq_py.message import Message, MessageQueue, SendResult
from rocketmq_py.producer import Compression, LatencyFaultPolicy, Producer
from rocketmq_py.producer.batch import EncodedBatch
from rocketmq_py.producer.delay_relay import wait_in
from rocketmq_py.producer.request_builder import sends_start_deliver_time
from rocketmq_py.properties import decode_properties
from rocketmq_py.protocol.batch import decode_batch, encode_batched
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.handles import RecallHandle
from rocketmq_py.protocol.headers import RecallMessageRequest
from rocketmq_py.remoting import Connection
from rocketmq_py.selectors import SelectByHash, SelectByRandom
from tests.environment import created
from tests.scripted import ScriptedCluster, ignore, refuse, scripted_cluster, store

MESSAGE = Message("T", b"body")
V2 = RequestCode.SEND_MESSAGE_V2


def sends_of(cluster: ScriptedCluster, code: int = V2) -> list[Command]:
    return [request for server in cluster.brokers.values() for request in server.asked(code)]


def await_pipelined(producer: Producer) -> Callable[..., Awaitable[SendResult]]:
    async def send(*arguments: Any, **options: Any) -> SendResult:
        return await (await producer.submit(*arguments, **options))

    return send


# Queues


@pytest.mark.parametrize("way", ["awaited", "pipelined"])
async def test_retries_keep_the_queue_of_a_selector(way: str, jumping_clock: trio.testing.MockClock) -> None:
    chosen: list[MessageQueue] = []

    def select(queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
        assert message is MESSAGE
        chosen.append(queues[0])
        return queues[0]

    async with scripted_cluster(refuse(ResponseCode.SYSTEM_ERROR), store) as cluster:
        async with Producer(cluster.address) as producer:
            sending = producer.send if way == "awaited" else await_pipelined(producer)
            with pytest.raises(BrokerError):
                await sending(MESSAGE, queue=select)
        assert chosen == [MessageQueue("T", "broker-a", 0)], "it is called once"
        assert len(sends_of(cluster)) == len(cluster.brokers["broker-a"].asked(V2)) == 3


async def test_messages_of_one_key_go_to_one_queue() -> None:
    async with scripted_cluster(store, store) as cluster, Producer(cluster.address) as producer:
        queues = {
            key: {(await producer.send(MESSAGE, queue=SelectByHash(key))).queue for _ in range(4)}
            for key in ("order-1", "order-2", "order-3", "order-4")
        }
        assert {len(of_key) for of_key in queues.values()} == {1}
        assert len(set.union(*queues.values())) > 1
        assert list(await producer.queues("T")) == sorted(await producer.queues("T"))


async def test_messages_of_one_sharding_key_go_to_one_queue_with_each_method() -> None:
    message = Message("T", b"x", sharding_key="order-1")
    async with scripted_cluster(store_batch) as cluster:
        async with Producer(cluster.address) as producer:
            for _ in range(3):
                await producer.send(message)
                await (await producer.submit(message))
                await producer.send_oneway(message)
            await producer.send_batch([message, message])
            await producer.send(message, queue=MessageQueue("T", "broker-a", 1))
            with pytest.raises(InvalidMessageError, match="have different sharding keys"):
                await producer.send_batch([message, Message("T", b"x", sharding_key="order-2")])
        async with Producer(cluster.address, linger=0.005) as batching:
            await batching.send_all([message, Message("T", b"x", sharding_key="order-2"), message])
        sent = sends_of(cluster)
        assert [request.fields["e"] for request in sent] == ["3"] * 9 + ["1", "2"]
        assert decode_properties(sent[0].fields["i"])["__SHARDINGKEY"] == "order-1"
        batches = sends_of(cluster, RequestCode.SEND_BATCH_MESSAGE)
        assert [request.fields["e"] for request in batches] == ["3", "3"]
        stored = [decode_properties(one.properties.decode()) for one in decode_batch(batches[0].body)]
        assert [one["__SHARDINGKEY"] for one in stored] == ["order-1"] * 2


async def test_an_invalid_result_of_a_selector_is_named() -> None:
    async with scripted_cluster(store) as cluster, Producer(cluster.address) as producer:
        for nonsense in (None, MessageQueue("other", "broker-a", 0)):
            with pytest.raises(InvalidMessageError, match="which is not a queue of topic 'T'"):
                await producer.send(MESSAGE, queue=lambda *_, chosen=nonsense: chosen)
            with pytest.raises(InvalidMessageError, match="which is not a queue of topic 'T'"):
                await producer.submit(MESSAGE, queue=lambda *_, chosen=nonsense: chosen)

        def broken(queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
            raise LookupError("no such shard")

        for sending in (producer.send, producer.submit, producer.send_oneway):
            with pytest.raises(LookupError, match="no such shard"):
                await sending(MESSAGE, queue=broken)
        assert producer.in_flight == 0


# Attempts


async def test_try_timeout_bounds_an_attempt(jumping_clock: trio.testing.MockClock) -> None:
    async with (
        scripted_cluster(ignore, store) as cluster,
        created(Producer, cluster.address, rng=random.Random(1), try_timeout=0.5) as producer,
    ):
        for _ in range(4):
            start = trio.current_time()
            assert (await producer.send(MESSAGE)).queue.broker_name == "broker-b"
            pending = await producer.submit(MESSAGE)
            assert (await pending).queue.broker_name == "broker-b"
            assert trio.current_time() - start < 1.2
        assert len(cluster.brokers["broker-a"].asked(V2)) > 0


async def test_the_last_attempt_has_all_remaining_time(jumping_clock: trio.testing.MockClock) -> None:
    async with (
        scripted_cluster(ignore) as cluster,
        Producer(cluster.address, try_timeout=0.5, retries=1) as producer,
    ):
        start = trio.current_time()
        with pytest.raises(RequestTimeoutError):
            await producer.send(MESSAGE, timeout=2)
        assert trio.current_time() - start == pytest.approx(2, abs=0.1)


async def test_try_timeout_bounds_an_attempt_of_a_batch(jumping_clock: trio.testing.MockClock) -> None:
    async with (
        scripted_cluster(ignore, store_batch) as cluster,
        created(Producer, cluster.address, rng=random.Random(1), try_timeout=0.5) as producer,
    ):
        start = trio.current_time()
        for _ in range(4):
            results = await producer.send_batch([MESSAGE, MESSAGE])
            assert {result.queue.broker_name for result in results} == {"broker-b"}
        tries = len(cluster.brokers["broker-a"].asked(RequestCode.SEND_BATCH_MESSAGE))
        assert trio.current_time() - start == pytest.approx(0.5 * tries, abs=0.4)
        assert tries > 0


async def test_encoded_batch_is_resent_with_the_same_bytes(jumping_clock: trio.testing.MockClock) -> None:
    def busy(connection: Connection, request: Command) -> None:
        connection.respond(request, ResponseCode.SYSTEM_BUSY)

    body = encode_batched(7, b"one", b"UNIQ_KEY\x01ID1\x02") + encode_batched(
        0, b"two", b"UNIQ_KEY\x01ID2\x02"
    )
    batch = EncodedBatch.of_body("T", 2, body)
    async with scripted_cluster(busy, store_batch) as cluster, Producer(cluster.address) as producer:
        for _ in range(2):
            assert (await producer._send_encoded(batch)).queue.broker_name == "broker-b"
        with pytest.raises(BrokerError):
            await producer._send_encoded(batch, queue=MessageQueue("T", "broker-a", 1))
        sent = sends_of(cluster, RequestCode.SEND_BATCH_MESSAGE)
        assert {request.body for request in sent} == {body}
        assert (producer.statistics.sent, producer.statistics.failed) == (4, 2)


async def test_encoded_batch_above_the_size_limit_is_rejected() -> None:
    batch = EncodedBatch.of_body("T", 1, encode_batched(0, b"x" * 100, b""))
    async with scripted_cluster(store_batch) as cluster:
        async with Producer(cluster.address, max_message_size=121) as producer:
            with pytest.raises(MessageTooLargeError, match="has 122 bytes; max_message_size is 121"):
                await producer._send_encoded(batch)
        assert sends_of(cluster, RequestCode.SEND_BATCH_MESSAGE) == []


async def test_brokers_that_failed_are_avoided(jumping_clock: trio.testing.MockClock) -> None:
    async with (
        scripted_cluster(refuse(ResponseCode.SYSTEM_ERROR), store) as cluster,
        Producer(cluster.address, latency_faults=LatencyFaultPolicy.JAVA_5) as producer,
    ):
        for _ in range(8):
            await producer.send(MESSAGE)
        assert len(cluster.brokers["broker-a"].asked(V2)) == 1
        await trio.sleep(10.1)
        for _ in range(8):
            await producer.send(MESSAGE)
        assert len(cluster.brokers["broker-a"].asked(V2)) == 2


# Encodings


async def test_large_bodies_are_compressed_and_small_ones_are_not() -> None:
    body = b"a" * 300_000
    async with scripted_cluster(store) as cluster:
        async with Producer(cluster.address, compression=Compression(over=100)) as producer:
            for size in (99, 100, 300_000):
                await producer.send(Message("T", body[:size]))
                await (await producer.submit(Message("T", body[:size])))
                await producer.send_oneway(Message("T", body[:size]))
        async with Producer(cluster.address, compression=None) as producer:
            await producer.send(Message("T", body))
        requests = sends_of(cluster)
        assert [request.fields["f"] for request in requests] == ["0"] * 3 + [str(0x301)] * 6 + ["0"]
        for request, size in zip(requests[3:9], [100] * 3 + [300_000] * 3, strict=True):
            assert zlib.decompress(request.body) == body[:size]
        assert requests[9].body == body


async def test_a_body_that_is_too_large_is_rejected() -> None:
    async with scripted_cluster(store) as cluster:
        async with Producer(cluster.address) as producer:
            for sending in (producer.send, producer.submit, producer.send_oneway, producer.request):
                with pytest.raises(
                    MessageTooLargeError, match="has 5000000 bytes; max_message_size is 4194304"
                ):
                    await sending(Message("T", bytes(5_000_000)))
        assert not sends_of(cluster)


# Batches


def store_batch(connection: Connection, request: Command) -> None:
    if request.code == RequestCode.SEND_BATCH_MESSAGE:
        count = len(decode_batch(request.body))
        fields = {
            "msgId": ",".join(f"offset-{index}" for index in range(count)),
            "queueId": request.fields["e"],
            "queueOffset": "40",
        }
        connection.respond(request, ResponseCode.SUCCESS, fields)
    else:
        store(connection, request)


async def test_each_message_of_a_batch_has_its_own_result() -> None:
    async with scripted_cluster(store_batch) as cluster:
        async with Producer(cluster.address, max_message_size=600) as producer:
            messages = [Message("T", b"%d" % index * 50) for index in range(8)]
            results = await producer.send_batch(messages)
        requests = sends_of(cluster, RequestCode.SEND_BATCH_MESSAGE)
        assert len(requests) > 1
        stored = [one for request in requests for one in decode_batch(request.body)]
        assert [one.body for one in stored] == [message.body for message in messages]
        ids = [decode_properties(one.properties.decode())["UNIQ_KEY"] for one in stored]
        assert [result.message_id for result in results] == ids
        first = len(decode_batch(requests[0].body))
        assert [result.queue_offset for result in results[:first]] == list(range(40, 40 + first))
        assert results[0].offset_message_id == "offset-0"
        assert producer.statistics.sent == 8


async def test_a_partly_stored_list_raises_batch_error() -> None:
    answers = iter([store_batch, refuse(ResponseCode.MESSAGE_ILLEGAL)])

    def answer(connection: Connection, request: Command) -> None:
        if request.code == RequestCode.SEND_BATCH_MESSAGE:
            if next(answers) is store_batch:
                store_batch(connection, request)
            else:
                connection.respond(request, ResponseCode.MESSAGE_ILLEGAL, remark="no")
        else:
            connection.respond(request, ResponseCode.SUCCESS)

    async with (
        scripted_cluster(answer) as cluster,
        Producer(cluster.address, max_message_size=300) as producer,
    ):
        with pytest.raises(BatchError, match=r"2 of 6 messages were stored, then: .*ILLEGAL") as caught:
            await producer.send_batch([Message("T", b"x" * 50) for _ in range(6)])
        assert len(caught.value.results) == 2
        assert isinstance(caught.value.__cause__, BrokerError)
        with pytest.raises(InvalidMessageError, match=r"messages\[1\]: a delayed message"):
            await producer.send_batch([MESSAGE, Message("T", b"x", delay_level=1)])


# Timed messages


async def test_timed_messages_go_to_brokers_that_support_them() -> None:
    async with scripted_cluster(store) as cluster:
        async with Producer(cluster.address) as producer:
            await producer.send(Message("T", b"x", delay=1.5))
            await (await producer.submit(Message("T", b"x", deliver_at_ms=1_900_000_000_000)))
        first, second = (decode_properties(request.fields["i"]) for request in sends_of(cluster))
        assert first["TIMER_DELAY_MS"] == "1500"
        assert second["TIMER_DELIVER_MS"] == "1900000000000"


async def test_timed_messages_are_not_sent_to_brokers_4_x(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "rocketmq_py.protocol.command.VERSION", 407
    )  # the version that answers have as well: 4.9.7
    async with scripted_cluster(store) as cluster:
        async with Producer(cluster.address) as producer:
            timed = Message("T", b"x", delay=1.5)
            for _ in range(2):  # the second time its version is known already
                with pytest.raises(
                    UnsupportedByBrokerError,
                    match=r"\(version 4\.9\.7\) does not support timed messages, which needs 5\.0\.0",
                ):
                    await producer.send(timed)
                with pytest.raises(UnsupportedByBrokerError, match="Use delay_level"):
                    await await_pipelined(producer)(timed)
                with pytest.raises(UnsupportedByBrokerError):
                    await producer.send_oneway(timed)
            await producer.send(Message("T", b"x", delay_level="10s"))
        (request,) = sends_of(cluster)
        assert decode_properties(request.fields["i"])["DELAY"] == "3"


async def test_timed_messages_go_to_the_newer_brokers_of_a_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    def store_as_4_x(connection: Connection, request: Command) -> None:
        with monkeypatch.context() as patch:
            patch.setattr("rocketmq_py.protocol.command.VERSION", 407)
            store(connection, request)

    timed = Message("T", b"x", delay=1.5)
    async with (
        scripted_cluster(store_as_4_x, store, store_as_4_x, queues=2) as cluster,
        Producer(cluster.address) as producer,
    ):
        results = [await producer.send(timed) for _ in range(6)]
        results += [await pending for pending in [await producer.submit(timed) for _ in range(6)]]
        assert {result.queue.broker_name for result in results} == {"broker-b"}
        assert {result.queue.queue_id for result in results} == {0, 1}
        old = MessageQueue("T", "broker-c", 0)
        address = cluster.brokers["broker-c"].address
        with pytest.raises(UnsupportedByBrokerError, match=rf"broker {address} \(version 4\.9\.7\) does not"):
            await producer.send(timed, queue=old)
        assert {(await producer.send(MESSAGE)).queue.broker_name for _ in range(6)} == set(cluster.brokers)
        assert producer.statistics.retried == 0
        assert len(sends_of(cluster)) == 12 + 6


async def test_a_service_with_its_own_property_of_delays_gets_both_whatever_its_version(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rocketmq_py.protocol.command.VERSION", 407)
    async with scripted_cluster(store, topics=["T", "Relay"]) as cluster:
        async with Producer(cluster.address, start_deliver_time=True, delay_relay="Relay") as producer:
            before_ms = core_of(producer).now_ms()
            await producer.send(Message("T", b"x", delay=90))
            await (await producer.submit(Message("T", b"x", deliver_at_ms=1_900_000_000_000)))
            await producer.send_oneway(Message("T", b"x", delay=90, properties={"__STARTDELIVERTIME": "7"}))
            await producer.send(Message("T", b"x", delay_level=1))
            after_ms = core_of(producer).now_ms()
        delayed, timed, own, level = [decode_properties(request.fields["i"]) for request in sends_of(cluster)]
    assert before_ms + 90_000 <= int(delayed["__STARTDELIVERTIME"]) <= after_ms + 90_000
    assert delayed["TIMER_DELAY_MS"] == "90000"
    assert timed["__STARTDELIVERTIME"] == timed["TIMER_DELIVER_MS"] == "1900000000000"
    assert own["__STARTDELIVERTIME"] == "7"
    assert "__STARTDELIVERTIME" not in level


@pytest.mark.parametrize(
    ("address", "setting", "sent"),
    [
        ("http://MQ_INST_1_b.cn-hangzhou.mq-internal.aliyuncs.com:8080", None, True),
        ("rmq-1.rocketmq.ap-bj.public.tencenttdmq.com:8080", None, True),
        ("http://onsaddr-internet.aliyun.com/rocketmq/nsaddr4client-internet", None, True),
        ("rmq-1.rocketmq.ap-bj.public.tencenttdmq.com:8080", False, False),
        ("aliyuncs.com.example:9876", None, False),
        ("127.0.0.1:9876", None, False),
        ("127.0.0.1:9876", True, True),
    ],
)
def test_the_address_tells_whether_a_service_has_its_own_property_of_delays(
    address: str, setting: bool | None, sent: bool
) -> None:
    producer = Producer(address, start_deliver_time=setting)
    assert sends_start_deliver_time(producer.settings, core_of(producer)) is sent


# The sharding keys of ordered messages


async def test_the_key_of_a_selector_is_sent_as_the_sharding_key() -> None:
    by_hash = SelectByHash("order-7")
    async with scripted_cluster(store_batch) as cluster, Producer(cluster.address) as producer:
        for message, selector, expected in (
            (Message("T", b"x"), by_hash, "order-7"),
            (Message("T", b"x"), SelectByHash(7), "7"),
            (Message("T", b"x", sharding_key="own"), by_hash, "own"),
            (Message("T", b"x", properties={"__SHARDINGKEY": "own"}), by_hash, "own"),
            (Message("T", b"x"), SelectByRandom(), None),
            (Message("T", b"x", priority=1), by_hash, None),
            (Message("T", b"x", delay=5), by_hash, None),
            (Message("T", b"x", delay_level=5), by_hash, None),
            (Message("T", b"x"), SelectByHash(""), None),
            (Message("T", b"x"), SelectByHash("a\x01b"), None),
        ):
            await producer.send(message, queue=selector)
            *_, request = sends_of(cluster)
            assert decode_properties(request.fields["i"]).get("__SHARDINGKEY") == expected
            assert request.fields["i"].count("__SHARDINGKEY") == (expected is not None)
        await (await producer.submit(Message("T", b"x"), queue=by_hash))
        *_, request = sends_of(cluster)
        assert decode_properties(request.fields["i"])["__SHARDINGKEY"] == "order-7"


async def test_a_batch_with_one_sharding_key_has_it_as_a_whole() -> None:
    """A proxy looks only there for the type of the messages."""
    queue = MessageQueue("T", "broker-a", 0)
    first, second, none = (Message("T", b"x", sharding_key=key) for key in ("k", "l", ""))
    async with scripted_cluster(store_batch) as cluster, Producer(cluster.address) as producer:
        for messages, chosen, expected in (
            ([first, first], None, "k"),
            ([none, none], SelectByHash("order-7"), "order-7"),
            ([first, second], queue, None),
            ([first, none], queue, None),
            ([none, none], None, None),
        ):
            await producer.send_batch(messages, queue=chosen)
            *_, request = sends_of(cluster, RequestCode.SEND_BATCH_MESSAGE)
            assert decode_properties(request.fields["i"]).get("__SHARDINGKEY") == expected
            stored = [decode_properties(one.properties.decode()) for one in decode_batch(request.body)]
            own = [one.sharding_key or expected for one in messages]
            assert [one.get("__SHARDINGKEY") for one in stored] == own


async def test_messages_with_a_lite_topic_are_not_sent_to_brokers_5_4(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rocketmq_py.protocol.command.VERSION", 511)  # 5.4.9, the last version before 5.5.0
    async with scripted_cluster(store) as cluster:
        async with Producer(cluster.address) as producer:
            for _ in range(2):  # the second time its version is known already
                with pytest.raises(
                    UnsupportedByBrokerError, match=r"does not support lite topics, which needs 5\.5\.0"
                ):
                    await producer.send(Message("T", b"x", lite_topic="s1"))
        assert not sends_of(cluster)


async def test_a_timed_message_is_recalled_at_its_broker() -> None:
    handle = RecallHandle("T", "broker-b", "1900000000000", "unique").encode()

    def answer(connection: Connection, request: Command) -> None:
        if request.code == RequestCode.RECALL_MESSAGE:
            connection.respond(request, ResponseCode.SUCCESS, {"msgId": "unique"})
        else:
            store(connection, request)

    async with scripted_cluster(store, answer) as cluster:
        async with Producer(cluster.address, group="g") as producer:
            assert await producer.recall("T", handle) == "unique"
            with pytest.raises(InvalidMessageError, match="recall handle"):
                await producer.recall("T", "nonsense")
        (request,) = cluster.brokers["broker-b"].asked(RequestCode.RECALL_MESSAGE)
        header = RecallMessageRequest.from_fields(request.fields)
        assert (header.topic, header.recall_handle, header.producer_group) == ("T", handle, "g")


async def test_a_broker_with_a_status_other_than_send_ok_is_not_avoided() -> None:
    def unsafe(connection: Connection, request: Command) -> None:
        code = ResponseCode.SLAVE_NOT_AVAILABLE if request.code == V2 else ResponseCode.SUCCESS
        connection.respond(request, code, {"msgId": "id", "queueId": "0", "queueOffset": "9"})

    async with (
        scripted_cluster(unsafe, store) as cluster,
        Producer(cluster.address, latency_faults=LatencyFaultPolicy.JAVA_4) as producer,
    ):
        for _ in range(16):
            await producer.send(MESSAGE)
        assert producer.statistics.brokers == {}
        assert len(cluster.brokers["broker-a"].asked(V2)) > 1


async def nearly_full_connection(cluster: ScriptedCluster, producer: Producer, address: str) -> Connection:
    """Move broker-a to an address whose server reads nothing. The next request fills the buffer."""
    cluster.brokers["broker-a"].address = address
    await producer.queues("T")
    connection = await core_of(producer).connections.get(address)
    connection.oneway_nowait(1, {}, bytes(15 << 20))
    await trio.sleep(0.1)
    return connection


async def test_waiting_for_space_counts_against_the_timeout_of_the_attempt(
    jumping_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core, "MAX_BUFFERED", 1)
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with (
        listener,  # accepts, and reads nothing
        scripted_cluster(store, store) as cluster,
        Producer(cluster.address, try_timeout=0.5, latency_faults=LatencyFaultPolicy.JAVA_4) as producer,
    ):
        address = f"127.0.0.1:{listener.socket.getsockname()[1]}"
        connection = await nearly_full_connection(cluster, producer, address)
        connection.oneway_nowait(1, {}, b"fills the buffer")
        start = trio.current_time()
        for _ in range(8):
            assert (await producer.send(MESSAGE)).queue.broker_name == "broker-b"
        assert trio.current_time() - start < 1
        assert list(producer.statistics.brokers) == ["broker-a"]
        with pytest.raises(RequestTimeoutError, match=address) as caught:
            await producer.send_oneway(MESSAGE, queue=MessageQueue("T", "broker-a", 0))
        assert caught.value.delivery is Delivery.NOT_SENT


async def test_a_retry_on_another_broker_needs_no_time_for_a_pause(
    jumping_clock: trio.testing.MockClock,
) -> None:
    refusing = refuse(ResponseCode.SERVICE_NOT_AVAILABLE)
    async with scripted_cluster(refusing, store) as cluster, Producer(cluster.address) as producer:
        await producer.queues("T")
        for _ in range(8):
            result = await producer.send(MESSAGE, timeout=0.05)
            assert result.queue.broker_name == "broker-b"
        assert producer.statistics.retried
        with pytest.raises(BrokerError):
            await producer.send(MESSAGE, timeout=0.05, queue=MessageQueue("T", "broker-a", 0))


async def test_each_of_many_oneway_sends_waits_for_space_no_longer_than_its_timeout(
    jumping_clock: trio.testing.MockClock,
) -> None:
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    outcomes: list[str] = []
    async with (
        listener,  # accepts, and reads nothing
        scripted_cluster(store) as cluster,
        Producer(cluster.address, send_timeout=0.5, compression=None) as producer,
    ):
        address = f"127.0.0.1:{listener.socket.getsockname()[1]}"
        connection = await nearly_full_connection(cluster, producer, address)
        assert connection.has_space

        async def send() -> None:
            try:
                await producer.send_oneway(Message("T", bytes(1 << 20)))
            except RequestTimeoutError as error:
                outcomes.append(error.delivery.value)
            else:
                outcomes.append("written")

        with trio.fail_after(2):
            async with trio.open_nursery() as nursery:
                for _ in range(10):
                    nursery.start_soon(send)
    assert sorted(outcomes) == ["not sent"] * 6 + ["written"] * 4


async def test_sends_over_the_vip_channel_go_two_ports_below() -> None:
    async with scripted_cluster(store) as cluster, Producer(cluster.address, vip_channel=True) as producer:
        host, _, port = cluster.brokers["broker-a"].address.partition(":")
        cluster.brokers["broker-a"].address = f"{host}:{int(port) + 2}"  # the route of the name server
        await producer.send(MESSAGE)
        await (await producer.submit(MESSAGE))
    assert len(sends_of(cluster)) == 2


# Relays for brokers 4.x


async def test_timed_messages_for_brokers_4_x_go_to_the_relay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rocketmq_py.protocol.command.VERSION", 407)
    async with scripted_cluster(store, topics=["T", "Relay"]) as cluster:
        async with Producer(cluster.address, delay_relay="Relay") as producer:
            now_ms = core_of(producer).now_ms()
            for sending in (producer.send, await_pipelined(producer), producer.send_oneway):
                await sending(Message("T", b"x", deliver_at_ms=now_ms + 5000))
            await producer.send(Message("T", b"at once", delay_level=1))
            for message, queue, reason in (
                (Message("Relay", b"x", delay=1), None, "topic 'Relay' is the buffer topic of the relay"),
                (Message("T", b"x", delay=367 * 24 * 3600), None, "by at most 366 days"),
                (Message("T", b"x", delay=1, properties={"RELAY_DUE_MS": "1"}), None, "use another name"),
                (Message("T", b"x", delay=1), SelectByHash("k"), "cannot have a queue"),
            ):
                with pytest.raises(InvalidMessageError, match=reason):
                    await producer.send(message, queue=queue)
        *relayed, at_once = sends_of(cluster)
        for request in relayed:
            properties = decode_properties(request.fields["i"])
            assert request.fields["b"] == "Relay"
            assert (properties["RELAY_TOPIC"], properties["RELAY_DUE_MS"]) == ("T", str(now_ms + 5000))
        assert (len(relayed), at_once.fields["b"]) == (3, "T")
    with pytest.raises(InvalidMessageError, match="a relay does not support delay_level"):
        wait_in("Relay", Message("T", b"x", delay_level=1), now_ms)


@pytest.mark.parametrize("linger", [None, 0.005])
async def test_a_timed_message_with_a_sharding_key_goes_to_the_relay(
    linger: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rocketmq_py.protocol.command.VERSION", 407)
    async with scripted_cluster(store, topics=["T", "Relay"]) as cluster:
        async with Producer(cluster.address, delay_relay="Relay", linger=linger) as producer:
            await producer.send(Message("T", b"x", delay=5, sharding_key="k"))
        (request,) = sends_of(cluster)
    assert request.fields["b"] == "Relay"
    assert decode_properties(request.fields["i"])["__SHARDINGKEY"] == "k"


async def test_a_timed_send_fails_if_the_versions_of_brokers_are_unknown(
    jumping_clock: trio.testing.MockClock,
) -> None:
    async with scripted_cluster(store) as cluster:
        cluster.name_server.answer = ignore
        async with Producer(cluster.address, delay_relay="Relay", send_timeout=1.0) as producer:
            with pytest.raises(RequestTimeoutError, match=f"{cluster.address} within 1 s") as caught:
                await producer.send(Message("T", b"x", delay=1))
            assert caught.value.delivery is Delivery.NOT_SENT
