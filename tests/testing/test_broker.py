"""The broker in a thread: inspection, waiting, and its clock."""

from __future__ import annotations

import asyncio
import datetime
import os
import queue
import ssl
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import trio
import trustme

from rocketmq_py import (
    TLS,
    Admin,
    LiteTopicConsumer,
    Message,
    Producer,
    PushConsumer,
    ReceivedMessage,
    TransactionProducer,
    blocking,
)
from rocketmq_py.admin import MessageType
from rocketmq_py.allocation import AllocateByBroker
from rocketmq_py.broker import EmbeddedBroker
from rocketmq_py.errors import ClosedError, ConfigurationError, NameServerError, NoQueueError
from rocketmq_py.message import MessageQueue
from rocketmq_py.producer import TransactionState
from rocketmq_py.testing import run_broker, run_cluster
from rocketmq_py.testing.cluster import to_seconds

pytestmark = pytest.mark.sockets


def test_messages_and_requests_can_be_inspected() -> None:
    with run_broker(topics={"T": 2}) as broker:
        with blocking.Producer(broker.name_server_address, group="p") as producer:
            for number in range(3):
                producer.send(Message("T", b"%d" % number, tags="A"))
        assert [(message.body, message.tags) for message in broker.messages("T")] == [
            (b"0", "A"),
            (b"1", "A"),
            (b"2", "A"),
        ]
        assert {message.queue_id for message in broker.messages("T")} == {0, 1}
        assert broker.messages("Other") == []
        [*sends] = broker.requests("SEND_MESSAGE")
        assert [(request.name, request.topic) for request in sends] == [("SEND_MESSAGE_V2", "T")] * 3
        assert broker.requests("SEND_MESSAGE", topic="Other") == []
        assert [request.topic for request in broker.requests("GET_ROUTEINFO_BY_TOPIC")] == ["T"]


def test_wait_for_returns_when_the_messages_have_arrived() -> None:
    with (
        run_broker(topics=["T"]) as broker,
        blocking.Producer(broker.name_server_address, group="p") as producer,
    ):
        sender = threading.Thread(
            target=lambda: [producer.send(Message("T", b"%d" % number)) for number in range(3)]
        )
        sender.start()
        assert len(broker.wait_for("T", 3)) == 3
        sender.join()


def test_a_failed_wait_describes_the_contents_of_the_broker() -> None:
    with run_broker() as broker:
        with blocking.Producer(broker.name_server_address, group="p") as producer:
            producer.send(Message("T", b"x"))
        with pytest.raises(AssertionError) as failed:
            broker.wait_for("T", 2, timeout=0)
        text = str(failed.value)
        assert text.startswith("T has 1 messages, not 2, after 0 s")
        assert "  T: 1 messages" in text
        assert "  SEND_MESSAGE_V2 T from 127.0.0.1:" in text
        with pytest.raises(AssertionError, match=r"^the condition is not true after 0 s"):
            broker.wait_until(lambda: False, timeout=0)


@pytest.mark.parametrize(("false_checks", "timeout"), [(1, 0.01), (3, 30)])
def test_wait_until_checks_conditions_that_no_request_announces(false_checks: int, timeout: float) -> None:
    results = iter([False] * false_checks + [True])
    with run_broker() as broker:
        broker.wait_until(lambda: next(results), timeout=timeout)
    assert list(results) == []


def test_dead_letters_and_offsets_of_a_group_can_be_inspected() -> None:
    def handle(message: ReceivedMessage) -> None:
        if message.body == b"bad":
            raise ValueError("bad")

    with run_broker(topics={"T": 1}) as broker:
        address = broker.name_server_address
        with blocking.Producer(address, group="p") as producer:
            producer.send(Message("T", b"good"))
            producer.send(Message("T", b"bad"))
        with blocking.PushConsumer(address, group="g", max_reconsume_times=0) as consumer:
            consumer.subscribe("T")
            consumer.start(handle)
            assert [message.body for message in broker.wait_for("%DLQ%g")] == [b"bad"]
        assert [message.body for message in broker.dead_letters("g")] == [b"bad"]
        assert broker.committed("g")[MessageQueue("T", "broker-a", 0)] == 2
        assert broker.committed("unknown") == {}


