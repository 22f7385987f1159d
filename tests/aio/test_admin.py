"""Administration for asyncio."""

from __future__ import annotations

import pytest

from rocketmq_py.aio import Admin, Client
from rocketmq_py.errors import TopicNotFoundError
from tests.aio.conftest import run


def test_a_topic_by_an_address_and_by_a_client(address: str) -> None:
    async def main() -> None:
        async with Admin(address) as admin:
            assert await admin.topics.create("Orders", queues=2) == ("broker-a",)
            with pytest.raises(TopicNotFoundError):
                await admin.topics.describe("nowhere")
        async with Client(address) as client, client.admin() as admin:
            assert [one.topic for one in (await admin.topics.list()).topics] == ["Orders"]
            assert (await admin.clients.list()).failures == {}

    run(main())
