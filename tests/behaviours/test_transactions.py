from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Mapping

import pytest
import trio

from rocketmq_py import Client, Message, ReceivedMessage, TransactionState
from rocketmq_py.client import core_of
from rocketmq_py.hooks import EndTransactionContext, ProducerHook
from rocketmq_py.message import MessageQueue
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.headers import CheckTransactionStateRequest
from rocketmq_py.remoting import Connection
from tests.behaviours.conftest import ClusterUnderTest, create_topic
from tests.behaviours.reading import PATIENCE, read_all

pytestmark = pytest.mark.apis(real=True)

COMMIT, ROLLBACK, UNKNOWN = TransactionState.COMMIT, TransactionState.ROLLBACK, TransactionState.UNKNOWN


class Ledger:
    """The outcome of each transaction in the sender's own database."""

    def __init__(self) -> None:
        self.states: dict[str, TransactionState] = {}
        self.asked: list[ReceivedMessage] = []

    async def check(self, message: ReceivedMessage) -> TransactionState:
        self.asked.append(message)
        return self.states.get(message.message_id, ROLLBACK)

    def work(
        self, state: TransactionState, reported: TransactionState | None = None
    ) -> Callable[[Message, str], TransactionState]:
        """Return local work that records ``state``, and returns ``reported``."""

        def do(_: Message, transaction_id: str) -> TransactionState:
            self.states[transaction_id] = state
            return reported or state

        return do

    def times_asked(self, transaction_id: str) -> int:
        return [message.message_id for message in self.asked].count(transaction_id)


async def until(condition: Callable[[], object]) -> None:
    with trio.fail_after(PATIENCE):
        while not condition():
            await trio.sleep(0.02)


def bodies(messages: list[ReceivedMessage]) -> set[bytes]:
    return {message.body for message in messages}


async def until_checks_have_gone_round(client: Client, topic: str, group: str) -> None:
    """Wait until the broker has checked a new transaction. It has checked older ones before."""
    ledger = Ledger()
    async with client.transaction_producer(group, ledger.check) as producer:
        await producer.send_in_transaction(
            Message(topic, b"a marker"), ledger.work(ROLLBACK, reported=UNKNOWN)
        )
        await until(lambda: ledger.asked)


@pytest.mark.versions
async def test_a_committed_message_reaches_consumers_as_it_was_sent(client: Client, topic: str) -> None:
    ledger = Ledger()
    message = Message(
        topic, b"committed" * 1000, tags="TagA", keys=["order-1"], properties={"colour": "grün"}, flag=7
    )
    received: list[ReceivedMessage] = []

    async def handle(message: ReceivedMessage) -> None:
        received.append(message)

    queue = MessageQueue(topic, next(iter((await core_of(client).routes.get(topic)).brokers)), 2)
    async with client.transaction_producer(f"senders-{topic}", ledger.check) as producer:
        sent = await producer.send_in_transaction(message, ledger.work(COMMIT), queue=queue)
        assert (sent.state, sent.error, sent.end_error) == (COMMIT, None, None)
        async with (
            client.push_consumer(f"group-{topic}", consume_from="earliest") as consumer,
            trio.open_nursery() as nursery,
        ):
            consumer.subscribe(topic, "TagA")
            nursery.start_soon(consumer.run, handle)
            await until(lambda: received)
            nursery.cancel_scope.cancel()
    first = received[0]
    assert (first.body, first.tags, first.keys, first.flag) == (message.body, "TagA", ("order-1",), 7)
    assert first.user_properties == {"colour": "grün"}
    assert first.message_id == sent.result.message_id
    assert first.queue == sent.result.queue == queue


async def test_a_message_that_is_rolled_back_is_never_seen(client: Client, topic: str) -> None:
    ledger = Ledger()

    def fail(_: Message, __: str) -> TransactionState:
        raise ValueError("the database is away")

    async with client.transaction_producer(f"senders-{topic}", ledger.check, on_error=ROLLBACK) as producer:
        await producer.send_in_transaction(Message(topic, b"rolled back"), ledger.work(ROLLBACK))
        failed = await producer.send_in_transaction(Message(topic, b"failed"), fail)
        with pytest.raises(KeyError):
            async with producer.transaction(Message(topic, b"failed in a block")) as transaction:
                raise KeyError(transaction.transaction_id)
        async with producer.transaction(Message(topic, b"given up in a block")) as transaction:
            transaction.state = ROLLBACK
        async with producer.transaction(Message(topic, b"committed")) as transaction:
            ledger.states[transaction.transaction_id] = COMMIT
        await until_checks_have_gone_round(client, topic, f"others-{topic}")
    assert failed.state is ROLLBACK
    assert isinstance(failed.error, ValueError)
    assert bodies(await read_all(client, topic, count=1)) == {b"committed"}


