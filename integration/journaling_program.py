"""A group member in its own process that journals its actions. It leaves the group when its
standard input ends.

    python -m integration.journaling_program ADDRESS GROUP TOPIC JOURNAL NAME MODE

MODE is ``concurrent`` or ``orderly``. All members append whole lines to the file JOURNAL, so the
lines are in the order of the events: ``+`` a queue was acquired, ``-`` a queue was revoked, ``(``
the handling of a message began, ``)`` it ended.

    SIGN NAME BROKER QUEUE_ID OFFSET BODY
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from typing import Any

import trio

from rocketmq_py import PushConsumer, ReceivedMessage
from rocketmq_py.message import MessageQueue

HELD = 300
"""The maximum number of buffered messages per queue, and of offsets between the first and the last."""
PULLED = 32
"""The maximum number of messages per pull."""
LOCK_LIFE = 5.0
"""Seconds for which consumers trust a lock. Brokers must keep locks for twice as long."""


class Writer:
    """Appends lines to the journal."""

    def __init__(self, path: str, name: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND)
        self._name = name

    def write(self, sign: str, queue: MessageQueue, offset: int = 0, body: bytes = b"0") -> None:
        line = f"{sign} {self._name} {queue.broker_name} {queue.queue_id} {offset} {body.decode()}\n"
        os.write(self._file, line.encode())


class Watch(logging.Handler):
    """Journals changes of the member's assignment as soon as its log reports them."""

    def __init__(self, queues: Callable[[], list[MessageQueue]], writer: Writer, topic: str) -> None:
        super().__init__(logging.INFO)
        self._queues = queues
        self._writer = writer
        self._topic = topic
        self._had: set[MessageQueue] = set()

    def emit(self, _: logging.LogRecord) -> None:
        """Write the changes since the last call to the journal."""
        have = {queue for queue in self._queues() if queue.topic == self._topic}
        for queue in self._had - have:
            self._writer.write("-", queue)
        for queue in have - self._had:
            self._writer.write("+", queue)
        self._had = have


async def leave_at_end_of_input(consumer: PushConsumer) -> None:
    async with trio.lowlevel.FdStream(os.dup(sys.stdin.fileno())) as stream:
        while await stream.receive_some():
            pass
    consumer.stop()


async def main(address: str, group: str, topic: str, journal: str, name: str, mode: str) -> None:
    writer = Writer(journal, name)

    async def handle(message: ReceivedMessage) -> None:
        writer.write("(", message.queue, message.queue_offset, message.body)
        await trio.lowlevel.checkpoint()
        writer.write(")", message.queue, message.queue_offset, message.body)

    options: dict[str, Any] = {"consume_max_span": HELD}
    if mode == "orderly":
        options = {"orderly": True, "lock_max_live_time": LOCK_LIFE}
    async with (
        trio.open_nursery() as nursery,
        PushConsumer(
            address,
            group=group,
            consume_from="earliest",
            pull_threshold_for_queue=HELD,
            pull_batch_size=PULLED,
            route_refresh_interval=1.0,
            **options,
        ) as consumer,
    ):
        log = logging.getLogger("rocketmq_py.consumer")
        log.setLevel(logging.INFO)
        log.addHandler(Watch(lambda: consumer.assignment, writer, topic))
        consumer.subscribe(topic)
        nursery.start_soon(leave_at_end_of_input, consumer)
        await consumer.run(handle)


if __name__ == "__main__":
    address, group, topic, journal, name, mode = sys.argv[1:]
    trio.run(main, address, group, topic, journal, name, mode)
