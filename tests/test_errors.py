from __future__ import annotations

import inspect
import pickle

import pytest

from rocketmq_py import errors
from rocketmq_py.codes import ResponseCode, response_name
from rocketmq_py.errors import (
    BrokerBusyError,
    BrokerError,
    BrokerTopicError,
    Delivery,
    MessageRefusedError,
    RetriableBrokerError,
    RocketMQError,
    SubscriptionError,
)


@pytest.mark.parametrize(
    ("code", "kind", "retriable", "spoils_route"),
    [
        (ResponseCode.SYSTEM_ERROR, RetriableBrokerError, True, False),
        (ResponseCode.SYSTEM_BUSY, BrokerBusyError, True, False),
        (ResponseCode.SERVICE_NOT_AVAILABLE, RetriableBrokerError, True, False),
        (ResponseCode.NO_PERMISSION, BrokerTopicError, True, True),
        (ResponseCode.TOPIC_NOT_EXIST, BrokerTopicError, True, True),
        (ResponseCode.NO_BUYER_ID, RetriableBrokerError, True, False),
        (ResponseCode.NOT_IN_CURRENT_UNIT, RetriableBrokerError, True, False),
        (ResponseCode.MESSAGE_ILLEGAL, MessageRefusedError, False, False),
        (ResponseCode.SUBSCRIPTION_PARSE_FAILED, SubscriptionError, False, False),
        (987654, BrokerError, False, False),
    ],
)
def test_a_code_says_what_may_be_done_about_it(
    code: int, kind: type[BrokerError], retriable: bool, spoils_route: bool
) -> None:
    error = BrokerError.from_answer(code, "why", "127.0.0.1:1")
    assert type(error) is kind
    assert (error.retriable, error.spoils_route) == (retriable, spoils_route)
    assert error.delivery is Delivery.REFUSED
    assert str(error) == f"127.0.0.1:1 answered {response_name(code)} ({code}): why"


def test_a_remark_of_several_lines_is_told_in_one() -> None:
    error = BrokerError(1, "first\nSee https://example.org for more", "a:1")
    assert "\n" not in str(error)
    assert error.remark == "first\nSee https://example.org for more"
    assert str(BrokerError(1, None, "a:1")).endswith("no reason given")


def test_all_errors_are_of_one_tree() -> None:
    classes = [value for _, value in inspect.getmembers(errors, inspect.isclass)]
    own = [value for value in classes if value.__module__ == errors.__name__ and issubclass(value, Exception)]
    assert len(own) > 15
    assert all(issubclass(value, RocketMQError) for value in own)


def test_no_error_is_both_retriable_and_known_to_be_in_vain() -> None:
    assert not errors.InvalidMessageError.retriable
    assert not errors.ConfigurationError.retriable
    assert not errors.ClosedError.retriable
    assert pickle.loads(pickle.dumps(errors.ClosedError("x"))).args == ("x",)