@pytest.mark.parametrize("size", [10, 100_000])
@pytest.mark.versions
async def test_an_unknown_state_is_checked(cluster: ClusterUnderTest, topic: str, size: int) -> None:
    ledger = Ledger()
    message = Message(topic, b"x" * size, tags="TagA", keys="order-1", properties={"colour": "grün"})
    async with (
        Client(cluster.address) as client,
        client.transaction_producer(f"senders-{topic}", ledger.check) as producer,
    ):
        sent = await producer.send_in_transaction(message, ledger.work(COMMIT, reported=UNKNOWN))
        assert sent.state is UNKNOWN
        received = await read_all(client, topic, count=1)
    assert bodies(received) == {message.body}
    assert received[0].message_id == sent.result.message_id
    asked = ledger.asked[0]
    assert (asked.topic, asked.body, asked.tags, asked.keys) == (topic, message.body, "TagA", ("order-1",))
    assert asked.message_id == sent.result.message_id
    assert asked.user_properties["colour"] == "grün"
    assert asked.queue == sent.result.queue
    if cluster.is_at_least("4.6.1"):  # older brokers decompress the body, and say that it is compressed
        assert asked.corruption is None


async def test_the_broker_checks_until_it_gets_an_outcome(client: Client, topic: str) -> None:
    ledger = Ledger()

    async def check(message: ReceivedMessage) -> TransactionState:
        state = await ledger.check(message)
        if len(ledger.asked) == 1:
            raise ValueError("the database is away")
        return state if len(ledger.asked) > 2 else UNKNOWN

    async with client.transaction_producer(f"senders-{topic}", check) as producer:
        await producer.send_in_transaction(Message(topic, b"body"), ledger.work(COMMIT, reported=UNKNOWN))
        assert bodies(await read_all(client, topic, count=1)) == {b"body"}
    assert len(ledger.asked) >= 3


@pytest.mark.parametrize("names_topics", [False, True])
async def test_a_restarted_producer_is_checked_before_its_first_send(
    cluster: ClusterUnderTest, client: Client, topic: str, names_topics: bool
) -> None:
    ledger, group = Ledger(), f"senders-{topic}"
    async with Client(cluster.address) as first, first.transaction_producer(group, ledger.check) as producer:
        await producer.send_in_transaction(Message(topic, b"body"), ledger.work(COMMIT, reported=UNKNOWN))
    options: Mapping[str, str] = {"topics": topic} if names_topics else {}
    async with (
        Client(cluster.address) as second,
        second.transaction_producer(group, ledger.check, **options) as producer,  # type: ignore[arg-type]
    ):
        assert bodies(await read_all(client, topic, count=1)) == {b"body"}
        await until(lambda: producer.transaction_statistics.checked)


async def test_another_producer_of_the_group_is_checked(
    cluster: ClusterUnderTest, client: Client, topic: str
) -> None:
    ledger, group = Ledger(), f"senders-{topic}"

    async def fail(_: ReceivedMessage) -> TransactionState:
        raise ValueError("this one cannot answer")

    async with (
        Client(cluster.address) as another,
        client.transaction_producer(group, fail) as sender,
        another.transaction_producer(group, ledger.check),
    ):
        await sender.send_in_transaction(Message(topic, b"body"), ledger.work(COMMIT, reported=UNKNOWN))
        assert bodies(await read_all(client, topic, count=1)) == {b"body"}
    assert ledger.asked


async def test_two_groups_of_a_client_get_their_own_checks(client: Client, topic: str) -> None:
    ledgers = [Ledger(), Ledger()]
    async with (
        client.transaction_producer(f"first-{topic}", ledgers[0].check) as first,
        client.transaction_producer(f"second-{topic}", ledgers[1].check) as second,
    ):
        for producer, ledger, body in zip((first, second), ledgers, (b"first", b"second"), strict=True):
            await producer.send_in_transaction(Message(topic, body), ledger.work(COMMIT, reported=UNKNOWN))
        assert bodies(await read_all(client, topic, count=2)) == {b"first", b"second"}
    assert [bodies(ledger.asked) for ledger in ledgers] == [{b"first"}, {b"second"}]


