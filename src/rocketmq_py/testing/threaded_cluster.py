"""Brokers and name servers in a thread of their own, and calls into it from other threads."""

from __future__ import annotations

import datetime
import itertools
import random
import ssl
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

import trio
import trio.testing

from rocketmq_py.broker.config import BrokerConfig, BrokerOptions, config_of
from rocketmq_py.errors import ClosedError
from rocketmq_py.shown_settings import takes_settings
from rocketmq_py.testing.cluster import AdvancingClock, Cluster, CrashData, to_seconds
from rocketmq_py.testing.observable_cluster import ObservableCluster

Result = TypeVar("Result")


class ClusterThread:
    """A thread that runs trio, on a clock that can be advanced, until it is closed.

    Attributes:
        clock: the clock. Change it in the thread only.
        nursery: a nursery that is open as long as the thread runs.
    """

    nursery: trio.Nursery

    def __init__(self) -> None:
        self.clock: AdvancingClock = AdvancingClock()
        self._token: trio.lowlevel.TrioToken
        self._is_running = threading.Event()
        self._calls: set[Future[Any]] = set()
        self._has_ended = False
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="rocketmq-broker", daemon=True)
        self._thread.start()
        self._is_running.wait()

    def call(self, function: Callable[[], Awaitable[Result]]) -> Result:
        """Call an async function in the thread. Returns its result or raises its error.

        Raises ClosedError in a forked child, and if the thread has ended or ends before the function returns.
        """
        future: Future[Result] = Future()

        async def run_function() -> None:
            try:
                result = await function()
            except Exception as error:  # noqa: BLE001 - it is raised in the calling thread
                future.set_exception(error)
            except BaseException:
                future.set_exception(ClosedError("the broker is closed"))
                raise
            else:
                future.set_result(result)
            finally:
                self._calls.discard(future)

        with self._lock:
            if self._has_ended:
                raise ClosedError("the broker is closed")
            if not self._thread.is_alive():
                raise ClosedError("the broker runs in the parent process, which alone can use it")
            self._calls.add(future)
        try:
            self._token.run_sync_soon(self._start_task, run_function)
        except trio.RunFinishedError:
            raise ClosedError("the broker is closed") from None
        return future.result()

    def call_sync(self, function: Callable[[], Result]) -> Result:
        """Call a synchronous function in the thread. Returns its result or raises its error."""

        async def in_thread() -> Result:
            return function()

        return self.call(in_thread)

    def close(self) -> None:
        """Cancel all tasks of the thread, and end it."""
        with self._lock:
            if self._has_ended:
                return
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self._cancel)
        self._thread.join()

    def _start_task(self, function: Callable[[], Awaitable[None]]) -> None:
        if not self.nursery.cancel_scope.cancel_called:  # otherwise the end of the thread fails the call
            self.nursery.start_soon(function)

    def _cancel(self) -> None:
        self.nursery.cancel_scope.cancel()

    def _run(self) -> None:
        try:
            trio.run(self._main, clock=self.clock)
        finally:
            with self._lock:
                self._has_ended = True
            self._is_running.set()
            for future in list(self._calls):
                if not future.done():
                    future.set_exception(ClosedError("the broker is closed"))

    async def _main(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        async with trio.open_nursery() as self.nursery:
            self._is_running.set()
            await trio.sleep_forever()


_Result = TypeVar("_Result")


@takes_settings(BrokerConfig)
class TestCluster(Cluster, ObservableCluster):
    """Name servers and brokers in a thread of their own, for tests of programs of any kind.

    :func:`run_broker`, :func:`run_cluster` and the pytest fixtures ``rocketmq_broker`` and
    ``rocketmq_cluster`` create it. All methods may be called from any thread. Methods that inspect the
    cluster return at once, also on trio and asyncio. :meth:`wait_for` and :meth:`wait_until` block their
    thread. On trio and asyncio, await :meth:`wait_for_async` and :meth:`wait_until_async` instead.

    A fault affects all brokers and name servers, or only ``server``: the name of a broker (``broker-a``) or
    of a replica (``broker-a-1``), or the address of any server. It affects all clients, or only ``client``:
    an ``instance_name`` or a client id, which brokers know from heartbeats, or an address ``host:port``, as
    in :meth:`requests`. Name servers get no heartbeats and know clients by address only. A fault is active
    until its :meth:`~Fault.end`, :meth:`heal` or :meth:`reset`.

    Args:
        brokers: the number of brokers.
        name_servers: the number of name servers.
        replicas: whether each broker has a replica. See :func:`run_cluster`.
        topics: topics to create on each broker. See :func:`run_broker`.
        tls: an SSL context with a certificate; None for plain text, or the profile's certificate.
        **options: settings of each broker.

    Raises:
        ConfigurationError: a setting is unknown (the error suggests the nearest name) or out of its range.
    """

    __test__ = False  # tells pytest that this is not a test class

    def __init__(
        self,
        brokers: int = 1,
        name_servers: int = 1,
        *,
        replicas: bool = False,
        topics: Mapping[str, int] | Iterable[str] = (),
        tls: ssl.SSLContext | None = None,
        **options: Unpack[BrokerOptions],
    ) -> None:
        self._changes = _ChangeCounter()
        self._clock_offset = time.time() - time.monotonic()
        super().__init__(
            brokers,
            name_servers,
            hosts=itertools.repeat("127.0.0.1"),
            topics=topics,
            config=config_of(options),
            tls=tls,
            now_ms=self._now_ms,
            on_change=self._changes.increment,
            rng=random.Random(),
            replicas=replicas,
        )
        self._thread = ClusterThread()
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
        """Close all connections and ports, and end the thread."""
        self._thread.close()

    def name(self, name: str) -> str:
        """Return ``name``. On a real cluster (``--rocketmq-namesrv``), return one that no other test uses."""
        return name

    def reset(self) -> None:
        """Drop all messages, offsets, groups, requests and faults, and start again at the same addresses.

        All connections break, and clients connect again. The clock is not reset.
        """
        self._thread.call(self._reset)

    def crash(self, server: str | None = None, *, keep: CrashData = "all") -> None:
        """Stop all brokers, or one server, at once. Connections break, and locks are dropped.

        Args:
            server: a broker or a name server; None for all brokers.
            keep: the data after :meth:`restart`. ``"all"`` keeps everything stored, ``"flushed"`` the data at
                the last :meth:`flush` and the topics, and ``"nothing"`` keeps nothing.
        """
        self._thread.call(lambda: self._crash(server, keep))

    def restart(self, server: str | None = None) -> None:
        """Start all brokers, or one server, at the same address. Running ones are stopped first."""
        self._thread.call(lambda: self._restart(server))

    def advance(self, duration: float | str | datetime.timedelta) -> None:
        """Advance the clock of the brokers, and return when they have done everything that became due.

        Delayed messages, timed messages and retries are delivered, popped messages become visible, and open
        transactions are checked. Clients do not count as silent, and keep their locks. A periodic action,
        such as the check of a transaction, happens once. A reaction of a client, such as a retry that fails
        again, waits for the next call.

        Args:
            duration: seconds, a timedelta, or a string such as ``"1h 30m"``.

        Raises:
            ConfigurationError: the duration is invalid or negative.
        """
        seconds = to_seconds(duration)

        async def advance() -> None:
            self._thread.clock.advance(seconds)
            for process in (*self._brokers, *self._replicas):
                process.shift_clock(seconds)
            await trio.testing.wait_all_tasks_blocked()

        self._thread.call(advance)

    @property
    def _nursery(self) -> trio.Nursery:
        return self._thread.nursery

    def _call(self, function: Callable[[], _Result]) -> _Result:
        return self._thread.call_sync(function)

    def _now_ms(self) -> int:
        return int((self._clock_offset + self._thread.clock.current_time()) * 1000)

    def _change_count(self) -> int:
        return self._changes.count

    def _wait_for_change(self, count: int, seconds: float) -> None:
        self._changes.wait_beyond(count, seconds)


@takes_settings(BrokerConfig)
class TestBroker(TestCluster):
    """A :class:`TestCluster` of one name server and one broker.

    Args:
        topics: topics to create. See :func:`run_broker`.
        tls: an SSL context with a certificate; None for plain text, or the profile's certificate.
        **options: settings of the broker.

    Raises:
        ConfigurationError: a setting is unknown (the error suggests the nearest name) or out of its range.
    """

    def __init__(
        self,
        *,
        topics: Mapping[str, int] | Iterable[str] = (),
        tls: ssl.SSLContext | None = None,
        **options: Unpack[BrokerOptions],
    ) -> None:
        super().__init__(topics=topics, tls=tls, **options)

    @property
    def broker_address(self) -> str:
        """The broker's ``host:port``."""
        [address] = self.broker_addresses.values()
        return address


class _ChangeCounter:
    """Counts requests and stored messages, and wakes up threads that wait for one."""

    def __init__(self) -> None:
        self.count = 0
        self._changed = threading.Condition()

    def increment(self) -> None:
        with self._changed:
            self.count += 1
            self._changed.notify_all()

    def wait_beyond(self, count: int, seconds: float) -> None:
        """Wait until the count is higher than ``count``, for at most ``seconds``."""
        with self._changed:
            self._changed.wait_for(lambda: self.count > count, seconds)


@takes_settings(BrokerConfig)
@contextmanager
def run_broker(
    *,
    topics: Mapping[str, int] | Iterable[str] = (),
    tls: ssl.SSLContext | None = None,
    **options: Unpack[BrokerOptions],
) -> Iterator[TestBroker]:
    """Run a name server and a broker in a thread, on free ports of 127.0.0.1::

        with run_broker(topics=["Orders"]) as broker:
            subprocess.run(["my-program", "--namesrv", broker.name_server_address], check=True)
            [order] = broker.wait_for("Orders")

    Args:
        topics: topics to create, with four queues each, or as many as a mapping gives. ``"Orders:2:FIFO"``
            has two queues and the message type FIFO.
        tls: an SSL context with a certificate; None for plain text, or the profile's certificate.
        **options: settings of the broker. ``profile="alibaba-4"`` imitates a managed service. Pass clients
            :attr:`TestBroker.client_options` then.

    Raises:
        ConfigurationError: a setting is unknown (the error suggests the nearest name) or out of its range.
    """
    with TestBroker(topics=topics, tls=tls, **options) as broker:
        yield broker


@takes_settings(BrokerConfig)
@contextmanager
def run_cluster(
    brokers: int = 2,
    name_servers: int = 1,
    *,
    replicas: bool = False,
    topics: Mapping[str, int] | Iterable[str] = (),
    tls: ssl.SSLContext | None = None,
    **options: Unpack[BrokerOptions],
) -> Iterator[TestCluster]:
    """Run several name servers and brokers in a thread. All brokers have the topics.

    Args:
        brokers: the number of brokers.
        name_servers: the number of name servers.
        replicas: whether each broker has a replica, such as ``broker-a-1``. It has the data of its master
            without delay, and consumers read from it while the master is down.
        topics: topics to create on each broker. See :func:`run_broker`.
        tls: an SSL context with a certificate; None for plain text, or the profile's certificate.
        **options: settings of each broker.

    Raises:
        ConfigurationError: a setting is unknown (the error suggests the nearest name) or out of its range.
    """
    with TestCluster(brokers, name_servers, replicas=replicas, topics=topics, tls=tls, **options) as cluster:
        yield cluster
