"""The options of the source, batch and streaming."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Self

import attrs

from rocketmq_py.message import MessageQueue
from rocketmq_py.names import check_group, check_topic
from rocketmq_py.position import Position
from rocketmq_py.protocol.subscription import ALL, make_subscription
from rocketmq_py.spark.arrow_schema import SOURCE_COLUMNS
from rocketmq_py.spark.options import (
    SOURCES,
    ConnectionOptions,
    Option,
    ParsedOptions,
    Role,
    boolean,
    duration,
    size,
    text,
    whole_number,
)
from rocketmq_py.spark.positions import (
    COMMITTED,
    Positions,
    parse_assignment,
    parse_offsets,
    parse_times,
)
from rocketmq_py.spark.schema import parse_columns

_STREAM = frozenset({Role.STREAM_SOURCE})
_BATCH = frozenset({Role.BATCH_SOURCE})


def _topics(value: str) -> tuple[str, ...]:
    topics = tuple(dict.fromkeys([each.strip() for each in value.split(",") if each.strip()]))
    if not topics:
        raise ValueError("one topic, or several separated by commas")
    for topic in topics:
        check_topic(topic)
    return topics


def _pattern(value: str) -> str:
    try:
        re.compile(text(value))
    except re.error as error:
        raise ValueError(f"a regular expression ({error})") from None
    return value.strip()


def _tags(value: str) -> str:
    return make_subscription("topic", text(value), version_ms=0).sub_string


SOURCE_OPTIONS: tuple[Option, ...] = (
    Option("topic", _topics, SOURCES),
    Option("topicPattern", _pattern, SOURCES),
    Option("assign", parse_assignment, SOURCES),
    Option("startingOffsets", parse_offsets, SOURCES),
    Option("startingTimestamp", parse_times, SOURCES),
    Option("endingOffsets", parse_offsets, _BATCH),
    Option("endingTimestamp", parse_times, _BATCH),
    Option("maxOffsetsPerTrigger", whole_number(1), _STREAM),
    Option("maxBytesPerTrigger", size, _STREAM),
    Option("minOffsetsPerTrigger", whole_number(1), _STREAM),
    Option("maxTriggerDelay", duration, _STREAM),
    Option("minPartitions", whole_number(1, 1_000_000), SOURCES),
    Option("maxRecordsPerPartition", whole_number(1), SOURCES),
    Option("failOnDataLoss", boolean, SOURCES),
    Option("consumerGroup", check_group, SOURCES),
    Option("tags", _tags, SOURCES),
    Option("sql", text, SOURCES),
    Option("maxBufferedBytes", size, SOURCES),
    Option("columns", parse_columns, SOURCES),
)


@attrs.frozen(kw_only=True)
class SourceOptions:
    """The parsed options of a source. The name of each option stands in parentheses.

    Exactly one of ``topics``, ``topic_pattern`` and ``assign`` is set.

    Args:
        connection: how to reach the cluster.
        topics: (topic) names, separated by commas.
        topic_pattern: (topicPattern) a Python regular expression that must match the whole name. A stream
            also reads topics that are created while it runs. System, retry and dead letter topics never
            match.
        assign: (assign) read only these queues: ``{"topic": {"broker-a": [0, 1]}}``.
        starting: (startingOffsets or startingTimestamp) where a new query begins: ``earliest``, ``latest``,
            or by path, ``{"orders": {"broker-a": {"0": 17, "1": "latest"}}, "payments": "earliest"}``, where
            -2 and -1 also mean earliest and latest. A timestamp is the store time in epoch milliseconds, or
            with a time zone as ``2026-01-31T08:00+01:00``, for all queues or by path. ``committed`` is the
            offset that ``consumer_group`` has committed, or the earliest one in a queue without any. Other
            queues begin at the default: latest for a stream, earliest for a batch. A stream with a checkpoint
            continues at its offsets, and reads queues that the checkpoint does not contain from their first
            message.
        ending: (endingOffsets or endingTimestamp) batch only: the position where reading ends, exclusive, in
            the same notation. Default: latest.
        max_offsets_per_trigger: (maxOffsetsPerTrigger) stream only: the maximum number of offsets of a batch,
            shared out over the queues in proportion to their lag.
        max_bytes_per_trigger: (maxBytesPerTrigger) stream only: the approximate maximum size of a batch's
            messages as brokers store them, with properties and about 100 bytes of headers. Messages that a
            filter drops count. The size is estimated from samples of the batch. The smaller of both limits
            counts. A larger message is a batch of its own.
        min_offsets_per_trigger: (minOffsetsPerTrigger) stream only: no batch starts before this many offsets
            are available, or ``max_trigger_delay`` has passed since the previous batch. Ignored with
            Trigger.AvailableNow.
        max_trigger_delay: (maxTriggerDelay) seconds, written ``30s``, ``500ms`` or as a number of
            milliseconds. Default: ``15m``.
        min_partitions: (minPartitions) the minimum number of tasks, if there are enough offsets: large queues
            are split. By default each queue is a task, and small queues share tasks if there are many.
        max_records_per_partition: (maxRecordsPerPartition) the maximum number of offsets of a task. Larger
            queues are split.
        fail_on_data_loss: (failOnDataLoss) fail if offsets to read no longer exist, because they have expired
            or their queue was deleted. If false, log the loss and continue.
        consumer_group: (consumerGroup) commit the processed offsets to the brokers under this group, so that
            admin tools show the lag. They are read only for the starting position ``committed``: otherwise
            the checkpoint decides where a stream continues. A batch commits when it has read, before Spark
            has processed the rows. The group must have no members.
        tags: (tags) read only messages with one of these tags, ``A || B``. Brokers filter.
        sql: (sql) read only messages whose properties satisfy this SQL92 expression. Brokers filter, if their
            ``enablePropertyFilter`` is set.
        max_buffered_bytes: (maxBufferedBytes) bytes that a task may hold of pulled messages that Spark has
            not received yet. Default: ``32m``.
        columns: (columns) the columns of the source, separated by commas. Others are not decoded. Spark does
            not tell Python sources which columns a query uses. Default: all.
    """

    connection: ConnectionOptions
    topics: tuple[str, ...] = ()
    topic_pattern: str | None = None
    assign: tuple[MessageQueue, ...] = ()
    starting: Positions
    ending: Positions = attrs.field(factory=lambda: Positions(Position.latest))
    max_offsets_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay: float = 900.0
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    fail_on_data_loss: bool = True
    consumer_group: str | None = None
    tags: str = ALL
    sql: str | None = None
    max_buffered_bytes: int = 32 * 1024 * 1024
    columns: tuple[str, ...] = SOURCE_COLUMNS

    @classmethod
    def parse(cls, options: Mapping[str, str | None], role: Role, *, others: Sequence[Option] = ()) -> Self:
        """Parse a user's options.

        Args:
            options: as Spark passes them. Names are compared without case.
            role: BATCH_SOURCE or STREAM_SOURCE.
            others: the sink's options, so that a misplaced one is reported as such.

        Raises:
            ConfigurationError: the options are invalid. The text lists all mistakes.
        """
        parsed = ParsedOptions(options, role, SOURCE_OPTIONS, others)
        connection = parsed.pop_connection()
        values = parsed.values
        _check_one_selection(parsed, options)
        default = Position.latest if role in _STREAM else Position.earliest
        values["starting"] = _pop_positions(parsed, "starting", default)
        values["ending"] = _pop_positions(parsed, "ending", Position.latest)
        _check_committed(parsed)
        _check_rates(parsed)
        _check_order(parsed)
        if "tags" in values and "sql" in values:
            parsed.mistakes.append("tags and sql are both set; set only one of them")
        parsed.check()
        assert connection is not None
        if "topic" in values:
            values["topics"] = values.pop("topic")
        return cls(connection=connection, **values)

    def selects(self, queue: MessageQueue) -> bool:
        """Return whether the options select a queue."""
        if self.topic_pattern is not None:
            return re.fullmatch(self.topic_pattern, queue.topic) is not None
        return queue in self.assign if self.assign else queue.topic in self.topics


def _check_one_selection(parsed: ParsedOptions, options: Mapping[str, str | None]) -> None:
    names = {name.lower() for name, value in options.items() if value is not None}
    selections = [name for name in ("topic", "topicPattern", "assign") if name.lower() in names]
    if not selections:
        parsed.mistakes.append("the topics to read are missing; set topic, topicPattern or assign")
    elif len(selections) > 1:
        parsed.mistakes.append(f"{' and '.join(selections)} are set; set exactly one of them")


def _pop_positions(parsed: ParsedOptions, which: str, default: Position) -> Positions:
    """Remove the offsets and timestamp option ``which`` from the values and return their positions."""
    offsets = parsed.values.pop(f"{which}_offsets", None)
    times = parsed.values.pop(f"{which}_timestamp", None)
    if offsets is not None and times is not None:
        parsed.mistakes.append(f"{which}Offsets and {which}Timestamp are both set; set only one of them")
    option = f"{which}Timestamp" if offsets is None else f"{which}Offsets"
    found = times if offsets is None else offsets
    if found is None:
        return Positions(default)
    positions = found if isinstance(found, Positions) else Positions(default, found)
    unread = [topic for topic in sorted(positions.topics()) if not _may_select(topic, parsed.values)]
    if unread:
        parsed.mistakes.append(f"{option} names {', '.join(unread)}, which the options do not select")
    useless = Position.latest if which == "starting" else Position.earliest
    if parsed.role in _BATCH and useless in positions.all():
        parsed.mistakes.append(f"{option} contains {useless.kind.value}: a batch would read nothing")
    return positions


def _may_select(topic: str, values: Mapping[str, Any]) -> bool:
    """Return whether the parsed values select a topic."""
    if "topic" in values:
        return topic in values["topic"]
    if "topic_pattern" in values:
        return re.fullmatch(values["topic_pattern"], topic) is not None
    if "assign" in values:
        return topic in {queue.topic for queue in values["assign"]}
    return True  # a missing or invalid selection has been reported


def _check_committed(parsed: ParsedOptions) -> None:
    """Report the position ``committed`` in places where it has no meaning."""
    if COMMITTED in parsed.values["ending"].all():
        parsed.mistakes.append("endingOffsets contains committed, which only startingOffsets may contain")
    is_wanted = COMMITTED in parsed.values["starting"].all()
    if is_wanted and "consumer_group" not in parsed.values:
        parsed.mistakes.append("startingOffsets contains committed, which needs consumerGroup")


def _check_order(parsed: ParsedOptions) -> None:
    """Report paths whose end, in the same notation, lies before their start."""
    starting, ending = parsed.values["starting"], parsed.values["ending"]
    pairs = {path: (starting.by_path[path], ending.by_path.get(path)) for path in starting.by_path}
    for path, (start, end) in [((), (starting.default, ending.default)), *pairs.items()]:
        if not isinstance(start, Position) or not isinstance(end, Position) or start.kind is not end.kind:
            continue
        if start.value > end.value:
            queues = f" of {' '.join(map(str, path))}" if path else ""
            parsed.mistakes.append(
                f"the range{queues} ends at {end.kind.value} {end.value}, before it starts at {start.value}"
            )


def _check_rates(parsed: ParsedOptions) -> None:
    maximum, minimum = (parsed.values.get(f"{which}_offsets_per_trigger") for which in ("max", "min"))
    if maximum is not None and minimum is not None and minimum > maximum:
        parsed.mistakes.append(
            f"minOffsetsPerTrigger is {minimum}, which is above maxOffsetsPerTrigger, {maximum}"
        )
    if "max_trigger_delay" in parsed.values and parsed.role in _STREAM and minimum is None:
        parsed.mistakes.append("maxTriggerDelay needs minOffsetsPerTrigger")
