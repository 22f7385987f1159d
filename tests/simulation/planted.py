"""Defects to be planted: what a simulation that is worth something finds. Each is told by its docstring."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any
from unittest import mock

import trio

from rocketmq_py import Message, MessageQueue, PoppedMessage, ReceivedMessage
from rocketmq_py.broker.config import BrokerConfig
from rocketmq_py.broker.dispatch import RequestHandler
from rocketmq_py.broker.name_server import NameServer
from rocketmq_py.broker.queue_locks import QueueLocks
from rocketmq_py.broker.sends.transactions import TransactionProcessor
from rocketmq_py.broker.storage.broker_message import BrokerMessage
from rocketmq_py.broker.storage.consume_queue import StoredMessage
from rocketmq_py.broker.topics import TopicConfig
from rocketmq_py.client.heartbeats import Heartbeats
from rocketmq_py.consumer import PopConsumer
from rocketmq_py.consumer.group.offset_commits import RemoteOffsetStore
from rocketmq_py.consumer.pull.process_queue import ProcessQueue
from rocketmq_py.consumer.pull.pull_loop import PullLoop
from rocketmq_py.consumer.pull.queue_puller import PulledMessages
from rocketmq_py.consumer.pull.retry import PullRetry
from rocketmq_py.consumer.push.send_back import SendBack
from rocketmq_py.errors import RocketMQError
from rocketmq_py.producer import PendingReply, TransactionState, batch
from rocketmq_py.producer.request_reply import PendingReplies
from rocketmq_py.producer.send_request import SendRequest
from rocketmq_py.producer.transaction_reports import TransactionReporter
from rocketmq_py.protocol.command import Command
from rocketmq_py.remoting import Connection
from rocketmq_py.testing import cluster
from rocketmq_py.testing.faults import FaultAction
from tests.simulation.plan import Plan

Defect = Callable[[], AbstractContextManager[Any]]


def lost_wake_up() -> AbstractContextManager[Any]:
    """A queue that was full is not pulled from again when it has space."""
    return mock.patch.object(PullLoop, "resume_if_space")


def offset_too_early() -> AbstractContextManager[Any]:
    """What was pulled is committed, whether it was handled or not."""
    return mock.patch.object(ProcessQueue, "safe_offset", property(lambda queue: queue.next_offset))


def reply_matched_twice() -> AbstractContextManager[Any]:
    """A reply goes to its request, and to another one that waits."""
    resolve = PendingReplies._resolve

    def twice(
        replies: PendingReplies, pending: PendingReply, outcome: ReceivedMessage | RocketMQError
    ) -> bool:
        resolved = resolve(replies, pending, outcome)
        others = list(replies._waiting.values())
        if resolved and others and isinstance(outcome, ReceivedMessage):
            resolve(replies, others[0].pending, outcome)
        return resolved

    return mock.patch.object(PendingReplies, "_resolve", twice)


def retry_that_forgets_the_queue() -> AbstractContextManager[Any]:
    """The second try of a message that names its queue goes to any queue."""
    failed = SendRequest.attempt_failed

    def forget(request: SendRequest, error: RocketMQError) -> float | None:
        request.fixed_queue = None
        return failed(request, error)

    return mock.patch.object(SendRequest, "attempt_failed", forget)


def one_lock_for_everybody() -> AbstractContextManager[Any]:
    """A broker locks a queue for whoever asks."""

    def lock(
        locks: QueueLocks, group: str, queues: Collection[MessageQueue], client_id: str
    ) -> list[MessageQueue]:
        return list(queues)

    return mock.patch.object(QueueLocks, "lock", lock)


def dropped_acknowledgement() -> AbstractContextManager[Any]:
    """What was popped and handled is not acknowledged."""

    async def ack(consumer: PopConsumer, message: PoppedMessage) -> None:
        await trio.lowlevel.checkpoint()

    return mock.patch.object(PopConsumer, "ack", ack)


def rolled_back_message_shown() -> AbstractContextManager[Any]:
    """What the check of a transaction says is not looked at: it is committed."""
    report = TransactionReporter.report

    async def commit(reporter: TransactionReporter, half: Any, state: TransactionState) -> Any:
        return await report(reporter, half, TransactionState.COMMIT if half.checked_over else state)

    return mock.patch.object(TransactionReporter, "report", commit)


def close_that_leaves_a_task() -> AbstractContextManager[Any]:
    """A client's heartbeats go on when it is closed."""
    run = Heartbeats.run

    async def leave(heartbeats: Heartbeats) -> None:
        trio.lowlevel.spawn_system_task(trio.sleep_forever)
        await run(heartbeats)

    return mock.patch.object(Heartbeats, "run", leave)


