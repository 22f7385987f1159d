"""``rocketmq-py top``: the busiest topics and the groups with the largest lag."""

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING, Any, Final

import attrs
import click

from rocketmq_py.cli.admin_runner import failure_texts, print_not_offered, run_admin
from rocketmq_py.cli.clusters import Access, access_options
from rocketmq_py.cli.console import is_terminal
from rocketmq_py.cli.option_values import checked, parse_interval
from rocketmq_py.cli.options import group_option, topic_option
from rocketmq_py.cli.tables import (
    WATCH_INTERVAL,
    Field,
    Listing,
    OutputFormat,
    Table,
    format_time,
    output_option,
    print_result,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rocketmq_py.admin import Admin, GroupDescription, TopicDescription
    from rocketmq_py.errors import RocketMQError, UnsupportedByBrokerError
    from rocketmq_py.message import MessageQueue

_OTHER_LINES = 6
"""Lines of the terminal that the two tables need in addition to their rows."""
TOPICS: Final = Listing(
    Field("topic", "TOPIC"),
    Field("rate", "IN/S", right=True),
    Field("messages", "MESSAGES", right=True),
    Field("last_message_ms", "LAST MESSAGE", "last_ms", cell=format_time),
)
GROUPS: Final = Listing(
    Field("group", "GROUP"),
    Field("lag", "LAG", right=True),
    Field("rate", "OUT/S", right=True),
    Field("members", "MEMBERS", right=True),
)


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
@topic_option("Show only the topics and groups that are named. Repeatable.", name="topics", multiple=True)
@group_option(
    "Show this group, with --topic only its lag in these topics. Repeatable.", name="groups", multiple=True
)
@output_option
@access_options
def top(
    access: Access,
    output: OutputFormat,
    interval: float,
    once: bool,
    rows: int | None,
    topics: tuple[str, ...],
    groups: tuple[str, ...],
) -> None:
    """Show the topics with the highest rates and the groups with the largest lag, until Ctrl-C.

    IN/S is the rate of a topic between two samples. OUT/S is the rate of a group as brokers report it, or
    that of its committed offsets between two samples if a service does not offer it. Every sample describes
    each topic on each of its brokers. Services that do not list topics and groups need --topic and --group.
    """
    import trio

    if not once:
        click.get_current_context().meta[WATCH_INTERVAL] = interval
    monitor = ActivityMonitor(topics, groups)

    async def work(admin: Admin) -> Mapping[str, RocketMQError]:
        if once:
            await monitor.sample(admin)
            await trio.sleep(interval)
        activity = await monitor.sample(admin)
        tables = _tables(activity, rows or _rows_that_fit())
        if topics or groups:
            tables = [table for table, names in zip(tables, (topics, groups), strict=True) if names]
        print_result(output, _value(activity, rows), tables)
        print_not_offered(activity.not_offered)
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
class GroupActivity:
    """The activity of a group.

    Attributes:
        group: the group.
        lag: the number of messages that are not consumed yet.
        rate: messages per second: sent to the group as brokers report it, or consumed since the previous
            sample. None in the first sample if brokers do not report it.
        members: the number of members online. None if the service does not offer it.
    """

    group: str
    lag: int
    rate: float | None
    members: int | None


@attrs.frozen(kw_only=True)
class ClusterActivity:
    """The activity of a cluster.

    Attributes:
        topics: the topics, sorted by descending rate.
        groups: the groups, sorted by descending lag.
        failures: the errors of brokers that did not answer, and of topics and groups.
        not_offered: the parts that the service does not offer, with its errors.
    """

    topics: tuple[TopicActivity, ...]
    groups: tuple[GroupActivity, ...]
    failures: Mapping[str, RocketMQError]
    not_offered: Mapping[str, UnsupportedByBrokerError]


class ActivityMonitor:
    """Computes rates from the offsets of consecutive samples.

    Args:
        topics: the topics, if only some topics and groups are sampled.
        groups: the groups in this case.
    """

    def __init__(self, topics: Sequence[str] = (), groups: Sequence[str] = ()) -> None:
        self._topics = topics
        self._groups = groups
        self._end_offsets: dict[MessageQueue, int] = {}
        self._committed: dict[tuple[str, MessageQueue], int] = {}
        self._sampled_at: float | None = None

    async def sample(self, admin: Admin) -> ClusterActivity:
        """Return the activity since the previous sample.

        A service may not list its topics, or not its groups. Then ``failures`` has the error.

        Raises RocketMQError without a name server, and UnsupportedByBrokerError if the service lists neither.
        """
        import trio

        from rocketmq_py.admin.fan_out import query_each
        from rocketmq_py.admin.group_values import GROUP_RATE, GROUP_SETTINGS
        from rocketmq_py.admin.topic_values import TOPIC_SETTINGS
        from rocketmq_py.errors import TopicNotFoundError

        failures: dict[str, RocketMQError] = {}
        not_offered: dict[str, UnsupportedByBrokerError] = {}
        is_named = bool(self._topics or self._groups)
        names, listed = (self._topics, []) if is_named else await _list_all(admin, failures)
        results = await query_each(names, admin.topics.describe)
        for topic, error in results.failures.items():
            if is_named or not isinstance(error, TopicNotFoundError):  # else deleted in the meantime
                failures[f"topic {topic}"] = error
        described = results.values.values()
        for one in described:
            failures.update(one.failures)
            not_offered.update(one.not_offered)
        named = await query_each(
            self._groups, lambda group: admin.groups.describe(group, self._topics or None)
        )
        failures.update({f"group {group}": error for group, error in named.failures.items()})
        for of_group in named.values.values():
            failures.update(of_group.failures)
            not_offered.update(of_group.not_offered)
        now = trio.current_time()
        seconds = None if self._sampled_at is None else now - self._sampled_at
        topics = [self._activity(one, seconds) for one in described]
        groups = [*listed, *[self._group_activity(one, seconds) for one in named.values.values()]]
        self._sampled_at = now
        # Offsets of a broker that did not answer are kept for the next sample.
        self._end_offsets.update({queue.queue: queue.max_offset for one in described for queue in one.queues})
        for part in (TOPIC_SETTINGS, GROUP_SETTINGS, GROUP_RATE):  # not shown, or computed here
            not_offered.pop(part, None)
        return ClusterActivity(
            topics=tuple(sorted(topics, key=lambda one: (-(one.rate or 0), -one.messages, one.topic))),
            groups=tuple(sorted(groups, key=lambda one: (-one.lag, -(one.rate or 0), one.group))),
            failures=failures,
            not_offered=not_offered,
        )

    def _group_activity(self, group: GroupDescription, seconds: float | None) -> GroupActivity:
        from rocketmq_py.admin.group_values import MEMBERS

        offsets = {
            (group.group, queue.queue): queue.committed for topic in group.topics for queue in topic.queues
        }
        consumed = sum(max(offset - self._committed.get(key, offset), 0) for key, offset in offsets.items())
        self._committed.update(offsets)
        rate = group.rate
        if rate is None and seconds:
            rate = consumed / seconds
        return GroupActivity(
            group=group.group,
            lag=group.lag,
            rate=rate,
            members=None if MEMBERS in group.not_offered else len(group.members),
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


async def _list_all(
    admin: Admin, failures: dict[str, RocketMQError]
) -> tuple[Sequence[str], list[GroupActivity]]:
    """Return the names of all topics, and all groups. Failures of one of the two go to ``failures``.

    Raises UnsupportedByBrokerError if the service lists neither.
    """
    from rocketmq_py.errors import UnsupportedByBrokerError

    names: list[str] = []
    groups: list[GroupActivity] = []
    try:
        listing = await admin.topics.list()
        names = [one.topic for one in listing.topics]
        failures.update(listing.failures)
    except UnsupportedByBrokerError as refusal:
        failures["topics"] = UnsupportedByBrokerError(f"{refusal}. Name topics with --topic")
    try:
        of_groups = await admin.groups.list()
        groups = [
            GroupActivity(group=one.group, lag=one.lag, rate=one.rate, members=one.members)
            for one in of_groups.groups
        ]
        failures.update(of_groups.failures)
    except UnsupportedByBrokerError as refusal:
        if "topics" in failures:
            raise UnsupportedByBrokerError(
                f"{refusal}. Name topics with --topic, and groups with --group"
            ) from None
        failures["groups"] = UnsupportedByBrokerError(f"{refusal}. Name groups with --group")
    return names, groups


def _rows_that_fit() -> int | None:
    if not is_terminal(sys.stdout):
        return None
    return max((shutil.get_terminal_size().lines - _OTHER_LINES) // 2, 1)


def _value(activity: ClusterActivity, rows: int | None) -> dict[str, Any]:
    return {
        "topics": TOPICS.values(activity.topics[:rows]),
        "groups": GROUPS.values(activity.groups[:rows]),
        "failures": failure_texts(activity.failures),
        "not_offered": failure_texts(activity.not_offered),
    }


def _tables(activity: ClusterActivity, rows: int | None) -> list[Table]:
    return [TOPICS.table(activity.topics[:rows]), GROUPS.table(activity.groups[:rows])]
