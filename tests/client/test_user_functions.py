from __future__ import annotations

import asyncio
import concurrent.futures
import traceback
from collections.abc import Callable
from typing import Any

import pytest
import trio

from rocketmq_py.client.user_functions import call_user_function, users_traceback
from rocketmq_py.errors import ClosedError, RocketMQError
from tests.cancelling import cancelled_error


def fail(error: BaseException) -> None:
    raise error


async def fail_async(error: BaseException) -> None:
    fail(error)


def fail_later(error: BaseException) -> object:
    return fail_async(error)


FUNCTIONS = pytest.mark.parametrize("function", [fail, fail_async, fail_later])


@FUNCTIONS
async def test_a_traceback_begins_in_the_users_function(function: Callable[..., object]) -> None:
    with pytest.raises(ValueError, match="mine") as caught:
        await call_user_function(function, ValueError("mine"))
    error = caught.value
    assert error.__traceback__ is not None
    error.__traceback__ = error.__traceback__.tb_next  # without the frame of this test
    frames = traceback.extract_tb(users_traceback(error)[2])
    assert [frame.filename for frame in frames] == [__file__] * len(frames)
    assert frames[0].name == ("fail" if function is fail else "fail_async")
    assert frames[-1].name == "fail"


@pytest.mark.parametrize(("error", "has_frames"), [(ZeroDivisionError(), True), (RocketMQError("no"), False)])
def test_an_error_without_a_frame_of_the_user_keeps_its_traceback_unless_it_is_for_the_program(
    error: Exception, has_frames: bool
) -> None:
    library: dict[str, Any] = {"__name__": "rocketmq_py.consumer"}
    exec("def fail(error): raise error", library)
    with pytest.raises(type(error)):
        library["fail"](error)
    assert error.__traceback__ is not None
    error.__traceback__ = error.__traceback__.tb_next
    assert (users_traceback(error)[2] is not None) == has_frames


@FUNCTIONS
async def test_a_cancelled_error_is_a_failure_and_other_errors_are_raised_unchanged(
    function: Callable[..., object],
) -> None:
    with pytest.raises(RuntimeError, match="it raised CancelledError: mine") as caught:
        await call_user_function(function, asyncio.CancelledError("mine"))
    assert isinstance(caught.value.__cause__, asyncio.CancelledError)
    for error in (ClosedError("no"), SystemExit(3), KeyboardInterrupt(), concurrent.futures.CancelledError()):
        with pytest.raises(type(error)) as unchanged:
            await call_user_function(function, error)
        assert unchanged.value is error


@FUNCTIONS
async def test_a_cancellation_that_nothing_has_caused_is_a_failure(
    function: Callable[..., object],
) -> None:
    error = await cancelled_error()
    with pytest.raises(RuntimeError, match="it raised Cancelled, but nothing had cancelled it") as caught:
        await call_user_function(function, error)
    assert caught.value.__cause__ is error
    failure = ValueError("mine")
    with pytest.raises(BaseExceptionGroup) as group:
        await call_user_function(function, BaseExceptionGroup("both", [failure, error]))
    assert group.value.exceptions == (failure,)


async def test_an_abandoned_thread_is_not_waited_for() -> None:
    may_end = trio.Event()
    token = trio.lowlevel.current_trio_token()

    def wait() -> None:
        trio.from_thread.run(may_end.wait, trio_token=token)

    with trio.move_on_after(0.01) as scope:
        await call_user_function(wait, abandon_on_cancel=True)
    assert scope.cancelled_caught
    may_end.set()
