"""Administration of a cluster, for asyncio."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Unpack

from rocketmq_py import admin
from rocketmq_py import client as core
from rocketmq_py.aio.declaring import coroutine
from rocketmq_py.aio.hosted import Hosted, shared_client
from rocketmq_py.client.config import ClientOptions

if TYPE_CHECKING:
    from rocketmq_py.aio.client import Client


class _Operations:
    """The operations of an Admin on one kind of resource. Calls go through the Admin."""

    def __init__(self, target: object, call: Callable[..., Any]) -> None:
        self._target = target
        self._call = call


class Topics(_Operations):
    """``admin.topics``."""

    list: Final = coroutine(admin.Topics.list)
    describe: Final = coroutine(admin.Topics.describe)
    create: Final = coroutine(admin.Topics.create)
    alter: Final = coroutine(admin.Topics.alter)
    delete: Final = coroutine(admin.Topics.delete)


class Groups(_Operations):
    """``admin.groups``."""

    list: Final = coroutine(admin.Groups.list)
    describe: Final = coroutine(admin.Groups.describe)
    create: Final = coroutine(admin.Groups.create)
    alter: Final = coroutine(admin.Groups.alter)
    delete: Final = coroutine(admin.Groups.delete)


class Offsets(_Operations):
    """``admin.offsets``."""

    topics: Final = coroutine(admin.Offsets.topics)
    reset: Final = coroutine(admin.Offsets.reset)
    skip: Final = coroutine(admin.Offsets.skip)
    clone: Final = coroutine(admin.Offsets.clone)


class Messages(_Operations):
    """``admin.messages``."""

    get: Final = coroutine(admin.Messages.get)
    find: Final = coroutine(admin.Messages.find)
    at: Final = coroutine(admin.Messages.at)
    tracks: Final = coroutine(admin.Messages.tracks)
    trace: Final = coroutine(admin.Messages.trace)
    consume_directly: Final = coroutine(admin.Messages.consume_directly)


class DeadLetterQueues(_Operations):
    """``admin.dead_letters``."""

    list: Final = coroutine(admin.DeadLetterQueues.list)
    resend: Final = coroutine(admin.DeadLetterQueues.resend)


class Clients(_Operations):
    """``admin.clients``."""

    list: Final = coroutine(admin.Clients.list)
    describe: Final = coroutine(admin.Clients.describe)


class Brokers(_Operations):
    """``admin.brokers``."""

    list: Final = coroutine(admin.Brokers.list)
    describe: Final = coroutine(admin.Brokers.describe)
    settings: Final = coroutine(admin.Brokers.settings)
    alter: Final = coroutine(admin.Brokers.alter)
    wipe_write_permission: Final = coroutine(admin.Brokers.wipe_write_permission)
    add_write_permission: Final = coroutine(admin.Brokers.add_write_permission)


class NameServers(_Operations):
    """``admin.name_servers``."""

    settings: Final = coroutine(admin.NameServers.settings)
    alter: Final = coroutine(admin.NameServers.alter)


class AccessControl(_Operations):
    """``admin.access``."""

    users: Final = coroutine(admin.AccessControl.users)
    create_user: Final = coroutine(admin.AccessControl.create_user)
    alter_user: Final = coroutine(admin.AccessControl.alter_user)
    delete_user: Final = coroutine(admin.AccessControl.delete_user)
    rules: Final = coroutine(admin.AccessControl.rules)
    put_rule: Final = coroutine(admin.AccessControl.put_rule)
    delete_rules: Final = coroutine(admin.AccessControl.delete_rules)
    acl_config_versions: Final = coroutine(admin.AccessControl.acl_config_versions)


class Admin(Hosted[admin.Admin]):
    """``rocketmq_py.Admin`` for asyncio: the same parts, methods, arguments and errors, as coroutines.

    Args:
        client: name servers as ``host:port;host:port`` (None reads NAMESRV_ADDR, else 127.0.0.1:9876), or
            an open ``rocketmq_py.aio.Client`` to share.
        **options: the fields of ClientConfig, unless a client is shared.

    Raises:
        ConfigurationError: an option is unknown or outside of what is allowed.
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
