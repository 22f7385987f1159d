"""The options of the source, batch and streaming."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Self

import attrs

from rocketmq_py.message import MessageQueue
from rocketmq_py.names import check_group, check_topic
from rocketmq_py.protocol.subscription import ALL, make_subscription
from rocketmq_py.spark.options import (
    SOURCES,
    ConnectionOptions,
    Given,
    Option,
    Use,
    boolean,
    duration,
    size,
    text,
    whole_number,
)
from rocketmq_py.spark.positions import (
    Edge,
    Positions,
    StoredAt,
    parse_assignment,
    parse_offsets,
    parse_times,
)

_STREAM = frozenset({Use.READ_STREAM})
_BATCH = frozenset({Use.READ})


def _topics(value: str) -> tuple[str, ...]:
    topics = tuple(dict.fromkeys([each.strip() for each in value.split(",") if each.strip()]))
    if not topics:
        raise ValueError("a topic, or several with commas between")
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
    Option("minOffsetsPerTrigger", whole_number(1), _STREAM),
    Option("maxTriggerDelay", duration, _STREAM),
    Option("minPartitions", whole_number(1, 1_000_000), SOURCES),
    Option("maxRecordsPerPartition", whole_number(1), SOURCES),
    Option("failOnDataLoss", boolean, SOURCES),
    Option("consumerGroup", check_group, SOURCES),
    Option("tags", _tags, SOURCES),
    Option("sql", text, SOURCES),
    Option("maxBufferedBytes", size, SOURCES),
)


@attrs.frozen(kw_only=True)
class SourceOptions:
    """What a source reads, and how; the options' names in brackets are those that users write.

    Exactly one of ``topics``, ``topic_pattern`` and ``assign`` is set.

    Args:
        connection: how the cluster is reached.
        topics: (topic) names with commas between.
        topic_pattern: (topicPattern) a regular expression, Python's, for the whole name. Topics that come
            while a stream runs are read as well; RocketMQ's own, retries and dead letters never are.
        assign: (assign) these queues only: ``{"topic": {"broker-a": [0, 1]}}``.
        starting: (startingOffsets or startingTimestamp) where a new query begins: ``earliest``, ``latest``,
            or by name, ``{"orders": {"broker-a": {"0": 17, "1": "latest"}}, "payments": "earliest"}``, where
            -2 and -1 are earliest and latest as well; or the time of storing, epoch milliseconds, for all or
            by name. What is not named begins at the default: latest for a stream, earliest for a batch. A
            stream that goes on from a checkpoint begins where it was; queues that it has not known before
            begin with their first message.
        ending: (endingOffsets or endingTimestamp) batch only: where reading ends, before this offset or
            time, written in the same way; latest is the default.
        max_offsets_per_trigger: (maxOffsetsPerTrigger) stream only: so many offsets of all queues together
            are read in a batch, in proportion to what is left of each; never more.
        min_offsets_per_trigger: (minOffsetsPerTrigger) stream only: no batch before there are so many, or
            ``max_trigger_delay`` has passed since the one before. Not with Trigger.AvailableNow.
        max_trigger_delay: (maxTriggerDelay) seconds, written ``15m``, which is the default, ``30s``,
            ``500ms``, or as a number of milliseconds.
        min_partitions: (minPartitions) at least so many tasks, as far as there are offsets: large queues are
            split. Without it a queue is a task, and small ones share one where there are many.
        max_records_per_partition: (maxRecordsPerPartition) no task has more offsets: queues are split.
        fail_on_data_loss: (failOnDataLoss) fail where offsets that should be read are no longer there:
            expired, or their queue was deleted. If false that is logged, and reading goes on without them.
        consumer_group: (consumerGroup) report to the brokers in this group's name what has been processed,
            so that lag shows in admin tools. Nothing is ever read from there; the checkpoint says where a
            stream goes on. The group must have no other members.
        tags: (tags) only messages with one of these, ``A || B``; brokers filter.
        sql: (sql) only messages whose properties this SQL filter is true of; brokers filter, if their
            ``enablePropertyFilter`` is set.
        max_buffered_bytes: (maxBufferedBytes) bytes that a task may hold of what it has pulled and not
            handed to Spark, written ``32m``, which is the default.
    """

    connection: ConnectionOptions
    topics: tuple[str, ...] = ()
    topic_pattern: str | None = None
    assign: tuple[MessageQueue, ...] = ()
    starting: Positions
    ending: Positions = attrs.field(factory=lambda: Positions(Edge.LATEST))
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay: float = 900.0
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    fail_on_data_loss: bool = True
    consumer_group: str | None = None
    tags: str = ALL
    sql: str | None = None
    max_buffered_bytes: int = 32 * 1024 * 1024

    @classmethod
    def read(cls, options: Mapping[str, str | None], use: Use, *, others: Sequence[Option] = ()) -> Self:
        """Return what a user's options mean.

        Args:
            options: as Spark hands them over; upper and lower case do not count.
            use: READ or READ_STREAM.
            others: the sink's options, so that one of them is called that.

        Raises:
            ConfigurationError: something is wrong with them; the text names all mistakes.
        """
        given = Given(options, use, SOURCE_OPTIONS, others)
        connection = given.connection()
        values = given.values
        _check_topics(given, options)
        values["starting"] = _positions(given, "starting", Edge.LATEST if use in _STREAM else Edge.EARLIEST)
        values["ending"] = _positions(given, "ending", Edge.LATEST)
        _check_rates(given)
        _check_order(given)
        if "tags" in values and "sql" in values:
            given.mistakes.append("tags and sql are both given; give one of them")
        given.check()
        assert connection is not None
        if "topic" in values:
            values["topics"] = values.pop("topic")
        return cls(connection=connection, **values)

    def name(self, queue: MessageQueue) -> bool:
        """Tell whether a queue, if it is there, is one to read."""
        if self.topic_pattern is not None:
            return re.fullmatch(self.topic_pattern, queue.topic) is not None
        return queue in self.assign if self.assign else queue.topic in self.topics


def _check_topics(given: Given, options: Mapping[str, str | None]) -> None:
    names = {name.lower() for name, value in options.items() if value is not None}
    written = [name for name in ("topic", "topicPattern", "assign") if name.lower() in names]
    if not written:
        given.mistakes.append("what to read is missing: give topic, topicPattern or assign")
    elif len(written) > 1:
        given.mistakes.append(f"{' and '.join(written)} are given; give exactly one of them")


def _positions(given: Given, which: str, default: Edge) -> Positions:
    """Take the two options that say where reading begins, or ends, out of the values."""
    offsets, times = given.values.pop(f"{which}_offsets", None), given.values.pop(f"{which}_timestamp", None)
    if offsets is not None and times is not None:
        given.mistakes.append(f"{which}Offsets and {which}Timestamp are both given; give one of them")
    name = f"{which}Timestamp" if offsets is None else f"{which}Offsets"
    found = times if offsets is None else offsets
    if found is None:
        return Positions(default)
    positions = found if isinstance(found, Positions) else Positions(default, found)
    strangers = [topic for topic in sorted(positions.topics()) if not _may_be_read(topic, given.values)]
    if strangers:
        given.mistakes.append(f"{name} names {', '.join(strangers)}, which is not among the topics to read")
    useless = Edge.LATEST if which == "starting" else Edge.EARLIEST
    if given.use is Use.READ and useless in positions.all():
        given.mistakes.append(f"{name} holds {useless.name.lower()}: a batch would read nothing there")
    return positions


def _may_be_read(topic: str, values: Mapping[str, Any]) -> bool:
    if "topic" in values:
        return topic in values["topic"]
    if "topic_pattern" in values:
        return re.fullmatch(values["topic_pattern"], topic) is not None
    if "assign" in values:
        return topic in {queue.topic for queue in values["assign"]}
    return True  # that is a mistake of its own


def _check_order(given: Given) -> None:
    """Find what is named in both ways, and ends before it begins."""
    starting, ending = given.values["starting"], given.values["ending"]
    pairs = {names: (starting.places[names], ending.places.get(names)) for names in starting.places}
    for names, (start, end) in [((), (starting.default, ending.default)), *pairs.items()]:
        if isinstance(start, int) and isinstance(end, int) and start > end:
            what = f"offset {start} and end at {end}"
        elif isinstance(start, StoredAt) and isinstance(end, StoredAt) and start.time_ms > end.time_ms:
            what = f"time {start.time_ms} and end at {end.time_ms}"
        else:
            continue
        where = f" of {' '.join(map(str, names))}" if names else ""
        given.mistakes.append(f"reading{where} would begin at {what}, which lies before it")


def _check_rates(given: Given) -> None:
    most, least = (given.values.get(f"{which}_offsets_per_trigger") for which in ("max", "min"))
    if most is not None and least is not None and least > most:
        given.mistakes.append(f"minOffsetsPerTrigger is {least}, which is above maxOffsetsPerTrigger, {most}")
    if "max_trigger_delay" in given.values and given.use in _STREAM and least is None:
        given.mistakes.append("maxTriggerDelay needs minOffsetsPerTrigger")
