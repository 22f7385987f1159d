from __future__ import annotations

import pytest

from rocketmq_py.consumer.group.handler_results import ConsumeLater, Suspend
from rocketmq_py.errors import ConfigurationError


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"delay_level": 19}, "delay_level is 19; it must be from -1 to 18"),
        ({"delay_level": -2}, "delay_level is -2; it must be from -1 to 18"),
        ({"done": -1}, "done is -1; it must be 0 or more"),
    ],
)
def test_consume_later_refuses_numbers_out_of_range(options: dict[str, int], text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        ConsumeLater(**options)


def test_suspend_refuses_a_negative_time() -> None:
    with pytest.raises(ConfigurationError, match="seconds is -1; it must be a finite number, 0 or more"):
        Suspend(-1)


def test_the_broker_chooses_the_delay_by_default() -> None:
    assert ConsumeLater() == ConsumeLater(delay_level=0, done=0)
    assert ConsumeLater(-1).delay_level == -1
