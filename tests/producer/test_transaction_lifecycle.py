from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable

import pytest
import trio
import trio.testing

from rocketmq_py.client import core_of
from rocketmq_py.codes import RequestCode
from rocketmq_py.errors import (
    ClosedError,
    InvalidMessageError,
    SendForbiddenError,
)
from rocketmq_py.message import Message
from rocketmq_py.producer import (
    EndTransactionContext,
    ProducerHook,
    SendContext,
    TransactionProducer,
    TransactionSendResult,
    TransactionState,
)
from rocketmq_py.protocol.command import Command
from rocketmq_py.remoting import Connection
from tests.cancelling import cancel_at_each_await
from tests.producer.transacting import (
    COMMIT,
    MESSAGE,
    ROLLBACK,
    SENDS,
    in_a_block,
    in_an_async_call,
    not_called,
    producer_of,
    reported_states,
    working,
)
from tests.scripted import scripted_cluster, store


async def test_hooks_see_the_half_message_and_the_report() -> None:
    calls: list[tuple[str, object]] = []

    class Hook(ProducerHook):
        def before_send(self, context: SendContext) -> None:
            calls.append(("before_send", context.is_half))
            context.messages[0] = Message("T", b"another")

        def after_send(self, context: SendContext) -> None:
            calls.append(("after_send", len(context.results)))

        async def before_end_transaction(self, context: EndTransactionContext) -> None:
            await trio.lowlevel.checkpoint()
            calls.append(("before_end", context))

        def after_end_transaction(self, context: EndTransactionContext) -> None:
            calls.append(("after_end", context))

    async with scripted_cluster(store) as cluster, producer_of(cluster.address) as producer:
        producer.add_hook(ProducerHook())  # methods that are not overridden do nothing
        remove = producer.add_hook(Hook())

        async def work(message: Message, _: str) -> TransactionState:
            calls.append(("work", message.body))
            return ROLLBACK

        sent = await producer.send_in_transaction(MESSAGE, work)
        remove()
        await producer.send_in_transaction(MESSAGE, working(COMMIT))
        *first, (_, before), (_, after) = calls
        assert first == [("before_send", True), ("after_send", 1), ("work", b"another")]
        assert before is after
        assert isinstance(before, EndTransactionContext)
        assert (before.transaction_state, before.from_check, before.error) == ("rollback", False, None)
        assert (before.topic, before.message_id) == ("T", sent.result.message_id)
        assert before.broker_address == cluster.brokers["broker-a"].address
        assert before.message is not None
        assert before.message.body == b"another"


async def test_a_hook_cannot_delay_the_half_message_but_can_forbid_it() -> None:
    class Delay(ProducerHook):
        def before_send(self, context: SendContext) -> None:
            context.messages[0] = Message("T", b"x", delay_level=3)

    class Forbid(ProducerHook):
        def check_forbidden(self, context: SendContext) -> None:
            raise ValueError("not on Sundays")

    async with scripted_cluster(store) as cluster, producer_of(cluster.address) as producer:
        producer.add_hook(Delay())
        with pytest.raises(InvalidMessageError, match="cannot be delayed"):
            await producer.send_in_transaction(MESSAGE, not_called)
        producer.add_hook(Forbid())
        with pytest.raises(SendForbiddenError, match="not on Sundays"):
            await producer.send_in_transaction(MESSAGE, not_called)
        assert not cluster.brokers["broker-a"].asked(SENDS)


async def test_a_hook_sees_the_error_of_a_failed_report(jumping_clock: trio.testing.MockClock) -> None:
    ends: list[EndTransactionContext] = []

    class Hook(ProducerHook):
        def after_end_transaction(self, context: EndTransactionContext) -> None:
            ends.append(context)

    async with scripted_cluster(store) as cluster, producer_of(cluster.address) as producer:
        producer.add_hook(Hook())
        async with producer.transaction(MESSAGE) as transaction:
            cluster.brokers["broker-a"].stop()
            await trio.testing.wait_all_tasks_blocked(0.05)
        assert transaction.end_error is not None
        assert ends[0].error is transaction.end_error


