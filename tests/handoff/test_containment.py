"""User code that raises SystemExit and its like fails, and ends no object."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from types import SimpleNamespace
from typing import NoReturn

import pytest

from rocketmq_py import AssignmentListener, Message, MessageQueue, ReceivedMessage, TransactionState
from rocketmq_py.blocking import Client, TransactionProducer
from rocketmq_py.client.lifespan import nursery_of
from rocketmq_py.errors import ClosedError, ConfigurationError, RocketMQError
from rocketmq_py.handoff import trio_thread
from rocketmq_py.handoff.callback_thread import log_records
from rocketmq_py.handoff.hosted import target_of
from rocketmq_py.hooks import ConsumerHook, RpcHook
from rocketmq_py.message import SendResult
from rocketmq_py.producer import ProducerHook, SendContext
from rocketmq_py.testing import run_broker

ENDS = [SystemExit, KeyboardInterrupt, GeneratorExit]


def raising(error: type[BaseException]) -> Callable[..., NoReturn]:
    """Return a function, or a method, that raises an error."""

    def fail(*_: object) -> NoReturn:
        raise error

    return fail


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture(params=ENDS)
def error(request: pytest.FixtureRequest) -> type[BaseException]:
    kind: type[BaseException] = request.param
    return kind


def test_a_callback_is_logged_and_others_run(
    client: Client, error: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    called: list[object] = []
    added = threading.Event()

    def fail(_: Future[SendResult]) -> None:
        raise error

    def choose(queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
        assert added.wait(60)  # a callback that is added later runs in the caller's thread
        return queues[0]

    with client.producer("g") as producer:
        future = producer.submit(Message("T", b"x"), queue=choose)
        future.add_done_callback(fail)
        future.add_done_callback(called.append)
        added.set()
        producer.flush()
        assert producer.send(Message("T", b"x")).message_id
        assert called == [future]
    assert "callback of a future failed" in caplog.text


def test_a_selector_fails_its_own_send(client: Client, error: type[BaseException]) -> None:
    def choose(queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
        raise error

    with client.producer("g") as producer:
        producer.send(Message("T", b"x"))
        with pytest.raises(error):
            producer.submit(Message("T", b"x"), queue=choose).result(60)
        with pytest.raises(error):
            producer.send(Message("T", b"x"), queue=choose)
        assert producer.send(Message("T", b"x")).message_id


def test_a_selector_for_a_new_topic_fails_its_own_send(client: Client, error: type[BaseException]) -> None:
    def choose(queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
        raise error

    with client.producer("g") as producer:
        with pytest.raises(error):
            producer.submit(Message("New", b"x"), queue=choose).result(60)
        assert producer.submit(Message("New", b"x")).result(60).message_id


@pytest.mark.parametrize("method", ["before_send", "after_send"])
def test_a_hook_is_logged_and_the_send_continues(
    client: Client, error: type[BaseException], method: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Raising(ProducerHook):
        pass

    setattr(Raising, method, raising(error))
    with client.producer("g") as producer:
        producer.add_hook(Raising())
        for _ in range(2):
            assert producer.submit(Message("T", b"x")).result(60).message_id
            assert producer.send(Message("T", b"x")).message_id
    log_records.flush()
    assert caplog.text.count("hook failed") == 4


def test_check_forbidden_fails_its_own_send(client: Client, error: type[BaseException]) -> None:
    class Raising(ProducerHook):
        def check_forbidden(self, context: SendContext) -> None:
            raise error

    with client.producer("g") as producer, client.producer("other") as other:
        remove = producer.add_hook(Raising())
        with pytest.raises(error):
            producer.submit(Message("T", b"x")).result(60)
        with pytest.raises(error):
            producer.send(Message("T", b"x"))
        remove()
        for one in (producer, other):
            assert one.send(Message("T", b"x")).message_id


@pytest.mark.parametrize("method", ["before_request", "after_answer"])
def test_an_rpc_hook_is_logged_and_requests_continue(
    client: Client, error: type[BaseException], method: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Raising(RpcHook):
        pass

    setattr(Raising, method, raising(error))
    client.add_rpc_hook(Raising())
    producer = client.transaction_producer("g", check=lambda _: TransactionState.UNKNOWN)
    consumer = client.pop_consumer("c", consume_from="earliest")
    assert producer.submit(Message("T", b"x")).result(60).message_id
    consumer.subscribe("T")
    (message,) = consumer.receive()
    with producer.transaction(Message("T", b"x")):
        pass
    with consumer.holding(message):
        pass
    assert producer.send(Message("T", b"x")).message_id
    log_records.flush()
    assert "hook failed" in caplog.text


@pytest.mark.parametrize("method", ["before_consume", "after_consume"])
def test_a_hook_of_a_consumer_is_logged_and_the_messages_are_delivered(
    client: Client, error: type[BaseException], method: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Raising(ConsumerHook):
        pass

    setattr(Raising, method, raising(error))
    with client.producer("g") as producer:
        producer.send(Message("T", b"x"))
    handled = threading.Event()
    with (
        client.push_consumer("push", consume_from="earliest") as push,
        client.lite_pull_consumer("pull", consume_from="earliest") as pull,
    ):
        for consumer in (push, pull):
            consumer.add_hook(Raising())
            consumer.subscribe("T")
        run = push.start(lambda message: handled.set())
        assert handled.wait(60)
        assert pull.poll(wait=60)
        assert not run.done()
    log_records.flush()
    assert "hook failed" in caplog.text


def test_an_assignment_listener_is_logged_and_the_messages_are_delivered(
    client: Client, error: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    class Raising(AssignmentListener):
        def on_assigned(self, queues: list[MessageQueue]) -> None:
            raise error

    with client.producer("g") as producer:
        producer.send(Message("T", b"x"))
    listener, handled = Raising(), threading.Event()
    with (
        client.push_consumer("push", consume_from="earliest", assignment_listener=listener) as push,
        client.lite_pull_consumer("pull", consume_from="earliest", assignment_listener=listener) as pull,
    ):
        push.subscribe("T")
        pull.subscribe("T")
        run = push.start(lambda message: handled.set())
        assert handled.wait(60)
        assert pull.poll(wait=60)
        assert not run.done()
    log_records.flush()
    assert "assignment listener failed: group=push method=on_assigned" in caplog.text
    assert "assignment listener failed: group=pull method=on_assigned" in caplog.text


def test_a_provider_of_credentials_fails_its_own_send(address: str, error: type[BaseException]) -> None:
    with (
        Client(address, credentials=raising(error)) as client,
        client.producer("g", send_timeout=1) as producer,
    ):
        for _ in range(2):
            with pytest.raises(RocketMQError, match=f"credentials raised {error.__name__}"):
                producer.send(Message("T", b"x"))
        assert producer.is_open


def test_a_check_of_a_transaction_is_logged_and_unknown(
    error: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    states = iter([None, TransactionState.COMMIT])

    def check(message: ReceivedMessage) -> TransactionState:
        state = next(states)
        if state is None:
            raise error
        return state

    with (
        run_broker(topics=["T"]) as broker,
        TransactionProducer(broker.name_server_address, group="g", check=check, topics="T") as producer,
    ):
        producer.send_in_transaction(Message("T", b"x"), lambda *_: TransactionState.UNKNOWN)
        for checked in (1, 2):
            broker.advance("1m")
            wait_until(lambda: producer.transaction_statistics.checked == checked)  # noqa: B023
        wait_until(lambda: len(broker.messages("T")) == 1)
        assert producer.send(Message("T", b"y")).message_id
    log_records.flush()
    assert "transaction check failed, the broker will check again: group=g topic=T" in caplog.text


def test_the_error_that_ended_an_object_is_the_cause_of_later_errors(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail() -> None:
        raise ValueError("a defect")

    producer = client.producer("g")
    producer._thread.post(lambda: nursery_of(target_of(producer)).start_soon(fail))
    wait_until(lambda: not producer.is_open)
    for call in (producer.send, producer.submit):
        with pytest.raises(ClosedError, match="this Producer was closed by ValueError: a defect; ") as caught:
            call(Message("T", b"x"))
        assert repr(caught.value.__cause__) == "ValueError('a defect')"
    log_records.flush()
    assert "a Producer failed and was closed" in caplog.text
    assert client.producer("other").send(Message("T", b"x")).message_id


def test_a_process_whose_threads_gevent_has_patched_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    patched = SimpleNamespace(is_module_patched=lambda name: name == "threading")
    monkeypatch.setitem(sys.modules, "gevent.monkey", patched)
    monkeypatch.setattr(trio_thread, "_threads", {})
    before = threading.active_count()
    with pytest.raises(ConfigurationError, match="gevent has patched the threading module"):
        trio_thread.trio_thread()
    assert threading.active_count() == before