def test_reset_drops_all_data_and_keeps_the_address() -> None:
    with run_broker(topics=["T"]) as broker:
        address = broker.name_server_address
        with blocking.Producer(address, group="p") as producer:
            producer.send(Message("Other", b"x"))
            broker.reset()
            assert (broker.messages("Other"), broker.requests()) == ([], [])
            assert broker.name_server_address == address
            producer.send(Message("T", b"y"))
            assert [message.body for message in broker.messages("T")] == [b"y"]


def test_change_topic_changes_queues_and_permissions() -> None:
    with run_broker(topics={"T": 1}) as broker:
        broker.change_topic("T", writable=False)
        with (
            blocking.Producer(broker.name_server_address, group="p") as producer,
            pytest.raises(NoQueueError, match="'T'"),
        ):
            producer.send(Message("T", b"no"))
        broker.change_topic("T", queues=3, writable=True)
        with blocking.Producer(broker.name_server_address, group="p") as producer:
            assert len(producer.queues("T")) == 3
            producer.send(Message("T", b"yes"))
        broker.change_topic("T", readable=False, server="broker-a")
        with blocking.Reader(broker.name_server_address) as reader, pytest.raises(NoQueueError):
            reader.open("T", start="earliest").__enter__()
        assert broker.topics() == {"T": 1}


