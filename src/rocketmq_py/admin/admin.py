"""Administration of a cluster. Java: ``DefaultMQAdminExt``."""

from __future__ import annotations

import random
from typing import Unpack

from rocketmq_py.admin.access import Access
from rocketmq_py.admin.brokers import Brokers
from rocketmq_py.admin.clients import Clients
from rocketmq_py.admin.dead_letters import DeadLetterQueues
from rocketmq_py.admin.groups import Groups
from rocketmq_py.admin.messages import Messages
from rocketmq_py.admin.name_servers import NameServers
from rocketmq_py.admin.offsets import Offsets
from rocketmq_py.admin.topics import Topics
from rocketmq_py.client import Client, ClientOptions
from rocketmq_py.client.member import Member


class Admin(Member):
    """What an operator does with a cluster of 4.x or 5.x brokers. Java: ``DefaultMQAdminExt``.

    ::

        async with Admin("127.0.0.1:9876") as admin:
            await admin.topics.create("Orders", queues=8)
            print(await admin.topics.describe("Orders"))

    Brokers are asked side by side. What one of them does not answer is in ``failures`` of what is returned,
    beside what the others did; a change that not all brokers made raises SomeBrokersFailedError, which names
    those that did. What a broker's version cannot do is an UnsupportedByBrokerError. A cancellation leaves
    what the brokers have done until then.

    Topics and groups are named as the user knows them, where there is a namespace.

    Args:
        client: name servers as ``host:port;host:port`` (None reads NAMESRV_ADDR, else 127.0.0.1:9876), or
            an open client to share.
        rng: the source of randomness, for tests that replay a run.
        **options: the fields of ClientConfig, unless a client is shared.

    Raises:
        ConfigurationError: an option is unknown or outside of what is allowed.

    Attributes:
        topics: what there is of topics, and making, changing and deleting them.
        groups: who is in groups and how far they have come, and making, changing and deleting them.
        offsets: where groups go on.
        messages: finding them, what groups and clients did with them, having a member consume one.
        dead_letters: what groups have given up, and sending it again.
        clients: who is online, and how they are doing.
        brokers: how brokers are doing, their settings, and whether producers send to them.
        name_servers: their settings.
        access: users, and what they may do.
    """

    def __init__(
        self,
        client: str | Client | None = None,
        *,
        rng: random.Random | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        super().__init__(client, rng, dict(options))
        self.topics = Topics(self._opened)
        self.groups = Groups(self._opened)
        self.offsets = Offsets(self._opened)
        self.messages = Messages(self._opened)
        self.dead_letters = DeadLetterQueues(self._opened)
        self.clients = Clients(self._opened)
        self.brokers = Brokers(self._opened)
        self.name_servers = NameServers(self._opened)
        self.access = Access(self._opened)

    def _opened(self) -> Client:
        self._check_open()
        return self.client
