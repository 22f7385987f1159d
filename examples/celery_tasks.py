"""Celery tasks that send: each process of a worker opens a producer of its own when it first sends.

    pip install celery
    celery -A examples.celery_tasks worker

A module ``celeryconfig`` says where Celery keeps its own tasks; name servers are taken from NAMESRV_ADDR.
"""

from __future__ import annotations

from functools import cache

from celery import Celery

from rocketmq_py import Message
from rocketmq_py.blocking import Producer

app = Celery("shop")
app.config_from_object("celeryconfig", silent=True)


@cache
def producer() -> Producer:
    """One for the process: the worker's processes are forked before they run a task."""
    return Producer(group="shop")


@app.task  # type: ignore[untyped-decorator]
def order(number: int) -> str:
    """Return when the broker has stored the message."""
    return producer().send(Message("Orders", b"order %d" % number)).message_id
