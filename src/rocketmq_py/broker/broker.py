"""The broker's half: its parts, put together."""

from __future__ import annotations

import os
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import attrs
import trio

from rocketmq_py.broker.accounts import Accounts
from rocketmq_py.broker.administration import Administration
from rocketmq_py.broker.assignments import AssignmentProcessor
from rocketmq_py.broker.authentication import Authentication
from rocketmq_py.broker.client_requests import ClientProcessor
from rocketmq_py.broker.config import BrokerConfig
from rocketmq_py.broker.consumption import Consumption
from rocketmq_py.broker.dispatch import Dispatcher
from rocketmq_py.broker.forwarded_requests import ForwardingProcessor
from rocketmq_py.broker.name_server import NameServer
from rocketmq_py.broker.offset_requests import OffsetProcessor, OffsetResetProcessor
from rocketmq_py.broker.operating import Operating
from rocketmq_py.broker.pop.ack_requests import AckProcessor
from rocketmq_py.broker.pop.pop_requests import PopProcessor
from rocketmq_py.broker.pull_requests import PullProcessor
from rocketmq_py.broker.queries import Queries
from rocketmq_py.broker.sends.plain_sends import PlainSendHandler
from rocketmq_py.broker.sends.recall_requests import RecallProcessor
from rocketmq_py.broker.sends.reply_requests import ReplyProcessor
from rocketmq_py.broker.sends.send_back_requests import SendBackProcessor
from rocketmq_py.broker.sends.send_requests import SendProcessor, SendValidator
from rocketmq_py.broker.sends.transactions import TransactionProcessor
from rocketmq_py.broker.state import BrokerState
from rocketmq_py.broker.storage.delayed_delivery import MessageScheduler, TimerMessageStore
from rocketmq_py.broker.topics import TopicConfig
from rocketmq_py.protocol.message_id import UniqueIdGenerator
from rocketmq_py.remoting import Connection, SendHandler
from rocketmq_py.remoting.address import split_address

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

    state: BrokerState

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
        self._on_closed: list[Callable[[Connection], None]] = []
        self._on_jump: list[Callable[[float], None]] = []
        accounts = Accounts(config.access_keys)
        self.check: Final = Authentication(accounts).check if config.access_keys else None
        self.dispatch: Dispatcher = Dispatcher(self.check)
        self.send_handler: SendHandler | None = None
        self.dispatch.add(accounts.handlers())
        self.tasks: list[Callable[[], Awaitable[None]]] = []

    def open(self, address: str) -> None:
        """Make everything ready, now that the broker's own address is known."""
        self._address = address
        config = self.config
        self.state = state = BrokerState.create(
            config, address, self._now_ms, self._rng, self._register_topic
        )
        store, topics, offsets, locks = state.store, state.topics, state.offsets, state.locks
        consumers, producers, _sql_filters = state.consumers, state.producers, state.sql_filters
        subscription_groups = state.subscription_groups
        timers = TimerMessageStore(config, store, now_ms=self._now_ms)
        schedule = scheduler = MessageScheduler(config, store, timers)
        clients = ClientProcessor(state)
        split_address(address)[0]
        pulling = PullProcessor(state)
        unique_ids = UniqueIdGenerator(
            state.packed_address[:-4], process_id=os.getpid, now_ms=self._now_ms, random=self._rng
        )
        validator = SendValidator(state)
        transactions = TransactionProcessor(state, scheduler)
        sending = SendProcessor(state, validator, scheduler, transactions, new_unique_id=unique_ids.next)
        if self.check is None:
            self.send_handler = PlainSendHandler(state, validator).handle
        replying = ReplyProcessor(state, validator, scheduler)
        recalling = RecallProcessor(state, scheduler)
        retrying = SendBackProcessor(state, validator, scheduler)
        pop = PopProcessor(state, scheduler)
        ack = AckProcessor(state, pop.checkpoints, pop.ordered_pops, wake_when_free=pop.wake_when_free)
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
            ack.handlers(),
            ForwardingProcessor(state).handlers(),
            OffsetResetProcessor(state).handlers(),
            Consumption(
                config, topics, store, offsets, consumers, address=address, now_ms=self._now_ms
            ).handlers(),
            Operating(
                config, topics, subscription_groups, offsets, store, address=address, now_ms=self._now_ms
            ).handlers(),
            AssignmentProcessor(state).handlers(),
            clients.handlers(),
            OffsetProcessor(state).handlers(),
            Queries(store).handlers(),
            retrying.handlers(),
            administration.handlers(),
        ):
            self.dispatch.add(handlers)
        self._on_jump = [locks.shift_clock, consumers.shift_clock, producers.shift_clock]
        self._on_closed += [
            clients.drop_connection,
            pulling.held_pulls.drop_connection,
            pop.held_pops.drop_connection,
        ]

        async def register_topics() -> None:
            while True:
                await trio.sleep(REGISTER_SECONDS)
                self.register()

        self.tasks += [
            schedule.run,
            timers.run,
            transactions.run,
            pulling.held_pulls.run,
            pop.checkpoints.run,
            pop.held_pops.run,
            clients.close_silent_clients,
            register_topics,
        ]

    def forget(self, connection: Connection) -> None:
        """Forget a connection that has ended."""
        for forget in self._on_closed:
            forget(connection)

    def jump(self, seconds: float) -> None:
        """Note that trio's clock was put forward, for messages alone: no client has been silent meanwhile."""
        for jump in self._on_jump:
            jump(seconds)

    def register(self) -> None:
        """Tell the name servers of the topics that they do not know."""
        for name_server in self._name_servers():
            name_server.register_missing(self.config, self._address, self.state.topics)

    def _register_topic(self, topic: TopicConfig) -> None:
        for name_server in self._name_servers():
            name_server.register(self.config, self._address, [topic])
