"""A replica: what clients read from while the master is away (Java: a broker of the role SLAVE)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import attrs
import trio

from rocketmq_py.broker.administration import Administration
from rocketmq_py.broker.broker import REGISTER_SECONDS, Broker
from rocketmq_py.broker.client_requests import ClientProcessor
from rocketmq_py.broker.consumption import Consumption
from rocketmq_py.broker.dispatch import Dispatcher, Refusal, RequestHandler
from rocketmq_py.broker.groups import ConsumerGroups, ProducerGroups
from rocketmq_py.broker.message_filters import SqlFilterTable
from rocketmq_py.broker.name_server import NameServer
from rocketmq_py.broker.offset_requests import OffsetProcessor
from rocketmq_py.broker.operating import Operating
from rocketmq_py.broker.pull_requests import PullProcessor
from rocketmq_py.broker.queries import Queries
from rocketmq_py.broker.queue_locks import QueueLocks
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
        state = attrs.evolve(
            master.state,
            address=address,
            broker_id=REPLICA_ID,
            locks=QueueLocks(),
            consumers=ConsumerGroups(),
            producers=ProducerGroups(),
            sql_filters=SqlFilterTable(),
        )
        config, store, topics, offsets = state.config, state.store, state.topics, state.offsets
        subscription_groups = state.subscription_groups
        consumers, producers, _sql_filters = state.consumers, state.producers, state.sql_filters
        self._clients = ClientProcessor(state)
        self._pulling = PullProcessor(state)
        handlers: dict[int, RequestHandler] = {}
        for part in (
            self._pulling,
            self._clients,
            OffsetProcessor(state),
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
        self.dispatch: Dispatcher = Dispatcher(master.check)
        self.dispatch.add(handlers)
        self.tasks: list[Callable[[], Awaitable[None]]] = [
            self._pulling.held_pulls.run,
            self._clients.close_silent_clients,
            self._register_at_times,
        ]

    def register(self) -> None:
        """Tell the name servers that it is there."""
        for name_server in self._name_servers():
            name_server.register(self.master.config, self._address, [], REPLICA_ID)

    def forget(self, connection: Connection) -> None:
        """Forget a connection that has ended."""
        self._clients.drop_connection(connection)
        self._pulling.held_pulls.drop_connection(connection)

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
