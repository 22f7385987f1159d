"""A replica: what clients read from while the master is away (Java: a broker of the role SLAVE)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import trio

from rocketmq_py.address import split_address
from rocketmq_py.broker.administration import Administration
from rocketmq_py.broker.consumption import Consumption
from rocketmq_py.broker.core import REGISTER_SECONDS, Broker
from rocketmq_py.broker.dispatch import Dispatch, Refusal, RequestHandler
from rocketmq_py.broker.filtering import SqlFilters
from rocketmq_py.broker.groups import Clients, ConsumerGroups, ProducerGroups
from rocketmq_py.broker.locks import QueueLocks
from rocketmq_py.broker.name_server import NameServer
from rocketmq_py.broker.offsets import OffsetRequests
from rocketmq_py.broker.operating import Operating
from rocketmq_py.broker.pulling import Pulling
from rocketmq_py.broker.queries import Queries
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.protocol.command import Command
from rocketmq_py.remoting import Connection

REPLICA_ID = 1
"""Its broker id."""


class Replica:
    """Answers what reads, from what the master has.

    Replication takes no time: messages, topics, settings of groups and offsets are the master's own. As on
    real replicas, nothing is sent to it, no topic or group is made by it, and nothing is popped from it; who
    consumes may commit offsets, which here the master knows when it is back.

    Args:
        master: the broker, once its ``open`` has been called.
        address: the replica's own ``host:port``.
        name_servers: returns those that are told of it.
        now_ms: the time, epoch milliseconds.

    Attributes:
        master: as given.
        dispatch: answers requests.
        tasks: must be under way for held pulls and silent clients to be looked after.
    """

    def __init__(
        self,
        master: Broker,
        address: str,
        name_servers: Callable[[], Sequence[NameServer]],
        now_ms: Callable[[], int],
    ) -> None:
        self.master = master
        self._address = address
        self._name_servers = name_servers
        config, store, topics, offsets = master.config, master.store, master.topics, master.offsets
        subscription_groups = master.subscription_groups
        consumers, producers, sql_filters = ConsumerGroups(), ProducerGroups(), SqlFilters()
        self._clients = Clients(config, topics, subscription_groups, consumers, producers, sql_filters)
        self._pulling = Pulling(
            config,
            store,
            topics,
            offsets,
            consumers,
            subscription_groups,
            sql_filters,
            broker_ip=split_address(address)[0],
        )
        handlers: dict[int, RequestHandler] = {}
        for part in (
            self._pulling,
            self._clients,
            OffsetRequests(offsets, store, topics, subscription_groups),
            Queries(store),
            Consumption(config, topics, store, offsets, consumers, address=address, now_ms=now_ms),
            Administration(
                config,
                topics,
                subscription_groups,
                store,
                offsets,
                consumers,
                producers,
                QueueLocks(),
                address=address,
                now_ms=now_ms,
            ),
            Operating(
                config,
                topics,
                subscription_groups,
                offsets,
                store,
                address=address,
                now_ms=now_ms,
                broker_id=REPLICA_ID,
            ),
        ):
            handlers.update(part.handlers())
        handlers.update(_REFUSED)
        self.dispatch: Dispatch = Dispatch(master.check)
        self.dispatch.add(handlers)
        self.tasks: list[Callable[[], Awaitable[None]]] = [
            self._pulling.held.run,
            self._clients.drop_silent,
            self._register_at_times,
        ]

    def register(self) -> None:
        """Tell the name servers that it is there."""
        for name_server in self._name_servers():
            name_server.register(self.master.config, self._address, [], REPLICA_ID)

    def forget(self, connection: Connection) -> None:
        """Forget a connection that has ended."""
        self._clients.forget(connection)
        self._pulling.held.drop(connection)

    async def _register_at_times(self) -> None:
        while True:
            await trio.sleep(REGISTER_SECONDS)
            self.register()


def _refuse_message(connection: Connection, request: Command) -> None:
    raise Refusal(
        ResponseCode.SERVICE_NOT_AVAILABLE,
        "service not available now. It may be caused by one of the following reasons: the broker's disk is"
        " full, messages are put to the slave, message store has been shut down, etc.",
    )


def _refuse_change(connection: Connection, request: Command) -> None:
    raise Refusal(
        ResponseCode.SYSTEM_ERROR,
        "Can't modify topic or subscription group from slave broker, please execute it from master broker.",
    )


_REFUSED: dict[int, RequestHandler] = {
    **dict.fromkeys(
        (
            RequestCode.SEND_MESSAGE,
            RequestCode.SEND_MESSAGE_V2,
            RequestCode.SEND_BATCH_MESSAGE,
            RequestCode.CONSUMER_SEND_MSG_BACK,
            RequestCode.END_TRANSACTION,
            RequestCode.RECALL_MESSAGE,
        ),
        _refuse_message,
    ),
    **dict.fromkeys(
        (
            RequestCode.UPDATE_AND_CREATE_TOPIC,
            RequestCode.DELETE_TOPIC_IN_BROKER,
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
            RequestCode.DELETE_SUBSCRIPTIONGROUP,
            RequestCode.UPDATE_BROKER_CONFIG,
        ),
        _refuse_change,
    ),
}
