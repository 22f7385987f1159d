"""Methods of the asyncio and threads APIs that are declared from the methods of trio classes."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Concatenate, ParamSpec, TypeVar, get_type_hints

from rocketmq_py.client.health import ClientHealth, Health
from rocketmq_py.errors import ClosedError
from rocketmq_py.handoff.trio_thread import TrioThread
from rocketmq_py.handoff.watchdog import STUCK_SECONDS

P = ParamSpec("P")
R = TypeVar("R")
AnyHealth = TypeVar("AnyHealth", bound=Health)
Value = TypeVar("Value")
Method = TypeVar("Method", bound=Callable[..., Any])

_SECTION = re.compile(r"^(?:Args|Returns|Yields|Raises):\n(?: {4}.*\n)+", re.MULTILINE)


class Operations:
    """The operations of an Admin on one kind of resource. Calls go through the Admin."""

    def __init__(self, target: object, call: Callable[..., Any]) -> None:
        self._target = target
        self._call = call


def plain(method: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], R]:
    """Declare a plain method of a trio class for another API: it is called in the trio thread."""
    name = method.__name__

    @functools.wraps(method)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        result: R = self._call_plain(getattr(self._target, name), *args, **kwargs)
        return result

    return call


def stopping(method: Callable[[Any], None]) -> Callable[[Any], None]:
    """Declare the method ``stop``. It does nothing for a closed object: signals may come at any time."""
    name = method.__name__

    @functools.wraps(method)
    def call(self: Any, /) -> None:
        with suppress(ClosedError):
            self._call_plain(getattr(self._target, name))

    return call


def reading(method: Callable[[Any], AnyHealth]) -> Callable[[Any], AnyHealth]:
    """Declare the method ``health``. It may be called before the object is open and after it was closed, too.

    It does not wait for a trio thread that is blocked, but says so. Nor does it raise an error in a forked
    child, or at the end of the process.
    """

    @functools.wraps(method)
    def call(self: Any, /) -> AnyHealth:
        thread: TrioThread = self._thread
        if thread.is_usable and not thread.watchdog.is_stuck:
            with suppress(TimeoutError, ClosedError):  # ClosedError: the thread has ended meanwhile
                found: AnyHealth = thread.call_plain(self._target.health, timeout=STUCK_SECONDS)
                return found
        kind: type[AnyHealth] = get_type_hints(method)["return"]
        reasons = (thread.watchdog.describe() if thread.is_usable else str(thread.ended_error()),)
        client = {} if kind is ClientHealth else {"client": ClientHealth(reasons=reasons)}
        return kind(reasons=reasons, **client)

    return call


def with_sections_of(described: Callable[..., Any]) -> Callable[[Method], Method]:
    """Decorate a method: its docstring ends with the arguments, results and errors of a trio class's method.

    Other paragraphs are not copied, because the APIs differ in them.
    """

    def decorate(method: Method) -> Method:
        sections = _SECTION.findall(f"{inspect.cleandoc(described.__doc__ or '')}\n")
        texts = [inspect.cleandoc(method.__doc__ or ""), *map(str.rstrip, sections)]
        method.__doc__ = "\n\n".join(texts)
        return method

    return decorate


def converted(
    described: Callable[Concatenate[Any, P], Value],
) -> Callable[[Callable[[Any, Value], R]], Callable[Concatenate[Any, P], R]]:
    """Decorate a method that converts the result of a plain method of a trio class, of the same name.

    It gets the arguments of that method, and their part of its docstring.
    """
    name = described.__name__

    def decorate(convert: Callable[[Any, Value], R]) -> Callable[Concatenate[Any, P], R]:
        @functools.wraps(described)
        def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
            self._check_open()
            found: Value = self._call_plain(getattr(self._target, name), *args, **kwargs)
            return convert(self, found)

        call.__doc__ = convert.__doc__
        # The type is evaluated here: other modules evaluate the annotations in the module of ``described``.
        call.__annotations__ = {**described.__annotations__, "return": get_type_hints(convert)["return"]}
        shown: Any = call
        shown.__signature__ = inspect.signature(described).replace(
            return_annotation=convert.__annotations__["return"]
        )
        return with_sections_of(described)(call)

    return decorate
