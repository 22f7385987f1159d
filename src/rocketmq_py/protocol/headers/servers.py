"""Headers of requests about brokers and name servers: their state, settings and key-value configuration."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from rocketmq_py.codes import RequestCode
from rocketmq_py.protocol.headers.base import Header, Int32, Request


class GetBrokerRuntimeInfoRequest(Request, frozen=True, kw_only=True):
    """Get a broker's runtime statistics: a ``KeyValueTable``."""

    code: ClassVar[int] = RequestCode.GET_BROKER_RUNTIME_INFO


class GetBrokerConfigRequest(Request, frozen=True, kw_only=True):
    """Get a broker's settings, for ``bodies.read_properties``."""

    code: ClassVar[int] = RequestCode.GET_BROKER_CONFIG


class UpdateBrokerConfigRequest(Request, frozen=True, kw_only=True):
    """Change a broker's settings; the body is made by ``bodies.write_properties``."""

    code: ClassVar[int] = RequestCode.UPDATE_BROKER_CONFIG


class GetNameServerConfigRequest(Request, frozen=True, kw_only=True):
    """Get a name server's settings, for ``bodies.read_properties``."""

    code: ClassVar[int] = RequestCode.GET_NAMESRV_CONFIG


class UpdateNameServerConfigRequest(Request, frozen=True, kw_only=True):
    """Change a name server's settings; the body is made by ``bodies.write_properties``."""

    code: ClassVar[int] = RequestCode.UPDATE_NAMESRV_CONFIG


class WipeWritePermissionRequest(Request, frozen=True, kw_only=True):
    """Remove the write permission of a broker from all routes, so that producers stop sending to it.

    Java: ``WipeWritePermOfBrokerRequestHeader``.

    Attributes:
        broker: the broker's name.
    """

    code: ClassVar[int] = RequestCode.WIPE_WRITE_PERM_OF_BROKER

    broker: str = msgspec.field(name="brokerName")


class AddWritePermissionRequest(Request, frozen=True, kw_only=True):
    """Undo a :class:`WipeWritePermissionRequest`. Java: ``AddWritePermOfBrokerRequestHeader``.

    Attributes:
        broker: the broker's name.
    """

    code: ClassVar[int] = RequestCode.ADD_WRITE_PERM_OF_BROKER

    broker: str = msgspec.field(name="brokerName")


class WipeWritePermissionAnswer(Header, frozen=True, kw_only=True):
    """The number of changed topics. Java: ``WipeWritePermOfBrokerResponseHeader``."""

    wipe_topic_count: Int32


class AddWritePermissionAnswer(Header, frozen=True, kw_only=True):
    """The number of changed topics. Java: ``AddWritePermOfBrokerResponseHeader``."""

    add_topic_count: Int32


class GetKvListRequest(Request, frozen=True, kw_only=True):
    """Get all values of a namespace: a ``KeyValueTable``. Java: ``GetKVListByNamespaceRequestHeader``.

    Attributes:
        kv_namespace: the namespace of the keys, such as ORDER_TOPIC_CONFIG. Unrelated to tenants' namespaces.
    """

    code: ClassVar[int] = RequestCode.GET_KVLIST_BY_NAMESPACE

    kv_namespace: str = msgspec.field(name="namespace")


class GetKvConfigRequest(Request, frozen=True, kw_only=True):
    """Get a value of the name servers' configuration. Java: ``GetKVConfigRequestHeader``.

    Attributes:
        kv_namespace: as in :class:`GetKvListRequest`.
        key: the key.
    """

    code: ClassVar[int] = RequestCode.GET_KV_CONFIG

    kv_namespace: str = msgspec.field(name="namespace")
    key: str


class DeleteKvConfigRequest(GetKvConfigRequest, frozen=True, kw_only=True):
    """Delete a value of the name servers' configuration. Java: ``DeleteKVConfigRequestHeader``."""

    code: ClassVar[int] = RequestCode.DELETE_KV_CONFIG


class PutKvConfigRequest(GetKvConfigRequest, frozen=True, kw_only=True):
    """Set a value of the name servers' configuration. Java: ``PutKVConfigRequestHeader``.

    Attributes:
        value: the value.
    """

    code: ClassVar[int] = RequestCode.PUT_KV_CONFIG

    value: str
