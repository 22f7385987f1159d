from __future__ import annotations

import pytest

from rocketmq_py.broker.config import BrokerConfig, parse_delay_levels
from rocketmq_py.errors import ConfigurationError


def test_default_delay_levels_are_those_of_real_brokers() -> None:
    config = BrokerConfig()
    assert config.delay_levels[:5] == (1, 5, 10, 30, 60)
    assert len(config.delay_levels) == 18
    assert config.delay_levels[-1] == 7200


@pytest.mark.parametrize("text", ["", "5", "s", "1x", "1.5s", "-1s", "1s,5s", "²s"])
def test_an_invalid_delay_level_is_an_error(text: str) -> None:
    with pytest.raises(ConfigurationError, match="message_delay_level"):
        BrokerConfig(message_delay_level=text)


def test_delay_levels_may_be_in_days() -> None:
    assert parse_delay_levels("0s 1d") == (0, 86400)


@pytest.mark.parametrize(
    "settings",
    [
        {"broker_name": ""},
        {"cluster_name": "a b"},
        {"default_topic_queue_nums": 0},
        {"default_topic_queue_nums": 65_537},
        {"max_message_size": 0},
        {"max_store_bytes": 0},
        {"max_store_messages": 0},
        {"channel_expired_timeout": 0},
        {"short_polling_time": -1},
        {"broker_permission": 8},
        {"timer_max_delay_sec": 0},
        {"transaction_time_out": -1},
        {"transaction_check_interval": 0},
        {"transaction_check_max": -1},
        {"default_message_request_mode": "PUSH"},
    ],
    ids=lambda settings: next(iter(settings)),
)
def test_the_error_names_the_invalid_setting(settings: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(settings))):
        BrokerConfig(**settings)  # type: ignore[arg-type]  # invalid on purpose
