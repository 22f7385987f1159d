"""Run Celery tasks over RocketMQ. The tasks themselves also send messages.

    pip install "./rocketmq-py[celery]"
    NAMESRV_ADDR=10.0.0.1:9876 celery -A examples.celery_tasks worker
    NAMESRV_ADDR=10.0.0.1:9876 python -c "from examples.celery_tasks import order; order.delay(1)"

The broker delays tasks with a countdown. A task whose worker is killed runs again, because tasks are
acknowledged late.
"""

from __future__ import annotations

from functools import cache

from celery import Celery

import rocketmq_py.integrations.kombu  # noqa: F401  # registers rocketmq://
from rocketmq_py import Message
from rocketmq_py.blocking import Producer

app = Celery("shop", broker="rocketmq://")  # name servers from NAMESRV_ADDR, or rocketmq://host:9876
app.conf.update(
    task_acks_late=True,
    task_ignore_result=True,
    broker_transport_options={"topic_prefix": "shop-", "visibility_timeout": 600},
)


@cache
def producer() -> Producer:
    """Return this process's producer. It is opened on first use, after the worker has forked."""
    return Producer(group="shop")


@app.task  # type: ignore[untyped-decorator]
def order(number: int) -> None:
    """Send an order, and schedule its reminder two seconds later."""
    producer().send(Message("Orders", b"order %d" % number))
    remind.apply_async([number], countdown=2)


@app.task  # type: ignore[untyped-decorator]
def remind(number: int) -> None:
    """Send a reminder."""
    producer().send(Message("Orders", b"reminder %d" % number))