def test_brokers_and_name_servers_support_tls(tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    with run_broker(topics=["T"], tls=context) as broker:
        address, tls = broker.name_server_address, TLS(ca_file=tmp_path / "ca.pem")
        with blocking.Producer(address, group="p", tls=tls) as producer:
            producer.send(Message("T", b"x"))
        assert [message.body for message in broker.messages("T")] == [b"x"]
        with blocking.Producer(address, group="p") as producer, pytest.raises(NameServerError):
            producer.send(Message("T", b"in plain text"), timeout=3)


def test_all_brokers_of_a_cluster_have_the_topics() -> None:
    with run_cluster(2, 2, topics={"T": 1}) as cluster:
        assert cluster.broker_names == ("broker-a", "broker-b")
        assert len(cluster.name_server_address.split(";")) == 2
        with blocking.Producer(cluster.name_server_address, group="p") as producer:
            results = [producer.send(Message("T", b"x")) for _ in range(4)]
        assert sorted(result.queue.broker_name for result in results) == [
            "broker-a",
            "broker-a",
            "broker-b",
            "broker-b",
        ]
        assert len(cluster.wait_for("T", 4)) == 4


def test_brokers_assign_the_queues_of_all_brokers() -> None:
    seen = queue.SimpleQueue[str]()
    with run_cluster(2, topics={"T": 2}) as cluster:
        address = cluster.name_server_address
        with (
            blocking.Producer(address, group="p") as producer,
            blocking.PushConsumer(
                address, group="g", consume_from="earliest", allocate=AllocateByBroker()
            ) as consumer,
        ):
            consumer.subscribe("T")
            consumer.start(lambda message: seen.put(message.broker_name))
            for _ in range(4):
                producer.send(Message("T", b"x"))
            assert sorted(seen.get(timeout=20) for _ in range(4)) == ["broker-a"] * 2 + ["broker-b"] * 2


@pytest.mark.parametrize(
    "message",
    [Message("T", b"x", delay=3000), Message("T", b"x", delay_level=17)],
    ids=["timed", "delayed"],
)
def test_advance_delivers_delayed_messages(message: Message) -> None:
    with (
        run_broker(topics=["T"]) as broker,
        blocking.Producer(broker.name_server_address, group="p") as producer,
    ):
        producer.send(message)
        broker.advance("40m")
        assert broker.messages("T") == []
        broker.advance("20m")
        assert [message.body for message in broker.messages("T")] == [b"x"]


def test_advance_ends_invisible_times_and_keeps_connections() -> None:
    with run_broker(topics={"T": 1}) as broker:
        address = broker.name_server_address
        with blocking.Producer(address, group="p") as producer:
            producer.send(Message("T", b"x"))
        with blocking.PopConsumer(address, group="g") as consumer:
            consumer.subscribe("T")
            [first] = consumer.receive(invisible=3600.0, wait=10.0)
            assert consumer.receive(invisible=60.0, wait=0.0) == []
            broker.advance("61m")
            [again] = consumer.receive(invisible=60.0, wait=10.0)
            assert (again.body, again.reconsume_times) == (first.body, 1)
        assert len({request.client_address for request in broker.requests("POP_MESSAGE")}) == 1


async def test_advance_checks_open_transactions() -> None:
    with run_broker(topics=["T"]) as broker:
        checked = trio.Event()

        async def check(_: ReceivedMessage) -> TransactionState:
            checked.set()
            return TransactionState.COMMIT

        async with TransactionProducer(
            broker.name_server_address, group="p", check=check, topics="T"
        ) as producer:
            await producer.send_in_transaction(Message("T", b"x"), lambda *_: TransactionState.UNKNOWN)
            assert broker.messages("T") == []
            broker.advance("1h")
            await checked.wait()
            assert [message.body for message in await broker.wait_for_async("T")] == [b"x"]


async def test_advance_delivers_retries() -> None:
    with run_broker(topics=["T"]) as broker:
        times: list[int] = []

        async def handle(message: ReceivedMessage) -> None:
            times.append(message.reconsume_times)
            if len(times) < 3:
                raise ValueError("not yet")

        address = broker.name_server_address
        async with (
            Producer(address, group="p") as producer,
            PushConsumer(address, group="g") as consumer,
            trio.open_nursery() as nursery,
        ):
            consumer.subscribe("T")
            nursery.start_soon(consumer.run, handle)
            await producer.send(Message("T", b"x"))
            for count in (1, 2):

                def is_sent_back(count: int = count) -> bool:
                    return len(broker.requests("CONSUMER_SEND_MSG_BACK")) == count

                await broker.wait_until_async(is_sent_back)
                broker.advance("1m")
            await broker.wait_until_async(
                lambda: broker.committed("g").get(MessageQueue("%RETRY%g", "broker-a", 0)) == 2
            )
            assert times == [0, 1, 2]
            nursery.cancel_scope.cancel()


async def test_advance_keeps_subscriptions_to_lite_topics() -> None:
    with run_broker() as broker:
        address = broker.name_server_address
        async with Admin(address) as admin:
            await admin.topics.create("T", queues=1, message_type=MessageType.LITE)
            await admin.groups.create("g", attributes={"lite.bind.topic": "T"})
        async with (
            Producer(address, group="p") as producer,
            LiteTopicConsumer(address, group="g", parent="T") as consumer,
        ):
            await consumer.subscribe_lite("session")
            broker.advance("1h")
            await producer.send(Message("T", b"x", lite_topic="session"))
            assert [message.body for message in await consumer.receive(wait=30)] == [b"x"]


async def test_blocking_waits_are_refused_on_trio() -> None:
    with run_broker() as broker:
        with pytest.raises(RuntimeError, match=r"wait_for would block .* await wait_for_async"):
            broker.wait_for("T")
        with pytest.raises(AssertionError, match="T has 0 messages, not 1"):
            await broker.wait_for_async("T", timeout=0)


def test_waiting_on_asyncio() -> None:
    from rocketmq_py import aio

    async def main() -> None:
        with run_broker() as broker:
            with pytest.raises(RuntimeError, match=r"wait_until would block .* await wait_until_async"):
                broker.wait_until(lambda: True)
            async with aio.Producer(broker.name_server_address, group="p") as producer:
                await producer.send(Message("T", b"x"))
                [message] = await broker.wait_for_async("T")
                assert message.body == b"x"

    asyncio.run(main())


def test_a_cancelled_wait_ends_its_thread() -> None:
    """``asyncio.run`` waits for the threads of its executor."""
    timeout = 30

    async def main() -> None:
        with run_broker() as broker, pytest.raises(TimeoutError):
            await asyncio.wait_for(broker.wait_until_async(lambda: False, timeout=timeout), 0.01)

    began = time.monotonic()
    asyncio.run(main())
    assert time.monotonic() - began < timeout


def test_a_closed_broker_raises_closed_error() -> None:
    with run_broker() as broker:
        address = broker.name_server_address
    broker.close()
    with pytest.raises(ClosedError, match="the broker is closed"):
        broker.messages("T")
    with run_broker() as other:
        assert other.name_server_address != address or other.messages("T") == []


USE_IN_FORKED_CHILD = """
import os
from rocketmq_py.errors import ClosedError
from rocketmq_py.testing import run_broker

with run_broker(topics=["T"]) as broker:
    child = os.fork()
    if not child:
        try:
            broker.topics()
        except ClosedError as error:
            print(error, flush=True)
        raise SystemExit
    assert os.waitpid(child, 0)[1] == 0
    assert broker.topics() == {}
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_broker_raises_closed_error_in_a_forked_child() -> None:
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", USE_IN_FORKED_CHILD],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.stdout == "the broker runs in the parent process, which alone can use it\n"


def test_settings_are_those_of_the_embedded_broker() -> None:
    with run_broker(access_keys={"alice": "secret"}, broker_name="mine") as broker:
        assert broker.broker_names == ("mine",)
        assert broker.broker_addresses == {"mine": broker.broker_address}
    with (
        pytest.raises(ConfigurationError, match="default_topic_queue_nums is 0"),
        run_broker(default_topic_queue_nums=0),
    ):
        pass
    with pytest.raises(ConfigurationError, match="brokers is 0; it must be 1 or more"), run_cluster(0):
        pass


@pytest.mark.parametrize(
    ("topics", "message"),
    [
        ("Orders", r"topics is a text; .* such as \['Orders'\]"),
        (["no topic!"], "'no topic!' may hold only"),
        ([5], r"topics\[0\] must be a str, not int"),
        (5, "topics must be a list of str, not int"),
        ({"Orders": 0}, "number of queues of Orders is 0; it must be from 1 to 65536"),
        ({"Orders": 65_537}, "Orders is 65537"),
        ({"Orders": "4"}, "Orders is '4'; it must be a whole number"),
    ],
)
async def test_invalid_topics_are_refused(topics: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message), run_broker(topics=topics):
        pass
    with pytest.raises(ConfigurationError, match=message):
        EmbeddedBroker(topics=topics)
    if isinstance(topics, dict):
        with run_broker() as broker, pytest.raises(ConfigurationError, match=message):
            broker.create_topic("Orders", queues=topics["Orders"])
        with run_broker() as broker, pytest.raises(ConfigurationError, match=message):
            broker.change_topic("Orders", queues=topics["Orders"])


@pytest.mark.parametrize(("max_messages", "max_bytes"), [(3, 1 << 20), (None, 6000)])
def test_the_oldest_messages_are_dropped_beyond_the_bounds(max_messages: int | None, max_bytes: int) -> None:
    with run_broker(topics={"T": 1}, max_store_messages=max_messages, max_store_bytes=max_bytes) as broker:
        with blocking.Producer(broker.name_server_address, group="p") as producer:
            for number in range(10):
                producer.send(Message("T", b"%d" % number + bytes(1000)))
        with blocking.Reader(broker.name_server_address) as reader:
            [(first, end)] = reader.offsets("T").values()
        stored = [int(message.body[:1]) for message in broker.messages("T")]
    assert 0 < first < end == 10
    assert stored == list(range(first, end))


@pytest.mark.parametrize(
    ("duration", "seconds"),
    [
        (1.5, 1.5),
        (0, 0),
        ("1h", 3600),
        ("1h 30m", 5400),
        ("250ms", 0.25),
        (datetime.timedelta(days=1), 86400),
    ],
)
def test_durations_are_converted_to_seconds(
    duration: float | str | datetime.timedelta, seconds: float
) -> None:
    assert to_seconds(duration) == seconds


@pytest.mark.parametrize("duration", ["", "1", "1y", "h", "-1s", -1, float("nan"), float("inf"), None])
def test_an_invalid_duration_is_an_error(duration: Any) -> None:
    with pytest.raises(ConfigurationError, match="duration"):
        to_seconds(duration)
