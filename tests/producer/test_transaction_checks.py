from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing

from rocketmq_py.client import core_of
from rocketmq_py.client.client import BorrowedClient
from rocketmq_py.message import Message, ReceivedMessage
from rocketmq_py.producer import (
    EndTransactionContext,
    ProducerHook,
    TransactionProducer,
    TransactionState,
    transaction_checker,
)
from rocketmq_py.properties import decode_properties
from rocketmq_py.protocol.command import Command
from rocketmq_py.remoting import Connection
from tests.producer.transacting import (
    COMMIT,
    ENDS,
    ON_WIRE,
    ROLLBACK,
    SENDS,
    Broker,
    always,
    asked_by_broker,
    stored,
)
from tests.scripted import scripted_cluster, store


@pytest.mark.parametrize("state", list(TransactionState))
async def test_a_check_is_answered_with_end_transaction(state: TransactionState) -> None:
    async with asked_by_broker(always(state)) as (producer, broker):
        broker.ask()
        (end,) = await broker.ends(1)
        assert end.is_oneway
        assert end.fields == {
            "producerGroup": "g",
            "topic": "T",
            "tranStateTableOffset": "7",
            "commitLogOffset": "70",
            "commitOrRollback": ON_WIRE[state],
            "msgId": "ID",
            "transactionId": "ID",
            "fromTransactionCheck": "true",
            "bname": "broker-a",
        }
        statistics = producer.transaction_statistics
        assert (statistics.checked, statistics.dropped) == (1, 0)
        assert statistics.committed + statistics.rolled_back + statistics.unknown == 1


async def test_check_gets_the_half_message() -> None:
    messages: list[ReceivedMessage] = []

    async def check(message: ReceivedMessage) -> TransactionState:
        messages.append(message)
        return COMMIT

    async with asked_by_broker(check, namespace="tenant") as (_, broker):
        broker.ask_with(broker.fields(), stored("ID", topic="tenant%T", group="tenant%g"))
        (end,) = await broker.ends(1)
    (message,) = messages
    assert (message.topic, message.body, message.queue_id) == ("T", b"body", 3)
    assert message.message_id == "ID"
    assert message.broker_name == "broker-a", "4.x brokers send no broker name, so it comes from the address"
    assert (end.fields["producerGroup"], end.fields["topic"]) == ("tenant%g", "tenant%T")
    assert "transactionId" not in end.fields, "it is the broker's"


async def test_a_broker_without_a_route_is_answered_over_its_connection() -> None:
    async with asked_by_broker(always(COMMIT)) as (producer, broker):
        broker.server.address = broker.server.address.replace("127.0.0.1", "localhost")
        for topic in core_of(producer).routes.topics():
            await core_of(producer).routes.refresh(topic)
        fields = {name: value for name, value in broker.fields().items() if name != "bname"}
        broker.ask_with(fields, stored())
        (end,) = await broker.ends(1)
        assert end.fields["commitOrRollback"] == ON_WIRE[COMMIT]
        assert not end.fields.get("bname")


@pytest.mark.parametrize("group", ["another", "tenant%g", "", None])
async def test_a_check_of_another_group_is_not_accepted(group: str | None) -> None:
    async with asked_by_broker(always(COMMIT)) as (producer, broker):
        broker.ask(body=stored(group=group))
        await broker.settle()
        assert not await broker.ends(0)
        assert producer.transaction_statistics.checked == 0


async def test_two_groups_of_a_client_get_their_own_checks() -> None:
    async with (
        asked_by_broker(always(COMMIT)) as (producer, broker),
        TransactionProducer(BorrowedClient(core_of(producer)), group="h", check=always(ROLLBACK)),
    ):
        broker.ask("of h", body=stored("of h", group="h"))
        broker.ask("of g")
        ends = {end.fields["msgId"]: end.fields for end in await broker.ends(2)}
        assert (ends["of h"]["commitOrRollback"], ends["of h"]["producerGroup"]) == ("12", "h")
        assert (ends["of g"]["commitOrRollback"], ends["of g"]["producerGroup"]) == ("8", "g")


