"""Administration of a cluster. Java: ``DefaultMQAdminExt``."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Unpack

from rocketmq_py.client import ClientOptions
from rocketmq_py.client.client import Client, Member
from rocketmq_py.client.core import ClientCore
from rocketmq_py.client.settings import ClientSettings
from rocketmq_py.shown_settings import takes_settings

if TYPE_CHECKING:
    from rocketmq_py.admin.access_control import AccessControl
    from rocketmq_py.admin.brokers import Brokers, NameServers
    from rocketmq_py.admin.clients import Clients
    from rocketmq_py.admin.dead_letters import DeadLetterQueues
    from rocketmq_py.admin.groups import Groups
    from rocketmq_py.admin.lite_topics import LiteTopics
    from rocketmq_py.admin.messages import Messages
    from rocketmq_py.admin.offsets import Offsets
    from rocketmq_py.admin.topics import Topics


@takes_settings(ClientSettings)
class Admin(Member):
    """Administers a cluster of 4.x or 5.x brokers. Java: ``DefaultMQAdminExt``.

    ::

        async with Admin("127.0.0.1:9876") as admin:
            await admin.topics.create("Orders", queues=8)
            print(await admin.topics.describe("Orders"))

    Requests go to all brokers concurrently. A method that reads returns the results of the brokers that
    answered, and the errors of the others in ``failures``. A change that failed on some brokers raises
    SomeBrokersFailedError, which names the brokers where it succeeded. A broker whose version lacks a feature
    raises UnsupportedByBrokerError. A cancellation does not undo the changes that brokers have made by then.

    With a namespace, topics and groups have the names that the user knows, without the namespace's prefix.

    Args:
        client: name servers as ``host:port;host:port`` (None reads NAMESRV_ADDR, else 127.0.0.1:9876), or
            an open client to share.
        **options: the settings of a Client, unless one is shared.

    Raises:
        ConfigurationError: an option is unknown or its value is not allowed.
    """

    def __init__(
        self,
        client: str | Client | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        super().__init__(client, dict(options))

    @property
    def settings(self) -> ClientSettings:
        """The settings of its client."""
        return self._client.settings

    # Fast path: operations are imported on first use, saves 20 % of the CPU of the imports of `topic list`.

    @cached_property
    def topics(self) -> Topics:
        """Lists, describes, creates, alters and deletes topics."""
        from rocketmq_py.admin.topics import Topics

        return Topics(self._opened)

    @cached_property
    def groups(self) -> Groups:
        """Lists, describes, creates, alters and deletes consumer groups."""
        from rocketmq_py.admin.groups import Groups

        return Groups(self._opened)

    @cached_property
    def offsets(self) -> Offsets:
        """Resets and clones the consumer offsets of groups."""
        from rocketmq_py.admin.offsets import Offsets

        return Offsets(self._opened)

    @cached_property
    def messages(self) -> Messages:
        """Finds messages, their tracks and their traces, and sends one to a member of a group."""
        from rocketmq_py.admin.messages import Messages

        return Messages(self._opened)

    @cached_property
    def dead_letters(self) -> DeadLetterQueues:
        """Lists and resends the dead letters of groups."""
        from rocketmq_py.admin.dead_letters import DeadLetterQueues

        return DeadLetterQueues(self._opened)

    @cached_property
    def clients(self) -> Clients:
        """Lists and describes connected clients."""
        from rocketmq_py.admin.clients import Clients

        return Clients(self._opened)

    @cached_property
    def brokers(self) -> Brokers:
        """Describes brokers, changes their configuration and their write permission."""
        from rocketmq_py.admin.brokers import Brokers

        return Brokers(self._opened)

    @cached_property
    def lite_topics(self) -> LiteTopics:
        """Describes lite topics (5.5): their offsets, subscribers and lag."""
        from rocketmq_py.admin.lite_topics import LiteTopics

        return LiteTopics(self._opened)

    @cached_property
    def name_servers(self) -> NameServers:
        """Reads and changes the configuration of name servers."""
        from rocketmq_py.admin.brokers import NameServers

        return NameServers(self._opened)

    @cached_property
    def access(self) -> AccessControl:
        """Manages users and their ACL rules."""
        from rocketmq_py.admin.access_control import AccessControl

        return AccessControl(self._opened)

    def _opened(self) -> ClientCore:
        self._check_open()
        return self._client
