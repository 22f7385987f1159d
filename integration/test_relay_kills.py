"""Relays killed at random on a broker that does not support exact delays: no accepted message is lost.

``make relay-kills`` kills each way a hundred times. The default is ten.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from integration.clusters.cluster import Cluster
from integration.clusters.plugin import COUNTED
from integration.sending import PATIENT
from rocketmq_py import Client
from tests.behaviours.conftest import create_topic
from tests.relay.kills import BUFFER, TARGET, Kills

KILLS = int(os.environ.get("RELAY_KILLS", "10"))


@pytest.mark.parametrize("members", [1, 2])
async def test_nothing_is_lost_or_early_and_repeats_have_their_id(
    members: int,
    own_cluster: Callable[..., Cluster],
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    """One of two relays is killed and restarted, with its store or without, so that its queues are
    reassigned.
    """
    cluster = own_cluster("4.9.7", settings=PATIENT)
    async with Client(cluster.name_servers) as client:
        await create_topic(client, BUFFER, queues=4)
        await create_topic(client, TARGET, queues=4)
        killing = Kills(
            cluster.name_servers, client, tmp_path, KILLS, members, random.Random(KILLS + members)
        )
        await killing.run()
    record_property(COUNTED, killing.check())
