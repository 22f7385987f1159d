"""Acknowledgements of messages of lite topics, and changes of their invisible time.

Java: ``AckMessageProcessor.ackLite``, ``ChangeInvisibleTimeProcessor.processChangeInvisibleTimeForLite``.
"""

from __future__ import annotations

from collections.abc import Mapping

from rocketmq_py.broker.dispatch import UNSET_REMARK, Refusal
from rocketmq_py.broker.lite.lite_requests import LitePopProcessor
from rocketmq_py.broker.lite.subscriptions import BIND_TOPIC
from rocketmq_py.broker.pop.ordered_pops import NOT_POPPED, GroupQueue
from rocketmq_py.broker.state import BrokerState
from rocketmq_py.codes import ResponseCode
from rocketmq_py.names import lite_queue
from rocketmq_py.protocol.handles import ReceiptHandle
from rocketmq_py.protocol.headers import (
    AckMessageRequest,
    ChangeInvisibleTimeAnswer,
    ChangeInvisibleTimeRequest,
)

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
