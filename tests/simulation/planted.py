"""Planted defects that a simulation must find. Each docstring describes the defect."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any
from unittest import mock

import trio

from rocketmq_py import Message, MessageQueue, PoppedMessage, ReceivedMessage
from rocketmq_py.broker.config import BrokerConfig
from rocketmq_py.broker.dispatch import RequestHandler
from rocketmq_py.broker.groups import QueueLocks
from rocketmq_py.broker.name_server import NameServer
from rocketmq_py.broker.sends.transactions import TransactionProcessor
from rocketmq_py.broker.topics import TopicConfig
from rocketmq_py.client.heartbeats import Heartbeats
from rocketmq_py.consumer import PopConsumer
from rocketmq_py.consumer.group.dead_letters import FailedDelivery
from rocketmq_py.consumer.group.offset_commits import RemoteOffsetStore
from rocketmq_py.consumer.pull.assigned_queues import AssignedQueues
from rocketmq_py.consumer.pull.process_queue import ProcessQueue
from rocketmq_py.consumer.pull.pull_loop import PullLoop
from rocketmq_py.consumer.pull.queue_puller import PulledMessages
from rocketmq_py.consumer.pull.retry import PullRetry
from rocketmq_py.consumer.push.send_back import SendBack
from rocketmq_py.errors import RocketMQError
from rocketmq_py.producer import PendingReply, TransactionState, batch
from rocketmq_py.producer.request_reply import PendingReplies
from rocketmq_py.producer.send import Send
from rocketmq_py.producer.transaction_reports import TransactionReporter
from rocketmq_py.protocol.command import Command
from rocketmq_py.remoting import Connection
from rocketmq_py.testing import cluster
from rocketmq_py.testing.faults import FaultAction
from tests.simulation.plan import Plan

Defect = Callable[[], AbstractContextManager[Any]]


def lost_wake_up() -> AbstractContextManager[Any]:
    """Pulling does not resume when a full queue has space again."""
    return mock.patch.object(PullLoop, "resume_if_space")


def offset_too_early() -> AbstractContextManager[Any]:
    """Pulled messages are committed before they are handled."""
    return mock.patch.object(ProcessQueue, "safe_offset", property(lambda queue: queue.next_offset))


def reply_matched_twice() -> AbstractContextManager[Any]:
    """A reply ends its request and another waiting one."""
    finish = PendingReplies._finish

    def twice(
        replies: PendingReplies, pending: PendingReply, outcome: ReceivedMessage | RocketMQError
    ) -> None:
        was_waiting = pending.correlation_id in replies._waiting
        finish(replies, pending, outcome)
        others = list(replies._waiting.values())
        if was_waiting and others and isinstance(outcome, ReceivedMessage):
            finish(replies, others[0].pending, outcome)

    return mock.patch.object(PendingReplies, "_finish", twice)


def retry_ignores_queue() -> AbstractContextManager[Any]:
    """A retry of a message sent to a fixed queue uses any queue."""
    back_off = Send.back_off

    def forget(send: Send, error: RocketMQError, *, is_paused: bool) -> float | None:
        send.fixed_queue = None
        return back_off(send, error, is_paused=is_paused)

    return mock.patch.object(Send, "back_off", forget)


def shared_queue_lock() -> AbstractContextManager[Any]:
    """A broker grants a queue's lock to every client."""

    def lock(
        locks: QueueLocks, group: str, queues: Collection[MessageQueue], client_id: str
    ) -> list[MessageQueue]:
        return list(queues)

    return mock.patch.object(QueueLocks, "lock", lock)


def dropped_acknowledgement() -> AbstractContextManager[Any]:
    """Popped and handled messages are not acknowledged."""

    async def ack(consumer: PopConsumer, message: PoppedMessage) -> None:
        await trio.lowlevel.checkpoint()

    return mock.patch.object(PopConsumer, "ack", ack)


def rolled_back_message_shown() -> AbstractContextManager[Any]:
    """A checked transaction is committed whatever state the check returns."""
    report = TransactionReporter.report

    async def commit(reporter: TransactionReporter, half: Any, state: TransactionState) -> Any:
        return await report(reporter, half, TransactionState.COMMIT if half.check_address else state)

    return mock.patch.object(TransactionReporter, "report", commit)


def task_left_by_close() -> AbstractContextManager[Any]:
    """A task of the client keeps running after its close."""
    run = Heartbeats.run

    async def leave(heartbeats: Heartbeats) -> None:
        trio.lowlevel.spawn_system_task(trio.sleep_forever)
        await run(heartbeats)

    return mock.patch.object(Heartbeats, "run", leave)


