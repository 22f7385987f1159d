"""Administration of a cluster. Java: ``DefaultMQAdminExt``."""

from __future__ import annotations

import random
from functools import cached_property
from typing import TYPE_CHECKING, Unpack

from rocketmq_py.client import Client, ClientOptions
from rocketmq_py.client.member import Member

if TYPE_CHECKING:
    from rocketmq_py.admin.access import Access
    from rocketmq_py.admin.brokers import Brokers
    from rocketmq_py.admin.clients import Clients
    from rocketmq_py.admin.dead_letters import DeadLetterQueues
    from rocketmq_py.admin.groups import Groups
    from rocketmq_py.admin.messages import Messages
    from rocketmq_py.admin.name_servers import NameServers
    from rocketmq_py.admin.offsets import Offsets
    from rocketmq_py.admin.topics import Topics


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
    """

    def __init__(
        self,
        client: str | Client | None = None,
        *,
        rng: random.Random | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        super().__init__(client, rng, dict(options))

    # Each is loaded when it is asked for: a command that lists topics has no use for the others.

    @cached_property
    def topics(self) -> Topics:
        """What there is of topics, and making, changing and deleting them."""
        from rocketmq_py.admin.topics import Topics

        return Topics(self._opened)

    @cached_property
    def groups(self) -> Groups:
        """Who is in groups and how far they have come, and making, changing and deleting them."""
        from rocketmq_py.admin.groups import Groups

        return Groups(self._opened)

    @cached_property
    def offsets(self) -> Offsets:
        """Where groups go on."""
        from rocketmq_py.admin.offsets import Offsets

        return Offsets(self._opened)

    @cached_property
    def messages(self) -> Messages:
        """Finding them, what groups and clients did with them, having a member consume one."""
        from rocketmq_py.admin.messages import Messages

        return Messages(self._opened)

    @cached_property
    def dead_letters(self) -> DeadLetterQueues:
        """What groups have given up, and sending it again."""
        from rocketmq_py.admin.dead_letters import DeadLetterQueues

        return DeadLetterQueues(self._opened)

    @cached_property
    def clients(self) -> Clients:
        """Who is online, and how they are doing."""
        from rocketmq_py.admin.clients import Clients

        return Clients(self._opened)

    @cached_property
    def brokers(self) -> Brokers:
        """How brokers are doing, their settings, and whether producers send to them."""
        from rocketmq_py.admin.brokers import Brokers

        return Brokers(self._opened)

    @cached_property
    def name_servers(self) -> NameServers:
        """Their settings."""
        from rocketmq_py.admin.name_servers import NameServers

        return NameServers(self._opened)

    @cached_property
    def access(self) -> Access:
        """Users, and what they may do."""
        from rocketmq_py.admin.access import Access

        return Access(self._opened)

    def _opened(self) -> Client:
        self._check_open()
        return self.client
