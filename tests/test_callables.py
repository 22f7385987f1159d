"""Callables of users are checked for the arguments of their later calls."""

from __future__ import annotations

import functools
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any
from unittest import mock

import pytest

from rocketmq_py.callables import check_callable, check_methods
from rocketmq_py.errors import ConfigurationError


def one(message: object) -> None: ...


def two(message: object, more: object) -> None: ...


def two_with_default(message: object, more: object = None) -> None: ...


def any_number(*arguments: object) -> None: ...


def keyword_only(message: object, *, more: object) -> None: ...


def any_number_and_keyword(*arguments: object, more: object) -> None: ...


def positional_only(message: object, more: object, /, **others: object) -> None: ...


def any_keyword(message: object, **others: object) -> None: ...


def keyword_with_default(message: object, *, more: object = None) -> None: ...


async def asynchronous(message: object) -> None: ...


async def asynchronous_iterator(message: object) -> AsyncIterator[object]:
    yield message


class Methods:
    def one(self, message: object) -> None: ...

    def two(self, message: object, more: object) -> None: ...

    @staticmethod
    def static(message: object) -> None: ...

    @classmethod
    def of_class(cls, message: object) -> None: ...


class CalledWithOne:
    def __call__(self, message: object) -> None: ...


class CalledWithTwo:
    def __call__(self, message: object, more: object) -> None: ...


class MadeOfOne:
    def __init__(self, message: object) -> None: ...


@functools.wraps(two)
def adds_an_argument(message: object) -> None:
    two(message, "more")


class Odd:
    """A callable without a readable signature."""

    __signature__ = "none"

    __call__ = mock.Mock()


@pytest.mark.parametrize(
    "function",
    [
        one, two_with_default, any_number, keyword_with_default, asynchronous, Methods().one, Methods.static,
        Methods.of_class, CalledWithOne(), MadeOfOne, functools.partial(two, "message"), adds_an_argument,
        functools.partial(keyword_only, more=1), functools.partial(two, more=1), [].append,
        functools.partial(Methods().two, 1), functools.partial(two_with_default, more=1),
        functools.partial(print, 1), print, len, type, mock.Mock(), lambda message: 0,
        Odd(), functools.partial(any_number_and_keyword, more=1), functools.partial(any_keyword, more=1),
        functools.partial(positional_only, 1, message=1),
    ],
)  # fmt: skip
def test_a_function_that_accepts_the_arguments_passes(function: Callable[..., Any]) -> None:
    check_callable(function, "local_work", "message")


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (two, "two(message: 'object', more: 'object') -> 'None'"),
        (lambda: 0, "<lambda>()"),
        (keyword_only, "keyword_only(message: 'object', *, more: 'object') -> 'None'"),
        (Methods().two, "Methods.two(message: 'object', more: 'object') -> 'None'"),
        (CalledWithTwo(), "CalledWithTwo(message: 'object', more: 'object') -> 'None'"),
        (functools.partial(one, 1), "partial(one, …) of one(message: 'object') -> 'None'"),
        (
            functools.partial(two, message="secret"),
            "partial(two, message=…) of two(message: 'object', more: 'object') -> 'None'",
        ),
        (
            functools.partial(one, more=1),  # type: ignore[call-arg]  # that is the test
            "partial(one, more=…) of one(message: 'object') -> 'None'",
        ),
        (
            functools.partial(positional_only, more=1),
            "partial(positional_only, more=…) of "
            "positional_only(message: 'object', more: 'object', /, **others: 'object') -> 'None'",
        ),
        (
            functools.partial(any_keyword, message=1),
            "partial(any_keyword, message=…) of any_keyword(message: 'object', **others: 'object') -> 'None'",
        ),
        (functools.partial(two), "partial(two) of two(message: 'object', more: 'object') -> 'None'"),
        (
            functools.partial(CalledWithTwo()),
            "partial(CalledWithTwo) of CalledWithTwo(message: 'object', more: 'object') -> 'None'",
        ),
        (Methods.one, "Methods.one(self, message: 'object') -> 'None'"),
    ],
)
def test_a_function_with_other_parameters_is_refused(function: Callable[..., Any], words: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        check_callable(function, "local_work", "message")
    assert str(caught.value) == f"local_work is called with (message), which {words} does not accept"


@pytest.mark.skipif(sys.version_info < (3, 14), reason="Python 3.14 has placeholders")
def test_a_partial_with_placeholders_accepts_as_many_arguments() -> None:
    partial: Any = functools.partial
    place: Any = vars(functools)["Placeholder"]
    check_callable(partial(two, place, 1), "local_work", "message")
    for refused in (partial(two, place, place, 1), partial(one, place, 1)):
        with pytest.raises(ConfigurationError, match=r"which partial\(\w+, …, "):
            check_callable(refused, "local_work", "message")


@pytest.mark.parametrize("function", [None, 5, "one"])
def test_a_value_that_cannot_be_called_is_refused(function: object) -> None:
    kind = "None" if function is None else type(function).__name__
    with pytest.raises(ConfigurationError) as caught:
        check_callable(function, "check", "message")
    assert str(caught.value) == f"check must be a function that accepts (message), not {kind}"


def test_the_result_of_an_async_function_is_not_a_function() -> None:
    with pytest.raises(ConfigurationError, match="is a coroutine; give the function without calling it"):
        check_callable(asynchronous("message"), "check", "message")


def test_a_generator_function_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="check is asynchronous_iterator, which has a yield"):
        check_callable(asynchronous_iterator, "check", "message")


@pytest.mark.parametrize("function", [asynchronous, functools.partial(asynchronous)])
def test_an_async_function_is_refused_where_nothing_awaits_it(function: Callable[..., Any]) -> None:
    check_callable(function, "on_done", "pending")
    with pytest.raises(ConfigurationError) as caught:
        check_callable(function, "on_done", "pending", awaited=False)
    assert "on_done must be a plain function, not an async one: its result is not awaited" in str(
        caught.value
    )


class Hook:
    def before(self, context: object) -> None: ...

    def after(self, context: object) -> None: ...

    def _private(self) -> None: ...


class OwnHook(Hook):
    def before(self) -> None:  # type: ignore[override]
        ...


class LikeAHook:
    before = after = Methods().one


def test_an_object_is_checked_for_the_methods_of_a_class() -> None:
    check_methods(Hook(), "hook", Hook)
    check_methods(LikeAHook(), "hook", Hook)
    for wrong, words in (
        (OwnHook(), "hook.before is called with (context), which OwnHook.before() -> 'None' does not accept"),
        (OwnHook, "hook must be an object with the methods of Hook, not the class OwnHook"),
        (print, "hook must be an object with the methods of Hook, not builtin_function_or_method"),
        (None, "hook must be an object with the methods of Hook, not None"),
    ):
        with pytest.raises(ConfigurationError) as caught:
            check_methods(wrong, "hook", Hook)
        assert str(caught.value) == words
