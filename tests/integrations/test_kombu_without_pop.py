"""The transport on brokers without pop, as 4.x. The embedded broker reports such a version."""

from __future__ import annotations

from typing import Any, NoReturn

import pytest

from rocketmq_py import Message
from rocketmq_py.blocking import Admin, Producer
from rocketmq_py.errors import ClosedError, UnsupportedByBrokerError
from rocketmq_py.integrations.kombu.deliveries import PoppingConsumer
from tests.integrations.kombu_programs import Receiver, connect, job_queue, keep, publish
from tests.integrations.test_kombu import (
    test_a_cancelled_consumer_consumes_again,
    test_a_cancelled_consumer_leaves_messages_to_others,
    test_a_rejected_message_is_dropped,
    test_an_acknowledgement_after_the_visibility_timeout_is_logged,
    test_basic_get,
    test_closing_a_channel_requeues_its_messages,
    test_prefetch_count_limits_unacknowledged_messages,
    test_requeued_message_is_redelivered,
    test_size_purge_and_delete,
)

__all__ = [
    "test_a_cancelled_consumer_consumes_again",
    "test_a_cancelled_consumer_leaves_messages_to_others",
    "test_a_rejected_message_is_dropped",
    "test_an_acknowledgement_after_the_visibility_timeout_is_logged",
    "test_basic_get",
    "test_closing_a_channel_requeues_its_messages",
    "test_prefetch_count_limits_unacknowledged_messages",
    "test_requeued_message_is_redelivered",
    "test_size_purge_and_delete",
]
"""Behaviours that must not depend on pop."""

pytestmark = [pytest.mark.long, pytest.mark.sockets]


def unsupported(*_: Any, **__: Any) -> NoReturn:
    raise UnsupportedByBrokerError("the broker is older than 5.0 and knows no pop")


@pytest.fixture(autouse=True)
def no_pop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PoppingConsumer, "receive", unsupported)
    monkeypatch.setattr(PoppingConsumer, "purge", unsupported)


@pytest.mark.long
def test_unacknowledged_message_is_redelivered_after_the_timeout(address: str, unique: str) -> None:
    queue = job_queue(unique)
    with connect(address, visibility_timeout=1.0) as connection:
        publish(connection, queue, "task")
        receiver = Receiver(connection, queue, act=keep)
        receiver.wait_for(2)
        receiver.messages[0].ack()  # too late, and harmless
        receiver.messages[1].ack()
        assert receiver.messages[1].delivery_info["redelivered"]
        assert receiver.drain(2.5) == ["task", "task"]


@pytest.mark.long
def test_messages_that_waited_too_long_for_a_busy_worker_are_not_handed_out_late(
    address: str, unique: str
) -> None:
    queue = job_queue(unique)
    with connect(address, visibility_timeout=1.0) as connection:
        publish(connection, queue, *range(3))
        receiver = Receiver(connection, queue, act=keep, prefetch=1)
        receiver.wait_for(1)
        assert len(receiver.drain(2.5)) == 1
        receiver.act = lambda message: message.ack()
        receiver.messages[0].ack()
        assert set(receiver.drain(4.0)) == {0, 1, 2}


def test_purging_leaves_the_messages_of_running_consumers_alone(address: str, unique: str) -> None:
    queue = job_queue(unique)
    with connect(address) as connection, connect(address) as other:
        publish(connection, queue, *range(5))
        receiver = Receiver(connection, queue, act=keep, prefetch=1)
        receiver.wait_for(1)
        queue(other.default_channel).purge()
        queue(connection.default_channel).purge()
        receiver.act = lambda message: message.ack()
        receiver.messages[0].ack()
        publish(connection, queue, "later")
        assert receiver.drain(3.0)[-1] == "later"


def test_a_queue_that_was_closed_does_not_join_its_group_again(address: str, unique: str) -> None:
    """A poller may still ask a queue for messages while another thread deletes it."""
    with connect(address) as connection, Admin(address) as admin:
        job_queue(unique)(connection.default_channel).declare()
        queue = connection.transport.shared_queue(unique)
        queue.receive(1, 0.0)
        queue.close()
        with pytest.raises(ClosedError, match="this queue is closed"):
            queue.receive(1, 0.0)
        assert admin.groups.describe(f"kombu-{unique}").members == ()


def test_a_message_of_another_program_becomes_a_dead_letter_at_once(address: str, unique: str) -> None:
    with connect(address) as connection, Admin(address) as admin:
        publish(connection, job_queue(unique), "task")
        with Producer(address) as producer:
            producer.send(Message(unique, b"no task"))
        receiver = Receiver(connection, job_queue(unique))
        assert receiver.wait_for(1) == ["task"]
        letters: Any = ()
        while not letters:  # brokers store them in the background
            letters = admin.dead_letters.list(f"kombu-{unique}").letters
        assert [letter.message.body for letter in letters] == [b"no task"]
