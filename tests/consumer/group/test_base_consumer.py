"""Arguments and subscriptions that all consumers of a group share."""

from __future__ import annotations

from typing import Any

import pytest

from rocketmq_py.client.config import ClientConfig
from rocketmq_py.consumer import (
    LitePullConsumer,
    LitePullConsumerConfig,
    PopConsumer,
    PopConsumerConfig,
    PushConsumer,
    PushConsumerConfig,
)
from rocketmq_py.errors import ConfigurationError

CONSUMER_CLASSES: list[tuple[Any, Any]] = [
    (LitePullConsumer, LitePullConsumerConfig),
    (PopConsumer, PopConsumerConfig),
    (PushConsumer, PushConsumerConfig),
]


@pytest.mark.parametrize(("kind", "config"), CONSUMER_CLASSES)
def test_settings_are_given_as_keywords_or_as_config_objects(kind: Any, config: Any) -> None:
    shared = ClientConfig(request_timeout=1.5)
    consumer = kind("127.0.0.1:9876", config(group="g", close_timeout=2), shared, trace=True)
    assert consumer.config == config(group="g", close_timeout=2, trace=True)
    assert (consumer.close_timeout, consumer.client.config.request_timeout) == (2, 1.5)
    with pytest.raises(ConfigurationError, match="group is missing"):
        kind("127.0.0.1:9876")
    with pytest.raises(ConfigurationError, match="group is given twice"):
        kind("127.0.0.1:9876", config(group="g"), group="h")
    with pytest.raises(ConfigurationError, match="there is no option 'grupp'; did you mean 'group'"):
        kind("127.0.0.1:9876", grupp="g")


@pytest.mark.parametrize(("kind", "config"), CONSUMER_CLASSES)
def test_arguments_of_the_wrong_type_are_refused(kind: Any, config: Any) -> None:
    with pytest.raises(ConfigurationError, match="group must be a str, not int"):
        kind(group=5)
    consumer = kind(group="g")
    with pytest.raises(ConfigurationError, match="topic must be a str, not list"):
        consumer.subscribe(["a"])
    with pytest.raises(ConfigurationError, match=r"tags is \['A'\]; it must be a string"):
        consumer.subscribe("T", ["A"])
    with pytest.raises(ConfigurationError, match="sql is 5; it must be a string"):
        consumer.subscribe("T", sql=5)
