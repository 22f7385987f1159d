"""The error that an answer of a broker or name server means."""

from __future__ import annotations

import re
from collections.abc import Mapping

from rocketmq_py.codes import ResponseCode
from rocketmq_py.error_texts import allow_reading, one_line
from rocketmq_py.errors import (
    AccessDeniedError,
    BrokerBusyError,
    BrokerError,
    FlowControlError,
    MessageRefusedError,
    RetriableBrokerError,
)

_ERROR_CLASSES: Mapping[int, type[BrokerError]] = {
    ResponseCode.SYSTEM_ERROR: RetriableBrokerError,
    ResponseCode.SYSTEM_BUSY: BrokerBusyError,
    ResponseCode.MESSAGE_ILLEGAL: MessageRefusedError,
    ResponseCode.SERVICE_NOT_AVAILABLE: RetriableBrokerError,
    ResponseCode.NO_PERMISSION: RetriableBrokerError,
    ResponseCode.TOPIC_NOT_EXIST: RetriableBrokerError,
    ResponseCode.NOT_LEADER_FOR_QUEUE: RetriableBrokerError,
    ResponseCode.FLOW_CONTROL: FlowControlError,
    ResponseCode.NO_BUYER_ID: RetriableBrokerError,
    ResponseCode.NOT_IN_CURRENT_UNIT: RetriableBrokerError,
    ResponseCode.GO_AWAY: RetriableBrokerError,
}
"""Classes by response code. Others mean a BrokerError. Retriable are those of Java's
``DefaultMQProducer.retryResponseCodes``, and those that tell of an overloaded broker."""

_UNREADABLE_TOPIC = re.compile(r"the topic\[(.+?)\] (?:pulling|peeking) message is forbidden")
"""The remark of a broker on which the topic may not be read."""

_TYPE_MISMATCH = re.compile(
    r"expected type is (\w+), but actual type is (\w+)|not match with topic accept message types"
)
"""Remarks about a message whose type is not that of its topic: of proxies, and of a managed service."""

_DENIAL_BY_5 = (
    r"signature failed|username cannot be null|^User:.* (not found|disabled)|has no permission to access"
)
_DENIAL_REMARKS: Mapping[int, re.Pattern[str]] = {
    ResponseCode.SYSTEM_ERROR: re.compile(rf"\b(Acl|Authentication)Exception\b|{_DENIAL_BY_5}"),
    ResponseCode.NO_PERMISSION: re.compile(_DENIAL_BY_5),
}
"""Remarks that deny access. 4.x, proxies and services answer with the first code, 5.x with the second."""

_QUEUE_CODES = {ResponseCode.SYSTEM_ERROR, ResponseCode.INVALID_PARAMETER}
_ILLEGAL_QUEUE = re.compile(r"queueId\[-?\d+\] is illegal")
"""The codes of 4.x and of 5.x, and the remark, of a broker that does not have the queue of a request."""


def denies_access(code: int, remark: str | None) -> bool:
    """Return whether an answer means that credentials are missing, wrong, or lack the permission."""
    denial = _DENIAL_REMARKS.get(code)
    return denial is not None and remark is not None and denial.search(remark) is not None


def is_type_mismatch(remark: str | None) -> bool:
    """Return whether a message was refused because its type is not that of its topic."""
    return _TYPE_MISMATCH.search(remark or "") is not None


def broker_error(code: int, remark: str | None, address: str) -> BrokerError:
    """Return the error for an answer. The code, and sometimes the remark, decide its class and text.

    Args:
        code: the response code.
        remark: the reason that the broker gives, if any.
        address: the address of the broker or name server.
    """
    if denies_access(code, remark):
        return AccessDeniedError(code, remark, address)
    if code in _QUEUE_CODES and remark is not None and _ILLEGAL_QUEUE.search(remark):
        return RetriableBrokerError(code, remark, address, queue_gone=True)
    error = _ERROR_CLASSES.get(code, BrokerError)(code, remark, address)
    if code == ResponseCode.NO_PERMISSION and (topic := _UNREADABLE_TOPIC.match(remark or "")):
        return RetriableBrokerError(code, remark, address, text=f"{error}; {allow_reading(topic[1])}")
    if code == ResponseCode.MESSAGE_ILLEGAL and (mismatch := _TYPE_MISMATCH.search(remark or "")):
        return MessageRefusedError(code, remark, address, text=_type_text(mismatch, remark, address))
    return error


def _type_text(mismatch: re.Match[str], remark: str | None, address: str) -> str:
    """Return the text of the refusal of a message's type, with how to send messages of the topic's type."""
    topic_type, message_type = mismatch.groups(default="")
    reason = one_line(remark)
    if topic_type:
        reason = f"its type is {message_type}, and that of its topic {topic_type}"
    advice = _TYPED_SENDS.get(topic_type) or "; ".join(
        f"for type {kind}, {how}" for kind, how in _TYPED_SENDS.items()
    )
    return f"{address} refuses the message: {reason}; {advice}"


_TYPED_SENDS: Mapping[str, str] = {
    "NORMAL": "send it without a sharding key, SelectByHash, a delay and a transaction",
    "FIFO": "send it with sharding_key= or queue=SelectByHash(...)",
    "DELAY": "send it with delay_level=, delay= or deliver_at_ms=",
    "TRANSACTION": "send it in a transaction of TransactionProducer",
    "PRIORITY": "send it with priority=",
    "LITE": "send it with lite_topic=",
}
"""How to send messages, by the type of their topic. Java: ``TopicMessageType``."""
