"""Reading the messages of a topic into a table, and committing how far it was read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TypeAlias, Unpack

import pyarrow as pa

from rocketmq_py.arguments import check_integer, optional
from rocketmq_py.blocking import Client, Reader
from rocketmq_py.client.settings import ClientOptions
from rocketmq_py.consumer.group.subscriptions import subscription_of
from rocketmq_py.consumer.read.offset_queries import check_offsets
from rocketmq_py.consumer.read.offset_ranges import OffsetRange, PullResult
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.integrations.data_frames.columns import SCHEMA, ArrowStream, open_stream
from rocketmq_py.message import MessageQueue, queue_name
from rocketmq_py.names import check_group, check_topic
from rocketmq_py.notebooks import ReadProgress
from rocketmq_py.position import Position, check_position
from rocketmq_py.protocol.subscription import ALL
from rocketmq_py.spark.arrow_schema import SOURCE_ARROW_SCHEMA
from rocketmq_py.spark.record_batches import to_record_batches

Bound: TypeAlias = Position | str | Mapping[MessageQueue, int]
"""A position for all queues, or the offset of each queue."""


def read_messages(
    topic: str,
    client: str | Client | None = None,
    *,
    start: Bound | None = None,
    end: Bound | None = None,
    group: str | None = None,
    max_messages: int | None = None,
    tags: str = ALL,
    sql: str | None = None,
    **options: Unpack[ClientOptions],
) -> pa.Table:
    """Return the messages that a topic has now, queue by queue, each in order. It joins no group.

    Messages that are sent meanwhile are left out. So are messages that the brokers have deleted: an offset
    below the first existing message counts as that one. In a notebook, a read of more than a second shows its
    progress.

    Args:
        topic: the topic.
        client: name servers as ``host:port;host:port`` (None reads NAMESRV_ADDR, else 127.0.0.1:9876), or a
            blocking Client to share.
        start: the first message: any Position, ``"earliest"``, ``"latest"``, or the offset of each queue. By
            default, and in queues that a mapping leaves out, the first message that exists.
        end: where reading ends, exclusive, in the same notation. By default, and in queues that a mapping
            leaves out, the end of the queue.
        group: start at the offsets that this consumer group has committed, instead of ``start``. Queues
            without one, or that end before it, are read from their first message. :func:`commit_messages`
            commits.
        max_messages: the maximum number of messages. The first queues may take all of it.
        tags: tags separated by ``||``, or ``*`` for all messages.
        sql: a SQL92 filter on properties, instead of tags.
        **options: the settings of a Client, unless one is shared.

    Returns:
        A table with the columns topic, flag, body (binary), properties (a map), broker_name, queue_id,
        queue_offset, born_time, store_time, tags, keys and message_id.

    Raises:
        ConfigurationError: an argument is unknown, of a wrong type or out of its range, or names a queue that
            does not exist. The text names it.
        TopicNotFoundError: the topic does not exist.
        SqlFilterRefusedError: a broker refuses ``sql``.
        BodyDecodeError: a body cannot be decompressed. The text names the package to install if one is
            missing.
        RocketMQError: a broker or name server could not be reached, or refuses.
    """
    check_topic(topic)
    optional(check_group, group, "group")
    optional(check_integer, max_messages, "max_messages", lowest=1)
    start, end = _check_bound(start, "start"), _check_bound(end, "end")
    if group is not None and start is not None:
        raise ConfigurationError("start and group exclude each other: give one")
    # Messages are filtered again, as brokers compare only hashes of tags.
    wanted_tags = subscription_of(topic, tags, sql, version_ms=0).tags_set
    with _opened(client, options) as opened, opened.reader() as reader:
        # Before the bounds, so that no offset that is committed meanwhile lies beyond them.
        committed = {} if group is None else reader.committed(group, reader.offsets(topic))
        bounds = reader.offsets([topic], present=True)
        begins = {queue: first for queue, (first, _) in bounds.items()}
        ends = {queue: last for queue, (_, last) in bounds.items()}
        # An offset beyond a queue's end was committed before the topic was deleted and created again.
        begins |= {
            queue: at for queue, at in committed.items() if at is not None and at <= ends.get(queue, -1)
        }
        begins |= _offsets(reader, topic, start, bounds, "start")
        ends |= _offsets(reader, topic, end, bounds, "end")
        ranges = [
            OffsetRange(queue, max(begins[queue], first), min(ends[queue], last))
            for queue, (first, last) in sorted(bounds.items())
            if max(begins[queue], first) < min(ends[queue], last)
        ]
        with reader.pull(ranges, tags=tags, sql=sql, in_order=True) as results:
            batches = to_record_batches(_present(results, ranges), wanted_tags)
            rows = list(_first_rows(batches, max_messages))
    return pa.Table.from_batches(rows, SOURCE_ARROW_SCHEMA).rename_columns(SCHEMA.names)


def _present(results: Iterable[PullResult], ranges: Iterable[OffsetRange]) -> Iterator[PullResult]:
    """Yield the results that have messages, and show the progress in a notebook."""
    progress = ReadProgress(sum(each.end - each.start for each in ranges))
    for result in results:
        progress.advance(result.next - result.first)
        if result.lost is None:
            yield result


def _check_bound(bound: Bound | None, name: str) -> Position | Mapping[MessageQueue, int] | None:
    if bound is None:
        return None
    if isinstance(bound, Mapping):
        return check_offsets(bound, name)
    return check_position(bound, name, or_else="a mapping of MessageQueue to offsets")


def _offsets(
    reader: Reader,
    topic: str,
    bound: Position | Mapping[MessageQueue, int] | None,
    queues: Iterable[MessageQueue],
    name: str,
) -> Mapping[MessageQueue, int]:
    """Return the offsets of a bound, for the queues that it determines."""
    if bound is None:
        return {}
    if isinstance(bound, Position):
        return reader.offsets_at([topic], bound)
    if unknown := sorted(set(bound) - set(queues)):
        listed = ", ".join([queue_name(queue) for queue in unknown])
        raise ConfigurationError(f"{name} names queues that topic {topic!r} does not have: {listed}")
    return bound


def _first_rows(batches: Iterable[pa.RecordBatch], limit: int | None) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if limit is None:
            yield batch
            continue
        yield batch.slice(0, limit)
        limit -= batch.num_rows
        if limit <= 0:
            return


def commit_messages(
    messages: ArrowStream,
    group: str,
    client: str | Client | None = None,
    **options: Unpack[ClientOptions],
) -> dict[MessageQueue, int]:
    """Commit the offsets after messages for a consumer group, so that its next read continues behind them.

    Args:
        messages: a table from :func:`read_messages`, or a data frame with at least its columns topic,
            broker_name, queue_id and queue_offset.
        group: the group. It must have no running members, which would overwrite the offsets.
        client, **options: as for :func:`read_messages`.

    Returns:
        The committed offsets. Queues without messages are left as they are.

    Raises:
        ConfigurationError: a column is missing, or an argument is of a wrong type.
        RocketMQError: a broker did not commit. Others may have.
    """
    check_group(group)
    table = open_stream(messages, "messages").read_all()
    columns = ("topic", "broker_name", "queue_id", "queue_offset")
    if missing := [name for name in columns if name not in table.column_names]:
        raise ConfigurationError(f"messages has no column {', '.join(missing)}; commit needs it")
    last = table.select(columns).group_by(columns[:3]).aggregate([("queue_offset", "max")]).to_pylist()
    offsets = {
        MessageQueue(row["topic"], row["broker_name"], row["queue_id"]): row["queue_offset_max"] + 1
        for row in last
    }
    with _opened(client, options) as opened, opened.reader() as reader:
        reader.commit(group, offsets)
    return offsets


def _opened(client: str | Client | None, options: ClientOptions) -> AbstractContextManager[Client]:
    """Return a client to use: a new one, which is closed, or the user's, which stays open."""
    if isinstance(client, Client):
        if options:
            raise ConfigurationError(f"{', '.join(options)}: options of the client, which is shared")
        return nullcontext(client)
    return Client(client, **options)
