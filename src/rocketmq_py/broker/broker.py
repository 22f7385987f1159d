"""A broker without its sockets: the processors of all requests, and their background tasks."""

from __future__ import annotations

import os
import random
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

import attrs

from rocketmq_py.broker.admin.access_control import AccessControl
from rocketmq_py.broker.admin.broker_info import BrokerInfoProcessor
from rocketmq_py.broker.admin.consume_stats import ConsumeStatsProcessor
from rocketmq_py.broker.admin.group_requests import GroupProcessor
from rocketmq_py.broker.admin.topic_requests import TopicProcessor
from rocketmq_py.broker.assignments import AssignmentProcessor
from rocketmq_py.broker.client_requests import ClientProcessor
from rocketmq_py.broker.config import BrokerConfig
from rocketmq_py.broker.dispatch import Dispatcher
from rocketmq_py.broker.forwarded_requests import ForwardingProcessor
from rocketmq_py.broker.lite.info_requests import LiteInfoProcessor
from rocketmq_py.broker.lite.lite_expiry import LiteExpiry
from rocketmq_py.broker.lite.lite_requests import LiteAcks, LitePopProcessor
from rocketmq_py.broker.name_server import NameServer, register_periodically
from rocketmq_py.broker.offset_requests import OffsetProcessor, OffsetResetProcessor
from rocketmq_py.broker.pop.ack_requests import AckProcessor
from rocketmq_py.broker.pop.pop_requests import PopProcessor
from rocketmq_py.broker.profile_rules import ProfileRules, access_keys_of
from rocketmq_py.broker.pull_requests import PullProcessor
from rocketmq_py.broker.query_requests import QueryProcessor
from rocketmq_py.broker.sends.recall_requests import RecallProcessor
from rocketmq_py.broker.sends.reply_requests import ReplyProcessor
from rocketmq_py.broker.sends.send_back_requests import SendBackProcessor
from rocketmq_py.broker.sends.send_requests import SendProcessor, SendValidator
from rocketmq_py.broker.sends.transactions import TransactionProcessor
from rocketmq_py.broker.state import BrokerState
from rocketmq_py.broker.storage.delayed_delivery import MessageScheduler, TimerMessageStore
from rocketmq_py.broker.topics import TopicConfig
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.message_id import UniqueIdGenerator
from rocketmq_py.remoting import Connection

COMMON_PROCESSORS = (
    OffsetProcessor,
    QueryProcessor,
    TopicProcessor,
    GroupProcessor,
    ConsumeStatsProcessor,
    BrokerInfoProcessor,
)
"""The processors that masters and replicas have, and that need only the broker's state."""


