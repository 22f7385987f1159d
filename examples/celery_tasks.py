"""Celery on RocketMQ: tasks go through a broker, and a task sends a message of its own.

    pip install 'rocketmq-py[celery]'
    NAMESRV_ADDR=10.0.0.1:9876 celery -A examples.celery_tasks worker
    NAMESRV_ADDR=10.0.0.1:9876 python -c "from examples.celery_tasks import order; order.delay(1)"

Brokers keep the countdown. A worker that is killed during a task loses none, because tasks are acknowledged
late.
"""

from __future__ import annotations

from functools import cache

from celery import Celery

import rocketmq_py.integrations.kombu  # noqa: F401  # registers rocketmq://
from rocketmq_py import Message
from rocketmq_py.blocking import Producer

app = Celery("shop", broker="rocketmq://")  # the name servers in NAMESRV_ADDR; or rocketmq://host:9876
app.conf.update(
    task_acks_late=True,
    task_ignore_result=True,
    broker_transport_options={"topic_prefix": "shop-", "visibility_timeout": 600},
)


@cache
def producer() -> Producer:
    """Return the producer of this process. Workers fork their processes before they run tasks."""
    return Producer(group="shop")


@app.task  # type: ignore[untyped-decorator]
def order(number: int) -> None:
    """Store an order, and remind of it two seconds later."""
    producer().send(Message("Orders", b"order %d" % number))
    remind.apply_async([number], countdown=2)


@app.task  # type: ignore[untyped-decorator]
def remind(number: int) -> None:
    """Store a reminder."""
    producer().send(Message("Orders", b"reminder %d" % number))
