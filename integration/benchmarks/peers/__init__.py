"""The measured clients."""

from __future__ import annotations

from pathlib import Path

from integration.benchmarks.peers import go, java, official, pyrocketmq
from integration.benchmarks.peers.ours import (
    aio,
    batching,
    blocking,
    blocking_thread,
    floor,
    floor_of_loop,
    floor_of_threads,
    floor_of_trio,
    ours,
    plain,
)
from integration.benchmarks.peers.peer import Peer


def all_peers(profiles: Path | None = None) -> dict[str, Peer]:
    """Return all clients by key. Runs of this project write profiles to the folder ``profiles``, if given."""
    project = [
        ours(profiles),
        batching(profiles),
        plain(profiles),
        blocking(),
        blocking_thread(),
        aio("asyncio"),
        aio("uvloop"),
        floor(),
        floor_of_trio(),
        floor_of_loop("asyncio"),
        floor_of_loop("uvloop"),
        floor_of_threads(),
    ]
    peers = [java.WARM, java.JUST_STARTED, go.GO, official.OFFICIAL, pyrocketmq.PYROCKETMQ, *project]
    return {peer.key: peer for peer in peers}
