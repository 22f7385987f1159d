"""Functions of users are checked when they are passed in, before any request."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import pytest

import rocketmq_py
from rocketmq_py import AssignmentListener, Client, Message, aio, blocking
from rocketmq_py.broker import EmbeddedBroker
from rocketmq_py.codes import RequestCode
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.hooks import ConsumerHook, ProducerHook
from rocketmq_py.remoting import RpcHook
from rocketmq_py.testing import run_broker, simulate

MESSAGE = Message("T", b"x")
SENDS = {
    RequestCode.SEND_MESSAGE,
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.SEND_BATCH_MESSAGE,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP,
}


def of_no_argument() -> Any: ...


def of_one_argument(_: object) -> Any: ...


async def asynchronous(*_: object) -> Any: ...


# Any, because type checkers would reject these arguments.
NOTHING: Any = of_no_argument
FIVE: Any = 5
ONE: Any = of_one_argument
ASYNC: Any = asynchronous


class Listener(AssignmentListener):
    def on_revoked(self) -> None:  # type: ignore[override]
        ...


class OddProducerHook(ProducerHook):
    def before_send(self) -> None:  # type: ignore[override]
        ...


class OddConsumerHook(ConsumerHook):
    def after_consume(self, context: object, more: object) -> None:  # type: ignore[override]
        ...


class OddRpcHook(RpcHook):
    def before_request(self) -> None:  # type: ignore[override]
        ...


class NoListener:
    def on_assigned(self, queues: object) -> None: ...


async def check(message: object) -> rocketmq_py.TransactionState:
    return rocketmq_py.TransactionState.UNKNOWN


Give: TypeAlias = Callable[[Client], Awaitable[object]]


def producer(give: Callable[[Any], Any]) -> Give:
    async def run(client: Client) -> None:
        async with client.producer("g") as producer:
            result = give(producer)
            if isinstance(result, Awaitable):
                await result

    return run


def batching(give: Callable[[Any], Any]) -> Give:
    async def run(client: Client) -> None:
        async with client.producer("g", linger=0.005) as producer:
            result = give(producer)
            if isinstance(result, Awaitable):
                await result

    return run


def transactions(give: Callable[[Any], Awaitable[object]]) -> Give:
    async def run(client: Client) -> None:
        async with client.transaction_producer("g", check) as producer:
            await give(producer)

    return run


def made(make: Callable[[Any], object]) -> Give:
    async def run(client: Client) -> None:
        make(client)

    return run


async def transaction(producer: rocketmq_py.TransactionProducer) -> None:
    async with producer.transaction(MESSAGE, queue=NOTHING):
        pytest.fail("not reached")


async def run_push_consumer(client: Client) -> None:
    async with client.push_consumer("g") as consumer:
        consumer.subscribe("T")
        await consumer.run(NOTHING)


CASES: dict[str, tuple[Give, str]] = {
    "send(queue)": (producer(lambda it: it.send(MESSAGE, queue=NOTHING)), r"queue .* \(queues, message\)"),
    "send(async queue)": (producer(lambda it: it.send(MESSAGE, queue=ASYNC)), "queue .* not awaited"),
    "submit(queue)": (producer(lambda it: it.submit(MESSAGE, queue=NOTHING)), "queue is called with"),
    "send_oneway(queue)": (producer(lambda it: it.send_oneway(MESSAGE, queue=NOTHING)), "queue is called"),
    "send_batch(queue)": (producer(lambda it: it.send_batch([MESSAGE], queue=NOTHING)), "queue is called"),
    "request(queue)": (producer(lambda it: it.request(MESSAGE, queue=NOTHING)), "queue is called with"),
    "add_hook": (producer(lambda it: it.add_hook(OddProducerHook())), r"hook.before_send is called with"),
    "add_hook(class)": (producer(lambda it: it.add_hook(ProducerHook)), "not the class ProducerHook"),
    "batching send(queue)": (batching(lambda it: it.send(MESSAGE, queue=NOTHING)), "queue is called with"),
    "batching add_hook": (batching(lambda it: it.add_hook(OddProducerHook())), "hook.before_send is called"),
    "TransactionProducer(check)": (
        made(lambda client: client.transaction_producer("g", NOTHING)), r"check is called with \(message\)",
    ),
    "send_in_transaction(local_work)": (
        transactions(lambda it: it.send_in_transaction(MESSAGE, ONE)),
        r"local_work is called with \(message, transaction_id\), which of_one_argument\(_.* does not accept",
    ),
    "send_in_transaction(queue)": (
        transactions(lambda it: it.send_in_transaction(MESSAGE, ASYNC, queue=NOTHING)), "queue is",
    ),
    "transaction(queue)": (transactions(transaction), "queue is called with"),
    "push_consumer.run(handle)": (run_push_consumer, r"handle is called with \(message\)"),
    "push_consumer(allocate)": (
        made(lambda client: client.push_consumer("g", allocate=NOTHING)),
        r"allocate is called with \(group, client_id, queues, client_ids\)",
    ),
    "push_consumer(async allocate)": (
        made(lambda client: client.push_consumer("g", allocate=ASYNC)), "allocate .* not awaited",
    ),
    "lite_pull_consumer(allocate)": (
        made(lambda client: client.lite_pull_consumer("g", allocate=NOTHING)), "allocate is called with",
    ),
    "push_consumer(assignment_listener)": (
        made(lambda client: client.push_consumer("g", assignment_listener=Listener())),
        r"assignment_listener.on_revoked is called with \(queues\)",
    ),
    "push_consumer(assignment_listener class)": (
        made(lambda client: client.push_consumer("g", assignment_listener=Listener)), "not the class",
    ),
    "lite_pull_consumer(assignment_listener)": (
        made(lambda client: client.lite_pull_consumer("g", assignment_listener=Listener())), "on_revoked",
    ),
    "push_consumer.add_hook": (
        made(lambda client: client.push_consumer("g").add_hook(OddConsumerHook())), "hook.after_consume is",
    ),
    "lite_pull_consumer.add_hook": (
        made(lambda client: client.lite_pull_consumer("g").add_hook(OddConsumerHook())), "hook.after_consume",
    ),
    "pop_consumer.add_hook": (
        made(lambda client: client.pop_consumer("g").add_hook(OddConsumerHook())), "hook.after_consume is",
    ),
    "client.add_rpc_hook": (made(lambda client: client.add_rpc_hook(OddRpcHook())), "hook.before_request is"),
    "EmbeddedBroker(on_request)": (
        made(lambda _: EmbeddedBroker(on_request=NOTHING)), r"is called with \(code, topic, client_address",
    ),
    "simulate(program)": (made(lambda _: simulate(NOTHING, seed=1)), r"program is called with \(world\)"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
async def test_a_function_with_other_parameters_is_refused_before_anything_is_sent(
    case: str, jumping_clock: object
) -> None:
    give, words = CASES[case]
    requests: list[int] = []
    async with (
        EmbeddedBroker(topics=["T"], on_request=lambda code, _, __: requests.append(code)) as broker,
        Client(broker.name_server_address) as client,
    ):
        with pytest.raises(ConfigurationError, match=words):
            await give(client)
    assert not SENDS & set(requests)


def test_a_condition_that_accepts_other_arguments_is_refused() -> None:
    with run_broker() as broker, pytest.raises(ConfigurationError, match=r"condition is called with \(\)"):
        broker.wait_until(ONE)


LISTENERS: list[tuple[Any, str]] = [
    (Listener(), r"assignment_listener.on_revoked is called with \(queues\)"),
    (Listener, "not the class Listener"),
    (NoListener(), "must be an object with the methods of AssignmentListener, not NoListener"),
    (FIVE, "must be an object with the methods of AssignmentListener, not int"),
]


@pytest.mark.parametrize("kind", ["PushConsumer", "LitePullConsumer"])
@pytest.mark.parametrize("api", [aio, blocking], ids=["aio", "blocking"])
def test_other_apis_refuse_wrong_assignment_listeners(api: Any, kind: str) -> None:
    for listener, why in LISTENERS:
        with pytest.raises(ConfigurationError, match=why):
            getattr(api, kind)("127.0.0.1:1", group="g", assignment_listener=listener)


HOOKS: list[tuple[str, Any, str]] = [
    ("producer", OddProducerHook, "hook.before_send is called with"),
    ("push_consumer", OddConsumerHook, "hook.after_consume is called with"),
    ("pop_consumer", OddConsumerHook, "hook.after_consume is called with"),
    ("", OddRpcHook, "hook.before_request is called with"),
]


def test_the_threads_api_refuses_wrong_functions() -> None:
    with blocking.Client("127.0.0.1:1") as client:
        for kind, hook, why in HOOKS:
            add = getattr(client, kind)("g").add_hook if kind else client.add_rpc_hook
            for wrong, reason in ((hook(), why), (hook, "not the class"), (FIVE, "not int")):
                with pytest.raises(ConfigurationError, match=reason):
                    add(wrong)
        with pytest.raises(ConfigurationError, match=r"check is called with \(message\)"):
            client.transaction_producer("g", NOTHING)


def test_the_asyncio_api_refuses_wrong_functions() -> None:
    async def main() -> None:
        async with aio.Client("127.0.0.1:1") as client:
            for kind, hook, why in HOOKS:
                add = getattr(client, kind)("g").add_hook if kind else client.add_rpc_hook
                for wrong, reason in ((hook(), why), (hook, "not the class"), (FIVE, "not int")):
                    with pytest.raises(ConfigurationError, match=reason):
                        add(wrong)
            for wrong_check in (NOTHING, FIVE):
                with pytest.raises(ConfigurationError, match=r"check (is called with|must be a function)"):
                    client.transaction_producer("g", wrong_check)
            async with client.transaction_producer("g", check) as producer:
                for work in (ONE, FIVE):
                    with pytest.raises(ConfigurationError, match=r"local_work (is called|must be a func)"):
                        await producer.send_in_transaction(MESSAGE, work)

    asyncio.run(main())
