"""The kombu transport behaves the same on brokers 4.x, 5.x and the embedded one."""

from __future__ import annotations

import re
import threading
import time
from datetime import UTC, datetime, timedelta
from queue import Empty
from typing import Any

import pytest
from kombu import Connection, Exchange, Producer, Queue
from kombu.asynchronous import Hub
from kombu.exceptions import ChannelError
from kombu.transport import virtual

from rocketmq_py.blocking import Admin, Reader
from rocketmq_py.client.features import POP, PRIORITIES
from rocketmq_py.errors import MessageTooLargeError
from tests.behaviours.conftest import has
from tests.integrations.kombu_programs import (
    PATIENCE,
    QUIET,
    Receiver,
    connect,
    job_queue,
    keep,
    publish,
)

pytestmark = [pytest.mark.long, pytest.mark.sockets]


# Messages


def test_messages_arrive_with_headers_and_are_acknowledged(
    connection: Connection, other: Connection, unique: str
) -> None:
    queue = job_queue(unique)
    publish(connection, queue, {"number": 1}, headers={"id": "task-1"}, correlation_id="c")
    receiver = Receiver(other, queue)
    assert receiver.wait_for(1) == [{"number": 1}]
    [message] = receiver.messages
    assert message.headers["id"] == "task-1"
    assert message.properties["correlation_id"] == "c"
    assert message.delivery_info["routing_key"] == unique
    assert not message.delivery_info["redelivered"]
    assert receiver.drain() == [{"number": 1}]


def test_a_task_is_found_by_its_id(connection: Connection, unique: str, address: str) -> None:
    publish(connection, job_queue(unique), {"number": 1}, headers={"id": "task-1"})
    with Admin(address) as admin:
        deadline = time.monotonic() + PATIENCE  # brokers index in the background
        while not (found := admin.messages.find(unique, "task-1").messages):
            assert time.monotonic() < deadline
    assert [message.keys for message in found] == [("task-1",)]


def test_bytes_and_text_arrive_as_they_were_sent(connection: Connection, unique: str) -> None:
    queue = job_queue(unique)
    publish(connection, queue, b"\x00\xff", content_type="application/data", content_encoding="binary")
    publish(connection, queue, "ü", serializer="raw")
    receiver = Receiver(connection, queue)
    receiver.wait_for(2)
    assert {bytes(message.body, "utf-8") if isinstance(message.body, str) else message.body
            for message in receiver.messages} == {b"\x00\xff", "ü".encode()}  # fmt: skip


def test_many_messages_go_to_one_consumer_each(
    connection: Connection, other: Connection, unique: str, cluster_name: str
) -> None:
    queue = job_queue(unique)
    first, second = Receiver(connection, queue), Receiver(other, queue)
    publish(connection, queue, *range(100))
    ended = threading.Event()

    def consume_too() -> None:
        while not ended.is_set():
            try:
                other.drain_events(timeout=0.2)
            except TimeoutError:
                continue

    thread = threading.Thread(target=consume_too)
    thread.start()
    try:
        deadline = time.monotonic() + PATIENCE
        while len(first.messages) + len(second.messages) < 100 and time.monotonic() < deadline:
            first.drain(0.1)
    finally:
        ended.set()
        thread.join()
    bodies = sorted(first.bodies + second.bodies)
    # On 4.x some may come twice when the second member gets queues of the first.
    assert (sorted(set(bodies)) if not has(cluster_name, POP) else bodies) == list(range(100))


def test_a_message_that_is_too_large_fails_at_once(connection: Connection, unique: str) -> None:
    with pytest.raises(MessageTooLargeError):
        publish(connection, job_queue(unique), "x" * 5_000_000)


def test_draining_ends_when_no_message_comes(connection: Connection, unique: str) -> None:
    Receiver(connection, job_queue(unique))
    with pytest.raises(TimeoutError):
        connection.drain_events(timeout=0.1)


# Routing