@pytest.mark.parametrize("way", [in_an_async_call, in_a_block])
async def test_transaction_cancelled_at_any_await_leaks_nothing(
    way: Callable[[TransactionProducer, TransactionState], Awaitable[TransactionSendResult]],
) -> None:
    finished = 0

    async with scripted_cluster(store) as cluster:
        async with producer_of(cluster.address) as producer:

            async def send() -> None:
                nonlocal finished
                await way(producer, COMMIT)
                finished += 1

            async def check() -> None:
                assert producer.transaction_statistics.in_progress == 0
                await trio.testing.wait_all_tasks_blocked(0.02)
                assert not any(one.pending for one in core_of(producer).connections.open_connections())

            assert await cancel_at_each_await(send, check) >= 2
        assert reported_states(cluster.brokers["broker-a"]) == ["8"] * finished


async def test_cancelled_local_work_reports_nothing() -> None:
    async with scripted_cluster(store) as cluster:
        async with producer_of(cluster.address, on_error=ROLLBACK) as producer:

            async def work(_: Message, __: str) -> TransactionState:
                scope.cancel()
                await trio.sleep_forever()
                raise AssertionError("not reached")

            with trio.CancelScope() as scope:
                await producer.send_in_transaction(MESSAGE, work)
            assert scope.cancelled_caught
            with trio.CancelScope() as scope:
                async with producer.transaction(MESSAGE):
                    await work(MESSAGE, "")
            assert scope.cancelled_caught
            # An error together with the cancellation is not reported either.
            with pytest.raises(BaseExceptionGroup) as caught:
                async with producer.transaction(MESSAGE):
                    raise BaseExceptionGroup("", [ValueError("as it is cancelled"), KeyboardInterrupt()])
            assert caught.group_contains(ValueError)
            assert producer.transaction_statistics.in_progress == 0
        broker = cluster.brokers["broker-a"]
        assert (len(broker.asked(SENDS)), reported_states(broker)) == (3, [])


async def test_finished_local_work_is_reported_although_its_task_is_cancelled() -> None:
    async with scripted_cluster(store) as cluster:
        async with producer_of(cluster.address) as producer:

            async def work(_: Message, __: str) -> TransactionState:
                scope.cancel()
                return COMMIT

            def plain_work(_: Message, __: str) -> TransactionState:
                trio.from_thread.run_sync(scope.cancel)
                return ROLLBACK

            with trio.CancelScope() as scope:
                assert (await producer.send_in_transaction(MESSAGE, work)).end_error is None
            with trio.CancelScope() as scope:
                assert (await producer.send_in_transaction(MESSAGE, plain_work)).end_error is None
            assert scope.cancel_called
        assert reported_states(cluster.brokers["broker-a"]) == ["8", "12"]


async def test_closing_waits_for_transactions_in_progress_and_starts_no_more(
    jumping_clock: trio.testing.MockClock,
) -> None:
    may_end = trio.Event()

    async def work(_: Message, __: str) -> TransactionState:
        await may_end.wait()
        return COMMIT

    async with scripted_cluster(store) as cluster, trio.open_nursery() as nursery:
        producer = producer_of(cluster.address, close_timeout=100_000)
        async with producer:
            for _ in range(2):
                nursery.start_soon(producer.send_in_transaction, MESSAGE, work)
            await trio.testing.wait_all_tasks_blocked(0.05)
            assert producer.transaction_statistics.in_progress == 2
            nursery.start_soon(producer.aclose)
            await trio.testing.wait_all_tasks_blocked(0.05)
            with pytest.raises(ClosedError):
                await producer.send_in_transaction(MESSAGE, not_called)
            ended = trio.current_time()
            may_end.set()
        assert trio.current_time() - ended < 1000, (
            "closing continues when they have ended, before its timeout"
        )
        assert reported_states(cluster.brokers["broker-a"]) == ["8", "8"]


