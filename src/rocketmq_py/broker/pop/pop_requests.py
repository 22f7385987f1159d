"""POP_MESSAGE and its long polling (Java: ``PopMessageProcessor``, ``PopLongPollingService``)."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping

import trio

from rocketmq_py.broker.dispatch import FAQ, Refusal, RequestHandler, answer_with
from rocketmq_py.broker.held_requests import HeldRequest, HeldRequests, HoldingProcessor
from rocketmq_py.broker.message_filters import is_tag_expression, parse_sql_filter, sql_filter, tag_filter
from rocketmq_py.broker.pop.checkpoints import CheckpointTable, MessageReviver
from rocketmq_py.broker.pop.ordered_pops import GroupQueue, OrderedPops, QueueTimers
from rocketmq_py.broker.pop.pop_reader import PopBatch, PopReader
from rocketmq_py.broker.sql92 import SqlFilterError
from rocketmq_py.broker.state import BrokerState
from rocketmq_py.broker.storage.consume_queue import ConsumeQueue, MessageFilter, StoredMessage
from rocketmq_py.broker.storage.delayed_delivery import MessageScheduler
from rocketmq_py.broker.topics import PERM_READ, TopicConfig
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.names import RETRY_PREFIX
from rocketmq_py.protocol.bodies import ALL_QUEUES, SubscriptionGroupConfig
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.handles import pop_retry_topic
from rocketmq_py.protocol.headers import PopMessageAnswer, PopMessageRequest
from rocketmq_py.protocol.subscription import make_subscription
from rocketmq_py.remoting import Connection, Deadlines

# Long polling

MAX_HELD = 1024
"""Maximum number of held pops of a group, for one queue or for all queues of a topic (popPollingSize)."""


class HeldPop(HeldRequest):
    """A pop that waits for a message.

    Args:
        connection: the client's connection.
        request: the pop.
        header: its header.
        message_filter: its filter.
        queues: the queues that it pops from.

    Attributes:
        group_queue: the group, the topic, and the queue or ALL_QUEUES.
    """

    __slots__ = ("group_queue", "header", "message_filter")

    def __init__(
        self,
        connection: Connection,
        request: Command,
        header: PopMessageRequest,
        message_filter: MessageFilter,
        queues: tuple[ConsumeQueue, ...],
    ) -> None:
        self.group_queue: GroupQueue = requested_group_queue(header)
        super().__init__(connection, request, [self.group_queue, *queues])
        self.header: PopMessageRequest = header
        self.message_filter: MessageFilter = message_filter

    def matches_any(self, messages: Iterable[StoredMessage]) -> bool:
        """Return whether any of the messages passes the filter. Messages of a retry topic always pass."""
        passes = self.message_filter
        return any(
            passes is None or message.topic.startswith(RETRY_PREFIX) or passes(message)
            for message in messages
        )


def requested_group_queue(header: PopMessageRequest) -> GroupQueue:
    """Return the group, the topic, and the queue or ALL_QUEUES of a pop."""
    return GroupQueue(header.topic, header.consumer_group, max(ALL_QUEUES, header.queue_id))


class HeldPops:
    """All held pops. :meth:`run` must be running for them to be answered.

    New messages answer one pop of each group. If that pop leaves messages in the queue, call :meth:`wake` to
    answer another one.

    Args:
        processor: answers a pop that is no longer held.
    """

    def __init__(self, processor: HoldingProcessor[HeldPop]) -> None:
        self._deadlines = Deadlines()
        self._held: HeldRequests[HeldPop] = HeldRequests(processor, self._deadlines, self)
        # the offset of the first message that has arrived and that :meth:`run` has not examined
        self._first_arrivals: dict[ConsumeQueue, int] = {}
        self._to_wake: dict[GroupQueue, None] = {}
        self._timers = QueueTimers(self._deadlines, self)
        self._parked = trio.lowlevel.ParkingLot()

    def hold(
        self,
        connection: Connection,
        request: Command,
        header: PopMessageRequest,
        message_filter: MessageFilter,
        queues: tuple[ConsumeQueue, ...],
        seconds: float,
    ) -> bool:
        """Hold a pop for at most ``seconds``. Returns False, and does not hold it, beyond ``MAX_HELD``."""
        pop = HeldPop(connection, request, header, message_filter, queues)
        if self._held.count(pop.group_queue) >= MAX_HELD:
            return False
        self._held.hold(pop, trio.current_time() + seconds)
        return True

    def wake(self, group_queue: GroupQueue) -> None:
        """Answer one pop of a group for a queue, or for ALL_QUEUES, soon."""
        self._to_wake[group_queue] = None
        self._parked.unpark_all()

    def wake_at(self, group_queue: GroupQueue, time: float) -> None:
        """Wake a pop for a queue, and one for ALL_QUEUES of its topic, at a time on trio's clock.

        A second call for the same queue replaces the time.
        """
        self._timers.set(group_queue, time)

    def release_topic(self, topic: str) -> None:
        """Answer all pops of a topic."""
        for key in self._held.all_keys():
            if isinstance(key, GroupQueue) and key.topic == topic:
                for pop in self._held.of(key):
                    self._held.release(pop)

    def drop_connection(self, connection: Connection) -> None:
        """Drop the pops of a closed connection."""
        self._held.drop_connection(connection)

    async def run(self) -> None:
        """Answer pops, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._deadlines.run)
            while True:
                if not self._first_arrivals and not self._to_wake:
                    await self._parked.park()
                to_wake, self._to_wake = self._to_wake, {}
                for group_queue in to_wake:
                    self._release_first(self._held.of(group_queue))
                arrivals, self._first_arrivals = self._first_arrivals, {}
                for queue, offset in arrivals.items():
                    self._examine(queue, offset)
                await trio.lowlevel.checkpoint()

    def queue_is_free(self, group_queue: GroupQueue) -> None:
        """Wake a pop for a queue that can be popped in order again, and one for ALL_QUEUES of its topic."""
        self.wake(group_queue)
        self.wake(group_queue._replace(queue_id=ALL_QUEUES))

    def watch(self, key: Hashable) -> None:
        """Note the messages that arrive in a queue."""
        if isinstance(key, ConsumeQueue):
            key.listeners.append(self._on_arrival)

    def stop_watching(self, key: Hashable) -> None:
        """Note the messages that arrive in a queue no longer."""
        if isinstance(key, ConsumeQueue):
            key.listeners.remove(self._on_arrival)

    def _on_arrival(self, queue: ConsumeQueue, message: StoredMessage) -> None:
        self._first_arrivals.setdefault(queue, message.queue_offset)
        self._parked.unpark_all()

    def _examine(self, queue: ConsumeQueue, offset: int) -> None:
        new_messages = queue.slice(max(offset, queue.start), queue.end)
        by_group_queue: dict[GroupQueue, list[HeldPop]] = {}
        for pop in self._held.of(queue):
            by_group_queue.setdefault(pop.group_queue, []).append(pop)
        for pops in by_group_queue.values():
            self._release_first(pop for pop in pops if pop.matches_any(new_messages))

    def _release_first(self, pops: Iterable[HeldPop]) -> None:
        first = next(iter(pops), None)
        if first is not None:
            self._held.release(first)