@pytest.mark.long
@pytest.mark.sockets
async def test_a_transaction_of_a_killed_sender_is_checked(
    cluster: ClusterUnderTest, client: Client, topic: str
) -> None:
    ledger, group = Ledger(), f"senders-{topic}"
    process = await trio.lowlevel.open_process(
        [sys.executable, "-m", "tests.behaviours.transaction_program", cluster.address, group, topic],
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    async with process.stdout:
        with trio.fail_after(PATIENCE):
            line = b""
            while not line.endswith(b"\n"):
                line += await process.stdout.receive_some()
        ledger.states[line.decode().strip()] = COMMIT
        process.send_signal(signal.SIGKILL)
        await process.wait()
    async with client.transaction_producer(group, ledger.check):
        assert bodies(await read_all(client, topic, count=1)) == {b"killed in between"}


class Questions:
    """The checks that a client receives from brokers, in order."""

    def __init__(self, client: Client) -> None:
        self.ids: list[str] = []
        core_of(client).add_request_handler(CheckTransactionStateRequest, self._take)

    def _take(self, _: Connection, __: Command, header: CheckTransactionStateRequest) -> bool:
        assert header.msg_id is not None
        self.ids.append(header.msg_id)
        return False


@pytest.mark.apis("trio")  # it records the requests of brokers
async def test_checks_of_a_transaction_in_progress_are_answered_by_its_end(
    client: Client, topic: str
) -> None:
    questions, ledger = Questions(client), Ledger()
    ends: list[EndTransactionContext] = []

    class Hook(ProducerHook):
        def after_end_transaction(self, context: EndTransactionContext) -> None:
            ends.append(context)

    async with client.transaction_producer(f"senders-{topic}", ledger.check) as producer:
        producer.add_hook(Hook())
        async with producer.transaction(Message(topic, b"slow")) as transaction:
            await until(lambda: transaction.transaction_id in questions.ids)
            ledger.states[transaction.transaction_id] = COMMIT
        assert (transaction.state, transaction.end_error) == (COMMIT, None)
        assert [(end.message_id, end.from_check) for end in ends] == [(transaction.transaction_id, True)]
        await until_checks_have_gone_round(client, topic, f"others-{topic}")
    # Brokers store a copy of the half message for each check. If the end referred to the first copy, they
    # would check the last one, and deliver the message twice.
    assert not ledger.asked
    assert [message.body for message in await read_all(client, topic, count=1)] == [b"slow"]


@pytest.mark.apis("trio")  # it records the requests of brokers
async def test_there_are_no_checks_during_the_immunity_time(client: Client, topic: str) -> None:
    questions, ledger = Questions(client), Ledger()
    async with client.transaction_producer(f"senders-{topic}", ledger.check) as producer:
        async with producer.transaction(Message(topic, b"immune"), check_immunity=3600) as immune:
            async with producer.transaction(Message(topic, b"slow")) as transaction:
                await until(lambda: questions.ids.count(transaction.transaction_id) >= 2)
                ledger.states[transaction.transaction_id] = COMMIT
            ledger.states[immune.transaction_id] = COMMIT
        assert immune.transaction_id not in questions.ids
        assert bodies(await read_all(client, topic, count=2)) == {b"immune", b"slow"}


async def test_transactions_under_a_namespace(cluster: ClusterUnderTest, unique: str) -> None:
    ledger = Ledger()
    async with Client(cluster.address, namespace="tenant") as client:
        await create_topic(client, unique, queues=1)
        async with client.transaction_producer(f"senders-{unique}", ledger.check) as producer:
            await producer.send_in_transaction(Message(unique, b"committed"), ledger.work(COMMIT))
            await producer.send_in_transaction(
                Message(unique, b"asked"), ledger.work(COMMIT, reported=UNKNOWN)
            )
            assert bodies(await read_all(client, unique, count=2)) == {b"committed", b"asked"}
    assert {message.topic for message in ledger.asked} == {unique}
