"""Public methods and settings refuse arguments of wrong types, with one sentence and before any request."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import attrs
import pytest

import rocketmq_py
from rocketmq_py import (
    Client,
    CompressionType,
    LitePullConsumer,
    Message,
    PopConsumer,
    Position,
    PushConsumer,
    TransactionState,
)
from rocketmq_py.broker import EmbeddedBroker
from rocketmq_py.consumer import ConsumerHook
from rocketmq_py.consumer.read.offset_ranges import OffsetRange
from rocketmq_py.errors import ConfigurationError, InvalidMessageError
from rocketmq_py.producer import ProducerHook
from rocketmq_py.producer.batch import EncodedBatch
from rocketmq_py.producer.transaction_settings import TransactionSettings
from tests.consumer.pop.test_pop_loop import popped_message
from tests.consumer.received import QUEUE, received
from tests.generate_settings import OWNERS
from tests.wrong_arguments import required, wrong_values

KINDS = [
    "Producer", "TransactionProducer", "PushConsumer", "LitePullConsumer", "PopConsumer",
    "Reader",
]  # fmt: skip
RIGHT: dict[str, Any] = {
    "message": Message("T", b"x"),
    "messages": [Message("T", b"x")],
    "batch": EncodedBatch((Message("T", b"x"),), ("7F00000100002A9F0000000000000000",), b"x"),
    "local_work": lambda message, transaction_id: None,
    "request": received(0, CLUSTER="c", CORRELATION_ID="1", REPLY_TO_CLIENT="client", TTL="1000"),
    "body": b"x",
    "topic": "T",
    "topics": ["T"],
    "recall_handle": "x",
    "hook": ConsumerHook(),
    "handle": print,
    "queue": QUEUE,
    "queues": [QUEUE],
    "position": "earliest",
    "offsets": {QUEUE: 0},
    "sql": "a = 1",
    "invisible": 5,
    "group": "g",
    "message_id": "7F00000100002A9F0000000000000000",
    "offset_message_id": "7F00000100002A9F0000000000000000",
    "key": "k",
    "ranges": [OffsetRange(QUEUE, 0, 1)],
}
INSIDE = {"start", "aclose"}
"""Methods of Lifespan."""


def methods() -> Iterator[tuple[str, str]]:
    for name in KINDS:
        for method, value in inspect.getmembers(getattr(rocketmq_py, name), inspect.isfunction):
            parameters = [*inspect.signature(value).parameters][1:]
            if parameters and not method.startswith("_") and method not in INSIDE:
                yield name, method


async def use(call: Callable[..., Any], arguments: list[Any], options: dict[str, Any]) -> None:
    """Call a method; await, enter or iterate its result."""
    result = call(*arguments, **options)
    if isinstance(result, Awaitable):
        await result
    elif hasattr(result, "__aenter__"):
        async with result:
            pass
    elif hasattr(result, "__aiter__"):
        await anext(aiter(result))


def opened(client: Client, kind: str) -> Any:
    if kind == "Reader":
        return client.reader()
    if kind == "TransactionProducer":
        return client.transaction_producer("g", lambda message: rocketmq_py.TransactionState.UNKNOWN)
    name = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in kind).strip("_")
    return getattr(client, name)("g")


@pytest.mark.parametrize(("kind", "method"), [*methods()])
async def test_a_wrong_type_is_refused_before_any_request(
    kind: str, method: str, jumping_clock: object
) -> None:
    requests: list[int] = []
    async with (
        EmbeddedBroker(topics=["T"], on_request=lambda code, _, __: requests.append(code)) as broker,
        Client(broker.name_server_address) as client,
        opened(client, kind) as it,
    ):
        if kind == "LitePullConsumer" and method != "subscribe":
            await it.assign([QUEUE])
        elif kind == "PopConsumer":
            it.subscribe("T")
        call = getattr(it, method)
        right = required(call, {**RIGHT, "hook": ProducerHook()} if "Producer" in kind else RIGHT)
        if method in ("change_invisible", "holding"):
            right["message"] = popped_message(0)
        requests.clear()
        for name, parameter in inspect.signature(call).parameters.items():
            for wrong in wrong_values(parameter.annotation):
                if method == "send_all" and isinstance(wrong, list):
                    continue  # each message has an outcome of its own
                arguments = [wrong] if parameter.kind is parameter.VAR_POSITIONAL else []
                options = {} if arguments else {**right, name: wrong}
                with pytest.raises((ConfigurationError, InvalidMessageError)) as caught:
                    await use(call, arguments, options)
                assert name.removesuffix("s") in str(caught.value)
                assert "\n" not in str(caught.value)
        assert not requests


SETTINGS = ("Config", "Policy", "Compression", "TLS")
CONFIGS = {
    name: value
    for package in (rocketmq_py, rocketmq_py.broker)
    for name in package.__all__
    if attrs.has(value := getattr(package, name))
    and name.endswith(("Config", "Policy", "Compression", "TLS"))
} | {owner.settings.__name__: owner.settings for owner in OWNERS}


@pytest.mark.parametrize("name", sorted(CONFIGS))
def test_a_setting_of_a_wrong_type_is_refused(name: str) -> None:
    fields = attrs.fields(CONFIGS[name])
    right: dict[str, Any] = {
        "group": "g", "parent": "T", "topic": "T", "store": "folder", "queues": [QUEUE],
        "latencies": [1.0], "unavailable": [1.0], "error_latency": 1.0,
    }  # fmt: skip
    for field in fields:
        if not field.init:
            continue
        needed = {one.name: right[one.name] for one in fields if one.default is attrs.NOTHING}
        with pytest.raises(ConfigurationError, match=field.name):
            CONFIGS[name](**{**needed, field.name: object()})


MAKERS: dict[str, Callable[[Any], object]] = {
    "client": lambda wrong: rocketmq_py.Producer(wrong),
    "port": lambda wrong: EmbeddedBroker(port=wrong),
    "namesrv_port": lambda wrong: EmbeddedBroker(namesrv_port=wrong),
    "tls": lambda wrong: EmbeddedBroker(tls=wrong),
}


@pytest.mark.parametrize("name", MAKERS)
def test_a_constructor_refuses_a_wrong_type(name: str) -> None:
    with pytest.raises(ConfigurationError, match=name):
        MAKERS[name](object())


def test_words_stand_for_the_members_of_enumerations() -> None:
    assert PushConsumer(group="g", consume_from="earliest").settings.consume_from is Position.earliest
    pulling = LitePullConsumer(group="g", consume_from="LATEST")
    assert pulling.settings.consume_from is Position.latest
    assert TransactionSettings(group="g", on_error="rollback").on_error is TransactionState.ROLLBACK
    assert rocketmq_py.Compression(kind="zlib").kind is CompressionType.ZLIB
    with pytest.raises(ConfigurationError) as caught:
        PopConsumer(group="g", consume_from="start")
    assert str(caught.value) == "consume_from is 'start'; it must be 'earliest' or 'latest'"
