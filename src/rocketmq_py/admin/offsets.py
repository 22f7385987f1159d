"""Where groups go on: set to another place, or to another group's."""

from __future__ import annotations

import enum
from collections.abc import Mapping

import attrs

from rocketmq_py.admin.asking import Answers, ask_each, complete, have_each_go_on
from rocketmq_py.admin.calling import FIRST_5, call, version_at
from rocketmq_py.admin.group_state import connections_at, stats_at
from rocketmq_py.admin.part import Part, any_of, master_of
from rocketmq_py.arguments import check_flag, check_instance, check_integer, optional
from rocketmq_py.codes import ResponseCode, version_name
from rocketmq_py.consumer.read.offset_queries import check_offsets
from rocketmq_py.errors import (
    BrokerError,
    ConfigurationError,
    GroupNotFoundError,
    SomeBrokersFailedError,
    UnsupportedByBrokerError,
)
from rocketmq_py.message import MessageQueue
from rocketmq_py.names import RETRY_PREFIX, check_group, check_topic
from rocketmq_py.protocol.bodies import BrokerData, TopicOffset, TopicStats
from rocketmq_py.protocol.headers import (
    GetTopicStatsInfoRequest,
    InvokeBrokerToResetOffsetRequest,
    OffsetAnswer,
    QueryConsumerOffsetRequest,
    SearchOffsetRequest,
    UpdateConsumerOffsetRequest,
)

LATEST_MS = -1
"""The time that stands for a queue's end in INVOKE_BROKER_TO_RESET_OFFSET."""


class _Kind(enum.Enum):
    EARLIEST = "earliest"
    LATEST = "latest"
    TIME = "time"
    OFFSET = "offset"
    GROUP = "group"
    QUEUES = "queues"


@attrs.frozen
class ResetTo:
    """Where a group goes on; made by the methods below.

    Of an offset that a queue does not have the nearest is taken.
    """

    _kind: _Kind
    _number: int = 0
    _group: str = ""
    _queues: Mapping[MessageQueue, int] = attrs.field(factory=dict)

    @classmethod
    def earliest(cls) -> ResetTo:
        """At the oldest message of each queue."""
        return cls(_Kind.EARLIEST)

    @classmethod
    def latest(cls) -> ResetTo:
        """Behind the newest message of each queue: what has piled up is skipped."""
        return cls(_Kind.LATEST)

    @classmethod
    def at(cls, timestamp_ms: int) -> ResetTo:
        """At the first message stored at a time or later, epoch milliseconds. 4.x may take the one before."""
        return cls(_Kind.TIME, check_integer(timestamp_ms, "timestamp_ms", lowest=0))

    @classmethod
    def offset(cls, offset: int) -> ResetTo:
        """At this offset of each queue."""
        return cls(_Kind.OFFSET, check_integer(offset, "offset", lowest=0))

    @classmethod
    def as_group(cls, group: str) -> ResetTo:
        """Where another group is; queues where that has never been are left alone."""
        return cls(_Kind.GROUP, group=check_group(group))

    @classmethod
    def queues(cls, offsets: Mapping[MessageQueue, int]) -> ResetTo:
        """At these offsets; queues that are not named are left alone."""
        return cls(_Kind.QUEUES, queues=check_offsets(offsets))

    @classmethod
    def of(cls, to: ResetTo | str) -> ResetTo:
        """Return the place that ``"earliest"`` or ``"latest"`` names; a ResetTo as it is."""
        if to in (_Kind.EARLIEST.value, _Kind.LATEST.value):
            return cls(_Kind(to))
        if isinstance(to, str):
            raise ConfigurationError(f"to is {to!r}; it must be 'earliest', 'latest' or a ResetTo")
        return check_instance(to, "to", ResetTo)

    @property
    def timestamp_ms(self) -> int | None:
        """The time that says the same to a broker; None if none does."""
        return {_Kind.EARLIEST: 0, _Kind.LATEST: LATEST_MS, _Kind.TIME: self._number}.get(self._kind)


@attrs.frozen(kw_only=True)
class OffsetReset:
    """What a reset does to a queue.

    Attributes:
        queue: which.
        before: where the group went on; None if it had never been there.
        after: where it goes on now.
        min_offset: the queue's oldest message.
        max_offset: the offset that its next message will get.
    """

    queue: MessageQueue
    before: int | None
    after: int
    min_offset: int
    max_offset: int


