from __future__ import annotations

import copy
import importlib
import inspect
import pickle
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import rocketmq_py
from rocketmq_py import errors
from rocketmq_py.codes import ResponseCode, response_name
from rocketmq_py.error_texts import one_line
from rocketmq_py.errors import (
    AccessDeniedError,
    BrokerBusyError,
    BrokerError,
    Delivery,
    FlowControlError,
    MessageRefusedError,
    RetriableBrokerError,
    RocketMQError,
)
from rocketmq_py.queues import MessageQueue, SendResult, SendStatus
from rocketmq_py.remoting.answer_errors import broker_error


@pytest.mark.parametrize(
    ("code", "kind", "retriable", "invalidates_route"),
    [
        (ResponseCode.SYSTEM_ERROR, RetriableBrokerError, True, False),
        (ResponseCode.SYSTEM_BUSY, BrokerBusyError, True, False),
        (ResponseCode.SERVICE_NOT_AVAILABLE, RetriableBrokerError, True, True),
        (ResponseCode.FLOW_CONTROL, FlowControlError, True, False),
        (ResponseCode.NO_PERMISSION, RetriableBrokerError, True, True),
        (ResponseCode.TOPIC_NOT_EXIST, RetriableBrokerError, True, True),
        (ResponseCode.NOT_LEADER_FOR_QUEUE, RetriableBrokerError, True, True),
        (ResponseCode.GO_AWAY, RetriableBrokerError, True, False),
        (ResponseCode.NO_BUYER_ID, RetriableBrokerError, True, False),
        (ResponseCode.NOT_IN_CURRENT_UNIT, RetriableBrokerError, True, False),
        (ResponseCode.MESSAGE_ILLEGAL, MessageRefusedError, False, False),
        (ResponseCode.SUBSCRIPTION_PARSE_FAILED, BrokerError, False, False),
        (987654, BrokerError, False, False),
    ],
)
def test_response_code_selects_the_error_class_and_its_retries(
    code: int, kind: type[BrokerError], retriable: bool, invalidates_route: bool
) -> None:
    error = broker_error(code, "why", "127.0.0.1:1")
    assert type(error) is kind
    assert (error.retriable, error._invalidates_route) == (retriable, invalidates_route)
    assert error.delivery is Delivery.REFUSED
    assert not error._queue_gone
    assert str(error) == f"127.0.0.1:1 answered {response_name(code)} ({code}): why"


@pytest.mark.parametrize("code", [ResponseCode.SYSTEM_ERROR, ResponseCode.INVALID_PARAMETER])
def test_remark_about_the_queue_tells_that_the_queue_is_gone(code: int) -> None:
    error = broker_error(code, "request queueId[7] is illegal, TopicConfig [...]", "127.0.0.1:1")
    assert type(error) is RetriableBrokerError
    assert error._queue_gone
    assert error._invalidates_route
    other = broker_error(code, "the header has no queueId", "127.0.0.1:1")
    assert not other._queue_gone
    assert not other._invalidates_route


def test_a_topic_that_may_not_be_read_has_advice() -> None:
    remark = "the topic[%DLQ%g] pulling message is forbidden"
    assert str(broker_error(ResponseCode.NO_PERMISSION, remark, "127.0.0.1:1")) == (
        f"127.0.0.1:1 answered NO_PERMISSION (16): {remark}; allow reading with: "
        "rocketmq-py topic alter %DLQ%g --permission RW"
    )
    forbidden = "the broker[127.0.0.1] pulling message is forbidden"
    assert "allow" not in str(broker_error(ResponseCode.NO_PERMISSION, forbidden, "127.0.0.1:1"))


_ACL = "org.apache.rocketmq.acl.common.AclException"
_ONS = "com.aliyun.openservices.ons.api.impl.authority.exception.AuthenticationException"
_PLACE = "org.apache.rocketmq.acl.plain.PlainPermissionManager.validate(PlainPermissionManager.java:683)"


