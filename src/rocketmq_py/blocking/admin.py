"""Administration of a cluster, for threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Unpack

from rocketmq_py import admin
from rocketmq_py import client as core
from rocketmq_py.blocking.declaring import blocking
from rocketmq_py.blocking.hosted import Hosted, shared_client
from rocketmq_py.client.config import ClientOptions

if TYPE_CHECKING:
    from rocketmq_py.blocking.client import Client


class _Operations:
    """The operations of an Admin on one kind of resource. Calls go through the Admin."""

    def __init__(self, target: object, call: Callable[..., Any]) -> None:
        self._target = target
        self._call = call


class Topics(_Operations):
    """``admin.topics``."""

    list: Final = blocking(admin.Topics.list)
    describe: Final = blocking(admin.Topics.describe)
    create: Final = blocking(admin.Topics.create)
    alter: Final = blocking(admin.Topics.alter)
    delete: Final = blocking(admin.Topics.delete)


class Groups(_Operations):
    """``admin.groups``."""

    list: Final = blocking(admin.Groups.list)
    describe: Final = blocking(admin.Groups.describe)
    create: Final = blocking(admin.Groups.create)
    alter: Final = blocking(admin.Groups.alter)
    delete: Final = blocking(admin.Groups.delete)


class Offsets(_Operations):
    """``admin.offsets``."""

    topics: Final = blocking(admin.Offsets.topics)
    reset: Final = blocking(admin.Offsets.reset)
    skip: Final = blocking(admin.Offsets.skip)
    clone: Final = blocking(admin.Offsets.clone)


class Messages(_Operations):
    """``admin.messages``."""

    get: Final = blocking(admin.Messages.get)
    find: Final = blocking(admin.Messages.find)
    at: Final = blocking(admin.Messages.at)
    tracks: Final = blocking(admin.Messages.tracks)
    trace: Final = blocking(admin.Messages.trace)
    consume_directly: Final = blocking(admin.Messages.consume_directly)


class DeadLetterQueues(_Operations):
    """``admin.dead_letters``."""

    list: Final = blocking(admin.DeadLetterQueues.list)
    resend: Final = blocking(admin.DeadLetterQueues.resend)


class Clients(_Operations):
    """``admin.clients``."""

    list: Final = blocking(admin.Clients.list)
    describe: Final = blocking(admin.Clients.describe)


class Brokers(_Operations):
    """``admin.brokers``."""

    list: Final = blocking(admin.Brokers.list)
    describe: Final = blocking(admin.Brokers.describe)
    settings: Final = blocking(admin.Brokers.settings)
    alter: Final = blocking(admin.Brokers.alter)
    wipe_write_permission: Final = blocking(admin.Brokers.wipe_write_permission)
    add_write_permission: Final = blocking(admin.Brokers.add_write_permission)


class NameServers(_Operations):
    """``admin.name_servers``."""

    settings: Final = blocking(admin.NameServers.settings)
    alter: Final = blocking(admin.NameServers.alter)


class AccessControl(_Operations):
    """``admin.access``."""

    users: Final = blocking(admin.AccessControl.users)
    create_user: Final = blocking(admin.AccessControl.create_user)
    alter_user: Final = blocking(admin.AccessControl.alter_user)
    delete_user: Final = blocking(admin.AccessControl.delete_user)
    rules: Final = blocking(admin.AccessControl.rules)
    put_rule: Final = blocking(admin.AccessControl.put_rule)
    delete_rules: Final = blocking(admin.AccessControl.delete_rules)
    acl_config_versions: Final = blocking(admin.AccessControl.acl_config_versions)


class Admin(Hosted[admin.Admin]):
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
        shared, parent = shared_client(client)
        target = admin.Admin(shared, **options)
        super().__init__(target, parent)
        self.topics: Topics = Topics(target.topics, self._call)
        self.groups: Groups = Groups(target.groups, self._call)
        self.offsets: Offsets = Offsets(target.offsets, self._call)
        self.messages: Messages = Messages(target.messages, self._call)
        self.dead_letters: DeadLetterQueues = DeadLetterQueues(target.dead_letters, self._call)
        self.clients: Clients = Clients(target.clients, self._call)
        self.brokers: Brokers = Brokers(target.brokers, self._call)
        self.name_servers: NameServers = NameServers(target.name_servers, self._call)
        self.access: AccessControl = AccessControl(target.access, self._call)

    @property
    def _client(self) -> core.Client:
        return self._target.client
