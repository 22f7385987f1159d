"""POP_LITE_MESSAGE, acknowledgements of lite topics, and LITE_SUBSCRIPTION_CTL.

Java: ``PopLiteMessageProcessor``, ``AckMessageProcessor.ackLite``,
``ChangeInvisibleTimeProcessor.processChangeInvisibleTimeForLite``, ``LiteSubscriptionCtlProcessor``.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs
import trio

from rocketmq_py.broker.dispatch import FAQ, UNSET_REMARK, Refusal, RequestHandler, answer_with
from rocketmq_py.broker.lite.dispatcher import HeldLitePop, LiteDispatcher
from rocketmq_py.broker.lite.subscriptions import (
    BIND_TOPIC,
    FROM_END,
    FROM_FIRST,
    LiteSubscriptionTable,
    QuotaExceededError,
    WildcardGroupError,
)
from rocketmq_py.broker.pop.ordered_pops import NOT_POPPED, GroupQueue, OrderedPops
from rocketmq_py.broker.pop.pop_reader import start_offset
from rocketmq_py.broker.pop.pop_requests import EARLY_MS, MAX_LATE_MS, MAX_POPPED
from rocketmq_py.broker.state import BrokerState
from rocketmq_py.broker.storage.consume_queue import ConsumeQueue, StoredMessage, read_messages
from rocketmq_py.broker.topics import PERM_READ
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.names import lite_queue, split_lite_queue
from rocketmq_py.protocol.bodies import (
    ClientGroup,
    LiteSubscription,
    LiteSubscriptionAction,
    LiteSubscriptions,
    OffsetOption,
    OffsetOptionType,
)
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.handles import ORDERED_REVIVE_QUEUE, ReceiptHandle
from rocketmq_py.protocol.headers import (
    INIT_FROM_MAX,
    AckMessageRequest,
    ChangeInvisibleTimeAnswer,
    ChangeInvisibleTimeRequest,
    PopLiteMessageAnswer,
    PopLiteMessageRequest,
)
from rocketmq_py.remoting import Connection

LITE_TYPE = "LITE"
"""The message type of parent topics."""


@attrs.define(eq=False)
class _Batch:
    """The messages of one pop.

    Attributes:
        messages: the messages.
        counts: the entries of the answer's order count info, one for each message.
        popped: the lite topics that the messages are from.
    """

    messages: list[StoredMessage] = attrs.field(factory=list)
    counts: list[str] = attrs.field(factory=list)
    popped: list[GroupQueue] = attrs.field(factory=list)


class LitePopProcessor:
    """Answers pops of lite topics, and changes of subscriptions.

    Args:
        state: the broker's tables.

    Attributes:
        ordered_pops: the last pop of each group from each lite topic.
        dispatcher: offers lite topics to clients. Its ``run`` must be running.
        subscriptions: the subscriptions. Its ``forget_silent_clients`` must be running.
    """

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self._config = state.config
        self.ordered_pops: OrderedPops = OrderedPops()
        self.dispatcher: LiteDispatcher = LiteDispatcher(state, self)
        self.subscriptions: LiteSubscriptionTable = LiteSubscriptionTable(state, self)
        state.store.on_lite_message = self.dispatcher.offer
        state.store.on_lite_queue_deleted = self._on_queue_deleted

    def handlers(self) -> Mapping[int, RequestHandler]:
        """Return the request handlers by request code."""
        return {
            RequestCode.POP_LITE_MESSAGE: self._pop,
            RequestCode.LITE_SUBSCRIPTION_CTL: self._change_subscriptions,
        }

    def offer_when_free(self, group_queue: GroupQueue) -> None:
        """Offer a lite topic to a client of a group as soon as no popped message blocks it."""
        wait_ms = self.ordered_pops.free_at(group_queue, None) - self._state.now_ms()
        self.dispatcher.offer_at(group_queue, trio.current_time() + max(0, wait_ms) / 1000)

    def shift_clock(self, seconds: float) -> None:
        """Keep the age of subscriptions and pops after trio's clock was advanced by ``seconds``."""
        self.subscriptions.shift_clock(seconds)
        self.dispatcher.shift_clock(seconds)

    # Pops

    def _pop(self, connection: Connection, request: Command) -> None:
        fields = request.fields
        if fields.get("bornTime", "0") == "0":
            fields = {**fields, "bornTime": str(self._state.now_ms())}
        self._answer(connection, request, PopLiteMessageRequest.from_fields(fields))

    def answer_held(self, held: HeldLitePop) -> None:
        """Answer a pop that is no longer held."""

        def answer(connection: Connection, request: Command) -> None:
            self._answer(connection, request, held.header)

        answer_with(answer, held.connection, held.request)

    def _answer(self, connection: Connection, request: Command, header: PopLiteMessageRequest) -> None:
        self._check(header)
        state = self._state
        pop_time_ms = state.now_ms()
        batch = self._read(header, pop_time_ms)
        if batch.messages:
            code, status = ResponseCode.SUCCESS, "FOUND"
        else:
            left_ms = header.born_time + header.poll_time - pop_time_ms
            if header.poll_time > 0 and left_ms > EARLY_MS:
                self.dispatcher.hold(connection, request, header, (left_ms - EARLY_MS) / 1000)
                return
            code, status = ResponseCode.POLLING_TIMEOUT, "NO_MESSAGE_IN_QUEUE"
        answer = PopLiteMessageAnswer(
            pop_time=pop_time_ms,
            invisible_time=header.invisible_time,
            revive_qid=ORDERED_REVIVE_QUEUE,
            order_count_info=";".join(batch.counts),
        )
        state.store.count_delivered(header.topic, header.consumer_group, len(batch.messages))
        body = b"".join([message.data for message in batch.messages])
        connection.respond(request, code, answer.to_fields(), body, status)

    def _read(self, header: PopLiteMessageRequest, pop_time_ms: int) -> _Batch:
        """Read the lite topics that are offered to the client, and record their messages as popped."""
        batch = _Batch()
        while len(batch.messages) < header.max_msg_num:
            name = self.dispatcher.take_offer(header.client_id)
            if name is None:
                break
            queue = self._state.store.find_lite_queue(name)
            if queue is not None:
                self._read_queue(batch, queue, header, pop_time_ms)
        for group_queue in batch.popped:
            self.offer_when_free(group_queue)
        return batch

    def _read_queue(
        self, batch: _Batch, queue: ConsumeQueue, header: PopLiteMessageRequest, pop_time_ms: int
    ) -> None:
        state, group_queue = self._state, GroupQueue(queue.topic, header.consumer_group, 0)
        if self.ordered_pops.free_at(group_queue, header.attempt_id) > pop_time_ms:
            return
        start = start_offset(state, self.ordered_pops, group_queue, queue, INIT_FROM_MAX)
        space = header.max_msg_num - len(batch.messages)
        result = read_messages(queue, start, space, None, self._config)
        if not result.messages and result.next_offset != start:
            state.offsets.commit(header.consumer_group, queue.topic, 0, result.next_offset)
            result = read_messages(queue, result.next_offset, space, None, self._config)
        if not result.messages:
            return
        offsets = [message.queue_offset for message in result.messages]
        counts = self.ordered_pops.record(
            group_queue, header.attempt_id, pop_time_ms, header.invisible_time, offsets
        )
        batch.popped.append(group_queue)
        batch.messages += result.messages
        # The last number of an entry is how often the message was popped before.
        batch.counts += [
            f"0 qo0%{offset} {counts[offset]}" if offset in counts else "0" for offset in offsets
        ]

    def _check(self, header: PopLiteMessageRequest) -> None:
        """Raise Refusal if the pop is not permitted."""
        state = self._state
        broker, name, group_name = f"the broker[{state.ip}]", header.topic, header.consumer_group
        if state.now_ms() - header.born_time - header.poll_time > MAX_LATE_MS:
            raise Refusal(ResponseCode.POLLING_TIMEOUT, f"{broker} pop message is timeout too much")
        if not self._config.broker_permission & PERM_READ:
            raise Refusal(ResponseCode.NO_PERMISSION, f"{broker} pop message is forbidden")
        if header.max_msg_num > MAX_POPPED:
            raise Refusal(
                ResponseCode.INVALID_PARAMETER, f"{broker} pop message's num is greater than {MAX_POPPED}"
            )
        topic = state.topics.get(name)
        if topic is None:
            raise Refusal(
                ResponseCode.TOPIC_NOT_EXIST, f"topic [{name}] not exist, apply first please! {FAQ}"
            )
        if not topic.is_readable:
            raise Refusal(ResponseCode.NO_PERMISSION, f"the topic [{name}] peeking message is forbidden")
        if topic.attributes.get("message.type") != LITE_TYPE:
            raise Refusal(ResponseCode.INVALID_PARAMETER, f"the topic [{name}] message type not match")
        group = state.subscription_groups.get_or_create(group_name)
        if group is None:
            raise Refusal(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group [{group_name}] not exist, {FAQ}",
            )
        if not group.consume_enable:
            raise Refusal(ResponseCode.NO_PERMISSION, f"subscription group no permission, {group_name}")
        if group.attributes.get(BIND_TOPIC) != name:
            raise Refusal(ResponseCode.INVALID_PARAMETER, f"subscription bind topic not match, {group_name}")

    # Subscriptions

    def _change_subscriptions(self, connection: Connection, request: Command) -> None:
        if not request.body:
            raise Refusal(ResponseCode.ILLEGAL_OPERATION, "Request body is null.")
        changes = LiteSubscriptions.decode(request.body).subscription_set
        if not changes:
            raise Refusal(ResponseCode.ILLEGAL_OPERATION, "LiteSubscriptionCtlRequestBody is empty.")
        for change in changes:
            if change.client_id.strip() and change.group.strip() and change.topic.strip():
                self._change_subscription(connection, change)
        connection.respond(request, ResponseCode.SUCCESS)

    def _change_subscription(self, connection: Connection, change: LiteSubscription) -> None:
        client_id, group, parent = change.client_id, change.group, change.topic
        queues = dict.fromkeys(lite_queue(parent, lite_topic) for lite_topic in change.lite_topic_set)
        match change.action:
            case LiteSubscriptionAction.COMPLETE_REMOVE:
                self.subscriptions.remove_client(client_id)
            case LiteSubscriptionAction.PARTIAL_REMOVE:
                self.subscriptions.remove(client_id, group, parent, queues)
            case LiteSubscriptionAction.COMPLETE_ADD:
                self._check_consume_enable(group)
                self.subscriptions.connect(client_id, connection)
                self.subscriptions.replace(client_id, group, parent, queues)
            case LiteSubscriptionAction.PARTIAL_ADD:
                self._check_consume_enable(group)
                self.subscriptions.connect(client_id, connection)
                try:
                    self.subscriptions.add(client_id, group, parent, queues, change.offset_option)
                except QuotaExceededError as error:
                    raise Refusal(
                        ResponseCode.LITE_SUBSCRIPTION_QUOTA_EXCEEDED,
                        f"org.apache.rocketmq.broker.lite.LiteQuotaException: {error}",
                    ) from None
                except WildcardGroupError as error:
                    raise Refusal(
                        ResponseCode.ILLEGAL_OPERATION, f"java.lang.IllegalStateException: {error}"
                    ) from None

    def _check_consume_enable(self, group: str) -> None:
        config = self._state.subscription_groups.get_or_create(group)
        if config is None or not config.consume_enable:
            raise Refusal(
                ResponseCode.ILLEGAL_OPERATION,
                "java.lang.IllegalStateException: Consumer group is not allowed to consume.",
            )

    def subscribers_of(self, queue: str) -> dict[str, list[ClientGroup]]:
        """Return the subscribers of a queue by group."""
        return self.subscriptions.subscribers_of(queue)

    def subscribed(self, group: str, queue: str) -> None:
        """Offer a lite topic with messages to a group of which a client has subscribed to it."""
        if self._state.store.find_lite_queue(queue) is not None:
            self.dispatcher.offer(queue, group)

    def _on_queue_deleted(self, queue: str) -> None:
        """Drop the offsets, popped messages and subscriptions of a deleted lite topic."""
        parent = split_lite_queue(queue)[0]
        for group in self._state.subscription_groups:
            if group.attributes.get(BIND_TOPIC) == parent:
                self._state.offsets.delete(group.group_name, queue)
                self.ordered_pops.unblock(GroupQueue(queue, group.group_name, 0))
        self.subscriptions.remove_queue(queue)

    def unsubscribed(self, client_id: str) -> None:
        """Offer the lite topics of a client whose whole subscription was removed to others."""
        self.dispatcher.remove_client(client_id)

    def reset(self, group: str, queue: str, option: OffsetOption) -> None:
        """Move a group to a position in a lite topic, and let it pop there at once."""
        committed = self._state.offsets.committed(group, queue, 0)
        offset = self._offset_of(option, queue, committed)
        if offset is not None and offset != committed:
            self._state.offsets.reset(group, queue, 0, offset)
            self.ordered_pops.unblock(GroupQueue(queue, group, 0))

    def _offset_of(self, option: OffsetOption, queue: str, committed: int | None) -> int | None:
        """Return the offset of a position in a lite topic. None means where the group stopped."""
        match option:
            case OffsetOption(type=OffsetOptionType.POLICY, value=value) if value == FROM_FIRST:
                return 0
            case OffsetOption(type=OffsetOptionType.POLICY, value=value) if value == FROM_END:
                found = self._state.store.find_lite_queue(queue)
                return 0 if found is None else found.end
            case OffsetOption(type=OffsetOptionType.OFFSET, value=value):
                return value
            case OffsetOption(type=OffsetOptionType.TAIL_N, value=value) if committed is not None:
                return max(0, committed - value)
        return None