def test_a_direct_exchange_routes_by_key(connection: Connection, unique: str) -> None:
    exchange = Exchange(unique, type="direct")
    red, blue = (Queue(f"{unique}-{color}", exchange, routing_key=color) for color in ("red", "blue"))
    producer = Producer(connection.default_channel)
    for color in ("red", "blue"):
        producer.publish(color, exchange=exchange, routing_key=color, declare=[red, blue])
    assert Receiver(connection, red).wait_for(1) == ["red"]
    assert Receiver(connection, blue).wait_for(1) == ["blue"]


def test_a_topic_exchange_routes_by_pattern(connection: Connection, unique: str) -> None:
    exchange = Exchange(unique, type="topic")
    feeds = Queue(f"{unique}-feeds", exchange, routing_key="feed.#")
    imports = Queue(f"{unique}-imports", exchange, routing_key="*.import")
    producer = Producer(connection.default_channel)
    for key in ("feed.import", "feed.export.all", "web.import"):
        producer.publish(key, exchange=exchange, routing_key=key, declare=[feeds, imports])
    assert sorted(Receiver(connection, feeds).wait_for(2)) == ["feed.export.all", "feed.import"]
    assert sorted(Receiver(connection, imports).wait_for(2)) == ["feed.import", "web.import"]


def test_the_default_exchange_routes_by_queue(connection: Connection, other: Connection, unique: str) -> None:
    queue = Queue(unique)
    queue(connection.default_channel).declare()
    Producer(other.default_channel).publish("hello", exchange="", routing_key=unique)
    assert Receiver(connection, queue).wait_for(1) == ["hello"]


def test_a_fanout_exchange_reaches_every_process(
    connection: Connection, other: Connection, unique: str
) -> None:
    exchange = Exchange(unique, type="fanout", durable=False)
    receivers = [
        Receiver(one, Queue(f"{unique}-{number}", exchange, auto_delete=True))
        for number, one in enumerate([connection, other])
    ]
    publisher = Producer(connection.default_channel)
    publisher.publish("news", exchange=exchange, declare=[exchange])
    assert [receiver.wait_for(1) for receiver in receivers] == [["news"], ["news"]]


def test_patterns_of_private_queues_reach_other_processes(
    connection: Connection, other: Connection, unique: str
) -> None:
    """As events of Celery's workers do."""
    exchange = Exchange(unique, type="topic")
    queue = Queue(f"{unique}-events", exchange, routing_key="worker.#", auto_delete=True, durable=False)
    receiver = Receiver(connection, queue, no_ack=True, act=keep)
    producer = Producer(other.default_channel)
    for key in ("worker.online", "task.sent", "worker.heartbeat"):
        producer.publish(key, exchange=exchange, routing_key=key, declare=[exchange])
    assert sorted(receiver.wait_for(2)) == ["worker.heartbeat", "worker.online"]
    assert len(receiver.drain()) == 2


def test_replies_reach_a_private_queue_of_another_process(
    connection: Connection, other: Connection, unique: str
) -> None:
    bound = Queue(
        f"{unique}-bound", Exchange(unique, durable=False), routing_key="me", auto_delete=True, durable=False
    )
    unbound = Queue(f"{unique}-unbound", auto_delete=True, durable=False)
    receivers = [Receiver(connection, queue, no_ack=True, act=keep) for queue in (bound, unbound)]
    producer = Producer(other.default_channel)
    producer.publish("to you", exchange=bound.exchange, routing_key="you", declare=[bound.exchange])
    producer.publish("to me", exchange=bound.exchange, routing_key="me", declare=[bound.exchange])
    producer.publish("by name", exchange="", routing_key=unbound.name)
    assert [receiver.wait_for(1) for receiver in receivers] == [["to me"], ["by name"]]


def test_a_message_that_no_known_queue_wants_is_refused(connection: Connection, unique: str) -> None:
    producer = Producer(connection.default_channel)
    with pytest.raises(ChannelError, match="declare it"):
        connection.default_channel.basic_publish(
            connection.default_channel.prepare_message("lost"), unique, "key"
        )
    queue = job_queue(unique)
    with pytest.raises(ChannelError, match="routing key 'other': declare the queue before publishing"):
        producer.publish("lost", exchange=queue.exchange, routing_key="other", declare=[queue])


# Acknowledgements


