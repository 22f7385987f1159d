from __future__ import annotations

import traceback
from typing import Any

import attrs
import pytest
import trio
import trio.testing

from rocketmq_py.errors import (
    BatchError,
    ClosedError,
    ConfigurationError,
    Delivery,
    RequestTimeoutError,
    RocketMQError,
)
from rocketmq_py.message import MessageQueue, SendResult, SendStatus
from rocketmq_py.producer.batch import BatchResults
from rocketmq_py.producer.outcome import FailureLog
from rocketmq_py.producer.pending import BatchedSend, PendingBatch, PendingSend

RESULT = SendResult(SendStatus.SEND_OK, "id", "offset id", MessageQueue("T", "a", 0), 7)


async def test_many_tasks_can_await_a_pending_send() -> None:
    pending = PendingSend()
    results: list[SendResult] = []

    async def wait() -> None:
        results.append(await pending)

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        assert not pending.done()
        with pytest.raises(RuntimeError, match="is not done; await it"):
            pending.result()
        with pytest.raises(RuntimeError, match="is not done; await it"):
            pending.exception()
        pending._succeed(RESULT)
        assert not pending.cancelled()
    assert results == [RESULT] * 3
    assert await pending is RESULT
    assert pending.exception() is None


async def test_an_error_is_raised_wherever_it_is_awaited() -> None:
    pending = PendingSend()
    pending._fail(ClosedError("gone"))
    for _ in range(2):
        with pytest.raises(ClosedError, match="gone"):
            await pending
    assert isinstance(pending.exception(), ClosedError)


async def test_the_traceback_of_an_error_does_not_grow() -> None:
    def frames(error: BaseException) -> int:
        return len(traceback.extract_tb(error.__traceback__))

    error = RequestTimeoutError("broker:1", 3.0, Delivery.NOT_SENT)
    error.add_note("after 3 tries")
    cause = BatchError([], 2, error)
    cause.__cause__ = error
    pendings = [PendingSend() for _ in range(3)]
    for pending, outcome in zip(pendings, (error, error, cause), strict=True):
        pending._fail(outcome)
    seen: list[BaseException] = []
    for _ in range(3):
        for pending in pendings:
            with pytest.raises(RocketMQError) as caught:
                await pending
            seen.append(caught.value)
    assert len({id(one) for one in seen}) == 9
    assert len({frames(one) for one in seen}) == 1
    assert {str(one) for one in seen} == {str(error), str(cause)}
    assert isinstance(seen[0], RequestTimeoutError)
    assert (seen[0].address, seen[0].delivery) == ("broker:1", Delivery.NOT_SENT)
    assert seen[0].__notes__ == ["after 3 tries"]
    assert seen[2].__cause__ is error


async def test_callbacks_run_once_and_their_exceptions_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    pending = PendingSend()
    called: list[str] = []

    def broken(_: PendingSend) -> None:
        raise ZeroDivisionError

    pending.add_done_callback(broken)
    pending.add_done_callback(lambda done: called.append(done.result().message_id))
    pending._succeed(RESULT)
    pending.add_done_callback(lambda _: called.append("at once"))
    assert called == ["id", "at once"]
    assert "a callback of a PendingSend raised" in caplog.text


async def test_the_exception_of_a_single_callback_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    pending = PendingSend()
    pending.add_done_callback(lambda done: [][len(done.result().message_id)])
    pending._succeed(RESULT)
    assert await pending is RESULT
    assert "a callback of a PendingSend raised" in caplog.text
    assert "IndexError" in caplog.text


async def test_a_cancelled_wait_does_not_cancel_the_send() -> None:
    pending = PendingSend()
    async with trio.open_nursery() as nursery:

        async def wait() -> None:
            await pending

        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    pending._succeed(RESULT)
    assert await pending is RESULT


