"""A cluster as a kombu connection uses it: sends, topics and groups, and the delays of tasks.

Brokers keep the delay of a task with an ETA or countdown, instead of workers. Brokers 5.x deliver at an exact
time. Brokers 4.x only have delay levels. A delay that a broker cannot keep at once is kept in several steps:
a worker that receives a task more than ``EARLY_SECONDS`` before its ETA sends it again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any, Final

from kombu.utils.json import dumps

from rocketmq_py.admin import AlreadyExistsError, GroupNotFoundError, MessageType, SomeBrokersFailedError
from rocketmq_py.blocking import Client
from rocketmq_py.blocking.reader import MessageStream
from rocketmq_py.client.settings import ClientOptions
from rocketmq_py.errors import (
    BrokerError,
    NoQueueError,
    RocketMQError,
    TopicNotFoundError,
    UnsupportedByBrokerError,
)
from rocketmq_py.integrations.kombu.options import TransportOptions
from rocketmq_py.library_logger import LibraryLogger
from rocketmq_py.message import Message, MessageQueue

ROUTING_KEY: Final = "kombu_routing_key"
"""The property with the routing key of a message in an exchange's topic."""
ROUTE_SECONDS: Final = 5.0
"""How long a topic that was just created may take to appear on the name servers."""
MAX_PRIORITY: Final = 255

logger: Final = LibraryLogger("rocketmq_py.integrations.kombu")


