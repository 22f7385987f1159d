"""A kombu transport, so that Celery runs on RocketMQ.

Importing this module registers the URL scheme ``rocketmq``::

    import rocketmq_py.integrations.kombu  # registers rocketmq://
    from celery import Celery

    app = Celery("shop", broker="rocketmq://127.0.0.1:9876")

Needs the extra ``celery``. README.md in ``rocketmq_py/integrations`` lists the options and the limits.

A queue of kombu is a topic with one consumer group. Brokers 5.x deliver it by pop, with a visibility timeout
for each message. Brokers 4.x assign its queues to the workers.

Start reading in ``channel``. ``transport`` has the connection, and ``queues`` the queues that workers share
and those in which every process receives the messages of an exchange.
"""

from __future__ import annotations

try:
    from kombu.transport import TRANSPORT_ALIASES
except ImportError as _error:
    raise ImportError(
        "rocketmq_py.integrations.kombu needs kombu: install rocketmq-py[celery]", name="kombu"
    ) from _error

from rocketmq_py.integrations.kombu.transport import Transport

__all__ = ["Transport"]

TRANSPORT_ALIASES["rocketmq"] = "rocketmq_py.integrations.kombu:Transport"
