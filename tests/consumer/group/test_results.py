from __future__ import annotations

import pytest

from rocketmq_py.consumer.group.results import ConsumeLater, Suspend
from rocketmq_py.errors import ConfigurationError


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"delay_level": 19}, "delay_level is 19; -1 to 18 are allowed"),
        ({"delay_level": -2}, "delay_level is -2; -1 to 18 are allowed"),
        ({"done": -1}, "done is -1; it must be 0 or more"),
    ],
)
def test_a_result_that_cannot_be_is_refused_where_it_is_made(options: dict[str, int], text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        ConsumeLater(**options)


def test_a_queue_cannot_be_suspended_until_before_now() -> None:
    with pytest.raises(ConfigurationError, match="seconds is -1; it must be 0 or more"):
        Suspend(-1)


def test_the_broker_chooses_unless_told_otherwise() -> None:
    assert ConsumeLater() == ConsumeLater(delay_level=0, done=0)
    assert ConsumeLater(-1).delay_level == -1
