"""Any delay on any broker: messages wait in a buffer topic and a store, and are sent when they are due."""

from rocketmq_py.producer.delay_relay import MAX_DELAY_SECONDS, MESSAGE_ID, wait_in
from rocketmq_py.relay.config import RelayConfig, RelayOptions
from rocketmq_py.relay.relay import Relay, cancel
from rocketmq_py.relay.store import StoreError

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