@pytest.mark.parametrize(
    ("fields", "body"),
    [
        ({}, stored()),
        ({"tranStateTableOffset": "7", "commitLogOffset": "x"}, stored()),
        ({"tranStateTableOffset": "7", "commitLogOffset": "70"}, b""),
        ({"tranStateTableOffset": "7", "commitLogOffset": "70"}, stored()[:60]),
        ({"tranStateTableOffset": "7", "commitLogOffset": "70"}, b"\xff" * 200),
    ],
)
async def test_malformed_checks_are_ignored(fields: dict[str, str], body: bytes) -> None:
    async with asked_by_broker(always(COMMIT)) as (_, broker):
        broker.ask_with(fields, body)
        await broker.settle()
        broker.ask()
        await broker.ends(1)


def raising(_: ReceivedMessage) -> TransactionState:
    raise ValueError("the database is away")


async def raising_in_a_nursery(_: ReceivedMessage) -> TransactionState:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.sleep_forever)
        raise ValueError("the database is away")


@pytest.mark.parametrize("check", [raising, raising_in_a_nursery])
async def test_a_check_that_raises_is_unknown_and_logged(
    check: Callable[[ReceivedMessage], Any], caplog: pytest.LogCaptureFixture
) -> None:
    async with asked_by_broker(check) as (producer, broker):
        for place in (7, 8):
            broker.ask(place=place)
            ends = await broker.ends(place - 6)
        assert [end.fields["commitOrRollback"] for end in ends] == ["0", "0"]
        assert producer.transaction_statistics.checked == 2
    assert "group=g topic=T transaction=ID outcome=unknown" in caplog.text
    assert "the database is away" in caplog.text


async def test_a_check_that_fails_while_the_producer_is_closed_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def check(_: ReceivedMessage) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            try:
                await trio.sleep_forever()
            except trio.Cancelled:
                raise ValueError("in the middle of the closing") from None

    async with asked_by_broker(check) as (_, broker):
        broker.ask()
        await broker.settle()
    assert "in the middle of the closing" in caplog.text


@pytest.mark.parametrize("outcome", [None, True, "commit"])
async def test_a_result_other_than_a_state_is_unknown(
    outcome: object, caplog: pytest.LogCaptureFixture
) -> None:
    async with asked_by_broker(always(outcome)) as (_, broker):
        broker.ask()
        (end,) = await broker.ends(1)
    assert end.fields["commitOrRollback"] == "0"
    assert f"returned {outcome!r} instead of a TransactionState" in caplog.text


async def test_a_plain_check_runs_in_a_thread() -> None:
    threads = []

    def check(_: ReceivedMessage) -> TransactionState:
        threads.append(threading.get_ident())
        return COMMIT

    class Callable_:  # noqa: N801 - the test needs this name
        async def __call__(self, _: ReceivedMessage) -> TransactionState:
            threads.append(threading.get_ident())
            return COMMIT

    for kind in (check, Callable_(), lambda message: always(COMMIT)(message)):
        async with asked_by_broker(kind) as (_, broker):
            broker.ask()
            (end,) = await broker.ends(1)
            assert end.fields["commitOrRollback"] == "8"
    assert threads[0] != threading.get_ident()
    assert threads[1] == threading.get_ident()


class Gate:
    """A check that blocks until it is opened."""

    def __init__(self) -> None:
        self.open = trio.Event()
        self.asked: list[str] = []

    async def check(self, message: ReceivedMessage) -> TransactionState:
        self.asked.append(message.message_id)
        await self.open.wait()
        return COMMIT


async def test_concurrent_checks_are_bounded() -> None:
    gate = Gate()
    async with asked_by_broker(gate.check) as (_, broker):
        for number in range(10):
            broker.ask(f"ID-{number}")
        await broker.settle()
        assert len(gate.asked) == 8
        gate.open.set()
        ends = await broker.ends(10)
    assert {end.fields["msgId"] for end in ends} == {f"ID-{number}" for number in range(10)}