UNCHANGED = ChangeInvisibleTimeAnswer(pop_time=0, invisible_time=0, revive_qid=0).to_fields()
"""The answer to a change of the invisible time that had no effect."""


class LiteAcks:
    """Acknowledges popped messages of lite topics, and changes their invisible time.

    Args:
        state: the broker's tables.
        pops: has the popped messages, and offers their lite topics to clients.
    """

    def __init__(self, state: BrokerState, pops: LitePopProcessor) -> None:
        self._state = state
        self._offsets = state.offsets
        self._pops = pops

    def acknowledge(self, header: AckMessageRequest) -> None:
        """Acknowledge a message. Does nothing if it is acknowledged already, or was popped again.

        Raises:
            Refusal: the group is not bound to the parent topic, the lite topic has expired, or the receipt
                handle is invalid.
        """
        assert header.lite_topic is not None
        group = header.consumer_group
        config = self._state.subscription_groups.get_or_create(group)
        if config is None or config.attributes.get(BIND_TOPIC) != header.topic:
            raise Refusal(ResponseCode.INVALID_PARAMETER, "group type or bind topic not match.")
        queue = lite_queue(header.topic, header.lite_topic)
        if header.offset > self._end_offset(queue):
            raise Refusal(ResponseCode.NO_MESSAGE, "ack offset illegal.")
        handle = ReceiptHandle.parse(header.extra_info)
        if header.queue_id != 0 or not handle.is_ordered:
            raise Refusal(ResponseCode.INVALID_PARAMETER, "ack queue illegal.")
        if self._is_before_commit(group, queue, header.offset):
            return
        group_queue = GroupQueue(queue, group, 0)
        next_offset = self._pops.ordered_pops.acknowledge(group_queue, header.offset, handle.pop_time_ms)
        if next_offset == NOT_POPPED:
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, "ack offset illegal.")
        if next_offset >= 0:  # else POPPED_AGAIN
            # An offset that was reset meanwhile must not be overwritten.
            if not self._offsets.has_pending_reset(group, queue, 0):
                self._offsets.commit(group, queue, 0, next_offset)
            self._pops.offer_when_free(group_queue)

    def change_invisible_time(self, header: ChangeInvisibleTimeRequest) -> Mapping[str, str]:
        """Change when a message becomes visible again. Returns the fields of the answer.

        Does nothing if the message is acknowledged already, or was popped again.

        Raises:
            Refusal: the lite topic has expired.
        """
        assert header.lite_topic is not None
        queue = lite_queue(header.topic, header.lite_topic)
        if header.offset > self._end_offset(queue):
            raise Refusal(ResponseCode.NO_MESSAGE, UNSET_REMARK, UNCHANGED)
        if self._is_before_commit(header.consumer_group, queue, header.offset):
            return UNCHANGED
        handle = ReceiptHandle.parse(header.extra_info)
        group_queue = GroupQueue(queue, header.consumer_group, 0)
        pops, pop_time_ms = self._pops.ordered_pops, handle.pop_time_ms
        visible_at_ms = self._state.now_ms() + header.invisible_time
        if header.suspend:
            pops.suspend(group_queue, pop_time_ms, visible_at_ms)
        else:
            pops.change_visibility(group_queue, header.offset, pop_time_ms, visible_at_ms)
        self._pops.offer_when_free(group_queue)
        return ChangeInvisibleTimeAnswer(
            pop_time=pop_time_ms,
            invisible_time=visible_at_ms - pop_time_ms,
            revive_qid=handle.revive_queue_id,
        ).to_fields()

    def _end_offset(self, queue: str) -> int:
        found = self._state.store.find_lite_queue(queue)
        return 0 if found is None else found.end

    def _is_before_commit(self, group: str, queue: str, offset: int) -> bool:
        committed = self._offsets.committed(group, queue, 0)
        return committed is not None and offset < committed