def deduplicated_batch() -> AbstractContextManager[Any]:
    """A batch sends one message of each length, and reports all as sent."""
    encode = batch._encode

    def deduplicated(messages: Sequence[Message], unique_ids: Sequence[str], max_size: int) -> list[bytes]:
        first = {len(message.body): index for index, message in reversed(list(enumerate(messages)))}
        encoded = encode(messages, unique_ids, max_size)
        return [
            encoded[index] if first[len(message.body)] == index else b""
            for index, message in enumerate(messages)
        ]

    # Bare messages bypass _encode, so treat no message as bare.
    return mock.patch.multiple(batch, _encode=deduplicated, _is_bare=lambda _: False)


def revoked_queue_overcommitted() -> AbstractContextManager[Any]:
    """A revoked queue is committed up to its last pulled offset."""
    safe_offset: property = vars(PullLoop)["safe_offset"]

    def offset(loop: PullLoop) -> Any:
        if loop.process_queue is not None and loop.process_queue.dropped and loop.lock is None:
            return loop.process_queue.next_offset
        return safe_offset.__get__(loop)

    return mock.patch.object(PullLoop, "safe_offset", property(offset))


def send_back_skipped() -> AbstractContextManager[Any]:
    """Messages of failed handler calls count as sent back without a request to a broker."""

    async def nowhere(send_back: SendBack, failed: FailedDelivery) -> None:
        await trio.lowlevel.checkpoint()

    return mock.patch.object(SendBack, "send_back", nowhere)


def gap_in_reading() -> AbstractContextManager[Any]:
    """A reader skips a message after a reconnect."""
    failed = PullRetry.failed

    def skip(retry: PullRetry, error: RocketMQError, **options: Any) -> Any:
        _skipping.add(retry)
        return failed(retry, error, **options)

    next_step = PullRetry.next_step

    def skip_one(retry: PullRetry, asked: int, pulled_at: float, pulled: PulledMessages) -> Any:
        offset, flow = next_step(retry, asked, pulled_at, pulled)
        if retry in _skipping and offset > asked:
            _skipping.discard(retry)
            offset += 1
        return offset, flow

    _skipping: set[PullRetry] = set()
    return mock.patch.multiple(PullRetry, failed=skip, next_step=skip_one)


# Defects that simulations have found in the past.


def request_of_closed_connection() -> AbstractContextManager[Any]:
    """A heartbeat delayed past the end of its connection registers a member that is gone."""

    def delay(seconds: float, nursery: trio.Nursery) -> FaultAction:
        async def handle_later(connection: Connection, request: Command, handler: RequestHandler) -> None:
            await trio.sleep(seconds)
            handler(connection, request)

        return lambda *request: nursery.start_soon(handle_later, *request)

    return mock.patch.object(cluster, "delay", delay)


def transaction_at_reused_offset() -> AbstractContextManager[Any]:
    """A half message that reuses the offset of a lost one inherits the lost one's outcome."""
    return mock.patch.object(TransactionProcessor, "restore")


def queue_change_missed_by_name_server() -> AbstractContextManager[Any]:
    """A restarted name server learns of new topics, but not of new queues of topics that it knows."""

    def register(
        server: NameServer, config: BrokerConfig, address: str, topics: Iterable[TopicConfig]
    ) -> None:
        broker = server._brokers.get(config.broker_name)
        known = {} if broker is None else broker.queues
        server.register(config, address, [topic for topic in topics if topic.topic_name not in known])

    return mock.patch.object(NameServer, "register_changed", register)


def offset_not_recommitted() -> AbstractContextManager[Any]:
    """An offset is not committed again after the broker has lost it."""
    planted = ExitStack()
    planted.enter_context(mock.patch.object(AssignedQueues, "forget_committed"))
    planted.enter_context(mock.patch.object(RemoteOffsetStore, "_is_time_to_recommit", return_value=False))
    return planted


def forgotten_requester_expected() -> AbstractContextManager[Any]:
    """The workload expects replies although brokers have forgotten the requester: a defect of the simulation.

    A broker, as in Java, forgets a client when an old connection ends that registered after the new one.
    """
    return mock.patch.object(Plan, "knows_requesters", property(lambda _: True))


PLANTED: Mapping[str, Defect] = {
    defect.__name__: defect
    for defect in (
        lost_wake_up,
        offset_too_early,
        reply_matched_twice,
        retry_ignores_queue,
        shared_queue_lock,
        dropped_acknowledgement,
        rolled_back_message_shown,
        task_left_by_close,
        deduplicated_batch,
        revoked_queue_overcommitted,
        send_back_skipped,
        gap_in_reading,
        request_of_closed_connection,
        transaction_at_reused_offset,
        queue_change_missed_by_name_server,
        offset_not_recommitted,
        forgotten_requester_expected,
    )
}
