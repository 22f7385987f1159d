"""Sends all bodies and tells what became of them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import trio

from rocketmq_py.cli.access import Access
from rocketmq_py.cli.bodies import Bodies
from rocketmq_py.cli.console import keep_line, progress_line
from rocketmq_py.cli.pace import Pace
from rocketmq_py.cli.running import CommandError
from rocketmq_py.cli.tally import SEND_TIMEOUT, Tally
from rocketmq_py.errors import Delivery, InvalidMessageError, MessageRefusedError, RocketMQError
from rocketmq_py.message import Message, MessageQueue, ReceivedMessage
from rocketmq_py.producer import Producer, TransactionProducer, TransactionState

HALF_GROUP = "rocketmq-py-send"
"""The producers that brokers ask about half messages whose end they did not hear of."""


async def send_all(
    access: Access,
    make: Callable[[bytes], Message],
    bodies: Bodies,
    tally: Tally,
    *,
    queue: MessageQueue | None = None,
    rate: float | None = None,
    delay_relay: str | None = None,
    half: str | None = None,
    oneway: bool = False,
    show: bool = False,
) -> None:
    """Send a message for each body, many at a time, and print the tally at the end.

    Args:
        access: where the cluster is, and how it lets one in.
        make: returns the message for a body.
        bodies: what is sent.
        tally: where results are counted.
        queue: where all of them go; None lets the producer choose.
        rate: messages a second at the most; None for no bound.
        delay_relay: the buffer topic of a relay, for messages that have to wait; None for none.
        half: how the transaction of each message ends, ``commit`` or ``rollback``; None for no transaction.
        oneway: do not ask for results.
        show: keep a line on stderr, a terminal, that shows the progress.

    When cancelled, what is in flight still gets its result, and the tally is printed.

    Raises:
        CommandError: the first message could not be sent for a reason that others would meet as well.
    """
    began = trio.current_time()
    complete = False
    try:
        async with trio.open_nursery() as nursery:
            if show:
                nursery.start_soon(
                    keep_line,
                    sys.stderr,
                    lambda seconds: progress_line(tally.sent, seconds, bodies.fraction),
                )
            options: dict[str, Any] = {"send_timeout": SEND_TIMEOUT, **access.client_options()}
            producer = (
                Producer(access.name_servers, delay_relay=delay_relay, **options)
                if half is None
                else _halves(access.name_servers, TransactionState(half), options)
            )
            async with producer:
                await _send_each(
                    producer, make, bodies, tally, queue=queue, rate=rate, half=half, oneway=oneway
                )
            complete = True
            nursery.cancel_scope.cancel()
    finally:
        if bodies.too_long:
            tally.refuse(bodies.too_long, Delivery.NOT_SENT, "the line is longer than 4 MiB")
        if complete or tally.sent or tally.failed:
            tally.report(trio.current_time() - began, empty=bodies.empty)


async def _send_each(
    producer: Producer,
    make: Callable[[bytes], Message],
    bodies: Bodies,
    tally: Tally,
    *,
    queue: MessageQueue | None,
    rate: float | None,
    half: str | None,
    oneway: bool,
) -> None:
    async def send_first(message: Message) -> None:
        tally.stored(await producer.send(message, queue=queue))

    async def submit(message: Message) -> None:
        await producer.submit(message, queue=queue, on_done=tally.done)

    async def send_half(message: Message) -> None:
        assert isinstance(producer, TransactionProducer)
        end = TransactionState(half)

        async def decide(_: Message, __: str) -> TransactionState:
            return end

        sent = await producer.send_in_transaction(message, decide, queue=queue)
        if sent.end_error is not None:
            tally.fail(sent.end_error)
        elif sent.state is not end:
            tally.refuse(1, Delivery.REFUSED, f"rolled back: the broker answered {sent.result.status.name}")
        else:
            tally.stored(sent.result)

    async def send_oneway(message: Message) -> None:
        await producer.send_oneway(message, queue=queue)
        tally.sent += 1

    # Until one message has been stored they are awaited one by one: a wrong address is told once, and does
    # not use up all the input.
    send_others = send_oneway if oneway else send_half if half else submit
    send = send_first if send_others is submit else send_others
    works = False
    pace = Pace(rate)
    while batch := await bodies.next_batch():
        for body in batch:
            await pace.turn()
            try:
                await send(make(body))
            except RocketMQError as error:
                if not works and not isinstance(error, InvalidMessageError | MessageRefusedError):
                    raise _hopeless(error) from error
                tally.fail(error)
            else:
                works = True
                send = send_others


def _halves(name_servers: str, end: TransactionState, options: dict[str, Any]) -> TransactionProducer:
    async def check(_: ReceivedMessage) -> TransactionState:
        return end

    return TransactionProducer(name_servers, group=HALF_GROUP, check=check, **options)


def _hopeless(error: RocketMQError) -> CommandError:
    doubt = "; it may have been stored" if error.delivery is Delivery.UNKNOWN else ""
    return CommandError(f"the first message failed: {error}{doubt}")
