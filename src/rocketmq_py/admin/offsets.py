"""Consumer offsets of groups: reset, skip and clone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TypeAlias

import attrs

from rocketmq_py.admin.errors import GroupNotFoundError
from rocketmq_py.admin.existing import require_queues
from rocketmq_py.admin.fan_out import PartialResults, query_each, require_all
from rocketmq_py.admin.group_state import committed_offset, consume_stats, group_configs, group_connections
from rocketmq_py.admin.operations import (
    Operations,
    any_address,
    call_broker,
    master_address,
)
from rocketmq_py.arguments import check_flag, optional
from rocketmq_py.client.features import OFFSET_RESETS, OFFSET_RESETS_BY_SETTING
from rocketmq_py.codes import ResponseCode, version_name
from rocketmq_py.consumer.read.offset_queries import check_offsets
from rocketmq_py.errors import AccessDeniedError, BrokerError, RocketMQError, UnsupportedByBrokerError
from rocketmq_py.message import MessageQueue
from rocketmq_py.names import RETRY_PREFIX, check_group, check_topic
from rocketmq_py.position import Position, PositionKind, check_position
from rocketmq_py.protocol.bodies import BrokerData, TopicOffset, TopicStats, read_properties
from rocketmq_py.protocol.headers import (
    GetBrokerConfigRequest,
    GetTopicStatsInfoRequest,
    InvokeBrokerToGetConsumerStatusRequest,
    InvokeBrokerToResetOffsetRequest,
    OffsetAnswer,
    SearchOffsetRequest,
    UpdateConsumerOffsetRequest,
)

LATEST_MS = -1
"""The timestamp that means a queue's end in INVOKE_BROKER_TO_RESET_OFFSET."""


@attrs.frozen
class _OffsetsOfGroup:
    """The target of a reset to the offsets of another group. Queues where it has none do not change."""

    group: str


_Target: TypeAlias = Position | Mapping[MessageQueue, int] | _OffsetsOfGroup


@attrs.frozen(kw_only=True)
class OffsetReset:
    """The effect of a reset on one queue.

    Attributes:
        queue: the queue.
        before: the group's previous offset. None if it had none.
        after: the group's new offset.
        min_offset: the offset of the queue's oldest message.
        max_offset: the offset of the queue's next message.
    """

    queue: MessageQueue
    before: int | None
    after: int
    min_offset: int
    max_offset: int


