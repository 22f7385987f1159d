"""A test cluster with a clock that tests advance, and faults: of requests, networks and whole servers."""

from __future__ import annotations

import datetime
import math
import time
from typing import Literal, TypeAlias, Unpack, get_args

import trio

from rocketmq_py.arguments import (
    Duration,
    check_above_zero,
    check_integer,
    check_not_negative,
    optional,
    parse_duration,
    seconds,
)
from rocketmq_py.codes import ResponseCode
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.testing.base_cluster import BaseCluster
from rocketmq_py.testing.cluster_servers import BrokerProcess
from rocketmq_py.testing.faults import (
    Fault,
    FaultAction,
    FaultTarget,
    NetworkFault,
    Partition,
    RequestFault,
    RequestSelection,
    delay,
    lose_answer,
    lose_request,
    refuse,
)
from rocketmq_py.testing.requests import codes_of


class AdvancingClock(trio.abc.Clock):
    """A trio clock that runs in real time and can be advanced. Advance it in the trio run.

    Its time is that of ``time.monotonic`` plus the advances. A constant offset therefore converts it to the
    wall clock, which trio's MockClock does not allow.
    """

    def __init__(self) -> None:
        self._advanced = 0.0

    def start_clock(self) -> None:
        """Do nothing: ``time.monotonic`` always runs."""

    def current_time(self) -> float:
        """Return the time in seconds."""
        return time.monotonic() + self._advanced

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Return the real seconds until ``deadline``."""
        return deadline - self.current_time()

    def advance(self, seconds: float) -> None:
        """Advance the clock."""
        self._advanced += seconds


def to_seconds(duration: float | str | datetime.timedelta) -> float:
    """Convert a duration to seconds: a number of seconds, a timedelta, or a string such as ``"1h 30m"``.

    Raises ConfigurationError for other values and for negative durations.
    """
    if isinstance(duration, datetime.timedelta):
        seconds = duration.total_seconds()
    elif isinstance(duration, str):
        try:
            seconds = parse_duration(duration.strip(), bare_unit=None)
        except ValueError as error:
            raise ConfigurationError(str(error)) from None
    elif isinstance(duration, (int, float)):
        seconds = duration
    else:
        raise ConfigurationError(
            f"the duration is {duration!r}; expected seconds, a timedelta, or a string such as '1h 30m'"
        )
    if not 0 <= seconds < math.inf:
        raise ConfigurationError(f"the duration is {duration}; it must be 0 or more, and finite")
    return seconds


CrashData: TypeAlias = Literal["all", "flushed", "nothing"]
"""The data that a broker has after a crash."""


class Cluster(BaseCluster):
    """Name servers and brokers, in which tests inject faults.

    :class:`TestCluster` documents the arguments ``server`` and ``client``. A fault is active until its
    :meth:`~Fault.end`, or :meth:`heal`.
    """

    # Faults of requests

    def fail(
        self,
        request: int | str | None,
        *,
        code: int = ResponseCode.SYSTEM_BUSY,
        remark: str = "failed by a test",
        **selection: Unpack[RequestSelection],
    ) -> Fault:
        """Answer requests with an error, without handling them.

        Args:
            request: a RequestCode or a name, as for :meth:`requests`; None for all requests.
            code: the ResponseCode of the answer.
            remark: the remark of the answer.
            selection: affect only some of these requests: ``times``, ``topic``, ``client`` and ``server``.
                See :class:`RequestSelection`.

        Raises:
            ConfigurationError: the request or the server is unknown, or ``times`` or ``code`` is invalid.
        """
        if not isinstance(code, int):
            raise ConfigurationError(f"code is {code!r}; expected a ResponseCode")
        return self._add_request_fault(refuse(code, remark), request, **selection)

    def lose_answers(self, request: int | str | None, **selection: Unpack[RequestSelection]) -> Fault:
        """Handle requests, but lose their answers. Arguments and errors are those of :meth:`fail`."""
        return self._add_request_fault(lose_answer, request, **selection)

    def lose_requests(self, request: int | str | None, **selection: Unpack[RequestSelection]) -> Fault:
        """Neither handle nor answer requests. Arguments and errors are those of :meth:`fail`."""
        return self._add_request_fault(lose_request, request, **selection)

    def delay(
        self,
        request: int | str | None,
        duration: float | str | datetime.timedelta,
        **selection: Unpack[RequestSelection],
    ) -> Fault:
        """Handle requests ``duration`` later, on the brokers' clock.

        Requests whose connection has been closed by then are lost. Other arguments and errors are those of
        :meth:`fail`.
        """
        return self._add_request_fault(delay(to_seconds(duration), self._nursery), request, **selection)

    def _add_request_fault(
        self,
        action: FaultAction,
        request: int | str | None,
        *,
        times: int | None = None,
        topic: str | None = None,
        client: str | None = None,
        server: str | None = None,
    ) -> Fault:
        optional(check_integer, times, "times", lowest=1)
        codes = None if request is None else codes_of(request)
        target = self._target(server, client)
        return self._add(RequestFault(target, codes, topic, times, action, self._end_fault))

    # Faults of networks

    def freeze(self, server: str | None = None, *, client: str | None = None) -> Fault:
        """Hold up all bytes to and from servers until the fault ends.

        Connections stay open, and new ones are accepted. The bytes arrive when the fault ends, even if the
        client has closed its connection by then.
        """
        return self._add(NetworkFault(self._target(server, client), self._end_fault, latency=math.inf))

    def slow(
        self,
        *,
        latency: Duration = 0.0,
        bytes_per_second: float = math.inf,
        server: str | None = None,
        client: str | None = None,
    ) -> Fault:
        """Slow down the bytes in both directions.

        Args:
            latency: seconds, on the brokers' clock, by which each piece is delayed. The next one waits for
                it.
            bytes_per_second: the throughput.
            server: affect this broker or name server only.
            client: affect this client only.
        """
        latency = check_not_negative(seconds(latency), "latency")
        check_above_zero(bytes_per_second, "bytes_per_second")
        target = self._target(server, client)
        fault = NetworkFault(target, self._end_fault, latency=latency, bytes_per_second=bytes_per_second)
        return self._add(fault)

    def slice(self, size: int = 1, *, server: str | None = None, client: str | None = None) -> Fault:
        """Deliver bytes in pieces of at most ``size``, so that frames are cut at any byte."""
        check_integer(size, "size", lowest=1)
        return self._add(NetworkFault(self._target(server, client), self._end_fault, max_size=size))

    def partition(self, one: str, other: str) -> Fault:
        """Hold up all bytes between two parties until the fault ends.

        A party is a broker, a replica, a name server, a client, or ``"clients"`` for all clients. As with
        :meth:`freeze`, the bytes arrive when the fault ends.

        Raises ConfigurationError if neither party is a server, or both are the same.
        """
        if one == other:
            raise ConfigurationError(f"both parties are {one!r}; they must differ")
        if not {one, other} & self._server_names:
            raise ConfigurationError(f"neither {one!r} nor {other!r} is a broker or name server here")
        return self._add(Partition(one, other, self._end_fault))

    def cut(self, server: str | None = None, *, client: str | None = None) -> None:
        """Break connections now. Clients can connect again at once.

        A connection over which no request has arrived yet stays open.
        """

        def cut() -> None:
            for process in self._processes if server is None else self._find_processes(server):
                process.cut(client)

        self._call(cut)

    def heal(self) -> None:
        """End all faults. Crashed servers stay down."""
        self._call(self._faults.clear)

    # Crashes

    def flush(self, server: str | None = None) -> None:
        """Mark the present data of all brokers, or of one, as flushed. ``crash(keep="flushed")`` keeps it.

        Raises ConfigurationError if ``server`` is not a broker.
        """

        def flush() -> None:
            for broker in self._find_brokers(server):
                broker.flush()

        self._call(flush)

    # TestCluster and the simulation declare ``crash`` and ``restart``, as plain and async methods.

    async def _crash(self, server: str | None, keep: CrashData) -> None:
        if keep not in get_args(CrashData):
            raise ConfigurationError(f"keep is {keep!r}; it must be one of {', '.join(get_args(CrashData))}")
        with trio.CancelScope(shield=True):  # a cancelled crash would leave a part of the servers running
            for process in self._find_processes(server):
                await process.stop()
                if keep == "nothing":
                    process.wipe()
                elif keep == "flushed" and isinstance(process, BrokerProcess):
                    process.lose_unflushed()

    async def _restart(self, server: str | None) -> None:
        with trio.CancelScope(shield=True):  # a cancelled restart would leave servers stopped
            for process in self._find_processes(server):
                await process.stop()
                await process.start(self._nursery)
            for replica in self._replicas:
                if replica.is_running and replica.is_stale:
                    await replica.stop()
                    await replica.start(self._nursery)

    # Active faults

    def _target(self, server: str | None, client: str | None) -> FaultTarget:
        if server is None:
            return FaultTarget(None, client)
        names = [name for process in self._find_processes(server) for name in process.names]
        return FaultTarget(frozenset(names), client)

    def _add(self, fault: RequestFault | NetworkFault) -> Fault:
        self._call(lambda: self._faults.add(fault))
        return fault

    def _end_fault(self, fault: Fault) -> None:
        self._call(lambda: self._faults.remove(fault))
