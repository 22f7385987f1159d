"""The relay: delivers messages at any time, on brokers that only support fixed delay levels.

Producers send delayed messages to a buffer topic. A ``Relay`` reads them into a ``Store`` on disk, one
``QueueStore`` for each queue of the buffer topic. A ``QueueDelivery`` sends the messages of each queue to
their topics when they are due. ``buffer_entries`` defines the messages of the buffer topic. Start reading in
``relay``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketmq_py.lazy import lazy_names
from rocketmq_py.producer.delay_relay import MESSAGE_ID, wait_in

if TYPE_CHECKING:
    from rocketmq_py.relay.relay import Relay, cancel
else:
    _, __getattr__, __dir__ = lazy_names(globals(), {"relay": ("Relay", "cancel")})

__all__ = ["MESSAGE_ID", "Relay", "cancel", "wait_in"]
