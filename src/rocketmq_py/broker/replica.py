"""A replica: consumers read from it while the master is down (Java: a broker with the role SLAVE)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import attrs

from rocketmq_py.broker.broker import COMMON_PROCESSORS, Broker
from rocketmq_py.broker.client_requests import ClientProcessor
from rocketmq_py.broker.dispatch import UNSET_REMARK, Dispatcher, Refusal, RequestHandler
from rocketmq_py.broker.groups import ConsumerGroups, ProducerGroups, QueueLocks
from rocketmq_py.broker.message_filters import SqlFilterTable
from rocketmq_py.broker.name_server import NameServer, register_periodically
from rocketmq_py.broker.pull_requests import PullProcessor
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.protocol.command import Command
from rocketmq_py.remoting import Connection

REPLICA_ID = 1
"""The broker id of a replica."""


class Replica:
    """A replica of a broker. It shares the messages, topics, group settings and offsets of its master.

    Replication therefore takes no time. Sends and pops are refused. So are changes of topics and groups, as
    by replicas of 4.9.7, because they would change the master. Consumers may commit offsets. The master has
    these offsets when it is up again.

    Args:
        master: the master, after its ``open``.
        address: the replica's own ``host:port``.
        name_servers: returns the name servers to register at.

    Attributes:
        master: the master.
        dispatch: answers requests.
        tasks: async functions that must be running. They answer held pulls, close silent clients, and
            register the replica.
    """

    def __init__(
        self, master: Broker, address: str, name_servers: Callable[[], Sequence[NameServer]]
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
        self._clients = ClientProcessor(state)
        self._pulls = PullProcessor(state)
        handlers = {**self._clients.handlers(), **self._pulls.handlers()}
        for processor in COMMON_PROCESSORS:
            handlers.update(processor(state).handlers())
        handlers.update(_REFUSING_HANDLERS)
        self.dispatch: Dispatcher = Dispatcher(master.check)
        self.dispatch.add(handlers)
        self.tasks: list[Callable[[], Awaitable[None]]] = [
            self._pulls.held_pulls.run,
            self._clients.close_silent_clients,
            partial(register_periodically, self.register),
        ]

    def register(self) -> None:
        """Register the replica at the name servers."""
        for name_server in self._name_servers():
            name_server.register(self.master.config, self._address, [], REPLICA_ID)

    def shift_clock(self, seconds: float) -> None:
        """Keep the age of heartbeats and locks after trio's clock was advanced by ``seconds``."""
        self._clients.shift_clock(seconds)

    def drop_connection(self, connection: Connection) -> None:
        """Drop the members and pulls of a closed connection."""
        self._clients.drop_connection(connection)
        self._pulls.held_pulls.drop_connection(connection)


def _refuse_send(connection: Connection, request: Command) -> None:
    raise Refusal(ResponseCode.SYSTEM_BUSY, "[REJECTREQUEST]system busy, start flow control for a while")


def _refuse_recall(connection: Connection, request: Command) -> None:
    raise Refusal(ResponseCode.SLAVE_NOT_AVAILABLE, "recall failed, broker service not available")


def _refuse_transaction_end(connection: Connection, request: Command) -> None:
    raise Refusal(ResponseCode.SLAVE_NOT_AVAILABLE, UNSET_REMARK)


def _refuse_change(connection: Connection, request: Command) -> None:
    raise Refusal(
        ResponseCode.SYSTEM_ERROR,
        "Can't modify topic or subscription group from slave broker, please execute it from master broker.",
    )


_REFUSING_HANDLERS: dict[int, RequestHandler] = {
    RequestCode.SEND_MESSAGE: _refuse_send,
    RequestCode.SEND_MESSAGE_V2: _refuse_send,
    RequestCode.SEND_BATCH_MESSAGE: _refuse_send,
    RequestCode.CONSUMER_SEND_MSG_BACK: _refuse_send,
    RequestCode.RECALL_MESSAGE: _refuse_recall,
    RequestCode.END_TRANSACTION: _refuse_transaction_end,
    RequestCode.UPDATE_AND_CREATE_TOPIC: _refuse_change,
    RequestCode.DELETE_TOPIC_IN_BROKER: _refuse_change,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: _refuse_change,
    RequestCode.DELETE_SUBSCRIPTIONGROUP: _refuse_change,
    RequestCode.UPDATE_BROKER_CONFIG: _refuse_change,
}