class Offsets(Operations):
    """``admin.offsets``.

    All methods raise NameServerError if no name server answers. A cancellation does not undo the changes that
    brokers have made by then.
    """

    async def reset(
        self,
        group: str,
        topic: str | None,
        to: Position | str | Mapping[MessageQueue, int],
        *,
        dry_run: bool = False,
    ) -> tuple[OffsetReset, ...]:
        """Reset a group's offsets in one topic, or in all topics that it consumes.

        Java: ``resetOffsetByTimestamp``, ``resetOffsetByQueueId``. Java: ``skipAccumulatedMessage``.

        While members run, brokers support a reset to earliest, latest or a time. Brokers with
        useServerSideResetOffset, the default from 5.2 on, support any reset. Consumers of this library that
        pull notice it at once, others when their long poll ends: after up to 15 seconds without new messages.

        Args:
            group: the group.
            topic: the topic. None for all topics that the group has offsets in, or those of the queues in
                ``to``.
            to: any Position, ``"earliest"`` or ``"latest"``, which skips the backlog. Or an offset for each
                queue: other queues do not change. An offset outside of a queue's range becomes the nearest
                one in it. For a time, 4.x brokers may choose the message before.
            dry_run: whether to only return the changes without making them. It raises the errors of a reset,
                too.

        Returns:
            The change of each queue, sorted by topic, broker and id.

        Raises:
            TopicNotFoundError: the topic does not exist.
            NoQueueError: the topic does not have one of the queues in ``to``. Nothing was reset.
            GroupNotFoundError: a broker with useServerSideResetOffset does not know the group: create it
                first. Or ``topic`` is None and the group has no offsets.
            UnsupportedByBrokerError: a broker without useServerSideResetOffset does not support this reset
                while members run.
            SomeBrokersFailedError: the change failed on some of several brokers. With a single one its own
                error is raised. If ``topic`` is None, a broker that failed for one topic counts as failed,
                and ``failures`` also has the topics without a route, by name.
        """
        if isinstance(to, Mapping):
            target: _Target = check_offsets(to, "to")
        else:
            now_ms = self._client.now_ms()
            target = check_position(to, "to", now_ms=now_ms, or_else="a mapping of MessageQueue to int")
        return await self._reset_all(group, group, topic, target, dry_run=dry_run)

    async def _reset(
        self, group: str, topic: str, to: _Target, *, dry_run: bool
    ) -> PartialResults[str, tuple[OffsetReset, ...]]:
        """Reset a group in one topic. Return the resets by broker."""
        route = await self._client.name_servers.find_route(topic)
        brokers = {broker.broker_name: broker for broker in route.broker_datas}
        planned = await query_each(sorted(brokers), lambda name: self._plan(group, topic, to, brokers[name]))
        if dry_run:
            checked = await query_each(
                planned.values, lambda name: self._check(group, to, brokers[name], planned.values[name])
            )
            return PartialResults(checked.values, {**planned.failures, **checked.failures})
        applied = await query_each(
            planned.values, lambda name: self._apply(group, topic, to, brokers[name], planned.values[name])
        )
        return PartialResults(applied.values, {**planned.failures, **applied.failures})

    async def clone(
        self, source: str, target: str, topic: str | None = None, *, dry_run: bool = False
    ) -> tuple[OffsetReset, ...]:
        """Set a group's offsets to those of another group, in one topic or in all that the other consumes.

        Java: ``cloneGroupOffset``. Result and errors are those of :meth:`reset`.

        Args:
            source: the group whose offsets are read.
            target: the group whose offsets are set.
            topic: the topic. None for all topics that the source has offsets in.
            dry_run: whether to only return the changes without making them. It raises the errors of a reset,
                too.
        """
        check_group(source, "source")
        check_group(target, "target")
        return await self._reset_all(target, source, topic, _OffsetsOfGroup(source), dry_run=dry_run)

    async def topics(self, group: str) -> tuple[str, ...]:
        """Return the topics that a group has offsets in, without its retry topic.

        Raises:
            GroupNotFoundError: there are none.
            SomeBrokersFailedError: some of several brokers did not answer. With a single one its own error is
                raised.
        """
        results = await self._query_topics(check_group(group))
        require_all(results, f"looking for the topics of group {group!r}")
        return self._merged_topics(group, results)

    async def _query_topics(self, group: str) -> PartialResults[str, frozenset[str]]:
        client = self._client
        brokers = await self._select_brokers()

        async def query(name: str) -> frozenset[str]:
            table = (await consume_stats(client, any_address(brokers[name]), group)).offset_table
            return frozenset([queue.topic for queue in table if not queue.topic.startswith(RETRY_PREFIX)])

        return await query_each(brokers, query)

    def _merged_topics(self, group: str, results: PartialResults[str, frozenset[str]]) -> tuple[str, ...]:
        client = self._client
        found = sorted(frozenset().union(*results.values.values()))
        if not found:
            raise GroupNotFoundError(group, client.name_servers.addresses, client.namespace.name)
        return tuple(found)

    async def _reset_all(
        self, group: str, source: str, topic: str | None, to: _Target, *, dry_run: bool
    ) -> tuple[OffsetReset, ...]:
        """Reset a group in one topic, or in all topics that ``source`` has offsets in.

        A failure for one topic does not prevent resets of the others. A broker that failed for one counts as
        failed. A topic whose route is not found counts as a failure, too.
        """
        check_group(group)
        optional(check_topic, topic, "topic")
        check_flag(dry_run, "dry_run")
        if isinstance(to, Mapping):
            await self._require_queues(to, topic)
        if topic is not None:
            action = f"resetting group {group!r} on topic {topic!r}"
            if dry_run:
                action = f"reading the offsets of group {group!r} in topic {topic!r}"
            return _merged_resets(require_all(await self._reset(group, topic, to, dry_run=dry_run), action))
        names, failures = await self._topics_to_reset(source, to)
        resets: dict[str, list[OffsetReset]] = {}
        for name in names:
            try:
                of_topic = await self._reset(group, name, to, dry_run=dry_run)
            except RocketMQError as error:
                failures[name] = error
                continue
            failures.update(of_topic.failures)
            for broker_name, of_broker in of_topic.values.items():
                resets.setdefault(broker_name, []).extend(of_broker)
        succeeded = {name: tuple(some) for name, some in sorted(resets.items()) if name not in failures}
        return _merged_resets(require_all(PartialResults(succeeded, failures), f"resetting group {group!r}"))

    async def _topics_to_reset(
        self, source: str, to: _Target
    ) -> tuple[Sequence[str], dict[str, RocketMQError]]:
        """Return the topics of the queues in ``to``, or else those that a group has offsets in.

        Also return the errors of brokers that failed. Raises the error if all of them failed.
        """
        if isinstance(to, Mapping):
            return sorted({queue.topic for queue in to}), {}
        results = await self._query_topics(source)
        if not results.values:
            require_all(results, f"looking for the topics of group {source!r}")
        return self._merged_topics(source, results), dict(results.failures)

    async def _require_queues(self, queues: Iterable[MessageQueue], topic: str | None) -> None:
        """Raise NoQueueError if a queue does not exist, or is not one of ``topic``."""
        topics = sorted({queue.topic for queue in queues}) if topic is None else [topic]
        for name in topics:
            route = await self._client.name_servers.find_route(name)
            require_queues(name, route, [queue for queue in queues if topic or queue.topic == name])

    async def _plan(self, group: str, topic: str, to: _Target, broker: BrokerData) -> tuple[OffsetReset, ...]:
        """Return the resets to make on one broker."""
        client = self._client
        answer = await call_broker(client, any_address(broker), GetTopicStatsInfoRequest(topic=topic))
        resets = []
        table = TopicStats.decode(answer.body).offset_table
        for wire_queue in sorted(table, key=lambda queue: queue.queue_id):
            queue, bounds = attrs.evolve(wire_queue, topic=topic), table[wire_queue]
            target = await self._target_offset(to, queue, bounds, broker)
            if target is not None:
                reset = OffsetReset(
                    queue=queue,
                    before=await committed_offset(self._client, group, queue, broker),
                    after=min(max(target, bounds.min_offset), bounds.max_offset),
                    min_offset=bounds.min_offset,
                    max_offset=bounds.max_offset,
                )
                resets.append(reset)
        return tuple(resets)

    async def _target_offset(
        self, to: _Target, queue: MessageQueue, bounds: TopicOffset, broker: BrokerData
    ) -> int | None:
        """Return a queue's target offset, None if the queue does not change."""
        match to:
            case _OffsetsOfGroup():
                return await committed_offset(self._client, to.group, queue, broker)
            case Mapping():
                return to.get(queue)
            case Position(kind=PositionKind.EARLIEST):
                return bounds.min_offset
            case Position(kind=PositionKind.LATEST):
                return bounds.max_offset
            case Position(kind=PositionKind.OFFSET):
                return to.value
            case Position(kind=PositionKind.LAST):
                return bounds.max_offset - to.value
            case _:
                header = SearchOffsetRequest(topic=queue.topic, queue_id=queue.queue_id, timestamp=to.value)
                answer = await call_broker(self._client, any_address(broker), header)
                return OffsetAnswer.from_fields(answer.fields).offset

    async def _apply(
        self, group: str, topic: str, to: _Target, broker: BrokerData, plan: tuple[OffsetReset, ...]
    ) -> tuple[OffsetReset, ...]:
        """Make the planned resets on one broker."""
        if not plan:
            return plan
        client, address = self._client, master_address(broker)
        if await self._resets_by_itself(address):
            await self._reset_queues(group, topic, address, plan)
            await self._wake_members(group, topic, address)
        elif await group_connections(client, address, group) is None:
            await self._commit(group, topic, address, plan)
        elif (timestamp_ms := _timestamp_ms(to)) is not None:
            header = InvokeBrokerToResetOffsetRequest(
                group=group, topic=topic, timestamp=timestamp_ms, is_force=True
            )
            await call_broker(client, address, header)
        else:
            raise await self._unsupported(group, address)
        return plan

    async def _check(
        self, group: str, to: _Target, broker: BrokerData, plan: tuple[OffsetReset, ...]
    ) -> tuple[OffsetReset, ...]:
        """Return the plan of one broker. Raises the error with which :meth:`_apply` would refuse it."""
        if not plan:
            return plan
        client, address = self._client, master_address(broker)
        if not await self._resets_by_itself(address):
            if _timestamp_ms(to) is None and await group_connections(client, address, group) is not None:
                raise await self._unsupported(group, address)
            return plan
        try:
            configs = await group_configs(client, address)
        except (AccessDeniedError, UnsupportedByBrokerError):
            return plan  # the reset itself may be allowed
        if client.namespace.find_group(group, configs) is None:
            raise GroupNotFoundError(group, address, client.namespace.name)
        return plan

    async def _unsupported(self, group: str, address: str) -> UnsupportedByBrokerError:
        """Return the error for a reset to given offsets on a broker that does not reset offsets by itself."""
        version = await self._client.brokers.version(address)
        action = f"resetting group {group!r} to given offsets while members run"
        if version >= OFFSET_RESETS_BY_SETTING:
            return UnsupportedByBrokerError(
                f"broker {address} (version {version_name(version)}) does not support {action}, because its "
                f"setting useServerSideResetOffset is false. {OFFSET_RESETS.advice}"
            )
        return OFFSET_RESETS.unsupported(address, version, name=action)

    async def _resets_by_itself(self, address: str) -> bool:
        """Return whether a broker resets offsets by itself (useServerSideResetOffset, from 5.1.0 on).

        Other brokers ignore the queue and the offset of a request. They send their members an offset for each
        queue of the topic, according to the request's timestamp.
        """
        try:
            answer = await call_broker(self._client, address, GetBrokerConfigRequest())
        except AccessDeniedError:
            return True  # only brokers from 5.3 on deny this request, and they have it by default
        return read_properties(answer.body).get("useServerSideResetOffset") == "true"

    async def _reset_queues(
        self, group: str, topic: str, address: str, plan: tuple[OffsetReset, ...]
    ) -> None:
        """Reset each queue on a broker that resets offsets by itself."""
        for reset in plan:
            header = InvokeBrokerToResetOffsetRequest(
                group=group,
                topic=topic,
                timestamp=0,  # a required field that brokers do not read here
                is_force=True,
                queue_id=reset.queue.queue_id,
                offset=reset.after,
            )
            try:
                await call_broker(self._client, address, header)
            except BrokerError as error:
                if error.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
                    raise GroupNotFoundError(group, address, self._client.namespace.name) from None
                raise

    async def _wake_members(self, group: str, topic: str, address: str) -> None:
        """Make the members of a group notice a reset at once.

        Brokers that reset offsets by themselves tell members with the answer to their next pull. Without new
        messages a pull is held for 15 seconds. Consumers of this library pull again when they are asked for
        their offsets. Others, and errors, only mean that it takes longer.
        """
        header = InvokeBrokerToGetConsumerStatusRequest(topic=topic, group=group)
        with suppress(RocketMQError):
            await call_broker(self._client, address, header)

    async def _commit(self, group: str, topic: str, address: str, plan: tuple[OffsetReset, ...]) -> None:
        """Commit the new offset of each queue, in place of the group's members."""
        for reset in plan:
            header = UpdateConsumerOffsetRequest(
                consumer_group=group,
                topic=topic,
                queue_id=reset.queue.queue_id,
                commit_offset=reset.after,
            )
            await call_broker(self._client, address, header)


def _merged_resets(resets: Mapping[str, tuple[OffsetReset, ...]]) -> tuple[OffsetReset, ...]:
    """Return the resets of all brokers, sorted by queue."""
    return tuple(
        sorted((reset for of_broker in resets.values() for reset in of_broker), key=lambda reset: reset.queue)
    )


def _timestamp_ms(to: _Target) -> int | None:
    """Return the timestamp that means a target in a request. None if there is none."""
    match to:
        case Position(kind=PositionKind.EARLIEST):
            return 0
        case Position(kind=PositionKind.LATEST):
            return LATEST_MS
        case Position(kind=PositionKind.TIME):
            return to.value
        case _:
            return None
