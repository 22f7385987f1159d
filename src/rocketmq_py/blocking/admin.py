"""Administration of a cluster, for threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Unpack

from rocketmq_py import admin
from rocketmq_py import client as core
from rocketmq_py.blocking.declaring import blocking
from rocketmq_py.blocking.door import Door, shared_client
from rocketmq_py.client.config import ClientOptions

if TYPE_CHECKING:
    from rocketmq_py.blocking.client import Client


class _Part:
    """A part of an Admin: its methods are called through the Admin's door."""

    def __init__(self, behind: object, call: Callable[..., Any]) -> None:
        self._behind = behind
        self._call = call


class Topics(_Part):
    """``admin.topics``."""

    list = blocking(admin.Topics.list)
    describe = blocking(admin.Topics.describe)
    create = blocking(admin.Topics.create)
    alter = blocking(admin.Topics.alter)
    delete = blocking(admin.Topics.delete)


class Groups(_Part):
    """``admin.groups``."""

    list = blocking(admin.Groups.list)
    describe = blocking(admin.Groups.describe)
    create = blocking(admin.Groups.create)
    alter = blocking(admin.Groups.alter)
    delete = blocking(admin.Groups.delete)


class Offsets(_Part):
    """``admin.offsets``."""

    topics = blocking(admin.Offsets.topics)
    reset = blocking(admin.Offsets.reset)
    skip = blocking(admin.Offsets.skip)
    clone = blocking(admin.Offsets.clone)


class Messages(_Part):
    """``admin.messages``."""

    get = blocking(admin.Messages.get)
    find = blocking(admin.Messages.find)
    at = blocking(admin.Messages.at)
    tracks = blocking(admin.Messages.tracks)
    trace = blocking(admin.Messages.trace)
    consume_directly = blocking(admin.Messages.consume_directly)


class DeadLetterQueues(_Part):
    """``admin.dead_letters``."""

    list = blocking(admin.DeadLetterQueues.list)
    resend = blocking(admin.DeadLetterQueues.resend)


class Clients(_Part):
    """``admin.clients``."""

    list = blocking(admin.Clients.list)
    describe = blocking(admin.Clients.describe)


class Brokers(_Part):
    """``admin.brokers``."""

    list = blocking(admin.Brokers.list)
    describe = blocking(admin.Brokers.describe)
    settings = blocking(admin.Brokers.settings)
    alter = blocking(admin.Brokers.alter)
    wipe_write_permission = blocking(admin.Brokers.wipe_write_permission)
    add_write_permission = blocking(admin.Brokers.add_write_permission)


class NameServers(_Part):
    """``admin.name_servers``."""

    settings = blocking(admin.NameServers.settings)
    alter = blocking(admin.NameServers.alter)


class Access(_Part):
    """``admin.access``."""

    users = blocking(admin.Access.users)
    create_user = blocking(admin.Access.create_user)
    alter_user = blocking(admin.Access.alter_user)
    delete_user = blocking(admin.Access.delete_user)
    rules = blocking(admin.Access.rules)
    put_rule = blocking(admin.Access.put_rule)
    delete_rules = blocking(admin.Access.delete_rules)
    accounts_versions = blocking(admin.Access.accounts_versions)


class Admin(Door[admin.Admin]):
    """``rocketmq_py.Admin`` for threads: the same parts, methods, arguments and errors, without ``await``.

    Args:
        client: name servers as ``host:port;host:port`` (None reads NAMESRV_ADDR, else 127.0.0.1:9876), or
            a blocking Client to share.
        **options: the fields of ClientConfig, unless a client is shared.

    Raises:
        ConfigurationError: an option is unknown or outside of what is allowed.
        ClosedError: the client is closed, or was opened in the parent of this process.
    """

    def __init__(self, client: Client | str | None = None, **options: Unpack[ClientOptions]) -> None:
        shared, within = shared_client(client)
        behind = admin.Admin(shared, **options)
        super().__init__(behind, within)
        self.topics = Topics(behind.topics, self._call)
        self.groups = Groups(behind.groups, self._call)
        self.offsets = Offsets(behind.offsets, self._call)
        self.messages = Messages(behind.messages, self._call)
        self.dead_letters = DeadLetterQueues(behind.dead_letters, self._call)
        self.clients = Clients(behind.clients, self._call)
        self.brokers = Brokers(behind.brokers, self._call)
        self.name_servers = NameServers(behind.name_servers, self._call)
        self.access = Access(behind.access, self._call)

    @property
    def _client(self) -> core.Client:
        return self._behind.client
