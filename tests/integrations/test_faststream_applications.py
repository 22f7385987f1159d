"""Applications with the FastStream broker: failures, and options."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

pytest.importorskip("faststream", reason="the extra faststream is not installed")

from faststream import AckPolicy, FastStream, TestApp
from faststream.exceptions import SetupError
from faststream.security import BaseSecurity, SASLPlaintext, SASLScram256

from rocketmq_py import Position
from rocketmq_py.aio import Admin, Client, LitePullConsumer, Producer, PushConsumer
from rocketmq_py.errors import ClosedError, ConfigurationError, InvalidMessageError
from rocketmq_py.handoff.loop_link import current_link
from rocketmq_py.integrations.faststream import (
    RocketMQBroker,
    RocketMQMessage,
    RocketMQRouter,
    TestRocketMQBroker,
)
from rocketmq_py.integrations.faststream import (
    subscriber as subscriber_module,
)
from rocketmq_py.integrations.faststream.messages import Delivery
from rocketmq_py.remoting import TLS
from rocketmq_py.remoting.tls import ssl_context
from rocketmq_py.testing import TestBroker, run_broker
from tests.blocking.conftest import ENVIRONMENT, run_program
from tests.integrations.test_faststream import PATIENCE, Received, asyncio_test, broker_of, running


@pytest.fixture
def server() -> Iterator[TestBroker]:
    with run_broker(topics=["Orders"]) as server:
        yield server


# Applications and failures


@asyncio_test
async def test_an_application_runs_and_exits(server: TestBroker) -> None:
    broker = broker_of(server.name_server_address)
    app = FastStream(broker, logger=None)

    @app.after_startup
    async def send() -> None:
        await broker.publish("hello", "Orders")

    @broker.subscriber("Orders", group="billing", consume_from="earliest")
    async def leave(body: str) -> None:
        raise SystemExit

    await app.run()
    assert not broker.running


@asyncio_test
async def test_the_test_application() -> None:
    broker = broker_of("127.0.0.1:1")

    @broker.subscriber("Orders", group="billing")
    async def bill(body: str) -> None: ...

    async with TestRocketMQBroker(broker), TestApp(FastStream(broker, logger=None)):
        await broker.publish("hello", "Orders")
        bill.mock.assert_called_once_with("hello")


@asyncio_test
async def test_failed_messages_are_delivered_again_and_become_dead_letters(server: TestBroker) -> None:
    """The default acknowledgement policy."""
    broker = broker_of(server.name_server_address)
    received = Received()

    @broker.subscriber("Orders", group="billing", max_reconsume_times=1, consume_from="earliest")
    async def fail(body: str) -> None:
        received.add(body)
        raise ValueError("no")

    async with running(broker):
        await broker.publish("hello", "Orders")
        await received.wait_for(1)
        await asyncio.to_thread(server.wait_until, lambda: server.requests("CONSUMER_SEND_MSG_BACK"))
        await asyncio.to_thread(server.advance, 11)
        await received.wait_for(2)
        await asyncio.to_thread(server.wait_until, lambda: len(server.dead_letters("billing")) == 1)


@asyncio_test
@pytest.mark.long
async def test_publishing_and_subscribers_go_on_after_the_broker_was_away(server: TestBroker) -> None:
    broker = broker_of(server.name_server_address)
    received = Received()

    @broker.subscriber("Orders", group="billing", consume_from="earliest")
    async def bill(body: str) -> None:
        received.add(body)

    async with running(broker):
        await broker.publish("before", "Orders")
        await received.wait_for(1)
        await asyncio.to_thread(server.crash)
        publishing = asyncio.create_task(broker.publish("during", "Orders"))
        await asyncio.wait([publishing], timeout=2)
        assert not publishing.done()
        await asyncio.to_thread(server.restart)
        async with asyncio.timeout(15):  # a second for the library, the rest for a busy machine
            await publishing
            assert await received.wait_for(2) == ["before", "during"]


@asyncio_test
async def test_a_subscriber_without_replies(server: TestBroker) -> None:
    broker = broker_of(server.name_server_address)
    received = Received()

    @broker.subscriber("Orders", group="billing", no_reply=True, consume_from="earliest")
    async def handle(body: str) -> str:
        received.add(body)
        return body

    async with running(broker):
        request = asyncio.create_task(broker.request("hello", "Orders", timeout=PATIENCE))
        await received.wait_for(1)
        await broker.publish("next", "Orders")  # handled when the result of the first one is published
        await received.wait_for(2)
        assert not server.requests("SEND_REPLY_MESSAGE")
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request


@asyncio_test
async def test_every_member_of_a_broadcasting_group_receives_all_messages(
    server: TestBroker, tmp_path: Any
) -> None:
    received = Received()
    brokers = [broker_of(server.name_server_address, instance_name=name) for name in ("one", "two")]
    for broker in brokers:

        @broker.subscriber(
            "Orders",
            group="all",
            broadcasting=True,
            consumer_options={"local_offsets": tmp_path},
            consume_from="earliest",
        )
        async def handle(body: str) -> None:
            received.add(body)

    async with running(brokers[0]), running(brokers[1]):
        await brokers[0].publish("hello", "Orders")
        assert await received.wait_for(2) == ["hello", "hello"]


@asyncio_test
async def test_a_consumer_that_fails_runs_again(
    server: TestBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The handler's consumer waits until the group has no other consumer of the client."""
    monkeypatch.setattr(subscriber_module, "RETRY_SECONDS", 0.01)
    logger = logging.getLogger("test.faststream")
    failed = asyncio.Event()

    class Notice(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "cannot consume" in record.getMessage():
                failed.set()

    logger.addHandler(Notice())
    broker = RocketMQBroker(server.name_server_address, logger=logger)
    received = Received()
    other = broker.subscriber("Orders", group="billing", consume_from="earliest")

    @broker.subscriber("Orders", group="billing", consume_from="earliest")
    async def handle(body: str) -> None:
        received.add(body)

    await broker.connect()
    await other.start()
    assert await other.get_one(timeout=0) is None
    async with running(broker):
        await failed.wait()
        await other.stop()
        await broker.publish("hello", "Orders")
        assert await received.wait_for(1) == ["hello"]
    assert "cannot consume, trying again in 0.01 s: " in caplog.text


@asyncio_test
async def test_a_broker_stops_while_its_consumer_waits_to_run_again(
    server: TestBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscriber_module, "RETRY_SECONDS", 10_000.0)
    broker = broker_of(server.name_server_address)
    other = broker.subscriber("Orders", group="billing")

    @broker.subscriber("Orders", group="billing")
    async def handle(body: str) -> None: ...

    await broker.connect()
    await other.start()
    await other.get_one(timeout=0)
    async with running(broker):
        await asyncio.to_thread(server.wait_until, lambda: server.requests("HEART_BEAT"))


@asyncio_test
async def test_a_broker_stops_although_its_consumer_fails_at_once(
    server: TestBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_failing = asyncio.Event()

    async def fail(*_: object) -> NoReturn:
        is_failing.set()
        await asyncio.sleep(0)
        raise ConfigurationError("it cannot run")

    monkeypatch.setattr(PushConsumer, "run", fail)
    broker = broker_of(server.name_server_address)

    @broker.subscriber("Orders", group="billing")
    async def handle(body: str) -> None: ...

    async with asyncio.timeout(PATIENCE / 4), running(broker):
        await is_failing.wait()


@asyncio_test
async def test_subscribers_with_a_handler_return_no_messages(server: TestBroker) -> None:
    broker = broker_of(server.name_server_address)
    subscriber = broker.subscriber("Orders", group="billing")

    @subscriber
    async def handle(body: str) -> None: ...

    with pytest.raises(ConfigurationError, match="has a handler, which receives its messages"):
        await subscriber.get_one()


@asyncio_test
async def test_subscribers_that_are_not_started_return_no_messages() -> None:
    broker = broker_of("127.0.0.1:1")
    with pytest.raises(Exception, match=r"await subscriber\.start\(\) first"):
        await broker.subscriber("Orders", group="billing").get_one()


@asyncio_test
async def test_a_start_that_is_cancelled_leaves_no_client_open(
    server: TestBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_starting = asyncio.Event()

    async def start(_: Producer) -> None:
        is_starting.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(Producer, "start", start)
    broker = broker_of(server.name_server_address)
    starting = asyncio.create_task(broker.start())
    await is_starting.wait()
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert not current_link().open


@asyncio_test
async def test_a_stop_closes_the_consumer_that_get_one_is_opening(
    server: TestBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, is_starting, may_start = LitePullConsumer.start, asyncio.Event(), asyncio.Event()

    async def start_later(consumer: LitePullConsumer) -> None:
        is_starting.set()
        await may_start.wait()
        await start(consumer)

    monkeypatch.setattr(LitePullConsumer, "start", start_later)
    broker = broker_of(server.name_server_address)
    subscriber = broker.subscriber("Orders", group="billing")
    async with running(broker):
        receiving = asyncio.create_task(subscriber.get_one())
        await is_starting.wait()
        stopping = asyncio.create_task(subscriber.stop())
        await asyncio.sleep(0)
        may_start.set()
        await stopping
        assert [type(one) for one in current_link().open] == [Client, Producer]
        with pytest.raises(ClosedError):
            await receiving


@asyncio_test
async def test_a_refused_subscription_leaves_no_consumer_open(server: TestBroker) -> None:
    broker = broker_of(server.name_server_address)
    router = RocketMQRouter("no topic!")
    subscriber = router.subscriber("Orders", group="billing")

    @router.subscriber("Refunds", group="refunds")
    async def handle(body: str) -> None: ...

    broker.include_router(router)
    with pytest.raises(ConfigurationError, match="no topic!Refunds"):
        await broker.start()
    await subscriber.start()
    with pytest.raises(ConfigurationError, match="no topic!Orders"):
        await subscriber.get_one()
    assert [type(one) for one in current_link().open] == [Client, Producer]
    await broker.stop()


@asyncio_test
async def test_a_consumer_that_may_not_join_its_group_is_closed(server: TestBroker) -> None:
    broker = broker_of(server.name_server_address)
    one, other = [broker.subscriber("Orders", group="billing") for _ in range(2)]
    await broker.connect()
    await one.start()
    await other.start()
    await one.get_one(timeout=0)
    for _ in range(2):
        with pytest.raises(ConfigurationError, match="already a member of group"):
            await other.get_one(timeout=0)
    assert [type(one) for one in current_link().open] == [Client, Producer, LitePullConsumer]
    await one.stop()
    assert await other.get_one(timeout=0) is None
    await broker.stop()


@asyncio_test
async def test_get_one_starts_at_a_time(server: TestBroker) -> None:
    broker = broker_of(server.name_server_address)
    half_an_hour = 1800
    subscriber = broker.subscriber(
        "Orders",
        group="billing",
        consume_from=Position.time(int((time.time() + half_an_hour) * 1000)),
    )
    async with running(broker):
        await broker.publish("before", "Orders", sharding_key="1")
        await asyncio.to_thread(server.advance, 2 * half_an_hour)
        await broker.publish("after", "Orders", sharding_key="1")
        message = await subscriber.get_one(timeout=PATIENCE / 4)
        assert message is not None
        assert await message.decode() == "after"


@asyncio_test
async def test_a_broadcasting_subscriber_without_a_handler_returns_no_messages() -> None:
    subscriber = broker_of("127.0.0.1:1").subscriber("Orders", group="billing", broadcasting=True)
    with pytest.raises(ConfigurationError, match="broadcasting=True, which needs a handler"):
        await subscriber.get_one()


def is_error(value: object) -> bool:
    return isinstance(value, BaseException)


@asyncio_test
async def test_a_second_task_that_calls_get_one_gets_an_error_that_says_so(server: TestBroker) -> None:
    broker = broker_of(server.name_server_address)
    subscriber = broker.subscriber("Orders", group="billing", consume_from="earliest")
    async with running(broker):
        await broker.publish("hello", "Orders")
        calls = [subscriber.get_one(timeout=PATIENCE) for _ in range(2)]
        message, error = sorted(await asyncio.gather(*calls, return_exceptions=True), key=is_error)
        assert isinstance(message, RocketMQMessage)
        assert await message.decode() == "hello"
        assert isinstance(error, ConfigurationError)
        assert "Only one may at a time" in str(error)


@asyncio_test
async def test_a_stop_that_is_cancelled_still_leaves_the_group(server: TestBroker) -> None:
    broker = broker_of(server.name_server_address)
    is_running, release = asyncio.Event(), asyncio.Event()

    subscriber = broker.subscriber("Orders", group="billing", consume_from="earliest")

    @subscriber
    async def handle(body: str) -> None:
        is_running.set()
        await release.wait()

    async with running(broker), Admin(server.name_server_address) as admin:
        await broker.publish("hello", "Orders")
        await is_running.wait()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(subscriber.stop(), 0.05)
        release.set()
        await subscriber.stop()
        assert (await admin.groups.describe("billing")).members == ()


@asyncio_test
async def test_two_subscribers_in_one_group() -> None:
    broker = broker_of("127.0.0.1:1")

    @broker.subscriber("Orders", group="billing")
    @broker.subscriber("Refunds", group="billing")
    async def handle(body: str) -> None: ...

    with pytest.raises(SetupError, match="are in the group 'billing'"):
        await broker.start()


@pytest.mark.parametrize("ordered", [True, False])
@asyncio_test
async def test_delays_of_the_wrong_kind(ordered: bool) -> None:
    delivery = Delivery(orderly=ordered)
    broker = broker_of("127.0.0.1:1")

    @broker.subscriber("Orders", group="billing", ack_policy=AckPolicy.MANUAL)
    async def handle(body: str) -> None: ...

    async with TestRocketMQBroker(broker) as test_broker:
        message = await test_broker.request("hello", "Orders")
    message._delivery = delivery
    with pytest.raises(ConfigurationError, match="pass seconds" if ordered else "pass delay_level"):
        await message.nack(**({"delay_level": 1} if ordered else {"seconds": 1}))
    assert message.committed is None


# Options


@pytest.mark.parametrize(
    "options",
    [
        {"address": 5}, {"address": "a:b:c"}, {"group": ""}, {"colour": "red"}, {"send_timeout": 0},
        {"request_timeout": "1"}, {"retries": -1},
    ],
)  # fmt: skip
def test_wrong_options_of_a_broker(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        RocketMQBroker(**options)


@pytest.mark.parametrize(
    "options",
    [
        {"group": ""}, {"tags": "||"}, {"sql": ""}, {"sql": "a > 1", "tags": "A"}, {"max_workers": 0},
        {"consume_from": "middle"}, {"max_reconsume_times": -1}, {"batch": True, "max_records": 0},
        {"batch": True, "max_records": 2000}, {"consumer_options": {"colour": 1}}, {"orderly": 1},
    ],
)  # fmt: skip
def test_wrong_options_of_a_subscriber(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        RocketMQBroker(logger=None).subscriber("Orders", **{"group": "billing"} | options)


@pytest.mark.parametrize(
    ("option", "argument"),
    [
        ({"group": "other"}, "group"), ({"orderly": True}, "orderly"),
        ({"broadcasting": True}, "broadcasting"), ({"concurrency": 2}, "max_workers"),
        ({"consume_from": "earliest"}, "consume_from"), ({"max_reconsume_times": 1}, "max_reconsume_times"),
        ({"batch_size": 2}, "batch and max_records"),
    ],
)  # fmt: skip
def test_consumer_options_do_not_contradict_arguments(option: dict[str, Any], argument: str) -> None:
    with pytest.raises(ConfigurationError, match=f"as the argument {argument} instead"):
        RocketMQBroker(logger=None).subscriber("Orders", group="billing", consumer_options=option)


@pytest.mark.parametrize(
    "options",
    [
        {"batch": True, "delay": 1}, {"batch": True, "priority": 0}, {"delay": -1}, {"tags": "\x01"},
        {"keys": 5},
    ],
)  # fmt: skip
def test_wrong_options_of_a_publisher(options: dict[str, Any]) -> None:
    with pytest.raises((ConfigurationError, InvalidMessageError)):
        RocketMQBroker(logger=None).publisher("Orders", **options)


def test_wrong_topics_and_routers() -> None:
    broker = RocketMQBroker(logger=None)
    with pytest.raises(SetupError, match="at least one topic"):
        broker.subscriber(group="billing")
    with pytest.raises(ConfigurationError, match="no topic!"):
        broker.subscriber("Orders", "no topic!", group="billing")
    with pytest.raises(ConfigurationError, match="no topic!"):
        broker.publisher("no topic!")
    with pytest.raises(TypeError):
        broker.publisher("Orders", colour="red")  # type: ignore[call-overload]
    wrong: Any = object()
    with pytest.raises(SetupError, match="must be a RocketMQRouter, not object"):
        broker.include_router(wrong)


def test_security() -> None:
    broker = RocketMQBroker(logger=None, security=SASLPlaintext("name", "key", use_ssl=True))
    assert broker._client_options["credentials"].access_key == "name"
    assert broker._client_options["tls"] == TLS()
    assert RocketMQBroker(logger=None, security=BaseSecurity())._client_options == {}
    with pytest.raises(SetupError, match="SASLScram256 is not supported"):
        RocketMQBroker(security=SASLScram256("name", "key"))
    with pytest.raises(SetupError, match="pass RocketMQBroker"):
        RocketMQBroker(security=BaseSecurity(ssl_context=ssl_context(TLS())))


def test_the_extra_is_named_where_it_is_missing() -> None:
    program = """
        import sys
        sys.modules["faststream"] = None
        from rocketmq_py.errors import ConfigurationError
        try:
            import rocketmq_py.integrations.faststream
        except ConfigurationError as error:
            print(error)
    """
    assert "install rocketmq-py[faststream]" in run_program(program)


@pytest.mark.long
def test_the_example(server: TestBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """One process runs the application, and another one sends orders to it."""
    pytest.importorskip("typer", reason="faststream[cli] is not installed")
    examples = str(Path(__file__).parents[2])
    monkeypatch.setitem(ENVIRONMENT, "PYTHONPATH", os.pathsep.join([ENVIRONMENT["PYTHONPATH"], examples]))
    monkeypatch.setitem(ENVIRONMENT, "NAMESRV_ADDR", server.name_server_address)
    command = [sys.executable, "-m", "faststream", "run", "examples.faststream_orders:app"]
    with subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True) as application:
        try:
            send = [sys.executable, "-m", "examples.faststream_orders", "5"]
            assert subprocess.check_output(send, env=ENVIRONMENT, text=True) == "IS IT THERE?\n"
            assert application.stdout is not None
            billed = (line for line in application.stdout if "is billed" in line)  # between log lines
            lines = [next(billed) for _ in range(5)]
        finally:
            application.send_signal(signal.SIGTERM)
            application.wait(PATIENCE)
    assert sorted(lines) == [f"order {number} is billed, order-{number}\n" for number in range(5)]
    assert application.returncode == 0
