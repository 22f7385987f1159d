"""A Django site under gunicorn: each forked worker opens a producer on its first send.

    pip install django gunicorn
    gunicorn --preload --workers 4 examples.django_site:application

Name servers are read from NAMESRV_ADDR, else 127.0.0.1:9876.
"""

from __future__ import annotations

import os
from functools import cache

import django
from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, JsonResponse
from django.urls import path

from rocketmq_py import Message
from rocketmq_py.blocking import Producer

settings.configure(ALLOWED_HOSTS=["127.0.0.1"], ROOT_URLCONF=__name__, SECRET_KEY=os.urandom(16).hex())
django.setup()


@cache
def producer() -> Producer:
    """Return this process's producer. Open it after the fork: a child process cannot use its parent's."""
    return Producer(group="shop")


def order(_: HttpRequest, number: int) -> JsonResponse:
    """Send an order, and respond when the broker has stored it."""
    result = producer().send(Message("Orders", b"order %d" % number))
    return JsonResponse({"message_id": result.message_id, "worker": os.getpid()})


urlpatterns = [path("orders/<int:number>", order)]
application = get_wsgi_application()
