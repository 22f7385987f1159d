"""Why a message is not stored, and what whoever sent it is told (Java: ``PutMessageStatus``)."""

from __future__ import annotations

import enum

from rocketmq_py.broker.config import BrokerConfig
from rocketmq_py.codes import ResponseCode


class PutStatus(enum.Enum):
    """What is wrong with a message; the names are Java's."""

    MESSAGE_ILLEGAL = enum.auto()
    """It is too large, or a number in it does not fit."""
    WHEEL_TIMER_MSG_ILLEGAL = enum.auto()
    """Its time is no number or too far away, or it would take back what is due already."""
    WHEEL_TIMER_NOT_ENABLE = enum.auto()
    """It wants to wait, and the broker has no timers."""


class NotStored(Exception):  # noqa: N818 - no error of the broker: a request is answered with it
    """A message was not stored."""

    def __init__(self, status: PutStatus) -> None:
        super().__init__(status.name)
        self.status = status


def explain(status: PutStatus, config: BrokerConfig) -> tuple[ResponseCode, str]:
    """Return the code and the remark of the answer to a send."""
    match status:
        case PutStatus.MESSAGE_ILLEGAL:
            return ResponseCode.MESSAGE_ILLEGAL, (
                "the message is illegal, maybe msg body or properties length not matched. msg body length "
                f"limit {config.max_message_size}B, msg properties length limit 32KB."
            )
        case PutStatus.WHEEL_TIMER_MSG_ILLEGAL:
            return ResponseCode.MESSAGE_ILLEGAL, (
                "timer message illegal, the delay time should not be bigger than the max delay "
                f"{config.timer_max_delay_sec * 1000}ms; or if set del msg, the delay time should be bigger "
                "than the current time"
            )
        case PutStatus.WHEEL_TIMER_NOT_ENABLE:
            return (
                ResponseCode.SYSTEM_ERROR,
                "accurate timer message is not enabled, timerWheelEnable is false",
            )
