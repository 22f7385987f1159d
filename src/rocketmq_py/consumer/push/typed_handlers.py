"""Handlers of decoded bodies: ``def handle(order: Order)``.

:func:`prepare_handler` reads the annotation of a handler's first parameter. A ReceivedMessage, or no
annotation, means that the handler gets messages. Any other type means that it gets their decoded bodies. A
body that cannot be decoded becomes a dead letter with the reason, and the handler is not called with it.
"""

from __future__ import annotations

import functools
import inspect
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Collection, Iterable, Mapping, Sequence
from types import MethodType
from typing import Annotated, Any, ForwardRef, Protocol, TypeVar, get_args, get_origin

from rocketmq_py.callables import check_callable, is_async
from rocketmq_py.codecs import BodyDecoder
from rocketmq_py.consumer.group.handler_results import SplitResult
from rocketmq_py.consumer.push.handler import Handler
from rocketmq_py.consumer.push.handler_executor import HandlerWithExecutor
from rocketmq_py.errors import BodyDecodeError, ConfigurationError
from rocketmq_py.message import ReceivedMessage
from rocketmq_py.message.received import decode_body

_LISTS = (list, Sequence, Iterable, Collection)
_MESSAGE_NAME = re.compile(r"\b(ReceivedMessage|PoppedMessage)\b")


class HandlerSettings(Protocol):
    """The settings of a consumer that its handler and the calls of it depend on."""

    @property
    def group(self) -> str:
        """The consumer group."""

    @property
    def batch_size(self) -> int | None:
        """The largest number of messages in a list, or None for a handler of single messages."""

    @property
    def orderly(self) -> bool:
        """Whether messages are handled in order, so that a failed one is retried in place."""

    @property
    def auto_commit(self) -> bool:
        """Whether messages are acknowledged when the handler returns."""

    @property
    def concurrency(self) -> int:
        """The maximum number of handler calls at a time."""

    @property
    def suspend_current_queue(self) -> float:
        """The seconds for which a queue is suspended after a failure, if messages are handled in order."""

    @property
    def reconsume_limit(self) -> int:
        """The maximum number of redeliveries of a failing message."""


class HandlerWrapper(ABC):
    """A handler around another one, for example one that skips duplicates.

    Attributes:
        handle: the wrapped handler.
    """

    handle: Handler

    @abstractmethod
    def around(self, handle: Handler, config: HandlerSettings) -> Handler:
        """Return the handler that a consumer calls.

        Args:
            handle: calls the wrapped handler, with decoded bodies if it has an annotation.
            config: the consumer's settings.
        """


def prepare_handler(handle: Handler, config: HandlerSettings) -> Handler:
    """Check a handler. Return it, or a function that decodes the bodies for it.

    Raises:
        ConfigurationError: the handler does not accept its arguments, its annotation cannot be resolved, or
            no codec supports the type.
    """
    given: object = handle
    if isinstance(given, HandlerWithExecutor):  # the asyncio API has prepared its handler
        return handle
    if isinstance(given, HandlerWrapper):
        return given.around(prepare_handler(given.handle, config), config)
    in_lists = config.batch_size is not None
    what = "messages" if in_lists else "message"
    parameters = _parameters(handle)
    kind = _body_type(handle, parameters[0].annotation, in_lists=in_lists) if parameters else None
    if kind is None:
        check_callable(handle, "handle", what)
        return handle
    with_message = _takes_message(parameters)
    check_callable(handle, "handle", *(("body", what) if with_message else ("body",)))
    decoder = BodyDecoder(*kind)
    if in_lists:
        return _handler_of_lists(handle, decoder, with_messages=with_message)
    return _handler_of_one(handle, decoder, with_message=with_message)


# Annotations


def _parameters(handle: object) -> list[inspect.Parameter]:
    """Return the positional parameters of a handler. Those of a decorated one are behind ``*args``."""
    while True:
        try:
            signature = inspect.signature(handle, follow_wrapped=False)  # type: ignore[arg-type]
        except (TypeError, ValueError):
            return []
        parameters = [one for one in signature.parameters.values() if one.kind <= one.VAR_POSITIONAL]
        if not parameters or parameters[0].kind is not inspect.Parameter.VAR_POSITIONAL:
            return parameters
        if not hasattr(handle, "__wrapped__"):
            return []
        handle = handle.__wrapped__


def _takes_message(parameters: Sequence[inspect.Parameter]) -> bool:
    """Return whether a handler of bodies takes the message as its second argument."""
    if len(parameters) < 2 or parameters[1].kind is inspect.Parameter.VAR_POSITIONAL:
        return False
    second = parameters[1]
    return second.default is second.empty


