"""Deleting a group whose topics could not be deleted at first."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from rocketmq_py import Client
from rocketmq_py.admin import GroupNotFoundError, groups
from rocketmq_py.client import core_of
from rocketmq_py.errors import (
    NameServerError,
    RocketMQError,
)
from rocketmq_py.testing import World, simulate


def test_deleting_a_group_again_deletes_the_topics_that_an_error_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def fail(*_: Any) -> None:
        await trio.lowlevel.checkpoint()
        raise NameServerError({"10.0.0.1:9876": "refused"})

    async def program(world: World) -> None:
        async with Client(world.name_server_address) as client, client.admin() as admin:
            await admin.groups.create("billing")
            for topic in ("%RETRY%billing", "%DLQ%billing"):
                await admin.topics.create(topic, queues=1)
            with monkeypatch.context() as patch:
                patch.setattr(groups, "call_all_name_servers", fail)
                with pytest.raises(RocketMQError, match="no name server answered"):
                    await admin.groups.delete("billing", dead_letters=True)
            with pytest.raises(GroupNotFoundError):
                await admin.groups.delete("billing", dead_letters=True)
            assert not {"%RETRY%billing", "%DLQ%billing"} & set(await core_of(client).name_servers.topics())

    simulate(program, seed=1)
