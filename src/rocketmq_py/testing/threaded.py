"""Brokers and name servers in a thread of their own."""

from __future__ import annotations

import datetime
import itertools
import random
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self, TypeVar

import attrs
import trio
import trio.testing

from rocketmq_py.broker import BrokerConfig
from rocketmq_py.testing.clock import seconds_of
from rocketmq_py.testing.cluster import Cluster, Keep
from rocketmq_py.testing.thread import KitThread
from rocketmq_py.testing.watching import Watched

_Result = TypeVar("_Result")


class TestCluster(Cluster, Watched):
    """Name servers and brokers in a thread of their own: for tests of programs, however these run.

    Everything may be called from any thread. What looks returns at once, also where the test runs on trio or
    asyncio; what waits blocks its thread, and is awaited there instead (:meth:`arrived`). It is made by
    :func:`run_broker` and :func:`run_cluster`, and by the fixtures ``rocketmq_broker`` and
    ``rocketmq_cluster``.

    Faults strike all brokers and name servers, or those that ``server`` names (a broker by its name, either
    by its address), and all clients or one: by its ``instance_name`` or id, which brokers know from
    heartbeats, or by its address ``host:port``, as :meth:`requests` shows it.
    They end when they are told to, with :meth:`heal`, or with :meth:`reset`.

    Attributes:
        broker_names: the names of its brokers.
    """

    __test__ = False  # pytest need not look for tests in it

    def __init__(
        self,
        brokers: int = 1,
        name_servers: int = 1,
        *,
        replicas: bool = False,
        topics: Mapping[str, int] | Iterable[str] = (),
        config: BrokerConfig | None = None,
        tls: ssl.SSLContext | None = None,
        **settings: Any,
    ) -> None:
        self._changes = _Changes()
        self._began = time.time() - time.monotonic()
        super().__init__(
            brokers,
            name_servers,
            hosts=itertools.repeat("127.0.0.1"),
            topics=topics,
            config=attrs.evolve(config or BrokerConfig(), **settings),
            tls=tls,
            now_ms=self._now_ms,
            on_change=self._changes.note,
            rng=random.Random(),
            replicas=replicas,
        )
        self._thread = KitThread()
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

    def name(self, name: str) -> str:
        """Return ``name``: on a real cluster it is one that no other test uses (``--rocketmq-namesrv``)."""
        return name

    def reset(self) -> None:
        """Make a clean world at the same addresses: no messages, offsets, groups, requests or faults.

        Every connection breaks; who still uses it connects again. The clock stays where it is.
        """
        self._thread.call(self._reset)

    def crash(self, server: str | None = None, *, keep: Keep = "all") -> None:
        """Have all brokers end at once, or one server: connections break, and locks are gone.

        Args:
            server: a broker or a name server; None for all brokers.
            keep: what is still there after :meth:`restart`: ``"all"`` that was stored; ``"flushed"``: what
                was there at the last :meth:`flush`, and topics; or ``"nothing"``.
        """
        self._thread.call(lambda: self._crash(server, keep))

    def restart(self, server: str | None = None) -> None:
        """Start all brokers again, or one server, at the same address; those that run are stopped before."""
        self._thread.call(lambda: self._restart(server))

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

    @property
    def _nursery(self) -> trio.Nursery:
        return self._thread.nursery

    def _call(self, function: Callable[[], _Result]) -> _Result:
        return self._thread.call_sync(function)

    def _now_ms(self) -> int:
        return int((self._began + self._thread.clock.current_time()) * 1000)

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


@contextmanager
def run_broker(
    *,
    topics: Mapping[str, int] | Iterable[str] = (),
    config: BrokerConfig | None = None,
    tls: ssl.SSLContext | None = None,
    **settings: Any,
) -> Iterator[TestBroker]:
    """Run a name server and a broker in a thread of their own, on free ports of 127.0.0.1::

        with run_broker(topics=["Orders"]) as broker:
            subprocess.run(["my-program", "--namesrv", broker.name_server_address], check=True)
            [order] = broker.wait_for("Orders")

    Args:
        topics: are there from the beginning, with four queues or as many as a mapping says.
        config: the broker's settings; None for the default ones.
        tls: a context with a certificate, for clients that talk TLS; None for plain text.
        settings: fields of BrokerConfig, to be changed in ``config``.

    Raises:
        ConfigurationError: a setting is out of its range.
    """
    with TestBroker(topics=topics, config=config, tls=tls, **settings) as broker:
        yield broker


@contextmanager
def run_cluster(
    brokers: int = 2,
    name_servers: int = 1,
    *,
    replicas: bool = False,
    topics: Mapping[str, int] | Iterable[str] = (),
    config: BrokerConfig | None = None,
    tls: ssl.SSLContext | None = None,
    **settings: Any,
) -> Iterator[TestCluster]:
    """As :func:`run_broker`, with several brokers, which all have the topics.

    With ``replicas`` each broker has one, called ``broker-a-1``: it has at once what its master has, and is
    read from while that is down.
    """
    with TestCluster(
        brokers, name_servers, replicas=replicas, topics=topics, config=config, tls=tls, **settings
    ) as cluster:
        yield cluster
