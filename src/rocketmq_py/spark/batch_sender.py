"""Sending prepared batches: pipelined over the brokers, from the thread of a Spark task.

:class:`BatchSender` is the only part of the sink that uses private parts of the client. The client runs on
trio in a thread of its own, where :func:`send_pipelined` sends the batches. The task's thread waits until all
of them are acknowledged or have failed.
"""

from __future__ import annotations

import ipaddress
import math
import os
import random
import time
from collections.abc import Sequence
from typing import Final

from rocketmq_py import blocking
from rocketmq_py.client import core_of
from rocketmq_py.errors import RocketMQError
from rocketmq_py.message import Message, MessageQueue
from rocketmq_py.producer import Producer
from rocketmq_py.producer.admission import Admission
from rocketmq_py.producer.batch import EncodedBatch
from rocketmq_py.protocol.message_id import UniqueIdGenerator
from rocketmq_py.remoting.nurseries import open_nursery
from rocketmq_py.spark.batch_encoder import PreparedBatch
from rocketmq_py.spark.piece_sender import EarlierBatchFailedError, SendOutcome
from rocketmq_py.spark.rows import Destination

MAX_IN_FLIGHT_BYTES = 4 * 1024 * 1024
"""Maximum size of the batches of one call that are in flight. A larger batch is sent alone."""


class BatchSender:
    """Sends a task's rows through this process's producer.

    If the producer was closed, ``queues`` and sends raise ClosedError. If it is closed during a call, the
    unfinished sends of that call fail.

    Args:
        producer: the sink's producer. It stays open.
    """

    def __init__(self, producer: blocking.Producer) -> None:
        self._producer: Final = producer
        host = ipaddress.ip_address(core_of(self._trio_producer).host)
        # Its random salt keeps these ids apart from those of the client's own generator.
        self._unique_ids: Final = UniqueIdGenerator(
            host.packed,
            process_id=os.getpid,
            now_ms=lambda: time.time_ns() // 1_000_000,
            random=random.SystemRandom(),
        )

    @property
    def _trio_producer(self) -> Producer:
        return self._producer._target

    def new_unique_ids(self, count: int) -> Sequence[str]:
        """Return unique message ids, all of the same length."""
        return self._unique_ids.take(count)

    def queues(self, topic: str) -> Sequence[MessageQueue]:
        """Return a topic's writable queues, sorted. Raises as ``Producer.queues``."""
        return self._producer.queues(topic)

    def send_messages(
        self, messages: Sequence[Message], destinations: Sequence[Destination] | None
    ) -> Sequence[SendOutcome]:
        """Send messages, and return the outcome of each."""
        return self._producer.send_all(messages, queues=destinations)

    def send_batches(self, batches: Sequence[PreparedBatch]) -> Sequence[RocketMQError | None]:
        """Send batches, and return the error of each, or None for one that is acknowledged.

        Batches for the same queue are sent one after another. After an error, the later batches of its queue
        are not sent, so that sending all of them again keeps their order. Each batch is retried within the
        producer's ``send_timeout``.
        """
        return self._producer._call(send_pipelined, self._trio_producer, batches)


async def send_pipelined(
    producer: Producer, batches: Sequence[PreparedBatch], max_in_flight_bytes: int = MAX_IN_FLIGHT_BYTES
) -> Sequence[RocketMQError | None]:
    """Send batches as :meth:`BatchSender.send_batches` does, on trio.

    If cancelled, no send is left running. Brokers may still store batches that were written.
    """
    errors: list[RocketMQError | None] = [None] * len(batches)
    in_flight = Admission(math.inf, max_in_flight_bytes)

    async def send_in_order(indexes: Sequence[int]) -> None:
        for position, index in enumerate(indexes):
            errors[index] = error = await send(batches[index])
            if error is not None:
                for later in indexes[position + 1 :]:
                    errors[later] = EarlierBatchFailedError(error)
                return

    async def send(batch: PreparedBatch) -> RocketMQError | None:
        await in_flight.enter(len(batch.body))
        try:
            encoded = EncodedBatch.of_body(batch.topic, len(batch.rows), batch.body)
            await producer._send_encoded(encoded, queue=batch.queue)
        except RocketMQError as error:
            return error
        finally:
            in_flight.leave(len(batch.body))
        return None

    async with open_nursery() as nursery:
        for indexes in _independent(batches):
            nursery.start_soon(send_in_order, indexes)
    return errors


def _independent(batches: Sequence[PreparedBatch]) -> list[list[int]]:
    """Return groups of batches that need no order among each other, each in its order."""
    groups: list[list[int]] = []
    group_of_queue: dict[MessageQueue, list[int]] = {}
    for index, batch in enumerate(batches):
        group = [] if batch.queue is None else group_of_queue.setdefault(batch.queue, [])
        if not group:
            groups.append(group)
        group.append(index)
    return groups
