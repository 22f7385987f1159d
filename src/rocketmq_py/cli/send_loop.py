"""The send loop of ``rocketmq-py send``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import trio

from rocketmq_py.cli.clusters import Access
from rocketmq_py.cli.console import keep_line, progress_line
from rocketmq_py.cli.message_input import BodySource
from rocketmq_py.cli.runner import CommandError
from rocketmq_py.cli.send_statistics import SEND_TIMEOUT, SendStatistics, rate_limiter
from rocketmq_py.client import core_of
from rocketmq_py.errors import Delivery, InvalidMessageError, MessageRefusedError, RocketMQError
from rocketmq_py.message import Message, MessageQueue, ReceivedMessage
from rocketmq_py.producer import Producer, TransactionProducer, TransactionState

TRANSACTION_GROUP = "rocketmq-py-send"
"""The producer group that brokers send transaction checks to."""


async def send_all(
    access: Access,
    make: Callable[[bytes], Message],
    bodies: BodySource,
    statistics: SendStatistics,
    *,
    queue: MessageQueue | None = None,
    rate: float | None = None,
    delay_relay: str | None = None,
    half: str | None = None,
    oneway: bool = False,
    progress: bool = False,
) -> None:
    """Send a message for each body, many concurrently, and print a summary.

    Args:
        access: the cluster and the credentials.
        make: returns the message for a body.
        bodies: the bodies.
        statistics: counts the results.
        queue: the queue for all messages. None lets the producer choose.
        rate: messages per second. None for no limit.
        delay_relay: the buffer topic of a relay for delayed messages. None for none.
        half: the end of a transaction for each message, ``commit`` or ``rollback``. None for no transactions.
        oneway: whether to send without waiting for results.
        progress: whether to show the progress on standard error, a terminal.

    A cancellation waits for the results of messages in flight, then prints the summary.

    Raises:
        CommandError: the first message failed for a reason that would affect the others too.
    """
    started = trio.current_time()
    complete = False
    try:
        async with trio.open_nursery() as nursery:
            if progress:
                nursery.start_soon(
                    keep_line,
                    sys.stderr,
                    lambda seconds: progress_line(statistics.sent, seconds, bodies.fraction),
                )
            options: dict[str, Any] = {
                "send_timeout": SEND_TIMEOUT,
                "start_deliver_time": access.start_deliver_time,
                **access.client_options(),
            }
            producer = (
                Producer(access.address, delay_relay=delay_relay, **options)
                if half is None
                else _transaction_producer(access.address, TransactionState(half), options)
            )
            async with producer:
                if queue is not None:
                    await _require_broker(producer, queue)
                await _send_each(
                    producer, make, bodies, statistics, queue=queue, rate=rate, half=half, oneway=oneway
                )
            complete = True
            nursery.cancel_scope.cancel()
    finally:
        if bodies.too_long:
            statistics.record_failures(bodies.too_long, Delivery.NOT_SENT, "the line is longer than 4 MiB")
        if complete or statistics.sent or statistics.failed:
            statistics.report(trio.current_time() - started, empty=bodies.empty)


async def _require_broker(producer: Producer, queue: MessageQueue) -> None:
    """Raise ConfigurationError if the broker of a queue does not exist.

    Only a broker without the topic is looked up in the cluster. A proxy, for example, does not list brokers.
    """
    from rocketmq_py.admin.operations import broker_named

    core = core_of(producer)
    try:
        route = await core.routes.get(queue.topic, for_sending=True)
        if queue.broker_name in {*route.brokers, *[one.broker_name for one in route.write_queues]}:
            return
        info = await core.name_servers.cluster_with_brokers()
    except RocketMQError:
        return  # sending reports the errors that concern it
    broker_named(queue.broker_name, info.broker_addr_table)


async def _send_each(
    producer: Producer,
    make: Callable[[bytes], Message],
    bodies: BodySource,
    statistics: SendStatistics,
    *,
    queue: MessageQueue | None,
    rate: float | None,
    half: str | None,
    oneway: bool,
) -> None:
    async def send_and_wait(message: Message) -> None:
        statistics.record_stored(await producer.send(message, queue=queue))

    async def send_pipelined(message: Message) -> None:
        (await producer.submit(message, queue=queue)).add_done_callback(statistics.record)

    async def send_half(message: Message) -> None:
        assert isinstance(producer, TransactionProducer)
        end = TransactionState(half)

        async def decide(_: Message, __: str) -> TransactionState:
            return end

        sent = await producer.send_in_transaction(message, decide, queue=queue)
        if sent.end_error is not None:
            statistics.record_failure(sent.end_error)
        elif sent.state is not end:
            statistics.record_failures(
                1, Delivery.REFUSED, f"rolled back: the broker answered {sent.result.status.name}"
            )
        else:
            statistics.record_stored(sent.result)

    async def send_oneway(message: Message) -> None:
        await producer.send_oneway(message, queue=queue)
        statistics.sent += 1

    # Messages are awaited one by one until one is stored, so that a wrong address is reported once and does
    # not consume the whole input.
    send_others = send_oneway if oneway else send_half if half else send_pipelined
    send = send_and_wait if send_others is send_pipelined else send_others
    first_stored = False
    limit = rate_limiter(rate)
    while batch := await bodies.next_batch():
        for body in batch:
            await limit.wait()
            try:
                await send(make(body))
            except RocketMQError as error:
                if not first_stored and not isinstance(error, InvalidMessageError | MessageRefusedError):
                    raise _first_message_failed(error) from error
                statistics.record_failure(error)
            else:
                first_stored = True
                send = send_others


def _transaction_producer(
    address: str, end: TransactionState, options: dict[str, Any]
) -> TransactionProducer:
    async def check(_: ReceivedMessage) -> TransactionState:
        return end

    return TransactionProducer(address, group=TRANSACTION_GROUP, check=check, **options)


def _first_message_failed(error: RocketMQError) -> CommandError:
    doubt = "; it may have been stored" if error.delivery is Delivery.UNKNOWN else ""
    return CommandError(f"the first message failed: {error}{doubt}")