@pytest.mark.parametrize(
    ("code", "remark", "reason"),
    [
        (
            1,
            f"{_ACL}: Check signature failed for accessKey=k, {_PLACE}",
            "Check signature failed for accessKey=k",
        ),
        (1, f"{_ACL}: No acl config for k, {_PLACE}", "No acl config for k"),
        (1, f"{_ACL}: No accessKey is configured, {_PLACE}", "No accessKey is configured"),
        (1, f"{_ACL}: No default permission for topic:T, {_PLACE}", "No default permission for topic:T"),
        (
            1,
            f"{_ONS}: com.alibaba.ons.open.exception.OnsException: __accessKey is blank.",
            "__accessKey is blank",
        ),
        (1, f"{_ONS}: signature validate by dauth failed", "signature validate by dauth failed"),
        (
            1,
            f"{_ONS}: valid resource owner failed. maybe the resource MQ_INST_1_a%T not created, "
            "com.alibaba.ons.open.auth.validator.PermissionValidator.check(PermissionValidator.java:95)",
            "valid resource owner failed. maybe the resource MQ_INST_1_a%T not created",
        ),
        (1, "check signature failed.", "check signature failed"),
        (1, "username cannot be null.", "username cannot be null"),
        (16, "check signature failed.", "check signature failed"),
        (16, "username cannot be null.", "username cannot be null"),
        (16, "User:k is not found.", "User:k is not found"),
        (16, "User:k is disabled.", "User:k is disabled"),
        (
            16,
            "User:k has no permission to access Topic:T from 127.0.0.1, no matched policies.",
            "User:k has no permission to access Topic:T from 127.0.0.1, no matched policies",
        ),
    ],
)
def test_brokers_of_both_kinds_deny_access_with_one_error(code: int, remark: str, reason: str) -> None:
    error = broker_error(code, remark, "a:1")
    assert type(error) is AccessDeniedError
    assert (error.retriable, error._invalidates_route, error.delivery) == (False, False, Delivery.REFUSED)
    assert str(error).startswith(f"a:1 denies access: {reason}; check the client's credentials")
    assert (error.code, error.remark) == (code, remark)


@pytest.mark.parametrize(
    ("remark", "text"),
    [
        (
            "TopicMessageType validate failed, the expected type is FIFO, but actual type is NORMAL",
            "its type is NORMAL, and that of its topic FIFO; send it with sharding_key= or "
            "queue=SelectByHash(...)",
        ),
        (
            "TopicMessageType validate failed, the expected type is NORMAL, but actual type is DELAY",
            "its type is DELAY, and that of its topic NORMAL; send it without a sharding key, SelectByHash, "
            "a delay and a transaction",
        ),
        (
            "current message type not match with topic accept message types",
            "current message type not match with topic accept message types; for type NORMAL, send it "
            "without a sharding key, SelectByHash, a delay and a transaction; for type FIFO, send it with",
        ),
        (
            "the expected type is NEW, but actual type is NORMAL",
            "its type is NORMAL, and that of its topic NEW; for type NORMAL, ",
        ),
    ],
)
def test_a_refusal_of_a_type_names_the_type_of_the_topic_and_how_to_send(remark: str, text: str) -> None:
    error = broker_error(13, remark, "a:1")
    assert type(error) is MessageRefusedError
    assert str(error).startswith(f"a:1 refuses the message: {text}")
    assert not error.retriable
    assert type(broker_error(1, remark, "a:1")) is RetriableBrokerError


@pytest.mark.parametrize(
    ("code", "remark"),
    [
        (1, None),
        (1, "java.lang.NullPointerException, org.apache.rocketmq.acl.plain.X.y(X.java:1)"),
        (16, "the broker[10.0.0.1] sending message is forbidden"),
        (16, "the topic[T] sending message is forbidden"),
        (16, "subscription group no permission, G"),
    ],
)
def test_retriable_refusals_are_not_access_denied_errors(code: int, remark: str | None) -> None:
    error = broker_error(code, remark, "a:1")
    assert error.retriable
    assert not isinstance(error, AccessDeniedError)


def test_remarks_of_several_lines_become_one_line() -> None:
    error = BrokerError(1, "first\nSee https://example.org for more", "a:1")
    assert "\n" not in str(error)
    assert error.remark == "first\nSee https://example.org for more"
    assert str(BrokerError(1, None, "a:1")).endswith("no reason given")


def test_all_errors_derive_from_rocketmq_error() -> None:
    classes = [value for _, value in inspect.getmembers(errors, inspect.isclass)]
    own = [value for value in classes if value.__module__ == errors.__name__ and issubclass(value, Exception)]
    assert len(own) > 15
    assert all(issubclass(value, RocketMQError) for value in own)


def test_errors_that_programs_treat_alike_are_one_class() -> None:
    """``code`` and the attributes tell their causes apart. A class more needs a program that catches it."""
    pytest.importorskip("pyarrow", reason="counts the errors of Spark, too")
    modules = Counter(kind.__module__.removeprefix("rocketmq_py.") for kind in error_classes())
    assert modules.pop("spark.piece_sender") == 1  # never reaches users
    assert modules == {"errors": 29, "admin.errors": 4, "deduplication.handler": 1, "spark.sink_task": 1}


def test_errors_that_retries_cannot_fix_are_not_retriable() -> None:
    assert not errors.InvalidMessageError.retriable
    assert not errors.ConfigurationError.retriable
    assert not errors.ClosedError.retriable


