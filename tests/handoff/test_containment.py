"""User code that raises SystemExit and its like affects its own send, and no other object."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from types import SimpleNamespace

import pytest

from rocketmq_py import Message, MessageQueue, TransactionState
from rocketmq_py.blocking import Client
from rocketmq_py.codes import RequestCode
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.handoff import trio_thread
from rocketmq_py.hooks import RpcContext, RpcHook
from rocketmq_py.message import SendResult
from rocketmq_py.producer import ProducerHook, SendContext

ENDS = [SystemExit, KeyboardInterrupt, GeneratorExit]


class RaisingHook(ProducerHook):
    """A hook that raises before each send."""

    def __init__(self, error: type[BaseException]) -> None:
        self._error = error

    def before_send(self, context: SendContext) -> None:
        raise self._error


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


def test_a_hook_fails_its_own_send(client: Client, error: type[BaseException]) -> None:
    with client.producer("g") as producer, client.producer("other") as other:
        remove = producer.add_hook(RaisingHook(error))
        with pytest.raises(error):
            producer.submit(Message("T", b"x")).result(60)
        with pytest.raises(error):
            producer.send(Message("T", b"x"))
        remove()
        for one in (producer, other):
            assert one.send(Message("T", b"x")).message_id


def test_an_rpc_hook_fails_the_end_of_its_own_block(client: Client, error: type[BaseException]) -> None:
    class Raising(RpcHook):
        def before_request(self, context: RpcContext) -> None:
            if context.code in (RequestCode.END_TRANSACTION, RequestCode.ACK_MESSAGE):
                raise error

    client.add_rpc_hook(Raising())
    producer = client.transaction_producer("g", check=lambda _: TransactionState.UNKNOWN)
    consumer = client.pop_consumer("c", consume_from="earliest")
    producer.send(Message("T", b"x"))
    consumer.subscribe("T")
    (message,) = consumer.receive()
    with pytest.raises(error), producer.transaction(Message("T", b"x")):
        pass
    with pytest.raises(error), consumer.holding(message):
        pass
    assert producer.send(Message("T", b"x")).message_id


def test_a_process_whose_threads_gevent_has_patched_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    patched = SimpleNamespace(is_module_patched=lambda name: name == "threading")
    monkeypatch.setitem(sys.modules, "gevent.monkey", patched)
    monkeypatch.setattr(trio_thread, "_threads", {})
    before = threading.active_count()
    with pytest.raises(ConfigurationError, match="gevent has patched the threading module"):
        trio_thread.trio_thread()
    assert threading.active_count() == before