class Cluster:
    """The client of a connection, and the kombu queues that the connection declared. Thread-safe.

    Args:
        address: name servers as ``host:port;host:port``. None reads NAMESRV_ADDR, else it is 127.0.0.1:9876.
        options: the transport's options.
        client_options: the client's options.

    Raises:
        ConfigurationError: an address or option is not allowed. Nothing is dialled yet.
    """

    def __init__(self, address: str | None, options: TransportOptions, client_options: ClientOptions) -> None:
        self.options: TransportOptions = options
        self.client: Client = Client(address, **client_options)
        self._producer = self.client.producer(
            group=f"{options.group_prefix}producers", start_deliver_time=options.start_deliver_time
        )
        self._reader = self.client.reader()
        self._admin = self.client.admin()
        self._lock = threading.Lock()
        self._created: set[str] = set()
        self._max_priorities: dict[str, int] = {}  # of declared queues

    def close(self) -> None:
        """Close the client and its consumers. In a forked child nothing happens: they are the parent's."""
        self.client.close()

    def check_reachable(self) -> None:
        """Raise NameServerError or ConnectError if no name server answers."""
        self.has_topic(self.options.topic_of_exchange(""))

    # Topics

    def declare_queue(self, queue: str, max_priority: int | None) -> None:
        """Create the topic of a queue if it is missing.

        Args:
            queue: the kombu queue.
            max_priority: the highest priority of its messages (the argument ``x-max-priority``), or None.
        """
        if max_priority is not None:
            self._max_priorities[queue] = min(max(int(max_priority), 0), MAX_PRIORITY)
        topic, highest = self.options.topic_of_queue(queue), self._max_priorities.get(queue)
        if highest is None:
            self._create_topic(topic, queues=self.options.queues_per_topic)
        else:
            self._create_topic(topic, queues=highest + 1, by_priority=True)

    def _create_topic(self, topic: str, *, queues: int, by_priority: bool = False) -> None:
        with self._lock:
            if topic in self._created or not self.options.create_topics:
                return
            try:
                if by_priority:
                    self._create_priority_topic(topic, queues)
                else:
                    self._admin.topics.create(topic, queues=queues)
            except AlreadyExistsError:
                pass
            else:
                self._wait_for_route(topic)
            self._created.add(topic)

    def _create_priority_topic(self, topic: str, queues: int) -> None:
        """Create a topic with a queue for each priority. On brokers before 5.4.0 it has no priorities."""
        try:
            self._admin.topics.create(topic, queues=queues, message_type=MessageType.PRIORITY)
        except RocketMQError as error:
            failures = error.failures if isinstance(error, SomeBrokersFailedError) else None
            if not all(map(_lacks_priorities, failures.values() if failures else [error])):
                raise
            logger.warning("topic=%s is created without priorities, which need brokers 5.4: %s", topic, error)
            self._admin.topics.create(topic, queues=queues, brokers=failures)

    def _wait_for_route(self, topic: str) -> None:
        """Wait until the name servers know a topic that was just created."""
        deadline = time.monotonic() + ROUTE_SECONDS
        while True:
            try:
                self._find_topic(topic)
            except TopicNotFoundError:
                if time.monotonic() >= deadline:
                    raise
                time.sleep(0.05)
            else:
                return

    def _find_topic(self, topic: str) -> None:
        """Raise TopicNotFoundError if the name servers do not know a topic. Errors of requests are raised."""
        with suppress(SomeBrokersFailedError):
            self._admin.topics.describe(topic)  # requests the route, instead of using a known one

    def has_topic(self, topic: str) -> bool:
        """Return whether the name servers know a topic. Errors of requests are raised."""
        try:
            self._find_topic(topic)
        except TopicNotFoundError:
            return False
        return True

    def has_queue(self, queue: str) -> bool:
        """Return whether a queue has a topic. Raises as a request to the name servers does."""
        topic = self.options.topic_of_queue(queue)
        if topic in self._created:
            return True
        found = self.has_topic(topic)
        if found:
            self._created.add(topic)
        return found

    def create_group(self, queue: str) -> str:
        """Create the consumer group of a queue if it is missing, and return its name."""
        group = self.options.group_of_queue(queue)
        if self.options.create_topics:
            with suppress(AlreadyExistsError):
                self._admin.groups.create(group, max_reconsume_times=self.options.max_reconsume_times)
        return group

    def delete_queue(self, queue: str) -> None:
        """Delete the topic and the consumer group of a queue. They may be missing."""
        topic, group = self.options.topic_of_queue(queue), self.options.group_of_queue(queue)
        with self._lock:
            self._created.discard(topic)
        self._max_priorities.pop(queue, None)
        with suppress(TopicNotFoundError):
            self._admin.topics.delete(topic)
        with suppress(GroupNotFoundError):
            self._admin.groups.delete(group)

    def backlog(self, queue: str) -> int:
        """Return how many messages of a queue were not delivered yet. Delayed ones do not count."""
        topic, group = self.options.topic_of_queue(queue), self.options.group_of_queue(queue)
        try:
            bounds = self._reader.offsets(topic)
            committed = self._reader.committed(group, bounds)
        except TopicNotFoundError:
            return 0
        # Messages before the first offset have expired.
        starts = {each: max(committed.get(each) or 0, begin) for each, (begin, _) in bounds.items()}
        return sum(max(end - starts[each], 0) for each, (_, end) in bounds.items())

    def skip_backlog(self, queue: str) -> None:
        """Move the group of a queue to the end of its topic (brokers 4.x)."""
        self._admin.offsets.reset(
            self.options.group_of_queue(queue), self.options.topic_of_queue(queue), "latest"
        )

    # Messages

    def send(self, queue: str, payload: Mapping[str, Any]) -> None:
        """Store a message in a queue. The broker delays it until its ETA.

        Raises as ``Producer.send`` does.
        """
        topic = self.options.topic_of_queue(queue)
        body, keys = dumps(payload).encode(), _keys_of(payload)
        priority = self._priority_of(queue, payload)
        now = time.time()
        wait = remaining_delay(payload, now)
        if not wait:
            self._producer.send(Message(topic, body, keys=keys, priority=priority))
            return
        # A delayed message loses its priority, but not its queue, which is where priorities come from.
        chosen = None if priority is None else partial(_queue_of_priority, priority)
        due_ms = round((now + min(wait, self.options.max_delay)) * 1000)
        try:
            self._producer.send(Message(topic, body, keys=keys, deliver_at_ms=due_ms), queue=chosen)
        except UnsupportedByBrokerError:  # 4.x
            level = delay_level(wait)
            self._producer.send(Message(topic, body, keys=keys, delay_level=level), queue=chosen)

    def publish(self, exchange: str, payload: Mapping[str, Any], routing_key: str) -> None:
        """Send a message to all current listeners of an exchange. Raises as ``Producer.send`` does."""
        topic = self.options.topic_of_exchange(exchange)
        # While no broker is registered, the send raises TopicNotFoundError. kombu repeats errors of
        # connections until a broker is back, which blocks the event loop of Celery's worker.
        with suppress(NoQueueError):
            self._create_topic(topic, queues=1)
        properties = {ROUTING_KEY: routing_key} if routing_key else {}
        self._producer.send(Message(topic, dumps(payload).encode(), properties=properties))

    def listen(self, exchange: str) -> MessageStream:
        """Read the messages of an exchange from now on."""
        topic = self.options.topic_of_exchange(exchange)
        self._create_topic(topic, queues=1)
        return self._reader.open(topic)

    def _priority_of(self, queue: str, payload: Mapping[str, Any]) -> int | None:
        highest = self._max_priorities.get(queue)
        if highest is None:
            return None
        try:
            return max(0, min(int(payload["properties"].get("priority") or 0), highest))
        except (TypeError, ValueError):
            return 0