@pytest.mark.parametrize("is_send_stuck", [False, True])
async def test_a_transaction_that_does_not_end_before_closing_remains_unknown(
    jumping_clock: trio.testing.MockClock, is_send_stuck: bool
) -> None:
    may_end = trio.Event()
    sent: list[TransactionSendResult] = []

    async def work(_: Message, __: str) -> TransactionState:
        await may_end.wait()
        return COMMIT

    def store_half_messages_only(connection: Connection, request: Command) -> None:
        if request.code != SENDS or "TRAN_MSG" in request.fields["i"]:
            store(connection, request)

    async with scripted_cluster(store_half_messages_only) as cluster:
        producer = producer_of(cluster.address, send_timeout=1000)

        async def send() -> None:
            sent.append(await producer.send_in_transaction(MESSAGE, work))

        async with trio.open_nursery() as nursery:
            async with producer:
                nursery.start_soon(send)
                if is_send_stuck:
                    await producer.submit(MESSAGE)
                await trio.testing.wait_all_tasks_blocked(0.05)
            may_end.set()
        (one,) = sent
        assert one.state is COMMIT
        assert isinstance(one.end_error, ClosedError)
        broker = cluster.brokers["broker-a"]
        assert not reported_states(broker)
        assert broker.asked(RequestCode.UNREGISTER_CLIENT)


async def test_a_producer_must_be_open() -> None:
    with pytest.raises(ClosedError, match="async with TransactionProducer"):
        await producer_of("127.0.0.1:1").send_in_transaction(MESSAGE, not_called)


async def test_brokers_get_a_heartbeat_before_the_first_send(jumping_clock: trio.testing.MockClock) -> None:
    async with scripted_cluster(store, topics=["T", "TBW102"]) as cluster:
        broker = cluster.brokers["broker-a"]
        for options in ({}, {"topics": ["T"]}):
            async with producer_of(cluster.address, **options):
                await trio.sleep(1)
            assert b'"groupName":"g"' in broker.asked(RequestCode.HEART_BEAT)[-1].body
        assert len(broker.asked(RequestCode.HEART_BEAT)) == 2


@pytest.mark.parametrize(("topic", "is_logged"), [("TBW102", False), ("later", True)])
async def test_a_cluster_without_automatic_topics_is_no_reason_for_a_warning(
    jumping_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture, topic: str, is_logged: bool
) -> None:
    async with scripted_cluster(store, topics=["T"]) as cluster:
        async with producer_of(cluster.address, topics=[topic]):
            await trio.sleep(100)
        lines = [one.levelname for one in caplog.records if "route lookup failed" in one.message]
        assert lines == (["WARNING"] * len(lines) if is_logged else [])
        assert bool(lines) == is_logged


async def test_routes_of_missing_topics_are_looked_up_again(
    jumping_clock: trio.testing.MockClock,
) -> None:
    async with scripted_cluster(store, topics=["T"]) as cluster:
        broker = cluster.brokers["broker-a"]
        async with producer_of(cluster.address, topics=["later"]):
            await trio.sleep(100)
            assert not broker.requests
            cluster.topics["later"] = (4, 4, 6)
            await trio.sleep(31)
            assert broker.asked(RequestCode.HEART_BEAT)


async def test_plain_local_work_in_all_threads_can_send_large_messages() -> None:
    trio.to_thread.current_default_thread_limiter().total_tokens = 2
    all_run = threading.Barrier(2)
    async with scripted_cluster(store) as cluster, producer_of(cluster.address) as producer:

        def work(message: Message, _: str) -> TransactionState:
            all_run.wait(10)
            trio.from_thread.run(producer.send, Message("T", bytes(300 << 10)))
            return COMMIT

        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                for _ in range(2):
                    nursery.start_soon(producer.send_in_transaction, MESSAGE, work)
        assert producer.transaction_statistics.committed == 2