async def test_a_batched_send_takes_its_result_when_it_is_accessed() -> None:
    results = BatchResults(attrs.evolve(RESULT, offset_message_id="x,y"), ["a", "b"])
    called: list[PendingSend] = []
    batch = PendingBatch()
    another, pending = BatchedSend(batch, 0, called.append), BatchedSend(batch, 1)
    pending.add_done_callback(called.append)
    pending.add_done_callback(called.append)
    async with trio.open_nursery() as nursery:

        async def wait() -> None:
            assert (await pending).queue_offset == 8

        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(RuntimeError, match="is not done; await it"):
            pending.result()
        batch.finish(results, None)
        assert pending.done()
        assert pending.exception() is None
    assert called == [another, pending, pending]
    assert another.result() == results[0]
    assert pending.result() == results[1]
    assert pending.result() is pending.result()


async def test_a_batch_refers_only_to_watched_sends() -> None:
    batch = PendingBatch()
    quiet, waited = BatchedSend(batch, 0), BatchedSend(batch, 1)
    for _ in range(2):
        with trio.move_on_after(0):
            await waited
    assert list(batch.watched) == [waited]
    assert not quiet.done()
    batch.finish([RESULT, RESULT], None)
    called: list[PendingSend] = []
    quiet.add_done_callback(called.append)
    assert called == [quiet]
    assert not batch.watched


async def test_unretrieved_errors_of_a_batch_are_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = FailureLog(now=lambda: 0.0)
    batch = PendingBatch()
    looked_at, succeeded = BatchedSend(batch, 0), BatchedSend(batch, 1)
    batch.finish([ClosedError("looked at"), RESULT, ClosedError("not looked at")], log)
    assert str(looked_at.exception()) == "looked at"
    with pytest.raises(ClosedError, match="looked at"):
        await looked_at
    assert await succeeded is RESULT
    assert caplog.text == ""
    del batch, looked_at, succeeded
    assert "never awaited: count=1 last_error=not looked at" in caplog.text


async def test_awaiting_a_finished_send_is_a_cancellation_point() -> None:
    pending = PendingSend()
    pending._succeed(RESULT)
    with trio.CancelScope() as scope:
        scope.cancel()
        await pending
    assert scope.cancelled_caught


async def test_a_callback_that_raises_does_not_affect_others_of_its_batch(
    caplog: pytest.LogCaptureFixture,
) -> None:
    called: list[PendingSend] = []

    def broken(_: PendingSend) -> None:
        raise ZeroDivisionError

    batch = PendingBatch()
    other, quiet = BatchedSend(batch, 1, called.append), BatchedSend(batch, 2)
    BatchedSend(batch, 0, broken)
    batch.finish(BatchResults(RESULT, ["a", "b", "c"]), None)
    assert called == [other]
    assert quiet.result().message_id == "c"
    assert "a callback of a BatchedSend raised" in caplog.text


@pytest.mark.parametrize("pending", [PendingSend(), BatchedSend(PendingBatch(), 0)])
def test_a_callback_that_cannot_be_called_is_refused(pending: PendingSend) -> None:
    async def later(_: PendingSend) -> None:
        pass

    wrong: dict[str, Any] = {
        r"callback is called with \(pending\)": lambda: None,
        "callback must be a plain function, not an async one": later,
        "callback must be a function .*, not int": 5,
    }
    for text, callback in wrong.items():
        with pytest.raises(ConfigurationError, match=text):
            pending.add_done_callback(callback)


@pytest.mark.parametrize("batch", [None, PendingBatch()])
def test_callbacks_are_called_once_whenever_they_are_added(batch: PendingBatch | None) -> None:
    pending = PendingSend() if batch is None else BatchedSend(batch, 0)
    called: list[str] = []
    pending.add_done_callback(lambda _: called.append("first"))
    pending.add_done_callback(lambda _: called.append("second"))
    pending.add_done_callback(lambda _: called.append("third"))
    assert called == []
    if batch is None:
        pending._succeed(RESULT)
    else:
        batch.finish([RESULT], None)
    pending.add_done_callback(lambda one: called.append(one.result().message_id))
    assert called == ["first", "second", "third", RESULT.message_id]
