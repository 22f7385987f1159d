"""Any delay on any broker: messages wait in a buffer topic and a store, and are sent when they are due."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketmq_py.lazy import lazy_attributes
from rocketmq_py.producer.delay_relay import MAX_DELAY_SECONDS, MESSAGE_ID, wait_in

if TYPE_CHECKING:
    from rocketmq_py.relay.config import RelayConfig, RelayOptions
    from rocketmq_py.relay.relay import Relay, cancel
    from rocketmq_py.relay.store import StoreError
else:
    __getattr__ = lazy_attributes(
        globals(),
        {
            "config": ("RelayConfig", "RelayOptions"),
            "relay": ("Relay", "cancel"),
            "store": ("StoreError",),
        },
    )

__all__ = [
    "MAX_DELAY_SECONDS",
    "MESSAGE_ID",
    "Relay",
    "RelayConfig",
    "RelayOptions",
    "StoreError",
    "cancel",
    "wait_in",
]
