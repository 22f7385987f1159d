from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
import trio.testing

from rocketmq_py import Client
from rocketmq_py.client import core_of
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.errors import (
    BrokerError,
    ConfigurationError,
    ConnectError,
    Delivery,
    InvalidMessageError,
    MessageRefusedError,
    ProtocolError,
    RequestTimeoutError,
)
from rocketmq_py.message import Message, MessageQueue, SendStatus
from rocketmq_py.producer import (
    TransactionProducer,
    TransactionSendResult,
    TransactionState,
)
from rocketmq_py.producer.hooks import Hooks
from rocketmq_py.producer.settings import ProducerSettings
from rocketmq_py.producer.transaction_reports import TransactionReporter
from rocketmq_py.producer.transaction_values import HalfMessage
from rocketmq_py.properties import decode_properties
from tests.producer.transacting import (
    COMMIT,
    ENDS,
    MESSAGE,
    NOT_OK,
    ON_WIRE,
    ROLLBACK,
    SENDS,
    UNKNOWN,
    answering,
    fail,
    in_a_block,
    in_a_call,
    in_an_async_call,
    not_called,
    producer_of,
    reported_states,
    working,
)
from tests.scripted import refuse, scripted_cluster, store


@pytest.mark.parametrize("state", list(TransactionState))
@pytest.mark.parametrize("way", [in_a_call, in_an_async_call, in_a_block])
async def test_the_state_is_reported_to_the_broker(
    way: Callable[[TransactionProducer, TransactionState], Awaitable[TransactionSendResult]],
    state: TransactionState,
) -> None:
    async with scripted_cluster(answering(ResponseCode.SUCCESS)) as cluster:
        async with producer_of(cluster.address) as producer:
            sent = await way(producer, state)
            statistics = producer.transaction_statistics
        assert (sent.state, sent.error, sent.end_error) == (state, None, None)
        assert (statistics.committed, statistics.rolled_back, statistics.unknown) == tuple(
            int(state is one) for one in (COMMIT, ROLLBACK, UNKNOWN)
        )
        assert (statistics.in_progress, statistics.not_reported) == (0, 0)
        (end,) = cluster.brokers["broker-a"].asked(ENDS)
        assert end.is_oneway
        assert end.fields == {
            "producerGroup": "g",
            "topic": "T",
            "tranStateTableOffset": "77",
            "commitLogOffset": "1234",
            "commitOrRollback": ON_WIRE[state],
            "msgId": sent.result.message_id,
            "transactionId": sent.result.message_id,
            "fromTransactionCheck": "false",
            "bname": "broker-a",
        }


@pytest.mark.parametrize("namespace", ["", "tenant"])
async def test_the_half_message_is_marked_and_follows_a_heartbeat(namespace: str) -> None:
    group = "tenant%g" if namespace else "g"
    topics = [f"tenant%{MESSAGE.topic}" if namespace else MESSAGE.topic]
    async with scripted_cluster(store, topics=topics) as cluster:
        async with (
            Client(cluster.address, namespace=namespace) as client,
            producer_of(client) as producer,
        ):
            await producer.send_in_transaction(MESSAGE, working(COMMIT), check_immunity=1.5)
            await producer.send(MESSAGE)
        broker = cluster.brokers["broker-a"]
        half, plain = broker.asked(SENDS)
        properties = decode_properties(half.fields["i"])
        assert int(half.fields["f"]) & 0xC == 0x4
        assert (properties["TRAN_MSG"], properties["PGROUP"]) == ("true", group)
        assert properties["CHECK_IMMUNITY_TIME_IN_SECONDS"] == "2", "brokers count whole seconds"
        assert half.fields["a"] == group
        (end,) = broker.asked(ENDS)
        assert (end.fields["producerGroup"], end.fields["topic"]) == (group, topics[0])
        before = [request.code for request in broker.requests[: broker.requests.index(half)]]
        assert RequestCode.HEART_BEAT in before
        assert f'"producerDataSet":[{{"groupName":"{group}"}}]'.encode() in broker.requests[0].body
        assert plain.fields["f"] == "0", "other sends are unaffected"
        assert "TRAN_MSG" not in plain.fields["i"]


async def test_a_large_body_is_compressed_in_a_transaction_too() -> None:
    async with scripted_cluster(store) as cluster:
        async with producer_of(cluster.address) as producer:
            await producer.send_in_transaction(Message("T", bytes(10_000)), working(COMMIT))
        (half,) = cluster.brokers["broker-a"].asked(SENDS)
        assert int(half.fields["f"]) & 0xD == 0x5
        assert len(half.body) < 1000


