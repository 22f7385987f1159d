"""Handlers whose annotation asks for decoded bodies."""

from __future__ import annotations

import functools
import typing
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import attrs
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from rocketmq_py import PoppedMessage, ReceivedMessage
from rocketmq_py.consumer.group.handler_results import ConsumeLater, SplitResult, Suspend
from rocketmq_py.consumer.group.queue_locks import QueueLock
from rocketmq_py.consumer.pull.process_queue import ProcessQueue
from rocketmq_py.consumer.push.direct_consumption import DirectConsumption
from rocketmq_py.consumer.push.handler import open_executor
from rocketmq_py.consumer.push.orderly_dispatch import OrderlyDispatch
from rocketmq_py.consumer.push.typed_handlers import prepare_handler
from rocketmq_py.consumer.settings import PushConsumerSettings
from rocketmq_py.errors import ConfigurationError
from tests.consumer.dispatching import DeadLetters, ScriptedReturns, SentBackMessages, concurrent_dispatch
from tests.consumer.received import QUEUE, received

if TYPE_CHECKING:
    import rocketmq_py as unloaded

ONE = PushConsumerSettings(group="G")
LISTS = PushConsumerSettings(group="G", batch_size=4)
T = TypeVar("T")


@attrs.frozen
class Order:
    number: int


GOOD, BAD = b'{"number":1}', b'{"number":"one"}'


async def takes_message(message: ReceivedMessage) -> None: ...
async def takes_popped(message: PoppedMessage | None) -> None: ...
async def takes_annotated(message: Annotated[ReceivedMessage, "x"]) -> None: ...
async def takes_any(message: Any) -> None: ...
async def takes_object(message: object) -> None: ...
async def takes_variable(message: T, other: T | None = None) -> None: ...
async def takes_anything(*arguments: Any) -> None: ...
async def takes_messages(messages: list[ReceivedMessage]) -> None: ...
async def takes_sequence(messages: Sequence[ReceivedMessage]) -> None: ...
async def takes_list(messages: list) -> None: ...  # type: ignore[type-arg]
async def takes_objects(messages: list[Any]) -> None: ...
async def takes_bare_list(messages: typing.List) -> None: ...  # type: ignore[type-arg]  # noqa: UP006
async def takes_bare_sequence(messages: typing.Sequence) -> None: ...  # type: ignore[type-arg]
def takes_quoted(messages: list["ReceivedMessage"]) -> None: ...  # noqa: UP037
async def takes_unresolvable(message: unloaded.ReceivedMessage) -> None: ...


@pytest.mark.parametrize(
    "handle",
    [
        takes_message,
        takes_popped,
        takes_annotated,
        takes_any,
        takes_object,
        takes_variable,
        takes_anything,
        takes_unresolvable,
    ],
)
def test_handlers_of_messages_are_unchanged(handle: Callable[..., Any]) -> None:
    assert prepare_handler(handle, ONE) is handle


@pytest.mark.parametrize(
    "handle",
    [
        takes_messages,
        takes_sequence,
        takes_list,
        takes_bare_list,
        takes_bare_sequence,
        takes_quoted,
        takes_objects,
        takes_any,
        takes_anything,
    ],
)
def test_handlers_of_lists_of_messages_are_unchanged(handle: Callable[..., Any]) -> None:
    assert prepare_handler(handle, LISTS) is handle


def plain(order: Order) -> object:
    return order


async def asynchronous(order: Order) -> object:
    return order


class Methods:
    def method(self, order: Order) -> object:
        return order

    async def __call__(self, order: Order) -> object:
        return order


def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any) -> Any:
        return function(*args)

    return call


def with_option(option: int, order: Order) -> object:
    return order


HANDLERS: list[Any] = [
    plain,
    asynchronous,
    Methods().method,
    Methods(),
    decorated(plain),
    decorated(decorated(asynchronous)),
    functools.partial(with_option, 1),
]


async def result_of(handle: Any, argument: Any) -> Any:
    result = handle(argument)
    return await result if hasattr(result, "__await__") else result


@pytest.mark.parametrize("handle", HANDLERS, ids=range(len(HANDLERS)))
async def test_annotation_decides_that_a_handler_gets_the_body(handle: Any) -> None:
    prepared = prepare_handler(handle, ONE)
    assert await result_of(prepared, received(0, GOOD)) == Order(1)
    split = await result_of(prepared, received(0, BAD))
    assert isinstance(split, SplitResult)
    reason = "its body cannot be decoded as Order: Expected `int`, got `str` - at `$.number`"
    assert split == SplitResult({0: reason})


