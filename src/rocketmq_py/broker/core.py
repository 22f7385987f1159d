"""The broker's half: its parts, put together."""

from __future__ import annotations

import os
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import attrs
import trio

from rocketmq_py.address import pack_address, split_address
from rocketmq_py.broker.accounts import Accounts
from rocketmq_py.broker.administration import Administration
from rocketmq_py.broker.admission import Admission
from rocketmq_py.broker.assignment import Assignments
from rocketmq_py.broker.authentication import Authentication
from rocketmq_py.broker.config import BrokerConfig
from rocketmq_py.broker.consumption import Consumption
from rocketmq_py.broker.dispatch import Dispatch
from rocketmq_py.broker.filtering import SqlFilters
from rocketmq_py.broker.groups import Clients, ConsumerGroups, ProducerGroups
from rocketmq_py.broker.locks import QueueLocks
from rocketmq_py.broker.name_server import NameServer
from rocketmq_py.broker.offsets import OffsetRequests, OffsetTable
from rocketmq_py.broker.operating import Operating
from rocketmq_py.broker.plain_sending import PlainSending
from rocketmq_py.broker.pop import PopService
from rocketmq_py.broker.pulling import Pulling
from rocketmq_py.broker.queries import Queries
from rocketmq_py.broker.recalling import Recalling
from rocketmq_py.broker.relaying import Relaying
from rocketmq_py.broker.replying import Replying
from rocketmq_py.broker.resetting import Resetting
from rocketmq_py.broker.retrying import Retrying
from rocketmq_py.broker.schedule import Schedule
from rocketmq_py.broker.sending import Sending
from rocketmq_py.broker.store import MessageStore
from rocketmq_py.broker.subscription_groups import SubscriptionGroupTable
from rocketmq_py.broker.timers import Timers
from rocketmq_py.broker.topics import TopicConfig, TopicTable
from rocketmq_py.broker.transactions import Transactions
from rocketmq_py.protocol.message_id import UniqueIdGenerator
from rocketmq_py.remoting import Connection, SendHandler

REGISTER_SECONDS = 30.0
"""How often the broker tells the name server of its topics (registerNameServerPeriod)."""