def _lacks_priorities(error: RocketMQError) -> bool:
    """Return whether a broker knows no topics of type PRIORITY: 4.x has no types, 5.0 to 5.3 not this one."""
    if isinstance(error, BrokerError):
        return error.remark is not None and error.remark.startswith("value is not in set")
    return isinstance(error, UnsupportedByBrokerError)


def _keys_of(payload: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the id of a task as the message's key, by which tools find it."""
    key = (payload.get("headers") or {}).get("id") or payload["properties"].get("correlation_id")
    return (key,) if isinstance(key, str) and key.isprintable() and key and " " not in key else ()


def _queue_of_priority(priority: int, queues: Sequence[MessageQueue], message: Message, /) -> MessageQueue:
    """Return the queue that brokers choose for a priority. Brokers are chosen by the message's key."""
    of_priority = [queue for queue in queues if queue.queue_id == priority]
    if not of_priority:
        highest = max(queue.queue_id for queue in queues)
        of_priority = [queue for queue in queues if queue.queue_id == highest]
    return of_priority[hash(message.keys) % len(of_priority)]


# Delays

LEVEL_SECONDS: Final = (
    1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200,
)  # fmt: skip
"""The seconds of delay levels 1 to 18 in the default configuration of brokers."""
EARLY_SECONDS: Final = 1.0
"""A task that comes no earlier than this waits in the worker, which Celery does exactly."""


def due_time(payload: Mapping[str, Any]) -> float | None:
    """Return the ETA in a task's headers (Celery's message protocol 2) as epoch seconds, or None.

    An ETA without a time zone is None: only the worker knows its zone, and waits for it.
    """
    eta = (payload.get("headers") or {}).get("eta")
    if not isinstance(eta, str):
        return None
    try:
        time = datetime.fromisoformat(eta)
    except ValueError:
        return None
    return None if time.tzinfo is None else time.timestamp()


def remaining_delay(payload: Mapping[str, Any], now: float) -> float:
    """Return the seconds that brokers should delay a task. 0 means that it may be delivered."""
    due = due_time(payload)
    return 0.0 if due is None or due - now <= EARLY_SECONDS else due - now


def delay_level(seconds: float) -> int:
    """Return the longest delay level that is not too long. There is one for a second and more."""
    return sum(1 for level in LEVEL_SECONDS if level <= seconds)