async def test_local_work_gets_the_message_and_the_transaction_id() -> None:
    seen: list[tuple[Message, str, int]] = []

    def work(message: Message, transaction_id: str) -> TransactionState:
        seen.append((message, transaction_id, threading.get_ident()))
        return COMMIT

    async with scripted_cluster(store) as cluster, producer_of(cluster.address) as producer:
        sent = await producer.send_in_transaction(MESSAGE, work, queue=MessageQueue("T", "broker-a", 3))
        assert sent.result.queue.queue_id == 3
        ((message, transaction_id, thread),) = seen
        assert (message, transaction_id) == (MESSAGE, sent.result.message_id)
        assert thread != threading.get_ident(), "a plain function may block"
        async with producer.transaction(MESSAGE) as transaction:
            assert transaction.transaction_id == transaction.result.message_id
            assert transaction.message is MESSAGE


@pytest.mark.parametrize("on_error", [UNKNOWN, ROLLBACK])
async def test_an_exception_never_commits(
    on_error: TransactionState, caplog: pytest.LogCaptureFixture
) -> None:
    async with scripted_cluster(store) as cluster:
        async with producer_of(cluster.address, on_error=on_error) as producer:
            sent = await producer.send_in_transaction(MESSAGE, fail)
            with pytest.raises(ValueError, match="in the block"):
                async with producer.transaction(MESSAGE) as transaction:
                    raise ValueError("in the block")
        assert (sent.state, str(sent.error)) == (on_error, "the database is away")
        assert transaction.state is on_error
        assert reported_states(cluster.brokers["broker-a"]) == [ON_WIRE[on_error]] * 2
    assert "the database is away" in caplog.text
    assert sent.result.message_id in caplog.text


@pytest.mark.parametrize("wrong", [COMMIT, "commit", None])
def test_on_error_cannot_be_commit(wrong: object) -> None:
    with pytest.raises(ConfigurationError, match=r"on_error (is .* or ROLLBACK|must be a)"):
        producer_of("127.0.0.1:1", on_error=wrong)


def test_other_options() -> None:
    with pytest.raises(ConfigurationError, match="topic 'a b'"):
        producer_of("127.0.0.1:1", topics=["T", "a b"])
    with pytest.raises(ConfigurationError, match="did you mean 'on_error'"):
        producer_of("127.0.0.1:1", on_eror=ROLLBACK)
    producer = producer_of("127.0.0.1:1", topics="T", retries=5, heartbeat_interval=7.0)
    assert producer.settings.topics == ("T",)
    assert (producer.settings.retries, core_of(producer).settings.heartbeat_interval) == (5, 7.0)


@pytest.mark.parametrize("outcome", [None, True, "commit"])
async def test_a_result_other_than_a_state_is_unknown(
    outcome: object, caplog: pytest.LogCaptureFixture
) -> None:
    async with scripted_cluster(store) as cluster:
        async with producer_of(cluster.address, on_error=ROLLBACK) as producer:
            sent = await producer.send_in_transaction(MESSAGE, lambda *_: outcome)  # type: ignore[arg-type]
        assert (sent.state, sent.error) == (UNKNOWN, None), "the work was done, whatever it returned"
        assert reported_states(cluster.brokers["broker-a"]) == ["0"]
    assert f"returned {outcome!r} instead of a TransactionState" in caplog.text


@pytest.mark.parametrize("outcome", [None, True, "commit"])
async def test_the_state_of_a_block_must_be_a_state(outcome: Any) -> None:
    async with scripted_cluster(store) as cluster:
        async with producer_of(cluster.address) as producer:
            with pytest.raises(TypeError):
                async with producer.transaction(MESSAGE) as transaction:
                    transaction.state = outcome
        assert reported_states(cluster.brokers["broker-a"]) == ["0"]


@pytest.mark.parametrize(("code", "status"), NOT_OK)
async def test_a_half_message_with_a_status_other_than_send_ok_is_rolled_back(
    code: int, status: SendStatus
) -> None:
    async with scripted_cluster(answering(code)) as cluster:
        async with producer_of(cluster.address) as producer:
            sent = await producer.send_in_transaction(MESSAGE, not_called)
            with pytest.raises(BrokerError, match=f"{status.name}.*rolled back") as caught:
                async with producer.transaction(MESSAGE):
                    raise AssertionError("the block must not be run")
        assert (sent.result.status, sent.state, sent.error) == (status, ROLLBACK, None)
        assert caught.value.code == code
        assert reported_states(cluster.brokers["broker-a"]) == ["12", "12"]


