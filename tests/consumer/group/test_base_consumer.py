"""Arguments and subscriptions that all consumers of a group share."""

from __future__ import annotations

from typing import Any

import pytest

from rocketmq_py.client import core_of
from rocketmq_py.consumer import LitePullConsumer, PopConsumer, PushConsumer
from rocketmq_py.consumer.group.membership import LEAVE_SECONDS
from rocketmq_py.consumer.lite_pull.settings import LitePullConsumerSettings
from rocketmq_py.consumer.pop.settings import PopConsumerSettings
from rocketmq_py.consumer.settings import PushConsumerSettings
from rocketmq_py.errors import ConfigurationError

CONSUMER_CLASSES: list[tuple[Any, Any]] = [
    (LitePullConsumer, LitePullConsumerSettings),
    (PopConsumer, PopConsumerSettings),
    (PushConsumer, PushConsumerSettings),
]


@pytest.mark.parametrize(("kind", "config"), CONSUMER_CLASSES)
def test_settings_are_keyword_arguments(kind: Any, config: Any) -> None:
    consumer = kind("127.0.0.1:9876", group="g", close_timeout=2, trace=True, request_timeout=1.5)
    assert consumer.settings == config(group="g", close_timeout=2, trace=True)
    leaving = LEAVE_SECONDS if kind is PushConsumer else 0
    assert (consumer._close_timeout, core_of(consumer).settings.request_timeout) == (2 + leaving, 1.5)
    with pytest.raises(ConfigurationError, match="group is missing"):
        kind("127.0.0.1:9876")
    with pytest.raises(ConfigurationError, match="there is no setting 'grupp'; did you mean 'group'"):
        kind("127.0.0.1:9876", grupp="g")


@pytest.mark.parametrize(("kind", "config"), CONSUMER_CLASSES)
def test_arguments_of_the_wrong_type_are_refused(kind: Any, config: Any) -> None:
    with pytest.raises(ConfigurationError, match="group must be a str, not int"):
        kind(group=5)
    consumer = kind(group="g")
    with pytest.raises(ConfigurationError, match="topic must be a str, not list"):
        consumer.subscribe(["a"])
    with pytest.raises(ConfigurationError, match=r"tags is \['A'\]; it must be a string, such as 'A \|\| B'"):
        consumer.subscribe("T", ["A"])
    with pytest.raises(ConfigurationError, match="sql is 5; it must be a string"):
        consumer.subscribe("T", sql=5)
