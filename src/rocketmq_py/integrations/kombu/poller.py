"""The thread that receives messages for a channel, as far as the channel's prefetch count allows."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from rocketmq_py.errors import (
    ClosedError,
    ConnectError,
    ConnectionLostError,
    NameServerError,
    NoQueueError,
    ProtocolError,
    RequestTimeoutError,
    RetriableBrokerError,
    RocketMQError,
)
from rocketmq_py.integrations.kombu.deliveries import Delivery
from rocketmq_py.integrations.kombu.queues import SharedQueue
from rocketmq_py.library_logger import LibraryLogger

if TYPE_CHECKING:
    from rocketmq_py.integrations.kombu.channel import Channel
    from rocketmq_py.integrations.kombu.transport import Transport

TRANSIENT: Final = (
    ClosedError,
    ConnectError,
    ConnectionLostError,
    NameServerError,
    NoQueueError,
    ProtocolError,
    RequestTimeoutError,
    RetriableBrokerError,
)
"""Errors after which another connection may help. They make Celery reconnect."""
RETRY_SECONDS: Final = 1.0
UNREACHED_RETRY_SECONDS: Final = 0.1
"""Seconds until the next round if no broker was reached. The requests themselves wait for brokers then."""

logger: Final = LibraryLogger("rocketmq_py.integrations.kombu")


class Poller:
    """Receives messages of queues in turn, and puts them into inboxes.

    With one queue, the broker holds a request until messages come. With several it answers at once, so that a
    queue without messages does not delay the others, and no more is received than the channel may have.

    Args:
        transport: delivers the messages, and raises the error that ends the polling in the user's thread. Its
            ``activity`` guards the inboxes, and is notified when the poller should look for work.
        channel: limits how many messages may be received.
    """

    def __init__(self, transport: Transport, channel: Channel) -> None:
        self._transport = transport
        self._channel = channel
        self._activity = transport.activity
        self._options = transport.options
        self._queues: deque[tuple[SharedQueue, deque[Delivery]]] = deque()
        self._returned: list[Delivery] = []
        self._removed: list[SharedQueue] = []
        self._failing_since: float | None = None
        self._error: RocketMQError | None = None
        # Ends the polling in time although a request waits for brokers until its own timeout.
        self._give_up_timer: threading.Timer | None = None
        self._is_stopped = False
        self._thread = threading.Thread(target=self._run, name="rocketmq-py kombu poller", daemon=True)
        self._has_started = False

    def add(self, queue: SharedQueue, inbox: deque[Delivery]) -> None:
        """Receive messages of a queue from now on."""
        with self._activity:
            self._queues.append((queue, inbox))
            if not self._has_started:
                self._has_started = True
                self._thread.start()
            self._activity.notify_all()

    def remove(self, name: str) -> None:
        """Stop receiving messages of a queue. Those that were received and not delivered are requeued."""
        with self._activity:
            for queue, inbox in list(self._queues):
                if queue.name == name:
                    self._drop(queue, inbox)
            self._activity.notify_all()

    def _drop(self, queue: SharedQueue, inbox: deque[Delivery]) -> None:
        """Remove a queue (``activity`` is held)."""
        self._queues.remove((queue, inbox))
        self._removed.append(queue)
        self._returned.extend(inbox)
        inbox.clear()

    def stop(self) -> None:
        """End the thread after its current request, and requeue the messages that were not delivered."""
        with self._activity:
            self._is_stopped = True
            self._activity.notify_all()
        if self._has_started and threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        try:
            while self._wait_for_work():
                began = time.monotonic()
                try:
                    found = self._receive_round()
                except RocketMQError as error:
                    if self._lasts_too_long(error, began):
                        self._transport.fail(error)
                        return
                    self._pause(UNREACHED_RETRY_SECONDS if error._not_reached else RETRY_SECONDS)
                else:
                    self._note_success()
                    if not found and len(self._queues) != 1:
                        self._pause(self._options.polling_interval)
        except BaseException as error:  # noqa: BLE001  # the user's thread raises it
            self._transport.fail(error)
        finally:
            self._note_success()
            with self._activity:
                for queue, inbox in list(self._queues):
                    self._drop(queue, inbox)
            self._release()

    def _wait_for_work(self) -> bool:
        """Wait until messages may be received, and return whether to go on."""
        while True:
            self._release()
            with self._activity:
                self._activity.wait_for(self._has_work)
                if self._is_stopped:
                    return False
                if not (self._returned or self._removed):
                    return True

    def _has_work(self) -> bool:
        if self._is_stopped or self._returned or self._removed:
            return True
        return bool(self._queues) and self._channel.free_space() > 0

    def _receive_round(self) -> int:
        """Ask for messages of each queue once, and return how many came."""
        with self._activity:
            queues = list(self._queues)
            self._queues.rotate(-1)
        count = 0
        for queue, inbox in queues:
            with self._activity:
                free_space = self._channel.free_space()
                if self._is_stopped or free_space <= 0:
                    break
            wait = self._options.wait_time_seconds if len(queues) == 1 else 0.0
            deliveries = self._receive(queue, free_space, wait)
            count += len(deliveries)
            if deliveries:
                self._put(deliveries, inbox)
        return count

    def _receive(self, queue: SharedQueue, limit: int, wait: float) -> list[Delivery]:
        """Receive messages of a queue. Its errors do not count if it was removed meanwhile."""
        try:
            return queue.receive(limit, wait)
        except RocketMQError:
            with self._activity:
                if any(each is queue for each, _ in self._queues):
                    raise
            return []

    def _put(self, deliveries: Iterable[Delivery], inbox: deque[Delivery]) -> None:
        with self._activity:
            is_consumed = any(each is inbox for _, each in self._queues)
            (inbox if is_consumed else self._returned).extend(deliveries)
        self._transport.wake()

    def _release(self) -> None:
        """Leave queues that were removed, and messages that were not delivered, to other consumers."""
        with self._activity:
            returned, self._returned = self._returned, []
            removed, self._removed = self._removed, []
        requeue_all(returned)
        for queue in removed:
            with suppress(RocketMQError):
                queue.suspend()

    def _pause(self, seconds: float) -> None:
        """Wait, but not for longer than the poller runs."""
        end = time.monotonic() + seconds
        with self._activity:
            while not self._is_stopped and (left := end - time.monotonic()) > 0:
                self._activity.wait(left)

    def _lasts_too_long(self, error: RocketMQError, began: float) -> bool:
        """Record the error of a round that began at this time, and return whether it ends the polling."""
        if not isinstance(error, TRANSIENT):
            return True
        now = time.monotonic()
        with self._activity:
            self._error = error
            if self._failing_since is None:
                self._failing_since = began if error._not_reached else now
                logger.warning("could not receive messages: %s; retrying", error)
            left = self._failing_since + self._options.connection_loss_timeout - now
            is_away = error._not_reached or isinstance(error, ConnectionLostError)
            if is_away and left > 0 and self._give_up_timer is None:
                self._give_up_timer = threading.Timer(left, self._give_up)
                self._give_up_timer.daemon = True
                self._give_up_timer.start()
        return left <= 0

    def _give_up(self) -> None:
        """End the polling with the last error. Called by the timer, while a round may be under way."""
        with self._activity:
            if self._failing_since is None or self._is_stopped:
                return
            self._is_stopped = True
            error = self._error
        assert error is not None
        self._transport.fail(error)

    def _note_success(self) -> None:
        """Forget the last error."""
        with self._activity:
            self._failing_since = None
            if self._give_up_timer is not None:
                self._give_up_timer.cancel()
                self._give_up_timer = None


def requeue_all(deliveries: Iterable[Delivery]) -> None:
    """Requeue deliveries, up to the first failure: the others come again when their time is over."""
    try:
        for delivery in deliveries:
            delivery.requeue()
    except RocketMQError as error:
        logger.warning("could not requeue messages; they come again after the visibility timeout: %s", error)
