"""``rocketmq-py top``: the busiest topics and the groups with the largest lag."""

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING, Any

import attrs
import click

from rocketmq_py.cli.admin_runner import failure_texts, run_admin
from rocketmq_py.cli.cluster_access import Access, access_options
from rocketmq_py.cli.console import is_terminal
from rocketmq_py.cli.option_values import checked, parse_interval
from rocketmq_py.cli.tables import (
    WATCH_INTERVAL,
    Column,
    OutputFormat,
    Table,
    format_time,
    output_option,
    print_result,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rocketmq_py.admin import Admin, TopicDescription
    from rocketmq_py.admin.group_values import GroupSummary
    from rocketmq_py.errors import RocketMQError
    from rocketmq_py.message import MessageQueue

_OTHER_LINES = 6
"""Lines of the terminal that the two tables need in addition to their rows."""


@click.command
@click.option(
    "--interval", metavar="TIME", callback=checked(parse_interval), default="2s", show_default=True,
    help="Time between two samples: 2 (seconds), 500ms, 1m.",
)  # fmt: skip
@click.option("--once", is_flag=True, help="Take two samples, print the rates between them, and exit.")
@click.option(
    "--rows", metavar="N", type=click.IntRange(min=1),
    help="Show at most N topics and N groups.  [default: as many as fit the terminal]",
)  # fmt: skip
@output_option
@access_options
def top(access: Access, output: OutputFormat, interval: float, once: bool, rows: int | None) -> None:
    """Show the topics with the highest rates and the groups with the largest lag, until Ctrl-C.

    IN/S is the rate of a topic between two samples. OUT/S is the rate of a group as brokers report it. Every
    sample describes each topic on each of its brokers.
    """
    import trio

    if not once:
        click.get_current_context().meta[WATCH_INTERVAL] = interval
    monitor = ActivityMonitor()

    async def work(admin: Admin) -> Mapping[str, RocketMQError]:
        if once:
            await monitor.sample(admin)
            await trio.sleep(interval)
        activity = await monitor.sample(admin)
        print_result(output, _value(activity, rows), _tables(activity, rows or _rows_that_fit()))
        return activity.failures

    run_admin(access, work)


@attrs.frozen(kw_only=True)
class TopicActivity:
    """The activity of a topic.

    Attributes:
        topic: the topic.
        rate: messages stored per second since the previous sample. None in the first sample.
        messages: number of messages.
        last_ms: store time of the newest message, epoch milliseconds. None if there is none.
    """

    topic: str
    rate: float | None
    messages: int
    last_ms: int | None


@attrs.frozen(kw_only=True)
class ClusterActivity:
    """The activity of a cluster.

    Attributes:
        topics: all topics, sorted by descending rate.
        groups: all groups, sorted by descending lag.
        failures: the errors of brokers that did not answer.
    """

    topics: tuple[TopicActivity, ...]
    groups: tuple[GroupSummary, ...]
    failures: Mapping[str, RocketMQError]


class ActivityMonitor:
    """Computes rates from the offsets of consecutive samples."""

    def __init__(self) -> None:
        self._end_offsets: dict[MessageQueue, int] = {}
        self._sampled_at: float | None = None

    async def sample(self, admin: Admin) -> ClusterActivity:
        """Return the activity since the previous sample.

        A service may not list its topics, or not its groups. Then ``failures`` has the error.

        Raises RocketMQError without a name server, and UnsupportedByBrokerError if the service lists neither.
        """
        import trio

        from rocketmq_py.admin.fan_out import query_each
        from rocketmq_py.errors import TopicNotFoundError, UnsupportedByBrokerError

        names: list[str] = []
        groups: tuple[GroupSummary, ...] = ()
        failures: dict[str, RocketMQError] = {}
        try:
            listing = await admin.topics.list()
            names = [one.topic for one in listing.topics]
            failures.update(listing.failures)
        except UnsupportedByBrokerError as refusal:
            failures["topics"] = refusal
        try:
            of_groups = await admin.groups.list()
            groups = of_groups.groups
            failures.update(of_groups.failures)
        except UnsupportedByBrokerError as refusal:
            if "topics" in failures:
                raise
            failures["groups"] = refusal
        results = await query_each(names, admin.topics.describe)
        for topic, error in results.failures.items():
            if not isinstance(error, TopicNotFoundError):  # deleted in the meantime
                failures[f"topic {topic}"] = error
        described = results.values.values()
        for one in described:
            failures.update(one.failures)
        now = trio.current_time()
        seconds = None if self._sampled_at is None else now - self._sampled_at
        topics = [self._activity(one, seconds) for one in described]
        self._sampled_at = now
        # Offsets of a broker that did not answer are kept for the next sample.
        self._end_offsets.update({queue.queue: queue.max_offset for one in described for queue in one.queues})
        return ClusterActivity(
            topics=tuple(sorted(topics, key=lambda one: (-(one.rate or 0), -one.messages, one.topic))),
            groups=tuple(sorted(groups, key=lambda one: (-one.lag, -one.rate, one.group))),
            failures=failures,
        )

    def _activity(self, topic: TopicDescription, seconds: float | None) -> TopicActivity:
        # New queues, and those of a topic that was created again, count from the next sample.
        stored = sum(
            max(one.max_offset - self._end_offsets.get(one.queue, one.max_offset), 0) for one in topic.queues
        )
        return TopicActivity(
            topic=topic.topic,
            rate=stored / seconds if seconds else None,
            messages=topic.messages,
            last_ms=topic.last_message_ms,
        )


def _rows_that_fit() -> int | None:
    if not is_terminal(sys.stdout):
        return None
    return max((shutil.get_terminal_size().lines - _OTHER_LINES) // 2, 1)


def _value(activity: ClusterActivity, rows: int | None) -> dict[str, Any]:
    return {
        "topics": [
            {"topic": one.topic, "rate": one.rate, "messages": one.messages, "last_message_ms": one.last_ms}
            for one in activity.topics[:rows]
        ],
        "groups": [
            {"group": one.group, "lag": one.lag, "rate": one.rate, "members": one.members}
            for one in activity.groups[:rows]
        ],
        "failures": failure_texts(activity.failures),
    }


def _tables(activity: ClusterActivity, rows: int | None) -> list[Table]:
    topics = Table(
        [
            Column("TOPIC"),
            Column("IN/S", right=True),
            Column("MESSAGES", right=True),
            Column("LAST MESSAGE"),
        ],
        [(one.topic, one.rate, one.messages, format_time(one.last_ms)) for one in activity.topics[:rows]],
    )
    groups = Table(
        [
            Column("GROUP"),
            Column("LAG", right=True),
            Column("OUT/S", right=True),
            Column("MEMBERS", right=True),
        ],
        [(one.group, one.lag, one.rate, one.members) for one in activity.groups[:rows]],
    )
    return [topics, groups]