class Offsets(Part):
    """``admin.offsets``.

    All methods raise NameServerError if no name server answers. A cancellation leaves what is done by then.
    """

    async def reset(
        self, group: str, topic: str | None, to: ResetTo | str, *, dry_run: bool = False
    ) -> tuple[OffsetReset, ...]:
        """Have a group go on elsewhere in a topic, or in all that it consumes.

        Java: ``resetOffsetByTimestamp``, ``resetOffsetByQueueId``.

        Brokers of 5.x move it while its members run; those of 4.x tell the members, who can be told earliest,
        latest and a time only.

        Args:
            group: the group.
            topic: the topic; None for all that it has offsets of.
            to: a ResetTo, or ``"earliest"`` or ``"latest"``.
            dry_run: only say what would be done.

        Returns:
            What is done to each queue, sorted by topic, broker and id.

        Raises:
            TopicNotFoundError: there is no such topic.
            GroupNotFoundError: a broker of 5.x does not know the group; it must be created first. Or the
                group consumes nothing, where no topic is given.
            UnsupportedByBrokerError: a broker of 4.x cannot do this while members run.
            SomeBrokersFailedError: not all of several brokers did it; of a single one its own error.
        """
        return await self._reset_all(group, group, topic, ResetTo.of(to), dry_run=dry_run)

    async def _reset(self, group: str, topic: str, to: ResetTo, *, dry_run: bool) -> tuple[OffsetReset, ...]:
        route = await self._client.name_servers.route(topic)
        brokers = {broker.broker_name: broker for broker in route.broker_datas}
        names = sorted(brokers)
        moves = await ask_each(names, lambda name: self._moves(group, topic, to, brokers[name]))
        if dry_run:
            done = complete(moves, f"looking where group {group!r} is in topic {topic!r}")
        else:
            done = await have_each_go_on(
                moves,
                lambda name, some: self._apply(group, topic, to, brokers[name], some),
                f"resetting group {group!r} on topic {topic!r}",
            )
        return tuple(move for some in done.values() for move in some)

    async def skip(
        self, group: str, topic: str | None = None, *, dry_run: bool = False
    ) -> tuple[OffsetReset, ...]:
        """Have a group skip what has piled up, in a topic or in all that it consumes.

        Java: ``skipAccumulatedMessage``. Arguments and errors are those of :meth:`reset`, and
        GroupNotFoundError if it consumes nothing.
        """
        return await self._reset_all(group, group, topic, ResetTo.latest(), dry_run=dry_run)

    async def clone(
        self, source: str, target: str, topic: str | None = None, *, dry_run: bool = False
    ) -> tuple[OffsetReset, ...]:
        """Have a group go on where another one is, in a topic or in all that the other consumes.

        Java: ``cloneGroupOffset``. Errors are those of :meth:`reset`, and GroupNotFoundError if the source
        consumes nothing.
        """
        check_group(source, "source")
        check_group(target, "target")
        return await self._reset_all(target, source, topic, ResetTo.as_group(source), dry_run=dry_run)

    async def topics(self, group: str) -> tuple[str, ...]:
        """Return the topics that a group has offsets of, without its own retry topic.

        Raises GroupNotFoundError if there are none.
        """
        answers = await self._topics(check_group(group))
        complete(answers, f"looking for the topics of group {group!r}")
        return self._known(group, answers)

    async def _topics(self, group: str) -> Answers[str, frozenset[str]]:
        client = self._client
        brokers = await self._chosen()

        async def ask(name: str) -> frozenset[str]:
            table = (await stats_at(client, any_of(brokers[name]), group)).offset_table
            names = {queue.topic for queue in table if not queue.topic.startswith(RETRY_PREFIX)}
            return frozenset(map(client.namespace.unwrap_topic, names))

        return await ask_each(brokers, ask)

    def _known(self, group: str, answers: Answers[str, frozenset[str]]) -> tuple[str, ...]:
        client = self._client
        found = sorted(frozenset().union(*answers.values.values()))
        if not found:
            raise GroupNotFoundError(group, client.name_servers.addresses, client.namespace.name)
        return tuple(found)

    async def _reset_all(
        self, group: str, of: str, topic: str | None, to: ResetTo, *, dry_run: bool
    ) -> tuple[OffsetReset, ...]:
        """Reset a group in one topic, or in all topics of a group, as far as brokers answer."""
        check_group(group)
        optional(check_topic, topic, "topic")
        check_flag(dry_run, "dry_run")
        if topic is not None:
            return await self._reset(group, topic, to, dry_run=dry_run)
        answers = await self._topics(of)
        if not answers.values:
            complete(answers, f"looking for the topics of group {of!r}")
        moves: dict[str, list[OffsetReset]] = {name: [] for name in answers.values}
        failures = dict(answers.failures)
        for name in self._known(of, answers):
            try:
                done = await self._reset(group, name, to, dry_run=dry_run)
            except SomeBrokersFailedError as error:
                done = tuple(move for some in error.answers.values() for move in some)
                failures.update(error.failures)
            for move in done:
                moves[move.queue.broker_name].append(move)
        if failures:
            did = {name: tuple(some) for name, some in moves.items() if name not in failures}
            raise SomeBrokersFailedError(f"resetting group {group!r}", did, failures)
        return tuple(move for some in moves.values() for move in some)

    async def _moves(
        self, group: str, topic: str, to: ResetTo, broker: BrokerData
    ) -> tuple[OffsetReset, ...]:
        """Return what is to be done on one broker."""
        client = self._client
        answer = await call(client, any_of(broker), GetTopicStatsInfoRequest(topic=topic))
        moves = []
        table = TopicStats.decode(answer.body).offset_table
        for wire_queue in sorted(table, key=lambda queue: queue.queue_id):
            queue, bounds = attrs.evolve(wire_queue, topic=topic), table[wire_queue]
            wanted = await self._wanted(to, queue, bounds, broker)
            if wanted is not None:
                move = OffsetReset(
                    queue=queue,
                    before=await self._committed(group, queue, broker),
                    after=min(max(wanted, bounds.min_offset), bounds.max_offset),
                    min_offset=bounds.min_offset,
                    max_offset=bounds.max_offset,
                )
                moves.append(move)
        return tuple(moves)

    async def _wanted(
        self, to: ResetTo, queue: MessageQueue, bounds: TopicOffset, broker: BrokerData
    ) -> int | None:
        match to._kind:
            case _Kind.EARLIEST:
                return bounds.min_offset
            case _Kind.LATEST:
                return bounds.max_offset
            case _Kind.TIME:
                header = SearchOffsetRequest(topic=queue.topic, queue_id=queue.queue_id, timestamp=to._number)
                answer = await call(self._client, any_of(broker), header)
                return OffsetAnswer.from_fields(answer.fields).offset
            case _Kind.OFFSET:
                return to._number
            case _Kind.GROUP:
                return await self._committed(to._group, queue, broker)
            case _Kind.QUEUES:
                return to._queues.get(queue)

    async def _committed(self, group: str, queue: MessageQueue, broker: BrokerData) -> int | None:
        header = QueryConsumerOffsetRequest(
            consumer_group=group, topic=queue.topic, queue_id=queue.queue_id, set_zero_if_not_found=False
        )
        try:
            answer = await call(self._client, any_of(broker), header)
        except BrokerError as error:
            if error.code == ResponseCode.QUERY_NOT_FOUND:
                return None
            raise
        return OffsetAnswer.from_fields(answer.fields).offset

    async def _apply(
        self, group: str, topic: str, to: ResetTo, broker: BrokerData, moves: tuple[OffsetReset, ...]
    ) -> tuple[OffsetReset, ...]:
        if not moves:
            return moves
        client, address = self._client, master_of(broker)
        version = await version_at(client, address)
        if version >= FIRST_5:
            await self._have_broker_move(group, topic, address, moves)
        elif await connections_at(client, address, group) is None:
            await self._commit(group, topic, address, moves)
        elif to.timestamp_ms is not None:
            header = InvokeBrokerToResetOffsetRequest(
                group=group, topic=topic, timestamp=to.timestamp_ms, is_force=True
            )
            await call(client, address, header)
        else:
            raise UnsupportedByBrokerError(
                f"{address} is of version {version_name(version)}, and can move group {group!r} to given "
                "offsets only while no member runs; stop them, or reset to earliest, latest or a time"
            )
        return moves

    async def _have_broker_move(
        self, group: str, topic: str, address: str, moves: tuple[OffsetReset, ...]
    ) -> None:
        for move in moves:
            header = InvokeBrokerToResetOffsetRequest(
                group=group,
                topic=topic,
                timestamp=LATEST_MS,
                is_force=True,
                queue_id=move.queue.queue_id,
                offset=move.after,
            )
            try:
                await call(self._client, address, header)
            except BrokerError as error:
                if error.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
                    raise GroupNotFoundError(group, address, self._client.namespace.name) from None
                raise

    async def _commit(self, group: str, topic: str, address: str, moves: tuple[OffsetReset, ...]) -> None:
        for move in moves:
            header = UpdateConsumerOffsetRequest(
                consumer_group=group,
                topic=topic,
                queue_id=move.queue.queue_id,
                commit_offset=move.after,
            )
            await call(self._client, address, header)
