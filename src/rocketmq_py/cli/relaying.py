"""Runs a relay until it is cancelled, and prints what waits."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from datetime import datetime

from rocketmq_py.cli.access import Access
from rocketmq_py.cli.console import complain, print_out
from rocketmq_py.cli.running import show_warnings
from rocketmq_py.errors import TopicNotFoundError
from rocketmq_py.message import MessageQueue
from rocketmq_py.relay.entries import Waiting
from rocketmq_py.relay.store import NEVER_MS, Store


async def run_relay(access: Access, topic: str, store: str, group: str | None, max_rate: float) -> None:
    """Relay until cancelled. Raises what the relay raises."""
    from rocketmq_py.relay import Relay, RelayOptions
    from rocketmq_py.shared_client import Client

    options = RelayOptions(max_rate=max_rate)
    if group is not None:
        options["group"] = group
    client = Client(access.name_servers, **access.client_options())
    async with client, Relay(client, topic=topic, store=store, **options) as relay:
        complain(f"relaying topic {topic} with the store {store}")
        try:
            await client.routes.get(topic)
        except TopicNotFoundError as error:
            complain(f"{error}; waiting until it is created")
        show_warnings()
        await relay.run()


def status_of(folder: str) -> None:
    """Print a line for each buffer queue, and one for all. Raises ConfigurationError if there is no store."""
    with Store(folder, read_only=True) as store:
        total, earliest = 0, NEVER_MS
        for queue in store.queues():
            of_queue = store.queue(queue)
            count = sum(1 for _ in of_queue.waiting())
            due_ms = of_queue.earliest_ms()
            print_out(f"{_name(queue)}  {count} waiting{_next_due(due_ms)}")
            total, earliest = total + count, min(earliest, due_ms)
        print_out(f"{total} waiting{_next_due(earliest)}")


def list_waiting(folder: str, count: int | None) -> None:
    """Print the messages that wait, ``count`` at the most. Raises ConfigurationError as :func:`status_of`."""
    with Store(folder, read_only=True) as store:
        for queue, message in itertools.islice(_waiting(store), count):
            print_out(
                json.dumps(
                    {
                        "id": message.message_id,
                        "due_ms": message.due_ms,
                        "topic": message.topic,
                        "tags": message.tags,
                        "keys": message.keys,
                        "properties": message.properties,
                        "size": len(message.body),
                        "queue": _name(queue),
                    },
                    ensure_ascii=False,
                )
            )


async def cancel_waiting(access: Access, topic: str, message_ids: Sequence[str]) -> None:
    """Cancel messages. Raises what a send raises."""
    from rocketmq_py.relay import cancel
    from rocketmq_py.shared_client import Client

    async with Client(access.name_servers, **access.client_options()) as client:
        for message_id in message_ids:
            await cancel(client, topic, message_id)


def _waiting(store: Store) -> Iterator[tuple[MessageQueue, Waiting]]:
    for queue in store.queues():
        for message in store.queue(queue).waiting():
            yield queue, message


def _name(queue: MessageQueue) -> str:
    return f"{queue.topic}/{queue.broker_name}/{queue.queue_id}"


def _next_due(due_ms: int) -> str:
    if due_ms == NEVER_MS:
        return ""
    moment = datetime.fromtimestamp(due_ms / 1000).astimezone()
    return f", the next due {moment.isoformat(sep=' ', timespec='milliseconds')}"