def dedup_of_a_batch() -> AbstractContextManager[Any]:
    """Of the messages of a batch that are equally long one is sent, and all are acknowledged."""
    encode = batch._encode

    def deduplicated(messages: Sequence[Message], unique_ids: Sequence[str], max_size: int) -> list[bytes]:
        first = {len(message.body): place for place, message in reversed(list(enumerate(messages)))}
        encoded = encode(messages, unique_ids, max_size)
        return [
            encoded[place] if first[len(message.body)] == place else b""
            for place, message in enumerate(messages)
        ]

    # As if no message were bare: those have a way of their own.
    return mock.patch.multiple(batch, _encode=deduplicated, _is_bare=lambda _: False)


def rebalance_that_drops() -> AbstractContextManager[Any]:
    """A queue that is another member's now is committed up to where it was pulled."""
    safe_offset: property = vars(PullLoop)["safe_offset"]

    def offset(loop: PullLoop) -> Any:
        if loop.process_queue is not None and loop.process_queue.dropped and loop.lock is None:
            return loop.process_queue.next_offset
        return safe_offset.__get__(loop)

    return mock.patch.object(PullLoop, "safe_offset", property(offset))


def send_back_that_is_none() -> AbstractContextManager[Any]:
    """What a handler failed on is done with, and no broker is told."""

    async def nowhere(send_back: SendBack, message: ReceivedMessage, delay_level: int) -> None:
        await trio.lowlevel.checkpoint()

    return mock.patch.object(SendBack, "send_back", nowhere)


def gap_in_a_reading() -> AbstractContextManager[Any]:
    """A reader that was cut off goes on with the message after the next."""
    failed = PullRetry.failed

    def skip(retry: PullRetry, error: RocketMQError) -> Any:
        _skipping.add(retry)
        return failed(retry, error)

    next_step = PullRetry.next_step

    def skip_one(retry: PullRetry, asked: int, pulled_at: float, pulled: PulledMessages) -> Any:
        place, flow = next_step(retry, asked, pulled_at, pulled)
        if retry in _skipping and place > asked:
            _skipping.discard(retry)
            place += 1
        return place, flow

    _skipping: set[PullRetry] = set()
    return mock.patch.multiple(PullRetry, failed=skip, next_step=skip_one)


# What was wrong once.


def request_of_a_dead_connection() -> AbstractContextManager[Any]:
    """A delayed heartbeat is handled after its connection has ended: a member that nobody is."""

    def delay(seconds: float, nursery: trio.Nursery) -> FaultAction:
        async def handle_later(connection: Connection, request: Command, handler: RequestHandler) -> None:
            await trio.sleep(seconds)
            handler(connection, request)

        return lambda *request: nursery.start_soon(handle_later, *request)

    return mock.patch.object(cluster, "delay", delay)


def transaction_at_a_lost_place() -> AbstractContextManager[Any]:
    """A half message that has the place of one that a crash has lost counts as ended as that one was."""

    def store_half(transactions: TransactionProcessor, half: BrokerMessage) -> StoredMessage:
        return transactions._scheduler.put(half)

    return mock.patch.object(TransactionProcessor, "_store_half", store_half)


def change_that_a_name_server_missed() -> AbstractContextManager[Any]:
    """A name server that has been away is told of new topics, not of new queues of those that it knows."""

    def register(
        server: NameServer, config: BrokerConfig, address: str, topics: Iterable[TopicConfig]
    ) -> None:
        broker = server._brokers.get(config.broker_name)
        known = {} if broker is None else broker.queues
        server.register(config, address, [topic for topic in topics if topic.topic_name not in known])

    return mock.patch.object(NameServer, "register_changed", register)


def offset_that_is_not_told_anew() -> AbstractContextManager[Any]:
    """What a broker was told once counts as what it has, although it has set the queue back since."""
    begin = PullLoop.__init__

    def deaf(loop: PullLoop, *arguments: Any, on_set_back: object = None, **options: Any) -> None:
        begin(loop, *arguments, **options)

    planted = ExitStack()
    planted.enter_context(mock.patch.object(PullLoop, "__init__", deaf))
    planted.enter_context(mock.patch.object(RemoteOffsetStore, "_is_time_to_recommit", return_value=False))
    return planted


def requester_counted_on() -> AbstractContextManager[Any]:
    """Replies are expected where brokers, as Java's, have forgotten who asks: the simulation's own defect.

    They forget a client when an old connection of its ends that they heard of after the new one.
    """
    return mock.patch.object(Plan, "knows_requesters", property(lambda _: True))


PLANTED: Mapping[str, Defect] = {
    defect.__name__: defect
    for defect in (
        lost_wake_up,
        offset_too_early,
        reply_matched_twice,
        retry_that_forgets_the_queue,
        one_lock_for_everybody,
        dropped_acknowledgement,
        rolled_back_message_shown,
        close_that_leaves_a_task,
        dedup_of_a_batch,
        rebalance_that_drops,
        send_back_that_is_none,
        gap_in_a_reading,
        request_of_a_dead_connection,
        transaction_at_a_lost_place,
        change_that_a_name_server_missed,
        offset_that_is_not_told_anew,
        requester_counted_on,
    )
}
