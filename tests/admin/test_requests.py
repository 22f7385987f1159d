"""The embedded broker, or its name server, supports every request of ``Admin``."""

from __future__ import annotations

import importlib
import pkgutil

import pytest

from rocketmq_py import admin
from rocketmq_py.broker.config import BrokerConfig
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.protocol.headers.base import Request
from tests.broker.offline import OfflineBroker

NOT_IN_5 = {RequestCode.GET_BROKER_CLUSTER_ACL_INFO}
"""Requests that 5.5.0 does not support: it no longer has ACL 1.0."""


def requests_of_admin() -> dict[int, type[Request]]:
    found: dict[int, type[Request]] = {}
    for module in pkgutil.iter_modules(admin.__path__, "rocketmq_py.admin."):
        for value in vars(importlib.import_module(module.name)).values():
            if isinstance(value, type) and issubclass(value, Request) and value is not Request:
                found[value.code] = value
    return found


@pytest.mark.parametrize("code", sorted(requests_of_admin()))
async def test_the_embedded_broker_or_its_name_server_supports_the_request(code: int) -> None:
    broker = OfflineBroker(BrokerConfig())
    client = broker.connect()
    client.send_request(code, {}, b"")
    answers = [client.answers.pop(), client.ask_name_server(code, {})]
    known = [answer for answer in answers if answer.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED]
    assert len(known) == (0 if code in NOT_IN_5 else 1), RequestCode(code).name
