"""``rocketmq-py relay``: any delay on any broker, and what waits."""

from __future__ import annotations

import click

from rocketmq_py.cli.access import Access, takes_access
from rocketmq_py.cli.options import checked
from rocketmq_py.names import check_group, check_topic

_topic_option = click.option(
    "-t", "--topic", "topic", metavar="TOPIC", callback=checked(check_topic), help="The buffer topic."
)
_store_option = click.option(
    "--store", metavar="DIR", type=click.Path(file_okay=False), help="The folder of what waits."
)


@click.group(invoke_without_command=True)
@takes_access
@_topic_option
@_store_option
@click.option(
    "-G", "group", metavar="GROUP", callback=checked(check_group),
    help="The consumer group; relays in it share out the buffer topic's queues.  [default: RELAY_TOPIC]",
)  # fmt: skip
@click.option(
    "--max-rate", metavar="N", type=click.FloatRange(min=0, min_open=True), default=10_000, show_default=True,
    help="Messages a second at the most, also of those that are overdue.",
)  # fmt: skip
def relay(
    access: Access,
    topic: str | None,
    store: str | None,
    group: str | None,
    max_rate: float,
) -> None:
    """Deliver what waits in a buffer topic when it is due.

    Messages get there with `send --delay … --delay-relay TOPIC`, or from producers whose delay_relay is
    TOPIC. They must not expire there before they are due: see the brokers' fileReservedTime.

    It ends with exit code 0 on Ctrl-C or SIGTERM. What waits is in DIR then, and in the topic.
    """
    if click.get_current_context().invoked_subcommand is not None:
        return
    if topic is None or store is None:
        raise click.UsageError("a relay needs --topic and --store")

    from rocketmq_py.cli.relaying import run_relay
    from rocketmq_py.cli.running import run

    run(lambda: run_relay(access, topic, store, group, max_rate))


@relay.command()
@click.option("--store", metavar="DIR", type=click.Path(file_okay=False), required=True, help="Its folder.")
def status(store: str) -> None:
    """Print how many messages wait in a store, and when the next one is due; a relay may be using it."""
    from rocketmq_py.cli.relaying import status_of
    from rocketmq_py.cli.running import run_here

    run_here(lambda: status_of(store))


@relay.command("list")
@click.option("--store", metavar="DIR", type=click.Path(file_okay=False), required=True, help="Its folder.")
@click.option("-c", "count", metavar="COUNT", type=click.IntRange(min=1), help="Stop after COUNT messages.")
def list_(store: str, count: int | None) -> None:
    """Print the messages that wait in a store as lines of JSON, a queue after the other, each by time."""
    from rocketmq_py.cli.relaying import list_waiting
    from rocketmq_py.cli.running import run_here

    run_here(lambda: list_waiting(store, count))


@relay.command()
@takes_access
@click.option(
    "-t", "--topic", "topic", metavar="TOPIC", callback=checked(check_topic), required=True,
    help="The buffer topic.",
)  # fmt: skip
@click.argument("message_ids", metavar="ID...", nargs=-1, required=True)
def cancel(access: Access, topic: str, message_ids: tuple[str, ...]) -> None:
    """Have messages not be delivered, by the ids that `send -v` printed.

    The relay sees to it when it reads this from the buffer topic. What is delivered by then stays so.
    """
    from rocketmq_py.cli.relaying import cancel_waiting
    from rocketmq_py.cli.running import end_for_signal, run

    end_for_signal(run(lambda: cancel_waiting(access, topic, message_ids)))