async def test_local_work_is_not_called_without_a_half_message() -> None:
    async with scripted_cluster(refuse(ResponseCode.MESSAGE_ILLEGAL)) as cluster:
        async with producer_of(cluster.address) as producer:
            with pytest.raises(MessageRefusedError):
                await producer.send_in_transaction(MESSAGE, not_called)
            with pytest.raises(MessageRefusedError):
                async with producer.transaction(MESSAGE):
                    raise AssertionError("the block must not be run")
            assert producer.transaction_statistics.in_progress == 0
        assert not reported_states(cluster.brokers["broker-a"])


@pytest.mark.parametrize(
    "message",
    [
        Message("T", b"x", delay_level=1),
        Message("T", b"x", delay=1.0),
        Message("T", b"x", deliver_at_ms=1_700_000_000_000),
    ],
)
async def test_a_delayed_message_is_rejected(message: Message) -> None:
    async with scripted_cluster(store) as cluster:
        async with producer_of(cluster.address) as producer:
            with pytest.raises(InvalidMessageError, match="cannot be delayed"):
                await producer.send_in_transaction(message, not_called)
        assert not cluster.brokers["broker-a"].asked(SENDS)


async def test_a_message_with_a_lite_topic_is_rejected() -> None:
    async with scripted_cluster(store) as cluster:
        async with producer_of(cluster.address) as producer:
            with pytest.raises(InvalidMessageError, match="cannot have a lite topic"):
                await producer.send_in_transaction(Message("T", b"x", lite_topic="s"), not_called)
        assert not cluster.brokers["broker-a"].asked(SENDS)


@pytest.mark.parametrize("seconds", [0, -1.0, float("inf"), float("nan")])
async def test_an_invalid_check_immunity_is_rejected(seconds: float) -> None:
    async with scripted_cluster(store) as cluster:
        async with producer_of(cluster.address) as producer:
            with pytest.raises(InvalidMessageError, match="check_immunity is"):
                await producer.send_in_transaction(MESSAGE, not_called, check_immunity=seconds)
        assert not cluster.brokers["broker-a"].asked(SENDS)


async def test_an_answer_without_an_offset_reports_nothing() -> None:
    async with scripted_cluster(answering(ResponseCode.SUCCESS, offset_id="nonsense")) as cluster:
        async with producer_of(cluster.address) as producer:
            with pytest.raises(ProtocolError, match="malformed answer of broker-a to a send: 'nonsense'"):
                await producer.send_in_transaction(MESSAGE, not_called)
        assert not reported_states(cluster.brokers["broker-a"])


async def test_the_report_goes_to_the_broker_of_the_half_message() -> None:
    answers = refuse(ResponseCode.SYSTEM_ERROR), answering(ResponseCode.SUCCESS)
    async with scripted_cluster(*answers) as cluster:
        async with producer_of(cluster.address) as producer:
            for _ in range(4):
                await producer.send_in_transaction(MESSAGE, working(COMMIT))
        assert cluster.brokers["broker-a"].asked(SENDS), "the attempt was made there"
        assert [len(reported_states(server)) for server in cluster.brokers.values()] == [0, 4]


async def test_a_failed_report_is_an_end_error(
    jumping_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with scripted_cluster(store) as cluster, producer_of(cluster.address) as producer:

        async def lose_the_broker(_: Message, __: str) -> TransactionState:
            cluster.brokers["broker-a"].stop()
            await trio.testing.wait_all_tasks_blocked(0.05)
            return COMMIT

        sent = await producer.send_in_transaction(MESSAGE, lose_the_broker)
        assert sent.state is COMMIT
        assert isinstance(sent.end_error, ConnectError)
        statistics = producer.transaction_statistics
        assert (statistics.committed, statistics.not_reported) == (0, 1)
    assert f"topic=T transaction={sent.result.message_id} outcome=commit error=cannot connect" in caplog.text


async def test_a_report_over_a_full_connection_times_out(
    jumping_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full:
        async def oneway(self, code: int, fields: dict[str, str]) -> None:
            await trio.sleep_forever()

    async def full(address: str, deadline: float) -> Full:
        return Full()

    async with scripted_cluster(store) as cluster, Client(cluster.address) as client:
        monkeypatch.setattr(core_of(client).connections, "get_before", full)
        ends = TransactionReporter(core_of(client), ProducerSettings(group="g", send_timeout=1.5), Hooks())
        half = HalfMessage(MESSAGE, "id", "id", "broker-a", 0, 0, check_address="broker:10911")
        error = await ends.report(half, COMMIT)
    assert isinstance(error, RequestTimeoutError)
    assert str(error) == "no answer from broker:10911 within 1.5 s"
    assert error.delivery is Delivery.NOT_SENT
    assert (ends.reported.total(), ends.failed) == (0, 1)
