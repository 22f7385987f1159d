"""Headers of tools: brokers and name servers, their settings and what they keep."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from rocketmq_py.codes import RequestCode
from rocketmq_py.protocol.headers.base import Header, Int32, Request


class GetBrokerRuntimeInfoRequest(Request, frozen=True, kw_only=True):
    """Ask a broker how it is doing: a ``KeyValueTable``."""

    code: ClassVar[int] = RequestCode.GET_BROKER_RUNTIME_INFO


class GetBrokerConfigRequest(Request, frozen=True, kw_only=True):
    """Ask a broker for its settings, as ``properties.read_properties`` reads them."""

    code: ClassVar[int] = RequestCode.GET_BROKER_CONFIG


class UpdateBrokerConfigRequest(Request, frozen=True, kw_only=True):
    """Change settings of a broker; the body holds them as text."""

    code: ClassVar[int] = RequestCode.UPDATE_BROKER_CONFIG


class GetNameServerConfigRequest(Request, frozen=True, kw_only=True):
    """Ask a name server for its settings, which come as a broker's do."""

    code: ClassVar[int] = RequestCode.GET_NAMESRV_CONFIG


class UpdateNameServerConfigRequest(Request, frozen=True, kw_only=True):
    """Change settings of a name server; the body holds them as text."""

    code: ClassVar[int] = RequestCode.UPDATE_NAMESRV_CONFIG


class WipeWritePermissionRequest(Request, frozen=True, kw_only=True):
    """Have a name server tell producers to stop sending to a broker.

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
    """How many topics were changed. Java: ``WipeWritePermOfBrokerResponseHeader``."""

    wipe_topic_count: Int32


class AddWritePermissionAnswer(Header, frozen=True, kw_only=True):
    """How many topics were changed. Java: ``AddWritePermOfBrokerResponseHeader``."""

    add_topic_count: Int32


class GetKvListRequest(Request, frozen=True, kw_only=True):
    """Ask for all values of a namespace: a ``KeyValueTable``. Java: ``GetKVListByNamespaceRequestHeader``.

    Attributes:
        kv_namespace: whose values these are, such as ORDER_TOPIC_CONFIG: no tenant's namespace.
    """

    code: ClassVar[int] = RequestCode.GET_KVLIST_BY_NAMESPACE

    kv_namespace: str = msgspec.field(name="namespace")


class GetKvConfigRequest(Request, frozen=True, kw_only=True):
    """Ask for a value that name servers keep. Java: ``GetKVConfigRequestHeader``.

    Attributes:
        kv_namespace: as in :class:`GetKvListRequest`.
        key: the key.
    """

    code: ClassVar[int] = RequestCode.GET_KV_CONFIG

    kv_namespace: str = msgspec.field(name="namespace")
    key: str


class DeleteKvConfigRequest(GetKvConfigRequest, frozen=True, kw_only=True):
    """Forget a value that name servers keep. Java: ``DeleteKVConfigRequestHeader``."""

    code: ClassVar[int] = RequestCode.DELETE_KV_CONFIG


class PutKvConfigRequest(GetKvConfigRequest, frozen=True, kw_only=True):
    """Set a value that name servers keep. Java: ``PutKVConfigRequestHeader``.

    Attributes:
        value: the value.
    """

    code: ClassVar[int] = RequestCode.PUT_KV_CONFIG

    value: str