def _body_type(handle: object, annotation: Any, *, in_lists: bool) -> tuple[Any] | None:
    """Return the type of the bodies in a tuple, or None for a handler of messages."""
    if isinstance(annotation, str):
        try:
            annotation = _resolve(handle, annotation)
        except ConfigurationError:
            if _MESSAGE_NAME.search(annotation):  # imported for type checkers only
                return None
            raise
    if annotation in (inspect.Parameter.empty, Any, object) or isinstance(annotation, TypeVar):
        return None
    if not in_lists:
        if _is_list(annotation) and any(_is_message(part) for part in get_args(annotation)):
            raise ConfigurationError("handle takes a list of messages, which needs the setting batch_size")
        return None if _is_message(annotation) else (annotation,)
    if annotation in _LISTS:
        return None
    if not _is_list(annotation):
        item = "ReceivedMessage" if _MESSAGE_NAME.search(str(annotation)) else _shown(annotation)
        raise ConfigurationError(
            f"handle takes {_shown(annotation)}, but batch_size is set, so that it is called with lists. "
            f"Annotate the parameter with list[{item}]"
        )
    (item,) = get_args(annotation) or (Any,)  # typing.List has no arguments
    if isinstance(item, ForwardRef):
        item = item.__forward_arg__
    return _body_type(handle, item, in_lists=False)


def _resolve(handle: Any, annotation: str) -> Any:
    """Evaluate a postponed annotation where the handler is defined."""
    function = handle
    while isinstance(function, functools.partial):
        function = function.func
    function = inspect.unwrap(function.__func__ if isinstance(function, MethodType) else function)
    module = getattr(sys.modules.get(getattr(function, "__module__", "")), "__dict__", {})
    if not inspect.isfunction(function):
        function = type(function).__call__
    names: Mapping[str, Any] = {**module, **getattr(function, "__globals__", {})}
    try:
        return eval(annotation, dict(names))  # noqa: S307  # the program's own annotation
    except Exception as error:
        raise ConfigurationError(
            f"the annotation {annotation!r} of handle cannot be resolved: {error}. Import the type at run "
            "time and define it in the module, so that bodies can be decoded"
        ) from error


def _is_list(annotation: Any) -> bool:
    return get_origin(annotation) in _LISTS


def _is_message(annotation: Any) -> bool:
    """Return whether a type is that of a message, or a union that contains it."""
    if get_origin(annotation) is Annotated:
        annotation = annotation.__origin__
    if isinstance(annotation, type) and get_origin(annotation) is None:
        return issubclass(annotation, ReceivedMessage)
    return not _is_list(annotation) and any(_is_message(part) for part in get_args(annotation))


def _shown(annotation: Any) -> str:
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)


# Calls


class _Function(Protocol):
    def __call__(self, *arguments: Any) -> Any: ...


def _handler_of_one(handle: _Function, decoder: BodyDecoder, *, with_message: bool) -> Handler:
    """Return a handler of messages that calls ``handle`` with the decoded body."""

    def decode(message: ReceivedMessage) -> tuple[Any, ...] | SplitResult:
        try:
            value = decode_body(message, decoder)
        except BodyDecodeError as error:
            return SplitResult({0: _reason(decoder, error)})
        return (value, message) if with_message else (value,)

    if is_async(handle):

        async def call_async(message: ReceivedMessage) -> Any:
            arguments = decode(message)
            return arguments if isinstance(arguments, SplitResult) else await handle(*arguments)

        return call_async

    def call(message: ReceivedMessage) -> Any:
        arguments = decode(message)
        return arguments if isinstance(arguments, SplitResult) else handle(*arguments)

    return call


def _handler_of_lists(handle: _Function, decoder: BodyDecoder, *, with_messages: bool) -> Handler:
    """Return a handler of lists of messages that calls ``handle`` with the list of decoded bodies."""

    def call(messages: Sequence[ReceivedMessage]) -> Any:
        values: list[Any] = []
        decoded: list[ReceivedMessage] = []
        reasons: dict[int, str] = {}
        for index, message in enumerate(messages):
            try:
                values.append(decode_body(message, decoder))
                decoded.append(message)
            except BodyDecodeError as error:
                reasons[index] = _reason(decoder, error)
        if not values:
            return SplitResult(reasons)
        result = handle(values, decoded) if with_messages else handle(values)
        if not reasons:
            return result
        if inspect.isawaitable(result):
            return _split_later(result, reasons)
        return SplitResult(reasons, result=result)

    if not is_async(handle):
        return call

    async def call_async(messages: Sequence[ReceivedMessage]) -> Any:
        result = call(messages)
        return await result if inspect.isawaitable(result) else result

    return call_async


def _reason(decoder: BodyDecoder, error: BodyDecodeError) -> str:
    return f"its body cannot be decoded as {decoder.name}: {error.reason}"


async def _split_later(result: Awaitable[Any], reasons: Mapping[int, str]) -> SplitResult:
    return SplitResult(reasons, result=await result)