def test_requeued_message_is_redelivered(connection: Connection, unique: str) -> None:
    queue = job_queue(unique)
    publish(connection, queue, "again")

    def act(message: object) -> None:
        if len(receiver.messages) == 1:
            receiver.messages[0].requeue()
        else:
            receiver.messages[-1].ack()

    receiver = Receiver(connection, queue, act=act)
    receiver.wait_for(2)
    assert [message.delivery_info["redelivered"] for message in receiver.messages] == [False, True]
    assert receiver.drain() == ["again", "again"]


def test_an_acknowledgement_after_the_visibility_timeout_is_logged(
    address: str, unique: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A worker that prefetches more than it can run in time would run tasks again without a trace."""
    with connect(address, visibility_timeout=2.0) as connection:
        publish(connection, job_queue(unique), "task", headers={"id": "task-1"})
        receiver = Receiver(connection, job_queue(unique), act=keep)
        receiver.wait_for(2)
        receiver.messages[1].ack()
        assert "visibility timeout" not in caplog.text
        receiver.messages[0].ack()
    assert re.search(
        rf"acknowledged \d+\.\d s after the visibility timeout: message=\w+ topic={unique} key=task-1: "
        "it is delivered again",
        caplog.text,
    )


def test_a_rejected_message_is_dropped(connection: Connection, unique: str) -> None:
    queue = job_queue(unique)
    publish(connection, queue, "no")
    receiver = Receiver(connection, queue, act=lambda message: message.reject())
    receiver.wait_for(1)
    assert receiver.drain(2 * QUIET) == ["no"]


def test_closing_a_channel_requeues_its_messages(
    connection: Connection, other: Connection, unique: str
) -> None:
    queue = job_queue(unique)
    publish(connection, queue, *range(5))
    holding = Receiver(other, queue, act=keep)
    holding.wait_for(5)
    holding.close()
    other.close()
    assert sorted(Receiver(connection, queue).wait_for(5)) == [0, 1, 2, 3, 4]


def test_a_consumer_without_acknowledgements_settles_on_delivery(
    connection: Connection, other: Connection, unique: str
) -> None:
    queue = job_queue(unique)
    publish(connection, queue, *range(3))
    receiver = Receiver(connection, queue, no_ack=True, act=keep)
    receiver.wait_for(3)
    connection.close()
    assert Receiver(other, queue).drain(2 * QUIET) == []


def test_prefetch_count_limits_unacknowledged_messages(connection: Connection, unique: str) -> None:
    queues = [job_queue(f"{unique}-{number}") for number in range(3)]
    for queue in queues:
        publish(connection, queue, *range(4))
    receiver = Receiver(connection, *queues, act=keep, prefetch=2)
    receiver.wait_for(2)
    assert len(receiver.drain()) == 2
    receiver.messages[0].ack()
    assert len(receiver.wait_for(3)) == 3
    receiver.channel.basic_qos(0, 4, False)
    assert len(receiver.wait_for(5)) == 5
    assert len(receiver.drain()) == 5
    receiver.act = lambda message: message.ack()
    for message in receiver.messages:
        if not message.acknowledged:
            message.ack()
    assert sorted(receiver.wait_for(12)) == sorted([*range(4)] * 3)


@pytest.mark.parametrize("late", ["append", "ack"])
def test_a_prefetch_count_of_one_neither_stalls_nor_is_exceeded(
    connection: Connection, unique: str, monkeypatch: pytest.MonkeyPatch, late: str
) -> None:
    """Where the thread that receives always runs before kombu has counted a message."""
    count = getattr(virtual.QoS, late)

    def count_late(*arguments: Any) -> None:
        threading.Event().wait(0.05)
        count(*arguments)

    monkeypatch.setattr(virtual.QoS, late, count_late)
    queue = job_queue(unique)
    publish(connection, queue, *range(5))
    waiting: list[int] = []

    def act(message: Any) -> None:
        waiting.append(len(connection.transport.inbox(unique)))
        message.ack()

    receiver = Receiver(connection, queue, act=act, prefetch=1)
    assert sorted(receiver.wait_for(5)) == [0, 1, 2, 3, 4]
    assert waiting == [0] * 5


def test_recovering_requeues_and_receives_again(connection: Connection, unique: str) -> None:
    queue = job_queue(unique)
    publish(connection, queue, 1, 2)
    receiver = Receiver(connection, queue, act=keep, prefetch=2)
    receiver.wait_for(2)
    receiver.act = lambda message: message.ack()
    receiver.channel.basic_recover(requeue=True)
    assert sorted(receiver.wait_for(4)) == [1, 1, 2, 2]


def test_a_cancelled_consumer_leaves_messages_to_others(
    connection: Connection, other: Connection, unique: str
) -> None:
    """A worker that shuts down does so, and acknowledges its running tasks afterwards."""
    queue = job_queue(unique)
    publish(connection, queue, "running")
    cancelled = Receiver(connection, queue, act=keep)
    cancelled.wait_for(1)
    cancelled.consumer.cancel()
    cancelled.messages[0].ack()
    publish(connection, queue, *range(30))
    assert sorted(Receiver(other, queue).wait_for(30)) == list(range(30))
    assert cancelled.bodies == ["running"]


def test_a_cancelled_consumer_consumes_again(connection: Connection, unique: str) -> None:
    queue = job_queue(unique)
    publish(connection, queue, 0)
    receiver = Receiver(connection, queue)
    for number in range(1, 4):
        receiver.wait_for(number)
        receiver.consumer.cancel()
        publish(connection, queue, number)
        receiver.consumer.consume()
    assert receiver.wait_for(4) == [0, 1, 2, 3]


# One message at a time


def test_basic_get(connection: Connection, unique: str) -> None:
    queue = job_queue(unique)
    publish(connection, queue, "one")
    bound = queue(connection.default_channel)
    deadline = time.monotonic() + PATIENCE
    while (message := bound.get()) is None:  # members of a group on 4.x wait for their queues
        assert time.monotonic() < deadline
    assert message.payload == "one"
    message.ack()
    assert bound.get() is None


def test_simple_queue(connection: Connection, unique: str) -> None:
    with connection.SimpleQueue(unique) as queue:
        queue.put({"number": 1})
        message = queue.get(timeout=PATIENCE)
        assert message.payload == {"number": 1}
        message.ack()
        with pytest.raises(Empty):
            queue.get(timeout=QUIET)


# Queues


def test_size_purge_and_delete(connection: Connection, other: Connection, unique: str) -> None:
    queue = job_queue(unique)(connection.default_channel)
    publish(connection, job_queue(unique), *range(10))
    deadline = time.monotonic() + PATIENCE
    while queue.queue_declare(passive=True).message_count < 10:  # brokers count them a little later
        assert time.monotonic() < deadline
    assert queue.purge() == 10
    assert queue.queue_declare(passive=True).message_count == 0
    publish(connection, job_queue(unique), "later")
    assert Receiver(other, job_queue(unique)).wait_for(1) == ["later"]
    queue.delete()
    with pytest.raises(ChannelError, match="no queue"):
        queue.queue_declare(passive=True)


def test_deleting_an_exchange_keeps_its_queues(connection: Connection, unique: str) -> None:
    exchange = Exchange(unique, type="direct")
    queues = [Queue(f"{unique}-{number}", exchange, routing_key="key") for number in range(2)]
    channel = connection.default_channel
    Producer(channel).publish("delayed", exchange=exchange, routing_key="key", declare=queues,
                              headers=in_seconds(3))  # fmt: skip
    exchange(channel).delete()
    with pytest.raises(ChannelError, match="declare it"):
        channel.basic_publish(channel.prepare_message("lost"), unique, "key")
    for queue in queues:
        queue(channel).queue_declare(passive=True)
        assert Receiver(connection, Queue(queue.name)).wait_for(1) == ["delayed"]
    exchange(channel).declare()
    with pytest.raises(ChannelError, match="knows no queue"):
        channel.basic_publish(channel.prepare_message("lost"), unique, "key")


def test_deleting_a_fanout_exchange_ends_its_listeners(
    connection: Connection, other: Connection, unique: str
) -> None:
    exchange = Exchange(unique, type="fanout", durable=False)
    queue = Queue(f"{unique}-inbox", exchange, auto_delete=True)
    receiver = Receiver(connection, queue)
    publisher = Producer(other.default_channel)
    publisher.publish("first", exchange=exchange, declare=[exchange])
    assert receiver.wait_for(1) == ["first"]
    exchange(connection.default_channel).delete()
    publisher.publish("missed", exchange=exchange, declare=[exchange])
    assert receiver.drain() == ["first"]
    again = Receiver(connection, queue)
    publisher.publish("second", exchange=exchange, declare=[exchange])
    assert again.wait_for(1) == ["second"]


def test_a_queue_with_any_name_has_a_topic(connection: Connection, unique: str) -> None:
    names = [f"{unique}.a@b", f"{unique}-a-b", f"{unique}/a b"]
    queues = [Queue(name) for name in names]
    producer = Producer(connection.default_channel)
    for queue in queues:
        producer.publish(queue.name, exchange="", routing_key=queue.name, declare=[queue])
    assert [Receiver(connection, queue).wait_for(1) for queue in queues] == [[name] for name in names]


# Delays and priorities


def in_seconds(seconds: float) -> dict[str, str]:
    """Return the header of a task with an ETA."""
    return {"eta": (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()}


@pytest.mark.long
def test_a_task_with_an_eta_is_delayed(connection: Connection, unique: str) -> None:
    queue = job_queue(unique)
    receiver = Receiver(connection, queue)
    began = time.monotonic()
    publish(connection, queue, "later", headers=in_seconds(5))
    publish(connection, queue, "now", headers=in_seconds(-5))
    assert receiver.wait_for(1) == ["now"]
    assert receiver.wait_for(2) == ["now", "later"]
    assert time.monotonic() - began > 3.9
    assert receiver.drain() == ["now", "later"]


@pytest.mark.long
def test_a_delay_that_is_too_long_for_the_broker_is_kept_in_steps(address: str, unique: str) -> None:
    queue = job_queue(unique)
    with connect(address, max_delay=2.0) as connection:
        receiver = Receiver(connection, queue)
        began = time.monotonic()
        publish(connection, queue, "later", headers=in_seconds(7))
        assert receiver.wait_for(1) == ["later"]
        assert time.monotonic() - began > 5.9
        assert receiver.drain() == ["later"]


def test_the_highest_priority_comes_first(address: str, unique: str, cluster_name: str) -> None:
    if not has(cluster_name, PRIORITIES):
        pytest.skip(f"priorities: since {PRIORITIES.since}")
    queue = job_queue(unique, max_priority=9)
    with connect(address) as connection:
        for priority in (0, 9, 5, 9, 0, 5):
            publish(connection, queue, priority, priority=priority)
        publish(connection, queue, 7, priority=7, headers=in_seconds(2))
        bound = queue(connection.default_channel)
        deadline = time.monotonic() + PATIENCE
        while bound.queue_declare(passive=True).message_count < 7:  # until the delayed one is there
            assert time.monotonic() < deadline
        found: list[int] = []
        while len(found) < 7:
            if (message := bound.get(no_ack=True)) is not None:
                found.append(message.payload)
            assert time.monotonic() < deadline
    assert found == [9, 9, 7, 5, 5, 0, 0]


def test_a_queue_that_is_declared_again_has_priorities_only_if_they_are_declared(
    connection: Connection, unique: str, address: str
) -> None:
    job_queue(unique, max_priority=9)(connection.default_channel).declare()
    with Reader(address) as reader:
        assert len(reader.offsets(unique)) == 10  # one for each priority
        job_queue(unique)(connection.default_channel).delete()
        job_queue(unique)(connection.default_channel).declare()
    with Reader(address) as reader:
        assert len(reader.offsets(unique)) == 8


# Event loop


def test_an_event_loop_delivers(connection: Connection, unique: str) -> None:
    """Celery's workers run one."""
    queue = job_queue(unique)
    receiver = Receiver(connection, queue, prefetch=1)
    hub = Hub()
    try:
        connection.transport.register_with_event_loop(connection.connection, hub)
        publish(connection, queue, *range(20))
        deadline = time.monotonic() + PATIENCE
        while len(receiver.messages) < 20:
            assert time.monotonic() < deadline
            hub.run_once()
        assert sorted(receiver.bodies) == list(range(20))
        connection.close()
        assert not hub.readers
    finally:
        hub.close()