async def test_only_the_last_of_several_checks_of_a_transaction_is_answered() -> None:
    gate = Gate()
    async with asked_by_broker(gate.check) as (_, broker):
        for place in (7, 8, 9):
            broker.ask(place=place)
        await broker.settle()
        gate.open.set()
        (end,) = await broker.ends(1)
        assert (end.fields["tranStateTableOffset"], end.fields["commitLogOffset"]) == ("9", "90")
        assert gate.asked == ["ID"]
        broker.ask(place=10)
        await broker.ends(2)


@pytest.mark.parametrize(
    ("most", "most_bytes", "taken"),
    [(3, 1000, 3), (10, 4, 1), (10, 8, 2), (10, 1, 1)],
)
async def test_a_check_without_space_is_dropped_and_can_be_repeated(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, most: int, most_bytes: int, taken: int
) -> None:
    monkeypatch.setattr(transaction_checker, "MAX_CHECKS", most)
    monkeypatch.setattr(transaction_checker, "MAX_CHECK_BYTES", most_bytes)
    gate = Gate()
    async with asked_by_broker(gate.check) as (producer, broker):
        for number in range(5):
            broker.ask(f"ID-{number}")
        await broker.settle()
        assert producer.transaction_statistics.dropped == 5 - taken
        gate.open.set()
        await broker.ends(taken)
        for number in range(taken):
            broker.ask(f"again-{number}")
        ends = await broker.ends(2 * taken)
    assert {end.fields["msgId"] for end in ends} == {
        f"{name}-{number}" for name in ("ID", "again") for number in range(taken)
    }
    assert caplog.text.count("transaction check dropped, the broker will check again: group=g") == 1


async def test_checks_of_a_transaction_in_progress_are_answered_by_its_end() -> None:
    gate = Gate()
    async with asked_by_broker(gate.check) as (producer, broker):
        async with producer.transaction(Message("T", b"body")) as transaction:
            for place in (7, 8):
                broker.ask(transaction.transaction_id, place=place)
            # The copy at another broker is left over from a failed attempt.
            other = {**broker.fields(), "bname": "broker-b"}
            broker.ask_with(other, stored(transaction.transaction_id))
            await broker.settle()
            assert gate.asked == [transaction.transaction_id]
        (end,) = await broker.ends(1)
        assert end.fields["tranStateTableOffset"] == "8"
        assert end.fields["fromTransactionCheck"] == "true"
        gate.open.set()
        _, end = await broker.ends(2)
        assert end.fields["bname"] == "broker-b"
        broker.ask(transaction.transaction_id, place=9)
        await broker.ends(3)


async def test_a_cancelled_transaction_is_checked() -> None:
    gate = Gate()
    gate.open.set()
    async with asked_by_broker(gate.check) as (producer, broker):
        with trio.CancelScope() as scope:
            async with producer.transaction(Message("T", b"body")) as transaction:
                broker.ask(transaction.transaction_id)
                await broker.settle()
                scope.cancel()
                await trio.sleep_forever()
        assert not await broker.ends(0)
        broker.ask(transaction.transaction_id)
        await broker.ends(1)
        assert gate.asked == [transaction.transaction_id]


async def break_connection(
    producer: TransactionProducer, broker: Broker, *, stop_broker: bool = False
) -> None:
    connection = core_of(producer).connections.get_nowait(broker.server.address)
    assert connection is not None
    if stop_broker:
        broker.server.stop()
    else:
        broker.server.connections.pop(0).close()
    with trio.fail_after(10):
        while not connection.is_closed:
            await trio.sleep(0.01)


async def test_a_check_is_answered_over_a_new_connection_if_its_own_has_broken() -> None:
    gate = Gate()
    async with asked_by_broker(gate.check) as (producer, broker):
        broker.ask()
        await broker.settle()
        await break_connection(producer, broker)
        gate.open.set()
        (end,) = await broker.ends(1)
        assert end.fields["fromTransactionCheck"] == "true"
        assert producer.transaction_statistics.committed == 1


async def test_the_end_of_a_checked_transaction_is_reported_after_its_connection_has_broken() -> None:
    async with asked_by_broker(always(ROLLBACK)) as (producer, broker):
        async with producer.transaction(Message("T", b"body")) as transaction:
            broker.ask(transaction.transaction_id)
            await broker.settle()
            await break_connection(producer, broker)
        assert transaction.end_error is None
        (end,) = await broker.ends(1)
        assert end.fields["commitOrRollback"] == ON_WIRE[COMMIT]


