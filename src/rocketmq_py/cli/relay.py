"""``rocketmq-py relay``: delayed messages on brokers of any version."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import click

from rocketmq_py.cli.clusters import Access, access_options
from rocketmq_py.cli.console import complain, print_out
from rocketmq_py.cli.options import group_option, topic_option

if TYPE_CHECKING:
    from rocketmq_py.message import MessageQueue
    from rocketmq_py.relay.buffer_entries import DelayedMessage
    from rocketmq_py.relay.store import Store

_required_store_option = click.option(
    "--store", metavar="DIR", type=click.Path(file_okay=False), required=True, help="Folder of the store."
)


@click.group(invoke_without_command=True)
@access_options
@topic_option("The buffer topic.")
@click.option("--store", metavar="DIR", type=click.Path(file_okay=False), help="Folder of the store.")
@group_option("Consumer group. Relays of a group share the buffer topic's queues.  [default: RELAY_TOPIC]")
@click.option(
    "--max-rate", metavar="N", type=click.FloatRange(min=0, min_open=True), default=10_000, show_default=True,
    help="Deliver at most N messages per second, overdue ones included.",
)  # fmt: skip
def relay(
    access: Access,
    topic: str | None,
    store: str | None,
    group: str | None,
    max_rate: float,
) -> None:
    """Deliver the messages of a buffer topic when they are due.

    `send --delay … --delay-relay TOPIC` and producers with delay_relay=TOPIC send messages there. The
    retention of the buffer topic must exceed their delay: see the brokers' fileReservedTime.

    Ctrl-C or SIGTERM ends it with exit code 0, as soon as brokers have answered the messages in flight. A
    second one does not wait for them. Waiting messages stay in DIR and in the topic.
    """
    if click.get_current_context().invoked_subcommand is not None:
        return
    if topic is None or store is None:
        raise click.UsageError("a relay needs --topic and --store")

    from rocketmq_py.cli.runner import run

    run(lambda: run_relay(access, topic, store, group, max_rate))


async def run_relay(access: Access, topic: str, store: str, group: str | None, max_rate: float) -> None:
    """Relay until a signal or until cancelled. Raises the errors of :class:`~rocketmq_py.relay.Relay`."""
    from rocketmq_py.cli.runner import log_warnings, until_signal
    from rocketmq_py.client import core_of
    from rocketmq_py.errors import TopicNotFoundError
    from rocketmq_py.relay import Relay
    from rocketmq_py.relay.settings import RelayOptions
    from rocketmq_py.shared_client import Client

    options = RelayOptions(max_rate=max_rate)
    if group is not None:
        options["group"] = group
    client = Client(access.address, **access.client_options())
    async with client, Relay(client, topic=topic, store=store, **options) as relay:
        complain(f"relaying topic {topic} with the store {store}")
        with until_signal():
            try:
                await core_of(client).routes.find(topic)
            except TopicNotFoundError as error:
                complain(f"{error}; waiting until it is created")
            log_warnings()
            await relay.run()


@relay.command()
@_required_store_option
def status(store: str) -> None:
    """Print the number of waiting messages and the next due time. A relay may be using the store."""
    from rocketmq_py.cli.runner import run_offline

    run_offline(lambda: _print_status(store))


def _print_status(folder: str) -> None:
    from rocketmq_py.relay.store import NEVER_MS, Store

    with Store(folder, read_only=True) as store:
        total, earliest = 0, NEVER_MS
        for queue in store.queues():
            stored = store.open_queue(queue)
            count = sum(1 for _ in stored.messages())
            due_ms = stored.earliest_due_ms()
            print_out(f"{_queue_name(queue)}  {count} waiting{_next_due(due_ms)}")
            total, earliest = total + count, min(earliest, due_ms)
        print_out(f"{total} waiting{_next_due(earliest)}")


def _next_due(due_ms: int) -> str:
    from rocketmq_py.relay.store import NEVER_MS

    if due_ms == NEVER_MS:
        return ""
    moment = datetime.fromtimestamp(due_ms / 1000).astimezone()
    return f", next due {moment.isoformat(sep=' ', timespec='milliseconds')}"


@relay.command("list")
@_required_store_option
@click.option("-c", "count", metavar="COUNT", type=click.IntRange(min=1), help="Stop after COUNT messages.")
def list_(store: str, count: int | None) -> None:
    """Print the waiting messages as lines of JSON, queue by queue, sorted by due time."""
    from rocketmq_py.cli.runner import run_offline

    run_offline(lambda: _print_waiting(store, count))


def _print_waiting(folder: str, count: int | None) -> None:
    from rocketmq_py.relay.store import Store

    with Store(folder, read_only=True) as store:
        for queue, message in itertools.islice(_waiting(store), count):
            print_out(
                json.dumps(
                    {
                        "message_id": message.message_id,
                        "due_ms": message.due_ms,
                        "topic": message.topic,
                        "tags": message.tags,
                        "keys": message.keys,
                        "properties": message.properties,
                        "size": len(message.body),
                        "queue": _queue_name(queue),
                    },
                    ensure_ascii=False,
                )
            )


def _waiting(store: Store) -> Iterator[tuple[MessageQueue, DelayedMessage]]:
    for queue in store.queues():
        for message in store.open_queue(queue).messages():
            yield queue, message


def _queue_name(queue: MessageQueue) -> str:
    return f"{queue.topic}/{queue.broker_name}/{queue.queue_id}"


@relay.command()
@access_options
@topic_option("The buffer topic.", required=True)
@click.argument("message_ids", metavar="ID...", nargs=-1, required=True)
def cancel(access: Access, topic: str, message_ids: tuple[str, ...]) -> None:
    """Cancel the delivery of messages. ID is a message id that `send -v` printed.

    The cancellation goes through the buffer topic and takes effect when the relay reads it. Messages that
    were delivered by then stay delivered.
    """
    from rocketmq_py.cli.runner import exit_for_signal, run

    exit_for_signal(run(lambda: _cancel(access, topic, message_ids)))


async def _cancel(access: Access, topic: str, message_ids: Sequence[str]) -> None:
    from rocketmq_py.relay import cancel
    from rocketmq_py.shared_client import Client

    async with Client(access.address, **access.client_options()) as client:
        for message_id in message_ids:
            await cancel(client, topic, message_id)
