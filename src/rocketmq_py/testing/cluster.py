"""Brokers and name servers, and what goes wrong with them."""

from __future__ import annotations

import datetime
import math
from typing import Literal, TypeAlias, Unpack, get_args

from rocketmq_py.codes import ResponseCode
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.testing.clock import seconds_of
from rocketmq_py.testing.faults import (
    Aim,
    Fault,
    NetworkFault,
    Partition,
    RequestFault,
    Strike,
    Which,
    late,
    lose_answer,
    lose_request,
    refuse,
)
from rocketmq_py.testing.processes import BrokerProcess
from rocketmq_py.testing.requests import codes_of
from rocketmq_py.testing.servers import Servers

Keep: TypeAlias = Literal["all", "flushed", "nothing"]
"""What a broker still has when it comes back from a crash."""


class Cluster(Servers):
    """Name servers and brokers: what tests do with them.

    Faults strike all brokers and name servers, or those that ``server`` names (a broker by its name, its
    replica by that and ``-1``, each by its address), and all clients or one: by its ``instance_name`` or id,
    which brokers know from heartbeats, or by its address ``host:port``, as :meth:`requests` shows it.
    They end when they are told to, or with :meth:`heal`.

    Attributes:
        broker_names: the names of its brokers.
    """

    # Requests that go wrong

    def fail(
        self,
        request: int | str | None,
        *,
        code: int = ResponseCode.SYSTEM_BUSY,
        remark: str = "a test has it fail",
        **which: Unpack[Which],
    ) -> Fault:
        """Have requests answered with an error, and not done.

        Args:
            request: which: a RequestCode or its name, as for :meth:`requests`; None for all.
            code: the answer's ResponseCode.
            remark: what it says.
            which: those about one topic only, those of one client, and so on: see :class:`Which`.

        Raises:
            ConfigurationError: there is no such request or server, or ``times`` or ``code`` cannot be.
        """
        if not isinstance(code, int):
            raise ConfigurationError(f"code is {code!r}; expected a ResponseCode")
        return self._strike(refuse(code, remark), request, **which)

    def lose_answers(self, request: int | str | None, **which: Unpack[Which]) -> Fault:
        """Have requests done, and not answered. Arguments and errors are those of :meth:`fail`."""
        return self._strike(lose_answer, request, **which)

    def lose_requests(self, request: int | str | None, **which: Unpack[Which]) -> Fault:
        """Have requests neither done nor answered. Arguments and errors are those of :meth:`fail`."""
        return self._strike(lose_request, request, **which)

    def delay(
        self,
        request: int | str | None,
        duration: float | str | datetime.timedelta,
        **which: Unpack[Which],
    ) -> Fault:
        """Have requests done ``duration`` later, on the brokers' clock; else as :meth:`fail`.

        Those whose connection has ended until then are lost.
        """
        return self._strike(late(seconds_of(duration), self._nursery), request, **which)

    def _strike(
        self,
        strike: Strike,
        request: int | str | None,
        *,
        times: int | None = None,
        topic: str | None = None,
        client: str | None = None,
        server: str | None = None,
    ) -> Fault:
        if times is not None and times < 1:
            raise ConfigurationError(f"times is {times}; it must be 1 or more, or None")
        codes = None if request is None else codes_of(request)
        return self._add(RequestFault(self._aim(server, client), codes, topic, times, strike, self._end))

    # Networks that go wrong

    def freeze(self, server: str | None = None, *, client: str | None = None) -> Fault:
        """Have nothing get through to a broker or a name server, nor from it: until the fault is ended.

        Connections stay, new ones are taken; what was sent arrives then.
        """
        return self._add(NetworkFault(self._aim(server, client), self._end, latency=math.inf))

    def slow(
        self,
        *,
        latency: float = 0.0,
        bytes_per_second: float = math.inf,
        server: str | None = None,
        client: str | None = None,
    ) -> Fault:
        """Have bytes take longer, in both directions.

        Args:
            latency: seconds, on the brokers' clock, that each piece takes longer. The next one waits for it.
            bytes_per_second: how much gets through.
            server: of this broker or name server only.
            client: of this client only.
        """
        if latency < 0 or not bytes_per_second > 0:
            raise ConfigurationError(
                f"latency is {latency} and bytes_per_second {bytes_per_second}; they must not be negative"
            )
        aim = self._aim(server, client)
        return self._add(NetworkFault(aim, self._end, latency=latency, bytes_per_second=bytes_per_second))

    def slice(self, size: int = 1, *, server: str | None = None, client: str | None = None) -> Fault:
        """Have bytes come in pieces of ``size`` at the most: frames are cut anywhere."""
        if size < 1:
            raise ConfigurationError(f"size is {size}; it must be 1 or more")
        return self._add(NetworkFault(self._aim(server, client), self._end, size=size))

    def partition(self, one: str, other: str) -> Fault:
        """Have nothing get from one party to the other, nor back: until the fault is ended.

        A party is a broker, a name server, a client, or ``"clients"``, which is all of them. What was sent
        arrives in the end, unless its sender gave up.

        Raises ConfigurationError if neither is a broker or a name server.
        """
        if not {one, other} & self._server_names:
            raise ConfigurationError(f"neither {one!r} nor {other!r} is a broker or a name server here")
        return self._add(Partition(one, other, self._end))

    def cut(self, server: str | None = None, *, client: str | None = None) -> None:
        """Break connections, now; they can be made again."""

        def cut() -> None:
            for process in self._processes if server is None else self._chosen(server):
                process.cut(client)

        self._call(cut)

    def heal(self) -> None:
        """End all faults. What was crashed is not started again."""
        self._call(self._faults.clear)

    def flush(self, server: str | None = None) -> None:
        """Have brokers keep what they have now when they crash with ``keep="flushed"``."""

        def flush() -> None:
            for broker in self._chosen_brokers(server):
                broker.flush()

        self._call(flush)

    async def _crash(self, server: str | None, keep: Keep) -> None:
        if keep not in get_args(Keep):
            raise ConfigurationError(f"keep is {keep!r}; it must be one of {', '.join(get_args(Keep))}")
        for process in self._chosen(server):
            await process.stop()
            if keep == "nothing":
                process.wipe()
            elif keep == "flushed" and isinstance(process, BrokerProcess):
                process.lose_unflushed()

    async def _restart(self, server: str | None) -> None:
        for process in self._chosen(server):
            await process.stop()
            await process.start(self._nursery)
        for replica in self._replicas:
            if replica.is_running and replica.is_behind:
                await replica.stop()
                await replica.start(self._nursery)

    def _aim(self, server: str | None, client: str | None) -> Aim:
        if server is None:
            return Aim(None, client)
        return Aim(frozenset({name for one in self._chosen(server) for name in one.names}), client)

    def _add(self, fault: RequestFault | NetworkFault) -> Fault:
        self._call(lambda: self._faults.add(fault))
        return fault

    def _end(self, fault: Fault) -> None:
        self._call(lambda: self._faults.remove(fault))