class Broker:
    """All that a broker does once there are connections.

    A further feature is one more module: made in :meth:`open`, with its handlers in the table.

    Args:
        config: its settings.
        name_servers: returns those that are told of its topics.
        now_ms: the time for messages, epoch milliseconds.
        rng: chooses a queue where a sender leaves that to the broker.

    Attributes:
        dispatch: answers requests, once :meth:`open` has been called.
        tasks: must be under way for held pulls, delayed messages, open transactions and silent clients to
            be looked after.
        config: its own copy of its settings, which operators may change.
        send_handler: answers plain sends, and leaves to ``dispatch`` what is unusual in them; None before
            :meth:`open`, and where requests are checked.
        check: raises Refusal for a request that is not to be handled; None lets all of them in.
        store: what is stored, once :meth:`open` has been called; so are the next four.
        topics: the topics.
        subscription_groups: the settings of groups.
        offsets: the offsets of groups.
        locks: who consumes which queue in order.
    """

    store: MessageStore
    topics: TopicTable
    subscription_groups: SubscriptionGroupTable
    offsets: OffsetTable
    locks: QueueLocks

    def __init__(
        self,
        config: BrokerConfig,
        name_servers: Callable[[], Sequence[NameServer]],
        now_ms: Callable[[], int],
        rng: random.Random,
    ) -> None:
        config = attrs.evolve(config)  # its own: operators may change it
        self.config: BrokerConfig = config
        self._name_servers = name_servers
        self._address = ""
        self._now_ms = now_ms
        self._rng = rng
        self._born_hosts: dict[Connection, bytes] = {}
        self._on_closed: list[Callable[[Connection], None]] = []
        self._on_jump: list[Callable[[float], None]] = []
        accounts = Accounts(config.access_keys)
        self.check: Final = Authentication(accounts).check if config.access_keys else None
        self.dispatch: Dispatch = Dispatch(self.check)
        self.send_handler: SendHandler | None = None
        self.dispatch.add(accounts.handlers())
        self.tasks: list[Callable[[], Awaitable[None]]] = []

    def open(self, address: str) -> None:
        """Make everything ready, now that the broker's own address is known."""
        self._address = address
        config, packed = self.config, pack_address(address)
        store = MessageStore(
            packed,
            max_bytes=config.max_store_bytes,
            max_messages=config.max_store_messages,
            max_message_size=config.max_message_size,
            now_ms=self._now_ms,
        )
        topics = TopicTable(config, self._register_topic)
        subscription_groups = SubscriptionGroupTable(config)
        consumers = ConsumerGroups()
        offsets = OffsetTable()
        locks = QueueLocks()
        sql_filters = SqlFilters()
        self.store, self.topics, self.offsets, self.locks = store, topics, offsets, locks
        self.subscription_groups = subscription_groups
        timers = Timers(config, store, now_ms=self._now_ms)
        schedule = Schedule(config, store, timers)
        producers = ProducerGroups()
        clients = Clients(config, topics, subscription_groups, consumers, producers, sql_filters)
        broker_ip = split_address(address)[0]
        pulling = Pulling(
            config,
            store,
            topics,
            offsets,
            consumers,
            subscription_groups,
            sql_filters,
            broker_ip=broker_ip,
        )
        unique_ids = UniqueIdGenerator(
            packed[:-4], process_id=os.getpid, now_ms=self._now_ms, random=self._rng
        )
        admission = Admission(config, topics, broker_ip=broker_ip, rng=self._rng)
        transactions = Transactions(
            config, topics, store, schedule, producers, address=packed, now_ms=self._now_ms
        )
        sending = Sending(
            config,
            admission,
            topics,
            subscription_groups,
            locks,
            store,
            schedule,
            transactions,
            new_unique_id=unique_ids.next,
            born_host=self._born_host,
        )
        if self.check is None:
            self.send_handler = PlainSending(
                admission.marks, config.cluster_name, topics, store, born_host=self._born_host
            ).take
        replying = Replying(
            config,
            admission,
            producers,
            store,
            schedule,
            address=address,
            born_host=self._born_host,
            now_ms=self._now_ms,
        )
        recalling = Recalling(config, topics, schedule, born_host=self._born_host, now_ms=self._now_ms)
        retrying = Retrying(admission, topics, subscription_groups, store, schedule, rng=self._rng)
        pop = PopService(
            config,
            store,
            topics,
            subscription_groups,
            offsets,
            schedule,
            address=address,
            now_ms=self._now_ms,
            rng=self._rng,
        )
        administration = Administration(
            config,
            topics,
            subscription_groups,
            store,
            offsets,
            consumers,
            producers,
            locks,
            address=address,
            now_ms=self._now_ms,
        )
        for handlers in (
            sending.handlers(),
            transactions.handlers(),
            replying.handlers(),
            recalling.handlers(),
            pulling.handlers(),
            pop.handlers(),
            Relaying(config, consumers, store, topics, subscription_groups).handlers(),
            Resetting(config, store, topics, subscription_groups, offsets, consumers).handlers(),
            Consumption(
                config, topics, store, offsets, consumers, address=address, now_ms=self._now_ms
            ).handlers(),
            Operating(
                config, topics, subscription_groups, offsets, store, address=address, now_ms=self._now_ms
            ).handlers(),
            Assignments(config, topics, subscription_groups, consumers).handlers(),
            clients.handlers(),
            OffsetRequests(offsets, store, topics, subscription_groups).handlers(),
            Queries(store).handlers(),
            retrying.handlers(),
            administration.handlers(),
        ):
            self.dispatch.add(handlers)
        self._on_jump = [locks.jump, consumers.jump, producers.jump]
        self._on_closed += [clients.forget, pulling.held.drop, pop.forget]

        async def register_topics() -> None:
            while True:
                await trio.sleep(REGISTER_SECONDS)
                self.register()

        self.tasks += [
            schedule.run,
            timers.run,
            transactions.run,
            pulling.held.run,
            *pop.tasks,
            clients.drop_silent,
            register_topics,
        ]

    def forget(self, connection: Connection) -> None:
        """Forget a connection that has ended."""
        self._born_hosts.pop(connection, None)
        for forget in self._on_closed:
            forget(connection)

    def jump(self, seconds: float) -> None:
        """Note that trio's clock was put forward, for messages alone: no client has been silent meanwhile."""
        for jump in self._on_jump:
            jump(seconds)

    def register(self) -> None:
        """Tell the name servers of the topics that they do not know."""
        for name_server in self._name_servers():
            name_server.register_missing(self.config, self._address, self.topics)

    def _register_topic(self, topic: TopicConfig) -> None:
        for name_server in self._name_servers():
            name_server.register(self.config, self._address, [topic])

    def _born_host(self, connection: Connection) -> bytes:
        packed = self._born_hosts.get(connection)
        if packed is None:
            packed = self._born_hosts[connection] = connection.peer_packed
        return packed