QUEUE = MessageQueue("T", "b", 3)
SENT = SendResult(SendStatus.SEND_OK, "id", "broker-id", QUEUE, 4)
ARGUMENTS: dict[str, Any] = {
    "name": "Orders",
    "differences": ["retries is 16, not 3"],
    "acknowledged": 7,
    "action": "deleting topic 'T'",
    "address": "a:1",
    "answers": {"a": 1},
    "asked": "a:1, b:1",
    "brokers": ["a", "b"],
    "cause": errors.ClosedError("closed"),
    "code": ResponseCode.SYSTEM_ERROR,
    "delivery": Delivery.NOT_SENT,
    "end": None,
    "error": errors.RequestTimeoutError("a:1", 3),
    "failures": {"b": errors.ClosedError("closed")},
    "first": 5,
    "group": "G",
    "kind": "topic",
    "message_id": "id",
    "name_servers": "a:1, b:1",
    "namespace": "N",
    "queue": QUEUE,
    "reason": "why",
    "reasons": {"a": "down", "b": "slow"},
    "remark": "why",
    "results": [SENT],
    "rows": (1, 2),
    "sent": SENT,
    "sql": "a > 1",
    "suffix": "; read on",
    "text": "text",
    "timeout": 3.0,
    "topic": "T",
    "topics": ["T"],
    "total": 2,
}
"""An argument for each parameter of the constructors of errors."""


def subclasses(kind: type[RocketMQError]) -> Iterator[type[RocketMQError]]:
    yield kind
    for subclass in kind.__subclasses__():
        yield from subclasses(subclass)


def error_classes() -> list[type[RocketMQError]]:
    """Import each module that defines an error class, and return RocketMQError and its subclasses."""
    package = Path(rocketmq_py.__file__).parent
    for path in package.rglob("*.py"):
        if re.search(r"^class \w+\(\w+Error\b", path.read_text(), re.MULTILINE):
            module = path.relative_to(package.parent).with_suffix("")
            try:
                importlib.import_module(".".join(module.parts))
            except ModuleNotFoundError as error:  # an extra that is not installed
                if "rocketmq_py" in str(error.name):
                    raise
    found = {kind for kind in subclasses(RocketMQError) if kind.__module__.startswith("rocketmq_py.")}
    return sorted(found, key=lambda kind: kind.__name__)


def instance(kind: type[RocketMQError]) -> RocketMQError:
    constructor = kind.__init__
    if not inspect.isfunction(constructor):
        return kind("text")
    parameters = list(inspect.signature(constructor).parameters.values())[1:]
    return kind(*[ARGUMENTS[one.name] for one in parameters if one.kind is not one.KEYWORD_ONLY])


def pickled(error: RocketMQError) -> RocketMQError:
    loaded: RocketMQError = pickle.loads(pickle.dumps(error))
    return loaded


@pytest.mark.parametrize("copied", [pickled, copy.copy, copy.deepcopy])
@pytest.mark.parametrize("kind", error_classes())
def test_errors_can_be_pickled_and_copied(
    kind: type[RocketMQError], copied: Callable[[RocketMQError], RocketMQError]
) -> None:
    error = instance(kind)
    other = copied(error)
    assert type(other) is kind
    assert (str(other), other.args) == (str(error), error.args)
    assert repr(vars(other)) == repr(vars(error))


@pytest.mark.parametrize("copied", [pickled, copy.copy, copy.deepcopy])
def test_pickled_and_copied_errors_keep_delivery_and_notes(
    copied: Callable[[RocketMQError], RocketMQError],
) -> None:
    error = errors.MessageTooLargeError("too large")
    error.delivery = Delivery.REFUSED
    error.add_note("a note")
    other = copied(error)
    assert other.delivery is Delivery.REFUSED
    assert other.__notes__ == ["a note"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(3, "3"), (2.9998712, "3"), (1.2345, "1.2"), (0.25, "0.25"), (0.0123456, "0.012"), (3600.04, "3600")],
)
def test_seconds_are_rounded_in_texts(seconds: float, text: str) -> None:
    assert f"within {text} s" in str(errors.RequestTimeoutError("a:1", seconds))
    assert f"within {text} s" in str(errors.ReplyTimeoutError("T", seconds, None))


def test_remarks_of_peers_are_shortened_in_error_texts() -> None:
    flood = "no\n" * 2_000_000
    for code in (ResponseCode.SYSTEM_ERROR, ResponseCode.NO_PERMISSION):
        for words in (flood, "org.apache.rocketmq.acl.common.AclException: signature failed " + flood):
            error = broker_error(code, words, "a:1")
            assert len(str(error)) < 800
            assert f"({len(words)} characters)" in str(error)
            assert error.remark == words
    refused = errors.SqlFilterRefusedError("T", "a > 1", ResponseCode.SYSTEM_ERROR, flood, "a:1")
    assert len(str(refused)) < 800
    assert one_line("a\n b") == "a b"
    assert one_line("x" * 500) == "x" * 500
    assert one_line("x" * 501) == "x" * 500 + "... (501 characters)"
    assert one_line("") == one_line(None) == "no reason given"