class Broker:
    """A broker, a master. Java: ``BrokerController``.

    To add a request, write a processor, which maps request codes to handlers, and create it in :meth:`open`.

    Args:
        config: the settings. The broker uses a copy, because operators may change it.
        name_servers: returns the name servers to register at.
        now_ms: the clock of messages, epoch milliseconds.
        rng: chooses queues that clients leave to the broker.

    Attributes:
        config: the broker's copy of the settings.
        state: the broker's tables, after :meth:`open`.
        transactions: the transactions, after :meth:`open`.
        dispatch: answers requests, after :meth:`open`.
        check: authenticates requests, and applies the rules of a profile. None if ``config`` has neither
            access keys nor a profile. Raises Refusal.
        tasks: functions to run as background tasks, after :meth:`open`. They answer held pulls and pops,
            deliver delayed messages, redeliver popped messages, check transactions, and close the
            connections of silent clients.
    """

    state: BrokerState
    transactions: TransactionProcessor

    def __init__(
        self,
        config: BrokerConfig,
        name_servers: Callable[[], Sequence[NameServer]],
        now_ms: Callable[[], int],
        rng: random.Random,
    ) -> None:
        self.config: BrokerConfig = _with_profile(config)
        self._name_servers = name_servers
        self._address = ""
        self._now_ms = now_ms
        self._rng = rng
        self._on_connection_closed: list[Callable[[Connection], None]] = []
        self._on_clock_shifted: list[Callable[[float], None]] = []
        access_control = AccessControl(self.config.access_keys)
        self.check: Final = self._make_check(access_control)
        self.dispatch: Dispatcher = Dispatcher(self.check)
        self.dispatch.add(access_control.handlers())
        self.tasks: list[Callable[[], Awaitable[None]]] = []

    def open(self, address: str) -> None:
        """Create the state and the processors.

        Args:
            address: the broker's own ``host:port``.
        """
        self._address = address
        self.state = state = BrokerState.create(
            self.config, address, self._now_ms, self._rng, self._register_topic
        )
        if self.config.profile is not None:
            state.topics.put(TopicConfig(self.config.profile.trace_topic.value, 1, 1))
        timers = TimerMessageStore(state.config, state.store, now_ms=state.now_ms)
        scheduler = MessageScheduler(state.config, state.store, timers)
        self.tasks += [timers.run, scheduler.run, partial(register_periodically, self.register)]
        self._add_consumer_processors(state, scheduler)
        self._add_send_processors(state, scheduler)
        for processor in (*COMMON_PROCESSORS, ForwardingProcessor, OffsetResetProcessor):
            self.dispatch.add(processor(state).handlers())
        self.dispatch.add(AssignmentProcessor(state, self._name_servers).handlers())

    def _make_check(self, access_control: AccessControl) -> Callable[[Command], None] | None:
        if self.config.profile is not None:
            return ProfileRules(self.config.profile, access_control, self._find_topic, self._now_ms).check
        return access_control.authenticate if access_control.is_enabled else None

    def _find_topic(self, name: str) -> TopicConfig | None:
        return self.state.topics.get(name)

    def _add_send_processors(self, state: BrokerState, scheduler: MessageScheduler) -> None:
        validator = SendValidator(state)
        self.transactions = transactions = TransactionProcessor(state, scheduler)
        unique_ids = UniqueIdGenerator(
            state.packed_address[:-4], process_id=os.getpid, now_ms=state.now_ms, random=state.rng
        )
        for processor in (
            SendProcessor(state, validator, scheduler, transactions, unique_ids),
            ReplyProcessor(state, validator, scheduler),
            SendBackProcessor(state, validator, scheduler),
            RecallProcessor(state, scheduler),
            transactions,
        ):
            self.dispatch.add(processor.handlers())
        self.tasks.append(transactions.run)

    def _add_consumer_processors(self, state: BrokerState, scheduler: MessageScheduler) -> None:
        clients = ClientProcessor(state)
        pulls = PullProcessor(state)
        pops = PopProcessor(state, scheduler)
        lite = LitePopProcessor(state)
        acks = AckProcessor(state, pops, LiteAcks(state, lite))
        for processor in (clients, pulls, pops, lite, acks, LiteInfoProcessor(state, lite)):
            self.dispatch.add(processor.handlers())
        self.tasks += [
            clients.close_silent_clients,
            pulls.held_pulls.run,
            pops.held_pops.run,
            pops.checkpoints.run,
            lite.dispatcher.run,
            lite.subscriptions.forget_silent_clients,
            LiteExpiry(state).run,
        ]
        self._on_clock_shifted += [clients.shift_clock, lite.shift_clock]
        self._on_connection_closed += [
            clients.drop_connection,
            pulls.held_pulls.drop_connection,
            pops.held_pops.drop_connection,
            lite.dispatcher.drop_connection,
        ]

    def drop_connection(self, connection: Connection) -> None:
        """Drop the members, pulls and pops of a closed connection."""
        for drop in self._on_connection_closed:
            drop(connection)

    def shift_clock(self, seconds: float) -> None:
        """Keep the age of heartbeats, locks and subscriptions after trio's clock was advanced by ``seconds``.

        A test that advances the clock lets time pass for messages, not for clients.
        """
        for shift in self._on_clock_shifted:
            shift(seconds)

    def register(self) -> None:
        """Register topics at the name servers that do not have them in their present form."""
        for name_server in self._name_servers():
            name_server.register_changed(self.config, self._address, self.state.topics)

    def _register_topic(self, topic: TopicConfig) -> None:
        for name_server in self._name_servers():
            name_server.register(self.config, self._address, [topic])


def _with_profile(config: BrokerConfig) -> BrokerConfig:
    """Return a copy of the settings, with those that the profile determines."""
    profile = config.profile
    if profile is None:
        return attrs.evolve(config)
    return attrs.evolve(
        config,
        access_keys=access_keys_of(config),
        auto_create_topic_enable=False,
        max_message_size=profile.sizes.value.body,
        timer_max_delay_sec=profile.delays.value.max_seconds,
    )