async def test_second_parameter_gets_the_message() -> None:
    def of_one(order: Order, message: ReceivedMessage) -> Any:
        return order, message

    async def of_several(orders: list[Order], messages: list[ReceivedMessage]) -> Any:
        return orders, messages

    first, bad, last = received(0, GOOD), received(1, BAD), received(2, GOOD)
    assert await result_of(prepare_handler(of_one, ONE), first) == (Order(1), first)
    split = await result_of(prepare_handler(of_several, LISTS), [first, bad, last])
    assert split.result == ([Order(1), Order(1)], [first, last])
    assert [*split.dead_letters] == [1]


async def test_optional_second_parameter_keeps_its_default() -> None:
    def handle(order: Order, retries: int = 3) -> Any:
        return order, retries

    assert await result_of(prepare_handler(handle, ONE), received(0, GOOD)) == (Order(1), 3)


@pytest.mark.parametrize("annotation", [list["Order"], typing.List["Order"]])  # noqa: UP006
async def test_the_type_in_a_list_may_be_quoted(annotation: object) -> None:
    def handle(orders: object) -> Any:
        return orders

    handle.__annotations__["orders"] = annotation
    assert await result_of(prepare_handler(handle, LISTS), [received(0, GOOD)]) == [Order(1)]


@pytest.mark.parametrize("is_plain", [False, True])
async def test_handler_of_lists_gets_the_decoded_bodies(is_plain: bool) -> None:
    async def handle(orders: list[Order]) -> Any:
        return ConsumeLater(done=len(orders))

    def call(orders: list[Order]) -> Any:
        return handle(orders)

    prepared = prepare_handler(call if is_plain else handle, LISTS)
    assert await result_of(prepared, [received(0, GOOD), received(1, GOOD)]) == ConsumeLater(done=2)
    split = await result_of(prepared, [received(0, BAD), received(1, GOOD)])
    assert split.result == ConsumeLater(done=1)
    split = await result_of(prepared, [received(0, BAD)])
    assert (split.result, [*split.dead_letters]) == (None, [0])


def of_opaque(value: TypeVar) -> None: ...
def of_unknown(value: Unknown) -> None: ...  # type: ignore[name-defined]  # noqa: F821
def of_optional_list(messages: list[ReceivedMessage] | None) -> None: ...
def of_two(one: Order, two: ReceivedMessage, three: int) -> None: ...


