"""The error that an answer of a broker or name server means."""

from __future__ import annotations

import re
from collections.abc import Mapping

from rocketmq_py.codes import ResponseCode
from rocketmq_py.errors import (
    AccessDeniedError,
    BrokerBusyError,
    BrokerError,
    BrokerTopicError,
    LiteQuotaError,
    MessageRefusedError,
    NoPermissionError,
    RetriableBrokerError,
    SubscriptionError,
)

_ERROR_CLASSES: Mapping[int, type[BrokerError]] = {
    ResponseCode.SYSTEM_ERROR: RetriableBrokerError,
    ResponseCode.SYSTEM_BUSY: BrokerBusyError,
    ResponseCode.MESSAGE_ILLEGAL: MessageRefusedError,
    ResponseCode.SERVICE_NOT_AVAILABLE: RetriableBrokerError,
    ResponseCode.NO_PERMISSION: NoPermissionError,
    ResponseCode.TOPIC_NOT_EXIST: BrokerTopicError,
    ResponseCode.SUBSCRIPTION_PARSE_FAILED: SubscriptionError,
    ResponseCode.SUBSCRIPTION_NOT_EXIST: SubscriptionError,
    ResponseCode.SUBSCRIPTION_NOT_LATEST: SubscriptionError,
    ResponseCode.NOT_LEADER_FOR_QUEUE: BrokerTopicError,
    ResponseCode.FLOW_CONTROL: BrokerBusyError,
    ResponseCode.NO_BUYER_ID: RetriableBrokerError,
    ResponseCode.NOT_IN_CURRENT_UNIT: RetriableBrokerError,
    ResponseCode.GO_AWAY: RetriableBrokerError,
    ResponseCode.LITE_SUBSCRIPTION_QUOTA_EXCEEDED: LiteQuotaError,
}
"""Classes by response code. Others mean a BrokerError. Retriable are those of Java's
``DefaultMQProducer.retryResponseCodes``, and those that tell of an overloaded broker."""

_DENIAL_REMARKS: Mapping[int, re.Pattern[str]] = {
    ResponseCode.SYSTEM_ERROR: re.compile(r"\bAclException\b"),
    ResponseCode.NO_PERMISSION: re.compile(
        r"signature failed|username cannot be null|^User:.* (not found|disabled)|has no permission to access"
    ),
}
"""Patterns of the remarks with which 4.x (first code) and 5.x (second code) deny access."""


def denies_access(code: int, remark: str | None) -> bool:
    """Return whether an answer means that credentials are missing, wrong, or lack the permission."""
    denial = _DENIAL_REMARKS.get(code)
    return denial is not None and remark is not None and denial.search(remark) is not None


def broker_error(code: int, remark: str | None, address: str) -> BrokerError:
    """Return the error for an answer. The code, and sometimes the remark, decide its class.

    Args:
        code: the response code.
        remark: the reason that the broker gives, if any.
        address: the address of the broker or name server.
    """
    if denies_access(code, remark):
        return AccessDeniedError(code, remark, address)
    return _ERROR_CLASSES.get(code, BrokerError)(code, remark, address)
