"""Delivering what waits in one buffer queue, when it is due."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence

import trio

from rocketmq_py.codes import ResponseCode
from rocketmq_py.errors import BrokerError, InvalidMessageError, RocketMQError
from rocketmq_py.producer import PendingSend, Producer
from rocketmq_py.relay.config import RelayConfig
from rocketmq_py.relay.entries import Progress
from rocketmq_py.relay.store import NEVER_MS, QueueStore, Stored

logger = logging.getLogger("rocketmq_py.relay")

LOOK_SECONDS = 1.0
"""Seconds between two looks at the clock at the most: it may be set, while trio's goes on evenly."""
UNUSED_SECONDS = 0.1


class Rate:
    """Lets so many through in a second, and what was not used of a tenth of a second at once.

    Args:
        per_second: how many.
    """

    def __init__(self, per_second: float) -> None:
        self._seconds_each = 1 / per_second
        self._next_at = trio.current_time()

    async def wait(self) -> None:
        """Return when one more may go."""
        now = trio.current_time()
        at = max(self._next_at, now - UNUSED_SECONDS)
        self._next_at = at + self._seconds_each
        if at > now:
            await trio.sleep_until(at)


class Delivery:
    """Sends the messages of one buffer queue to their topics, in the order of their times.

    Messages for a topic that cannot be sent to are put aside in the store, and those for other topics go on;
    the topic's own follow in their order when it can be sent to again. A message that brokers refuse for
    good stays aside, and those behind it do not wait for it.

    Args:
        store: what waits.
        config: the relay's settings.
        producer: sends it.
        rate: shared by all of a relay.
        now_ms: the clock, epoch milliseconds.
        announce: writes down in the buffer queue how far it is delivered.
    """

    def __init__(
        self,
        store: QueueStore,
        config: RelayConfig,
        producer: Producer,
        rate: Rate,
        *,
        now_ms: Callable[[], int],
        announce: Callable[[Progress], Awaitable[None]],
    ) -> None:
        self._store = store
        self._config = config
        self._producer = producer
        self._rate = rate
        self._now_ms = now_ms
        self._announce = announce
        self._after = b""
        self._changed = trio.Event()
        self._failing: set[str] = set()
        self._has_progressed = False

    async def run(self) -> None:
        """Deliver until cancelled. What is under way then is delivered again by who comes next."""
        self._failing.update(self._store.held_topics())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._try_again)
            nursery.start_soon(self._tell_progress)
            while True:
                if due := self._store.due(self._after, self._now_ms(), self._config.batch_size):
                    self._after = due[-1].key
                    await self._deliver(due)
                else:
                    await self._wait()

    def added(self, due_ms: int) -> None:
        """Look at the store again: messages have come, the earliest of which is due at ``due_ms``."""
        if due_ms < NEVER_MS:
            self._after = min(self._after, self._store.before(due_ms))
        self._changed.set()

    async def tell_progress(self) -> None:
        """Write down how far the queue is delivered, if that has changed."""
        if self._has_progressed:
            self._has_progressed = False
            try:
                await self._announce(self._store.progress())
            except RocketMQError as error:
                self._has_progressed = True
                logger.debug("progress not written down: %s", error)

    async def _wait(self) -> None:
        self._changed = trio.Event()
        seconds = (self._store.next_due_ms(self._after) - self._now_ms()) / 1000
        with trio.move_on_after(min(max(seconds, 0), LOOK_SECONDS)):
            await self._changed.wait()

    async def _deliver(self, due: Sequence[Stored]) -> None:
        aside = [stored for stored in due if stored.message.topic in self._failing]
        failed = await self._send([stored for stored in due if stored.message.topic not in self._failing])
        for stored, error in failed:
            topic = stored.message.topic
            if topic not in self._failing and not _is_refused(error):
                self._failing.add(topic)
                logger.warning(
                    "messages for topic %s wait: %s; trying again every %g s",
                    topic,
                    error,
                    self._config.retry_interval,
                )
        aside += [stored for stored, _ in failed]
        if aside:
            await trio.to_thread.run_sync(self._store.hold, aside)

    async def _send(self, messages: Iterable[Stored]) -> list[tuple[Stored, RocketMQError]]:
        """Send them, and forget those that brokers have acknowledged. Return the others, and why."""
        sent: list[Stored] = []
        failed: list[tuple[Stored, RocketMQError]] = []
        under_way: list[tuple[Stored, PendingSend]] = []
        for stored in messages:
            await self._rate.wait()
            try:
                under_way.append((stored, await self._producer.send_soon(stored.message.message())))
            except InvalidMessageError as error:
                failed.append((stored, error))
        for stored, pending in under_way:
            try:
                await pending
            except RocketMQError as error:
                failed.append((stored, error))
            else:
                sent.append(stored)
        for stored, reason in failed:
            if _is_refused(reason):
                message = stored.message
                logger.error(
                    "message %s for topic %s is kept, and not delivered: %s",
                    message.message_id,
                    message.topic,
                    reason,
                )
        if sent:
            self._store.remove(sent)  # in memory, as it is not synced: a thread would take longer
            self._has_progressed = True
        return failed

    async def _try_again(self) -> None:
        while True:
            await trio.sleep(self._config.retry_interval)
            for topic in sorted(self._failing):
                if await self._deliver_held(topic):
                    self._failing.discard(topic)
                    logger.info("messages for topic %s are delivered again", topic)

    async def _deliver_held(self, topic: str) -> bool:
        """Deliver what was put aside for a topic. Return whether it can be sent to."""
        after, count = b"", 1  # the first one tells whether more are worth while
        while held := self._store.held(topic, after, count):
            after, count = held[-1].key, self._config.batch_size
            if not all(_is_refused(error) for _, error in await self._send(held)):
                return False
        return True

    async def _tell_progress(self) -> None:
        while True:
            await trio.sleep(self._config.progress_interval)
            await self.tell_progress()


def _is_refused(error: RocketMQError) -> bool:
    """Tell whether it is the message that brokers do not take, whenever they are asked."""
    return isinstance(error, InvalidMessageError) or (
        isinstance(error, BrokerError) and error.code == ResponseCode.MESSAGE_ILLEGAL
    )