async def test_a_check_during_the_report_of_its_transaction_is_answered() -> None:
    reporting, go_on = trio.Event(), trio.Event()
    gate = Gate()

    class SlowReport(ProducerHook):
        async def before_end_transaction(self, context: EndTransactionContext) -> None:
            if not context.from_check:
                reporting.set()
                await go_on.wait()

    async def transact(producer: TransactionProducer) -> None:
        async with producer.transaction(Message("T", b"body")) as transaction:
            ids.append(transaction.transaction_id)

    ids: list[str] = []
    async with asked_by_broker(gate.check) as (producer, broker):
        producer.add_hook(SlowReport())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(transact, producer)
            await reporting.wait()
            broker.ask(ids[0])
            await broker.settle()
            assert gate.asked == ids
            go_on.set()
        gate.open.set()
        _, end = await broker.ends(2)
        assert end.fields["fromTransactionCheck"] == "true"


async def test_a_check_that_runs_when_its_transaction_begins_does_not_end_its_deferral() -> None:
    # The broker stores the message twice, because the answer to the first attempt is lost.
    half_messages: list[tuple[Connection, Command]] = []

    def hold_half_messages(connection: Connection, request: Command) -> None:
        if request.code == SENDS:
            half_messages.append((connection, request))
        else:
            store(connection, request)

    gate = Gate()
    in_progress, go_on = trio.Event(), trio.Event()

    async def transact(producer: TransactionProducer) -> None:
        async with producer.transaction(Message("T", b"body")):
            in_progress.set()
            await go_on.wait()

    async with (
        scripted_cluster(hold_half_messages) as cluster,
        TransactionProducer(cluster.address, group="g", check=gate.check) as producer,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(transact, producer)
        with trio.fail_after(60):
            while not half_messages:
                await trio.sleep(0.01)
        connection, request = half_messages[0]
        message_id = decode_properties(request.fields["i"])["UNIQ_KEY"]
        broker = Broker(cluster.brokers["broker-a"])
        broker.ask(message_id, place=7)
        await broker.settle()
        store(connection, request)
        await in_progress.wait()
        gate.open.set()
        await broker.ends(1)
        broker.ask(message_id, place=8)
        await broker.ends(1)
        assert gate.asked == [message_id]
        go_on.set()
        _, end = await broker.ends(2)
        assert end.fields["tranStateTableOffset"] == "8"


async def test_a_check_that_cannot_be_answered_is_logged(
    jumping_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    gate = Gate()
    contexts: list[EndTransactionContext] = []

    class Hook(ProducerHook):
        def after_end_transaction(self, context: EndTransactionContext) -> None:
            contexts.append(context)

    async with asked_by_broker(gate.check) as (producer, broker):
        producer.add_hook(Hook())
        broker.ask()
        await broker.settle()
        await break_connection(producer, broker, stop_broker=True)
        gate.open.set()
        with trio.fail_after(100):
            while not contexts:
                await trio.sleep(0.01)
        assert producer.transaction_statistics.not_reported == 1
        assert not broker.server.asked(ENDS)
    (context,) = contexts
    assert (context.transaction_state, context.from_check, context.topic) == ("commit", True, "T")
    assert isinstance(context.message, ReceivedMessage)
    assert context.error is not None
    assert "transaction outcome report failed, retrying: group=g broker=broker-a" in caplog.text


async def test_a_closed_producer_accepts_no_checks(jumping_clock: trio.testing.MockClock) -> None:
    async with asked_by_broker(always(COMMIT)) as (producer, broker):
        async with TransactionProducer(BorrowedClient(core_of(producer)), group="h", check=always(COMMIT)):
            pass
        assert await broker.is_served()
        await producer.aclose()
        assert not await broker.is_served()


async def test_closing_cancels_running_checks() -> None:
    gate = Gate()
    async with asked_by_broker(gate.check) as (_, broker):
        broker.ask()
        await broker.settle()
        assert gate.asked
    assert not broker.server.asked(ENDS)
