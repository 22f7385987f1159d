from __future__ import annotations

import logging
from collections.abc import Awaitable

import attrs
import pytest
import trio
import trio.testing

from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.errors import BatchError, BrokerError, InvalidMessageError, SendForbiddenError
from rocketmq_py.message import Message
from rocketmq_py.producer import Producer, ProducerHook, SendContext, SendMode
from rocketmq_py.properties import decode_properties
from rocketmq_py.protocol.command import Command
from rocketmq_py.remoting import Connection
from tests.producer.test_send_options import store_batch
from tests.scripted import refuse, scripted_cluster, store

MESSAGE = Message("T", b"body")
SENDS = RequestCode.SEND_MESSAGE_V2


class Notes(ProducerHook):
    """Records its calls, with plain methods."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.contexts: list[SendContext] = []

    def check_forbidden(self, context: SendContext) -> None:
        self.calls.append("check")

    def before_send(self, context: SendContext) -> None:
        self.calls.append("before")
        context.state[self] = len(self.calls)

    def after_send(self, context: SendContext) -> None:
        self.calls.append("after")
        self.contexts.append(context)
        assert context.state[self]


class AsyncNotes(Notes):
    """Records its calls, with async methods."""

    async def check_forbidden(self, context: SendContext) -> None:  # type: ignore[override]
        await trio.lowlevel.checkpoint()
        super().check_forbidden(context)

    async def before_send(self, context: SendContext) -> None:  # type: ignore[override]
        await trio.lowlevel.checkpoint()
        super().before_send(context)

    async def after_send(self, context: SendContext) -> None:  # type: ignore[override]
        await trio.lowlevel.checkpoint()
        super().after_send(context)


async def send(producer: Producer, mode: SendMode, message: Message = MESSAGE) -> None:
    if mode is SendMode.AWAITED:
        await producer.send(message)
    elif mode is SendMode.PIPELINED:
        await (await producer.submit(message))
    else:
        await producer.send_oneway(message)


@pytest.mark.parametrize("notes", [Notes, AsyncNotes])
@pytest.mark.parametrize("mode", SendMode)
async def test_hooks_see_a_send_and_its_result(notes: type[Notes], mode: SendMode) -> None:
    async with scripted_cluster(store) as cluster, Producer(cluster.address, group="g") as producer:
        hook = notes()
        remove = producer.add_hook(hook)
        await send(producer, mode)
        assert hook.calls == ["check", "before", "after"]
        (context,) = hook.contexts
        assert (context.producer_group, context.mode, context.messages) == ("g", mode, [MESSAGE])
        assert context.broker_address == cluster.brokers["broker-a"].address
        assert context.queue is not None
        assert context.queue.broker_name == "broker-a"
        assert context.error is None
        assert len(context.message_ids) == 1
        if mode is SendMode.ONEWAY:
            assert context.results == ()
        else:
            assert [result.message_id for result in context.results] == context.message_ids
        remove()
        await send(producer, mode)
        assert len(hook.contexts) == 1


@pytest.mark.parametrize("mode", [SendMode.AWAITED, SendMode.PIPELINED])
async def test_hooks_see_the_error(mode: SendMode) -> None:
    answer = refuse(ResponseCode.MESSAGE_ILLEGAL)
    async with scripted_cluster(answer) as cluster, Producer(cluster.address) as producer:
        producer.add_hook(hook := Notes())
        with pytest.raises(BrokerError) as caught:
            await send(producer, mode)
        (context,) = hook.contexts
        assert (type(context.error), str(context.error)) == (type(caught.value), str(caught.value))
        assert (context.results, context.retries) == ((), 1)


async def test_hooks_see_the_results_of_the_messages_before_the_failed_part_of_a_list() -> None:
    batches: list[Command] = []

    def store_the_first(connection: Connection, request: Command) -> None:
        if request.code == RequestCode.SEND_BATCH_MESSAGE:
            batches.append(request)
        if len(batches) > 1:
            connection.respond(request, ResponseCode.MESSAGE_ILLEGAL, remark="no")
        else:
            store_batch(connection, request)

    async with (
        scripted_cluster(store_the_first) as cluster,
        Producer(cluster.address, max_message_size=300) as producer,
    ):
        producer.add_hook(hook := Notes())
        with pytest.raises(BatchError) as caught:
            await producer.send_batch([Message("T", b"x" * 50) for _ in range(6)])
        (context,) = hook.contexts
        assert len(caught.value.results) == 2
        assert tuple(context.results) == caught.value.results


@pytest.mark.parametrize("mode", SendMode)
async def test_after_send_is_called_for_each_before_send(mode: SendMode) -> None:
    async with (
        scripted_cluster(store) as cluster,
        Producer(cluster.address, max_message_size=3) as producer,
    ):
        producer.add_hook(hook := Notes())
        with pytest.raises(InvalidMessageError):
            await send(producer, mode)
        assert hook.calls == ["check", "before", "after"]
        assert isinstance(hook.contexts[0].error, InvalidMessageError)


async def test_a_hook_may_replace_the_message() -> None:
    class Stamp(ProducerHook):
        def before_send(self, context: SendContext) -> None:
            message = context.messages[0]
            context.messages[0] = attrs.evolve(message, properties={**message.properties, "stamp": "1"})

    async with scripted_cluster(store) as cluster:
        async with Producer(cluster.address) as producer:
            producer.add_hook(Stamp())
            for mode in SendMode:
                await send(producer, mode)
        requests = cluster.brokers["broker-a"].asked(SENDS)
        assert [decode_properties(one.fields["i"])["stamp"] for one in requests] == ["1"] * 3


@pytest.mark.parametrize("mode", SendMode)
async def test_a_hook_can_forbid_a_send(mode: SendMode) -> None:
    class NoSecrets(ProducerHook):
        async def check_forbidden(self, context: SendContext) -> None:
            raise PermissionError("not today")

    async with scripted_cluster(store) as cluster:
        async with Producer(cluster.address) as producer:
            producer.add_hook(NoSecrets())
            producer.add_hook(notes := Notes())
            with pytest.raises(SendForbiddenError, match="NoSecrets forbids the send: not today") as caught:
                await send(producer, mode)
            assert isinstance(caught.value.__cause__, PermissionError)
            assert notes.calls == []
        assert not cluster.brokers["broker-a"].asked(SENDS)


@pytest.mark.parametrize("mode", SendMode)
async def test_a_hook_that_raises_loses_no_message(mode: SendMode, caplog: pytest.LogCaptureFixture) -> None:
    class Broken(ProducerHook):
        def before_send(self, context: SendContext) -> Awaitable[None] | None:
            raise ZeroDivisionError

        async def after_send(self, context: SendContext) -> None:
            raise ZeroDivisionError

    async with scripted_cluster(store) as cluster:
        async with Producer(cluster.address) as producer:
            producer.add_hook(Broken())
            producer.add_hook(notes := Notes())
            await send(producer, mode)
            assert notes.calls == ["check", "before", "after"]
        assert len(cluster.brokers["broker-a"].asked(SENDS)) == 1
    logged = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert ["Broken.before_send" in logged[0].message, "Broken.after_send" in logged[1].message] == [True] * 2


async def test_a_pipelined_send_is_in_flight_until_its_hooks_have_run() -> None:
    release = trio.Event()

    class Slow(ProducerHook):
        async def after_send(self, context: SendContext) -> None:
            await release.wait()

    async with scripted_cluster(store) as cluster, Producer(cluster.address) as producer:
        producer.add_hook(Slow())
        pending = await producer.submit(MESSAGE)
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert (pending.done(), producer.in_flight) == (False, 1)
        release.set()
        await pending
        assert producer.in_flight == 0


async def test_hooks_see_a_cancelled_send() -> None:
    def hold(connection: object, request: object) -> None:
        scope.cancel()

    with trio.CancelScope() as scope:
        async with scripted_cluster(store) as cluster, Producer(cluster.address) as producer:
            await producer.send(MESSAGE)
            cluster.brokers["broker-a"].answer = hold
            producer.add_hook(hook := Notes())
            with pytest.raises(trio.Cancelled):
                await producer.send(MESSAGE)
            assert isinstance(hook.contexts[0].error, trio.Cancelled)


class Waiting(ProducerHook):
    """Waits in ``before_send``."""

    def __init__(self) -> None:
        self.release = trio.Event()

    async def before_send(self, context: SendContext) -> None:
        await self.release.wait()


async def test_a_send_that_is_cancelled_before_it_starts_calls_the_hooks_that_saw_it(
    jumping_clock: trio.testing.MockClock,
) -> None:
    async with scripted_cluster(store) as cluster, Producer(cluster.address) as producer:
        first, last = Notes(), Notes()
        for hook in (first, Waiting(), last):
            producer.add_hook(hook)
        with trio.move_on_after(2):
            await producer.send(MESSAGE)
        assert first.calls == ["check", "before", "after"]
        assert isinstance(first.contexts[0].error, trio.Cancelled)
        assert first.contexts[0].seconds == pytest.approx(2)
        assert last.calls == ["check"]


async def test_a_cancelled_send_calls_the_hooks_after_one_that_is_cancelled_too(
    jumping_clock: trio.testing.MockClock,
) -> None:
    async with scripted_cluster(store) as cluster, Producer(cluster.address) as producer:
        for hook in (AsyncNotes(), notes := Notes(), last := Waiting()):
            producer.add_hook(hook)
        with trio.move_on_after(2) as scope:
            await producer.send(MESSAGE)
        assert scope.cancelled_caught
        assert not last.release.is_set()
        assert notes.calls == ["check", "before", "after"]


async def test_hooks_that_are_added_or_removed_during_a_send_are_called_in_pairs() -> None:
    async with scripted_cluster(store) as cluster, Producer(cluster.address) as producer:
        remove = producer.add_hook(removed := Notes())
        producer.add_hook(waiting := Waiting())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(producer.send, MESSAGE)
            await trio.testing.wait_all_tasks_blocked()
            remove()
            producer.add_hook(added := Notes())
            waiting.release.set()
        assert removed.calls == ["check", "before", "after"]
        assert added.calls == []


async def test_a_hook_cannot_change_the_number_of_messages() -> None:
    class Twice(ProducerHook):
        def before_send(self, context: SendContext) -> None:
            context.messages *= 2

    async with scripted_cluster(store) as cluster, Producer(cluster.address) as producer:
        producer.add_hook(Twice())
        with pytest.raises(InvalidMessageError, match="changed the number of messages"):
            await producer.send_batch([MESSAGE, MESSAGE])
