"""Replicas of brokers in a test cluster. Consumers read from them while their masters are down."""

from __future__ import annotations

from collections.abc import Sequence

import trio

from rocketmq_py.broker.dispatch import Dispatcher
from rocketmq_py.broker.replica import REPLICA_ID, Replica
from rocketmq_py.remoting import Connection
from rocketmq_py.testing.cluster_servers import (
    BrokerProcess,
    ClusterContext,
    NameServerProcess,
    RegisteredProcess,
)


class ReplicaProcess(RegisteredProcess):
    """The replica of a broker. It has the data of its master without delay.

    Args:
        master: the broker, which is started first.
        name_servers: the name servers. It registers at those that are running.
    """

    def __init__(
        self,
        host: str,
        port: int,
        context: ClusterContext,
        *,
        master: BrokerProcess,
        name_servers: Sequence[NameServerProcess],
    ) -> None:
        super().__init__(
            host,
            port,
            context,
            config=master.config,
            name_servers=name_servers,
            broker_id=REPLICA_ID,
        )
        self._master = master
        self._replica: Replica | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The master's name with the replica's id, and the replica's address."""
        return (f"{self.config.broker_name}-{REPLICA_ID}", self.address)

    @property
    def is_stale(self) -> bool:
        """Whether the master has been started again without the replica's data.

        The replica has its data until then.
        """
        return (
            self._replica is not None
            and self._replica.master is not self._master.broker
            and self._master.is_running
        )

    @property
    def dispatch(self) -> Dispatcher:
        """Answers requests."""
        assert self._replica is not None
        return self._replica.dispatch

    def wipe(self) -> None:
        """Drop all state. Only allowed while the replica is stopped."""
        self._replica = None
        self.requests.clear()

    def shift_clock(self, seconds: float) -> None:
        """Keep the age of heartbeats and locks after trio's clock was advanced by ``seconds``."""
        if self._replica is not None:
            self._replica.shift_clock(seconds)

    def _on_started(self, nursery: trio.Nursery) -> None:
        if self._replica is None or self.is_stale:
            self._replica = Replica(self._master.broker, self.address, self._name_servers)
        for task in self._replica.tasks:
            nursery.start_soon(task)
        self._replica.register()

    def _on_closed(self, connection: Connection) -> None:
        super()._on_closed(connection)
        if self._replica is not None:
            self._replica.drop_connection(connection)
