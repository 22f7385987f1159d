"""Brokers and name servers in a thread of their own, for tests to look at."""

from __future__ import annotations

import datetime
import random
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

import attrs
import trio
import trio.testing

from rocketmq_py.broker import BrokerConfig
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.message import MessageQueue, ReceivedMessage
from rocketmq_py.testing.clock import seconds_of
from rocketmq_py.testing.processes import BrokerProcess, NameServerProcess, Process
from rocketmq_py.testing.requests import Request, codes_of
from rocketmq_py.testing.thread import KitThread
from rocketmq_py.testing.watching import Watched

_SHOWN = 10


class TestCluster(Watched):
    """Name servers and brokers in a thread of their own: for tests of programs, however these run.

    Everything may be called from any thread. What looks returns at once, also where the test runs on trio or
    asyncio; what waits blocks its thread, and is awaited there instead (:meth:`arrived`). It is made by
    :func:`run_broker` and :func:`run_cluster`, and by the fixtures of the same names.

    Attributes:
        broker_names: the names of its brokers.
    """

    __test__ = False  # pytest need not look for tests in it

    def __init__(
        self,
        brokers: int = 1,
        name_servers: int = 1,
        *,
        host: str = "127.0.0.1",
        topics: Mapping[str, int] | Iterable[str] = (),
        config: BrokerConfig | None = None,
        **settings: Any,
    ) -> None:
        if brokers < 1 or name_servers < 1:
            raise ConfigurationError(
                f"{brokers} brokers and {name_servers} name servers were asked for; one of each is the least"
            )
        config = attrs.evolve(config or BrokerConfig(), **settings)
        counts = dict(topics) if isinstance(topics, Mapping) else dict.fromkeys(topics, 4)
        self._changes = _Changes()
        self._thread = KitThread()
        note, now_ms = self._changes.note, self._now_ms
        self._began = time.time() - time.monotonic()
        self._name_servers = [NameServerProcess(host, 0, now_ms, note) for _ in range(name_servers)]
        self._brokers = [
            BrokerProcess(
                host,
                0,
                now_ms,
                note,
                config=one,
                topics=counts,
                name_servers=self._name_servers,
                rng=random.Random(),
            )
            for one in _named(config, brokers)
        ]
        self.broker_names = tuple(broker.config.broker_name for broker in self._brokers)
        try:
            self._thread.call(self._start)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection and every port, and end the thread."""
        self._thread.close()

    @property
    def name_server_address(self) -> str:
        """The addresses of the name servers, ``host:port;host:port``: what clients are given."""
        return ";".join([process.address for process in self._name_servers])

    @property
    def broker_addresses(self) -> Mapping[str, str]:
        """The address of each broker, by its name."""
        return {broker.config.broker_name: broker.address for broker in self._brokers}

    def name(self, name: str) -> str:
        """Return ``name``: on a real cluster it is one that no other test uses (``--rocketmq-namesrv``)."""
        return name

    def create_topic(self, topic: str, *, queues: int = 4) -> None:
        """Create a topic on each broker, or change how many queues it has there."""

        def create() -> None:
            for broker in self._brokers:
                broker.create_topic(topic, queues)

        self._thread.call_sync(create)

    def reset(self) -> None:
        """Make a clean world: no messages, topics, offsets, groups or requests, at the same addresses.

        Every connection breaks; who still uses it connects again. The clock stays where it is.
        """
        self._thread.call(self._reset)

    # Looking

    def messages(self, topic: str) -> list[ReceivedMessage]:
        """Return what is stored in a topic, in the order in which each broker stored it."""
        return self._thread.call_sync(lambda: self._messages(topic))

    def offsets(self, group: str) -> dict[MessageQueue, int]:
        """Return what a group has committed: where it goes on in each queue."""
        return self._thread.call_sync(
            lambda: {
                queue: offset for broker in self._brokers for queue, offset in broker.offsets(group).items()
            }
        )

    def requests(self, code: int | str | None = None, *, topic: str | None = None) -> list[Request]:
        """Return the latest requests that came to brokers and name servers: of each, 10,000 at the most.

        Args:
            code: a RequestCode, or its name, which stands for all forms: SEND_MESSAGE for
                SEND_MESSAGE_V2 and SEND_BATCH_MESSAGE, too. None for all requests.
            topic: of those that name this topic only.
        """
        codes = None if code is None else codes_of(code)
        found = self._thread.call_sync(
            lambda: [request for process in self._processes for request in process.requests]
        )
        return [
            request
            for request in sorted(found, key=lambda request: request.time_ms)
            if (codes is None or request.code in codes) and (topic is None or request.topic == topic)
        ]

    # Time

    def advance(self, duration: float | str | datetime.timedelta) -> None:
        """Put the clock of the brokers forward, and return when they have done what that made due.

        Delayed and timed messages come, retries too; what was popped becomes visible again, and open
        transactions are asked about. Clients are not taken for silent by it, and keep their locks. What
        becomes due again and again (a transaction's check) does so once; what a client does later, such as
        a retry that fails again, waits for the next call.

        Args:
            duration: seconds, a timedelta, or a text such as ``"1h 30m"``.

        Raises:
            ConfigurationError: it is none of these, or negative.
        """
        seconds = seconds_of(duration)

        async def advance() -> None:
            self._thread.clock.advance(seconds)
            for broker in self._brokers:
                broker.jump(seconds)
            await trio.testing.wait_all_tasks_blocked()

        self._thread.call(advance)

    def describe(self) -> str:
        """Return what is there, as failures show it."""

        def look() -> tuple[dict[str, int], list[Request]]:
            counts: dict[str, int] = {}
            for broker in self._brokers:
                for topic, count in broker.broker.store.counts().items():
                    counts[topic] = counts.get(topic, 0) + count
            return counts, [request for broker in self._brokers for request in broker.requests]

        counts, requests = self._thread.call_sync(look)
        latest = sorted(requests, key=lambda request: request.time_ms)[-_SHOWN:]
        topics = [f"  {topic}: {count} messages" for topic, count in sorted(counts.items())]
        return "\n".join(
            [
                "topics with messages:",
                *(topics or ["  none"]),
                "latest requests:",
                *([f"  {request}" for request in latest] or ["  none"]),
            ]
        )

    @property
    def _processes(self) -> list[Process]:
        return [*self._name_servers, *self._brokers]

    def _now_ms(self) -> int:
        return int((self._began + self._thread.clock.current_time()) * 1000)

    async def _start(self) -> None:
        for process in self._processes:
            await process.start(self._thread.nursery)

    async def _reset(self) -> None:
        for process in self._processes:
            await process.stop()
        for process in self._processes:
            process.wipe()
        await self._start()

    def _messages(self, topic: str) -> list[ReceivedMessage]:
        return [message for broker in self._brokers for message in broker.messages(topic)]

    def _count(self, topic: str) -> int:
        def look() -> int:
            return sum([broker.broker.store.counts().get(topic, 0) for broker in self._brokers])

        return self._thread.call_sync(look)

    def _seen(self) -> int:
        return self._changes.count

    def _changed(self, seen: int, seconds: float) -> bool:
        return self._changes.wait_past(seen, seconds)


class TestBroker(TestCluster):
    """One name server and one broker. What it can do is what a :class:`TestCluster` can."""

    @property
    def broker_address(self) -> str:
        """The broker's ``host:port``."""
        [address] = self.broker_addresses.values()
        return address


class _Changes:
    """Counts what happens in the brokers, and wakes who waits for something."""

    def __init__(self) -> None:
        self.count = 0
        self._changed = threading.Condition()

    def note(self) -> None:
        with self._changed:
            self.count += 1
            self._changed.notify_all()

    def wait_past(self, count: int, seconds: float) -> bool:
        """Wait until there are more than ``count``; return whether there are."""
        with self._changed:
            return self._changed.wait_for(lambda: self.count > count, max(seconds, 0.0))


def _named(config: BrokerConfig, count: int) -> list[BrokerConfig]:
    """Return the settings of each broker: broker-a, broker-b, or the name that was set with a number."""
    if count == 1:
        return [config]
    stem = config.broker_name.removesuffix("-a")
    return [
        attrs.evolve(config, broker_name=f"{stem}-{chr(ord('a') + number) if number < 26 else number}")
        for number in range(count)
    ]


@contextmanager
def run_broker(
    *,
    topics: Mapping[str, int] | Iterable[str] = (),
    config: BrokerConfig | None = None,
    **settings: Any,
) -> Iterator[TestBroker]:
    """Run a name server and a broker in a thread of their own, on free ports of 127.0.0.1::

        with run_broker(topics=["Orders"]) as broker:
            subprocess.run(["my-program", "--namesrv", broker.name_server_address], check=True)
            [order] = broker.wait_for("Orders")

    Args:
        topics: are there from the beginning, with four queues or as many as a mapping says.
        config: the broker's settings; None for the default ones.
        settings: fields of BrokerConfig, to be changed in ``config``.

    Raises:
        ConfigurationError: a setting is out of its range.
    """
    with TestBroker(topics=topics, config=config, **settings) as broker:
        yield broker


@contextmanager
def run_cluster(
    brokers: int = 2,
    name_servers: int = 1,
    *,
    topics: Mapping[str, int] | Iterable[str] = (),
    config: BrokerConfig | None = None,
    **settings: Any,
) -> Iterator[TestCluster]:
    """As :func:`run_broker`, with several brokers, all masters, which all have the topics."""
    with TestCluster(brokers, name_servers, topics=topics, config=config, **settings) as cluster:
        yield cluster
