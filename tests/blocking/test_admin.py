"""Administration for threads."""

from __future__ import annotations

import pytest

from rocketmq_py.blocking import Admin, Client
from rocketmq_py.client import core_of
from rocketmq_py.errors import ClosedError, TopicNotFoundError


def test_a_topic_and_a_group(client: Client) -> None:
    with client.admin() as admin:
        assert admin.topics.create("Orders", queues=2) == ("broker-a",)
        assert [one.topic for one in admin.topics.list().topics] == ["Orders"]
        admin.groups.create("billing", max_reconsume_times=3)
        moves = admin.offsets.reset("billing", "Orders", "latest")
        assert [move.after for move in moves] == [0, 0]
        described = admin.groups.describe("billing")
        assert (described.lag, described.settings["broker-a"].max_reconsume_times) == (0, 3)
        with pytest.raises(TopicNotFoundError):
            admin.topics.describe("nowhere")
        assert admin.dead_letters.list("billing").total == 0
    with pytest.raises(ClosedError):
        admin.topics.list()


def test_by_an_address(client: Client) -> None:
    with client.admin() as shared:
        (broker,) = shared.brokers.list().brokers
    name_servers = core_of(client._target).name_servers.addresses
    with Admin(name_servers) as admin:
        assert admin.brokers.describe("broker-a").address == broker.address
