"""Nurseries that raise the errors of tasks as they are."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

import pytest
import trio

from rocketmq_py.remoting.nurseries import open_nursery

Task: TypeAlias = Callable[[], Awaitable[None]]


def failing(error: BaseException) -> Task:
    async def fail() -> None:
        raise error

    return fail


def failing_when_cancelled(error: BaseException) -> Task:
    async def fail() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise error

    return fail


async def run(*tasks: Task, then: Callable[[], None] = lambda: None) -> None:
    """Start tasks one after the other in a nursery, and call ``then`` when all of them wait."""
    async with open_nursery() as nursery:
        for task in tasks:
            nursery.start_soon(task)
            await trio.testing.wait_all_tasks_blocked()
        then()


async def test_the_error_of_a_task_is_raised_itself() -> None:
    error = ValueError("wrong")
    with pytest.raises(ValueError, match="wrong") as caught:
        await run(trio.sleep_forever, failing(error))
    assert caught.value is error


async def test_an_error_of_the_block_is_raised_itself() -> None:
    def fail() -> None:
        raise ValueError("wrong")

    with pytest.raises(ValueError, match="wrong"):
        await run(trio.sleep_forever, then=fail)


async def test_a_cause_is_kept() -> None:
    async def fail() -> None:
        raise ValueError("wrong") from KeyError("why")

    with pytest.raises(ValueError, match="wrong") as caught:
        await run(fail)
    assert isinstance(caught.value.__cause__, KeyError)


async def test_of_several_errors_the_first_is_raised_and_notes_the_others() -> None:
    with pytest.raises(ValueError, match="first") as caught:
        await run(failing_when_cancelled(KeyError("second")), failing(ValueError("first")))
    assert caught.value.__notes__ == ["another task failed, too: KeyError('second')"]


async def test_interrupts_take_precedence_over_errors() -> None:
    with pytest.raises(KeyboardInterrupt):
        await run(failing_when_cancelled(KeyboardInterrupt()), failing(ValueError()))


async def test_a_group_that_a_task_raised_itself_is_kept() -> None:
    group = ExceptionGroup("the user's", [ValueError(), KeyError()])
    with pytest.raises(ExceptionGroup) as caught:
        await run(failing(group))
    assert (caught.value.message, caught.value.exceptions) == (group.message, group.exceptions)


async def test_a_cancellation_reaches_its_scope() -> None:
    with trio.CancelScope() as scope:
        await run(trio.sleep_forever, trio.sleep_forever, then=scope.cancel)
    assert scope.cancelled_caught


async def test_an_error_during_a_cancellation_is_raised_itself() -> None:
    scope = trio.CancelScope()
    with pytest.raises(ValueError, match="in the end"), scope:
        await run(trio.sleep_forever, failing_when_cancelled(ValueError("in the end")), then=scope.cancel)
