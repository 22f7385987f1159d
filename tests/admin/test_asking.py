"""Several are asked side by side, and none of their answers is lost."""

from __future__ import annotations

import pytest
import trio

from rocketmq_py.admin.asking import AT_ONCE, ask_each, have_each_do
from rocketmq_py.errors import ConnectError, SomeBrokersFailedError


async def ask(name: str) -> str:
    if name.startswith("down"):
        raise ConnectError(name, "refused")
    return name.upper()


async def test_answers_and_failures_are_kept_in_the_order_of_the_questions() -> None:
    answers = await ask_each(["c", "down-1", "a", "b", "down-0", "a"], ask)
    assert list(answers.values.items()) == [("c", "C"), ("a", "A"), ("b", "B")]
    assert [str(error) for error in answers.failures.values()] == [
        "cannot connect to down-1: refused",
        "cannot connect to down-0: refused",
    ]
    assert (await ask_each([], ask)).values == {}


async def test_no_more_are_asked_at_once_than_the_bound(autojump_clock: trio.testing.MockClock) -> None:
    under_way = most = 0

    async def count(_: int) -> None:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await trio.sleep(1)
        under_way -= 1

    assert len((await ask_each(range(AT_ONCE * 3), count)).values) == AT_ONCE * 3
    assert most == AT_ONCE


async def test_a_change_that_some_did_not_make_names_all() -> None:
    with pytest.raises(SomeBrokersFailedError) as caught:
        await have_each_do(["a", "down-1", "b"], ask, "changing it")
    assert caught.value.done == ("a", "b")
    assert list(caught.value.failures) == ["down-1"]
    assert str(caught.value) == (
        "changing it failed on 1 of 3: down-1: cannot connect to down-1: refused; it is done on a, b"
    )


async def test_who_asked_one_alone_gets_its_own_error() -> None:
    with pytest.raises(ConnectError, match="down-1"):
        await have_each_do(["down-1"], ask, "changing it")


async def test_an_error_other_than_rocketmqs_is_raised_itself() -> None:
    async def slip(_: str) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await ask_each(["a"], slip)