@pytest.mark.parametrize(
    ("handle", "config", "reason"),
    [
        (takes_messages, ONE, "handle takes a list of messages, which needs the setting batch_size"),
        (plain, LISTS, r"handle takes Order, but batch_size is set.*list\[Order\]"),
        (of_optional_list, LISTS, r"batch_size is set.*Annotate the parameter with list\[ReceivedMessage\]"),
        (of_opaque, ONE, "bodies cannot be decoded as TypeVar"),
        (of_unknown, ONE, "annotation 'Unknown' of handle cannot be resolved: name 'Unknown' is not defined"),
        (of_two, ONE, r"handle is called with \(body, message\), which of_two"),
        (takes_message.__code__, ONE, "handle must be a function"),
    ],
)
def test_wrong_annotations_are_refused(handle: Any, config: PushConsumerSettings, reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        prepare_handler(handle, config)


# Dead letters


def filled(*bodies: bytes, lock: QueueLock | None = None) -> ProcessQueue:
    process_queue = ProcessQueue(QUEUE, 0, lock)
    process_queue.put([received(offset, body) for offset, body in enumerate(bodies)], len(bodies))
    return process_queue


@pytest.mark.parametrize("is_plain", [False, pytest.param(True, marks=pytest.mark.long)])
@pytest.mark.parametrize("batch_size", [None, 3])
async def test_undecodable_bodies_become_dead_letters(
    nursery: trio.Nursery, jumping_clock: object, is_plain: bool, batch_size: int | None
) -> None:
    handled: list[Order] = []

    def handle_plain(order: Order) -> None:
        handled.append(order)

    def handle_plain_lists(orders: list[Order]) -> None:
        handled.extend(orders)

    async def handle(order: Order) -> None:
        handled.append(order)

    async def handle_lists(orders: list[Order]) -> None:
        handled.extend(orders)

    handlers: tuple[Any, Any] = (handle_plain, handle_plain_lists) if is_plain else (handle, handle_lists)
    config = PushConsumerSettings(group="G", batch_size=batch_size)
    prepared: Any = prepare_handler(handlers[batch_size is not None], config)
    dead_letters = DeadLetters()
    dead_letters.failures = 1  # tried again after 5 seconds, real ones while a handler's thread lives
    process_queue = filled(GOOD, BAD, GOOD, BAD)
    concurrent_dispatch(
        nursery, prepared, 1, send_back=SentBackMessages(), dead_letters=dead_letters, batch_size=batch_size
    ).offer(process_queue)
    with trio.fail_after(60):
        while len(process_queue):
            await trio.sleep(0.1)
    assert handled == [Order(1), Order(1)]
    assert sorted(dead_letters.offsets) == [1, 3]
    assert all("cannot be decoded as Order" in reason for reason in dead_letters.reasons)


def orderly_dispatch(nursery: trio.Nursery, handle: Any, **options: Any) -> OrderlyDispatch:
    settings = {name: options.pop(name) for name in ("batch_size", "auto_commit") if name in options}
    return OrderlyDispatch(
        nursery, handle, PushConsumerSettings(group="g", orderly=True, concurrency=1, **settings), **options
    )


@pytest.mark.parametrize("batch_size", [None, 3])
@pytest.mark.parametrize("auto_commit", [True, False])
async def test_undecodable_bodies_do_not_block_an_ordered_queue(
    nursery: trio.Nursery, jumping_clock: object, batch_size: int | None, auto_commit: bool
) -> None:
    handled: list[Order] = []
    failures = [Suspend(), None]

    async def handle(order: Order) -> Any:
        if failures and (failure := failures.pop(0)):
            return failure
        handled.append(order)
        return None

    async def handle_lists(orders: list[Order]) -> Any:
        if failures and (failure := failures.pop(0)):
            return failure
        handled.extend(orders)
        return None

    config = PushConsumerSettings(group="G", orderly=True, batch_size=batch_size)
    prepared = prepare_handler(handle if batch_size is None else handle_lists, config)
    dead_letters = DeadLetters()
    dead_letters.failures = 1
    process_queue = filled(GOOD, BAD, GOOD, BAD, lock=QueueLock(QUEUE, held_until=1e9))
    dispatch = orderly_dispatch(
        nursery,
        prepared,
        batch_size=batch_size,
        auto_commit=auto_commit,
        dead_letter_queue=ScriptedReturns(send_to_dead_letters=dead_letters),
    )
    dispatch.offer(process_queue)
    with trio.fail_after(60):
        while len(dead_letters.offsets) < 2 or len(handled) < 2:
            await trio.sleep(0.1)
    assert handled == [Order(1), Order(1)]
    assert dead_letters.offsets == [1, 3]
    assert len(process_queue) == (0 if auto_commit else 2)


async def test_dead_letters_of_a_revoked_queue_are_left_to_its_new_owner(nursery: trio.Nursery) -> None:
    process_queue = filled(BAD, lock=QueueLock(QUEUE, held_until=1e9))
    dead_letters = DeadLetters()

    async def handle(message: ReceivedMessage) -> SplitResult:
        process_queue.dropped = True
        return SplitResult({0: "bad"})

    orderly_dispatch(
        nursery, handle, dead_letter_queue=ScriptedReturns(send_to_dead_letters=dead_letters)
    ).offer(process_queue)
    await wait_all_tasks_blocked()
    assert dead_letters.offsets == []


@pytest.mark.parametrize(("body", "code"), [(GOOD, "CR_SUCCESS"), (BAD, "CR_THROW_EXCEPTION")])
async def test_operator_gets_the_reason(nursery: trio.Nursery, body: bytes, code: str) -> None:
    async def handle(orders: list[Order]) -> None: ...

    executor = open_executor(prepare_handler(handle, LISTS), 1, nursery)
    result = await DirectConsumption(executor, LISTS).consume_directly(received(0, body))
    assert result.consume_result == code
    assert ("cannot be decoded" in (result.remark or "")) is (body is BAD)


async def test_operator_gets_the_error_of_a_corrupt_message(nursery: trio.Nursery) -> None:
    async def handle(_: ReceivedMessage) -> None:
        pytest.fail("the handler is not called with it")

    executor = open_executor(handle, 1, nursery)
    config = PushConsumerSettings(group="g")
    result = await DirectConsumption(executor, config).consume_directly(received(0, corruption="not zlib"))
    assert result.consume_result == "CR_THROW_EXCEPTION"
    assert result.remark == "RocketMQError: its body cannot be read: not zlib"
