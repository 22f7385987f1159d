"""Messages that are delivered several times and handled once."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import trio

from rocketmq_py import Client, Message, PushConsumer, ReceivedMessage
from rocketmq_py.allocation import AllocateByBroker, allocate_averagely
from rocketmq_py.client import core_of
from rocketmq_py.client.features import POP
from rocketmq_py.deduplication import Deduplicate, SQLiteStore
from tests.behaviours.apis import new
from tests.behaviours.conftest import ClusterUnderTest, create_topic
from tests.behaviours.reading import PATIENCE
from tests.behaviours.test_typed_bodies import set_pop_mode

pytestmark = [pytest.mark.apis, pytest.mark.sockets]

COUNT, KILLS = 400, 3
KINDS: Mapping[str, dict[str, Any]] = {
    "concurrent": {},
    "lists": {"batch_size": 4},
    "orderly": {"orderly": True, "suspend_current_queue": 0.1},
    "pop": {"allocate": AllocateByBroker(), "invisible": 30.0},
}


@pytest.mark.parametrize("kind", KINDS)
async def test_message_that_was_sent_twice_is_handled_once(
    cluster: ClusterUnderTest, client: Client, topic: str, unique: str, tmp_path: Path, kind: str
) -> None:
    group, handled = f"group-{unique}", list[str]()
    if kind == "pop":
        cluster.needs(POP)
        await set_pop_mode(client, topic, group)
    options = {"allocate": allocate_averagely, **KINDS[kind]}

    async def handle(message: ReceivedMessage) -> None:
        handled.extend(message.keys)
        if message.body == b"fails" and handled.count(message.keys[0]) == 1:
            raise ValueError("the first call fails")

    async def handle_list(messages: list[ReceivedMessage]) -> None:
        for message in messages:
            handled.extend(message.keys)

    async with client.producer("senders") as producer:
        queue = (await core_of(client).routes.get(topic)).write_queues[0]
        for name in ("a", "b", "a", "b", "c"):
            await producer.send(Message(topic, b"x", keys=name), queue=queue)
        fails = kind == "orderly"  # others retry after 10 seconds
        await producer.send(Message(topic, b"fails" if fails else b"x", keys="d"), queue=queue)
        await producer.send(Message(topic, b"x", keys="last"), queue=queue)
    store = SQLiteStore(tmp_path / "handled.sqlite")
    deduplicated: Any = Deduplicate(store, key="keys", claim_timeout=5.0)
    consumer = new(client, PushConsumer, cluster.address, group=group, consume_from="earliest", **options)
    with_callbacks: Callable[..., Any] = handle_list if kind == "lists" else handle
    if hasattr(consumer, "_caller"):  # handlers of the other APIs run in trio
        adapted: Any = consumer
        with_callbacks = adapted._caller.callback(with_callbacks)
    async with consumer, trio.open_nursery() as nursery:
        consumer.subscribe(topic)
        nursery.start_soon(consumer.run, deduplicated(with_callbacks))
        with trio.fail_after(PATIENCE):
            while {*handled} != {"a", "b", "c", "d", "last"} or consumer.statistics.in_flight:
                await trio.sleep(0.05)
        consumer.stop()
    store.close()
    assert sorted(handled) == sorted(["a", "b", "c", "d", "last", *(["d"] if fails else [])])


@pytest.mark.apis("trio")
@pytest.mark.long
async def test_each_effect_happens_once_although_members_are_killed(
    cluster: ClusterUnderTest, client: Client, unique: str, tmp_path: Path
) -> None:
    """Two members run at a time. After each share of the effects, one is killed inside its transaction."""
    database = tmp_path / "shop.sqlite"
    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        connection.execute("CREATE TABLE effects (body BLOB)")
    await create_topic(client, unique, queues=8)
    command = [
        sys.executable, "-m", "tests.behaviours.deduplicating_program",
        cluster.address, f"group-{unique}", unique, str(database),
    ]  # fmt: skip

    def effects(query: str) -> Any:
        with closing(sqlite3.connect(database)) as connection:
            return connection.execute(query).fetchall()

    async with client.producer("senders") as producer:
        for number in range(2 * COUNT):
            body = b"%d" % (number % COUNT)
            await producer.submit(Message(unique, body, keys=f"key-{body.decode()}"))
    members: list[trio.Process] = []
    try:
        with trio.fail_after(2 * PATIENCE):
            for share in range(1, KILLS + 2):
                while len(members) < share + 1:
                    members.append(await trio.lowlevel.open_process(command))
                while effects("SELECT COUNT(*) FROM effects")[0][0] < COUNT * share // (KILLS + 1):
                    await trio.sleep(0.02)
                if share <= KILLS:
                    Path(f"{database}.kill").touch()
                    while sum(member.poll() is not None for member in members) < share:
                        await trio.sleep(0.02)
            while effects("SELECT COUNT(DISTINCT body) FROM effects")[0][0] < COUNT:
                await trio.sleep(0.05)
    finally:
        for member in members:
            member.kill()
        with trio.CancelScope(shield=True):
            for member in members:
                await member.wait()
    assert effects("SELECT body FROM effects GROUP BY body HAVING COUNT(*) > 1") == []
    assert effects("SELECT COUNT(*) FROM effects") == [(COUNT,)]
