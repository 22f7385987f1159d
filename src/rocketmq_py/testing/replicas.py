"""Replicas of brokers: what is read from while their masters are away."""

from __future__ import annotations

from collections.abc import Sequence

import trio

from rocketmq_py.broker.dispatch import Dispatcher
from rocketmq_py.broker.replica import REPLICA_ID, Replica
from rocketmq_py.remoting import Connection
from rocketmq_py.testing.processes import BrokerProcess, NameServerProcess, RegisteredProcess, Surroundings


class ReplicaProcess(RegisteredProcess):
    """A broker's replica, which has at once what its master has.

    Args:
        master: the broker, which is started before it.
        name_servers: it registers at those that run.
    """

    def __init__(
        self,
        host: str,
        port: int,
        around: Surroundings,
        *,
        master: BrokerProcess,
        name_servers: Sequence[NameServerProcess],
    ) -> None:
        super().__init__(
            host,
            port,
            around,
            config=master.config,
            name_servers=name_servers,
            broker_id=REPLICA_ID,
        )
        self._master = master
        self._replica: Replica | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Its master's name with its id, and its address."""
        return (f"{self.config.broker_name}-{REPLICA_ID}", self.address)

    @property
    def is_behind(self) -> bool:
        """Whether its master has lost everything since it was started."""
        return self._replica is not None and self._replica.master is not self._master.broker

    @property
    def dispatch(self) -> Dispatcher:
        """What answers requests."""
        assert self._replica is not None
        return self._replica.dispatch

    def wipe(self) -> None:
        """Forget what it has; only while it is stopped."""
        self._replica = None
        self.requests.clear()

    def _begin(self, nursery: trio.Nursery) -> None:
        if self._replica is None or self.is_behind:
            self._replica = Replica(self._master.broker, self.address, self._name_servers)
        for task in self._replica.tasks:
            nursery.start_soon(task)
        self._replica.register()

    def _closed(self, connection: Connection) -> None:
        super()._closed(connection)
        if self._replica is not None:
            self._replica.drop_connection(connection)