# Requests

MAX_POPPED = 32
"""Maximum number of messages that a pop may request."""
MAX_LATE_MS = 500
"""Milliseconds after the end of its polling time until which a pop is answered with messages."""
EARLY_MS = 50
"""Milliseconds before the end of its polling time at which a held pop is answered."""
PRIORITY_TYPE = "PRIORITY"
"""The message type of topics whose queues are priorities."""
PRIORITY_FACTOR = "priority.factor"
"""A group attribute: the percentage of pops by priority. Here 0 means none, and other values mean all."""


_EMPTY_ANSWER = PopMessageAnswer(pop_time=0, invisible_time=0, revive_qid=0, rest_num=0).to_fields()


class PopProcessor:
    """Answers pops, at once or, with long polling, when messages arrive.

    Args:
        state: the broker's tables.
        scheduler: stores redelivered messages.

    Attributes:
        checkpoints: the messages that are not acknowledged. Its ``run`` must be running.
        ordered_pops: the messages that were popped in order.
        held_pops: the pops that wait for messages. Its ``run`` must be running.
    """

    def __init__(self, state: BrokerState, scheduler: MessageScheduler) -> None:
        self._state = state
        self._config = state.config
        self.checkpoints: CheckpointTable = CheckpointTable(MessageReviver(state, scheduler))
        self.ordered_pops: OrderedPops = OrderedPops()
        self.held_pops: HeldPops = HeldPops(self)
        state.topics.listeners.append(self._on_topic_change)
        self._reader = PopReader(state, self.checkpoints, self.ordered_pops)

    def handlers(self) -> Mapping[int, RequestHandler]:
        """Return the request handlers by request code."""
        return {RequestCode.POP_MESSAGE: self._pop}

    def wake_when_free(self, group_queue: GroupQueue) -> None:
        """Answer a held pop of a group as soon as the queue can be popped in order."""
        wait_ms = self.ordered_pops.free_at(group_queue, None) - self._state.now_ms()
        self.held_pops.wake_at(group_queue, trio.current_time() + max(0, wait_ms) / 1000)

    def _pop(self, connection: Connection, request: Command) -> None:
        header = self._read_header(request)
        message_filter = _parse_filter(header)
        self._answer(connection, request, header, message_filter)

    def _on_topic_change(self, topic: TopicConfig) -> None:
        # The pops that find no message are held again, for the queues that the topic has now.
        self.held_pops.release_topic(topic.topic_name)

    def answer_held(self, held: HeldPop) -> None:
        """Answer a pop that is no longer held."""

        def answer(connection: Connection, request: Command) -> None:
            self._answer(connection, request, held.header, held.message_filter)

        answer_with(answer, held.connection, held.request)

    def _answer(
        self,
        connection: Connection,
        request: Command,
        header: PopMessageRequest,
        message_filter: MessageFilter,
    ) -> None:
        topic, group = self._check(connection, header)
        batch = self._reader.read(header, message_filter, by_priority=_is_by_priority(header, topic, group))
        for _, queue_id in batch.starts if header.order else ():
            self.wake_when_free(GroupQueue(header.topic, header.consumer_group, queue_id))
        code = ResponseCode.SUCCESS if batch.count else self._hold(connection, request, topic, batch)
        # Another held pop may take the remaining messages. A pop of 0 messages would wake itself for ever.
        if batch.remaining > 0 and header.max_msg_nums > 0:
            self.held_pops.wake(requested_group_queue(header))
        if code is None:  # it is held
            return
        offsets = batch.offsets
        answer = PopMessageAnswer(
            pop_time=batch.pop_time_ms,
            invisible_time=header.invisible_time,
            revive_qid=batch.revive_queue_id,
            rest_num=batch.remaining,
            start_offset_info=offsets.start_offset_info,
            msg_offset_info=offsets.msg_offset_info,
            order_count_info=offsets.order_count_info if header.order else None,
        )
        self._state.store.count_delivered(header.topic, header.consumer_group, len(batch.messages))
        status = "FOUND" if batch.count else "NO_MESSAGE_IN_QUEUE"
        connection.respond(request, code, answer.to_fields(), b"".join(batch.messages), status)

    def _hold(
        self, connection: Connection, request: Command, topic: TopicConfig, batch: PopBatch
    ) -> ResponseCode | None:
        """Hold a pop that found no message. Returns the code to answer it with if it cannot be held."""
        header = batch.header
        left_ms = header.born_time + header.poll_time - self._state.now_ms()
        if header.poll_time <= 0 or left_ms <= EARLY_MS:
            return ResponseCode.POLLING_TIMEOUT
        queues = self._queues(header, topic)
        seconds = (left_ms - EARLY_MS) / 1000
        if self.held_pops.hold(connection, request, header, batch.message_filter, queues, seconds):
            return None
        return ResponseCode.POLLING_FULL

    def _queues(self, header: PopMessageRequest, topic: TopicConfig) -> tuple[ConsumeQueue, ...]:
        """Return the queues that a pop reads, including those of its retry topics."""
        ids = range(topic.read_queue_nums) if header.queue_id < 0 else (header.queue_id,)
        names = [(header.topic, queue_id) for queue_id in ids]
        if not header.order:
            names.append((pop_retry_topic(header.topic, header.consumer_group), 0))
            names.append((pop_retry_topic(header.topic, header.consumer_group, v2=True), 0))
        return tuple([self._state.store.queue(*name) for name in names])

    def _read_header(self, request: Command) -> PopMessageRequest:
        fields = request.fields
        if fields.get("bornTime", "0") == "0":  # the client leaves the time to the broker
            fields = {**fields, "bornTime": str(self._state.now_ms())}
        return PopMessageRequest.from_fields(fields)

    def _check(
        self, connection: Connection, header: PopMessageRequest
    ) -> tuple[TopicConfig, SubscriptionGroupConfig]:
        """Return the topic and the group of a pop. Raises Refusal if the pop is not permitted."""
        state = self._state
        broker, name, group_name = f"the broker[{state.ip}]", header.topic, header.consumer_group
        if state.now_ms() - header.born_time - header.poll_time > MAX_LATE_MS:
            raise _refusal(ResponseCode.POLLING_TIMEOUT, f"{broker} pop message is timeout too much")
        if not self._config.broker_permission & PERM_READ:
            raise _refusal(ResponseCode.NO_PERMISSION, f"{broker} pop message is forbidden")
        if header.max_msg_nums > MAX_POPPED:
            raise _refusal(
                ResponseCode.INVALID_PARAMETER, f"{broker} pop message's num is greater than {MAX_POPPED}"
            )
        if not self._config.timer_wheel_enable:
            raise _refusal(
                ResponseCode.SYSTEM_ERROR,
                f"{broker} pop message is forbidden because timerWheelEnable is false",
            )
        topic = state.topics.get(name)
        if topic is None:
            raise _refusal(
                ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist, apply first please! {FAQ}"
            )
        if not topic.is_readable:
            raise _refusal(ResponseCode.NO_PERMISSION, f"the topic[{name}] peeking message is forbidden")
        if header.queue_id >= topic.read_queue_nums:
            raise _refusal(
                ResponseCode.INVALID_PARAMETER,
                f"queueId[{header.queue_id}] is illegal, topic:[{name}] topicConfig.readQueueNums:"
                f"[{topic.read_queue_nums}] consumer:[/{connection.address}]",
            )
        group = state.subscription_groups.get_or_create(group_name)
        if group is None:
            raise _refusal(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group [{group_name}] does not exist, {FAQ}",
            )
        if not group.consume_enable:
            raise _refusal(ResponseCode.NO_PERMISSION, f"subscription group no permission, {group_name}")
        return topic, group


def _parse_filter(header: PopMessageRequest) -> MessageFilter:
    if not header.exp:
        return None
    expression_type = header.exp_type
    try:
        if expression_type is None or is_tag_expression(expression_type):
            return tag_filter(make_subscription(header.topic, header.exp, version_ms=0))
        return sql_filter(parse_sql_filter(expression_type, header.exp))
    except (ConfigurationError, SqlFilterError):
        raise _refusal(
            ResponseCode.SUBSCRIPTION_PARSE_FAILED, "parse the consumer's subscription failed"
        ) from None


def _refusal(code: int, remark: str) -> Refusal:
    # Java's client reads these fields from every answer, so a refusal has them too.
    return Refusal(code, remark, _EMPTY_ANSWER)


def _is_by_priority(header: PopMessageRequest, topic: TopicConfig, group: SubscriptionGroupConfig) -> bool:
    if header.order or topic.attributes.get("message.type") != PRIORITY_TYPE:
        return False
    return group.attributes.get(PRIORITY_FACTOR) != "0"
