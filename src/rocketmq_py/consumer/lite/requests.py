"""The requests of lite topics: pop messages, acknowledge them, change their invisible time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rocketmq_py.client.core import ClientCore
from rocketmq_py.consumer.group.counters import ConsumerCounters
from rocketmq_py.consumer.lite.subscriber import LiteSubscriber, check_version
from rocketmq_py.consumer.pop.messages import MESSAGE_FIELDS, PoppedMessage
from rocketmq_py.consumer.pop.requests import BROKERS_OWN_TIME, PopRequests, PopSpec
from rocketmq_py.errors import ProtocolError
from rocketmq_py.message import ReceivedMessage
from rocketmq_py.property_names import LITE_OFFSETS
from rocketmq_py.protocol.bodies import ALL_QUEUES
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.handles import ReceiptHandle, TopicKind
from rocketmq_py.protocol.headers import PopLiteMessageAnswer, PopLiteMessageRequest
from rocketmq_py.remoting import Connection


class LiteRequests(PopRequests):
    """Sends the requests of a member that consumes lite topics.

    Raises the errors of PopRequests. A BrokerError with the code NO_MESSAGE means that the lite topic of the
    message has expired.

    Args:
        client: the client that sends the requests.
        group: the consumer group.
        counters: the counters of the consumer.
        subscriber: the subscription, which brokers must have before a pop.
    """

    def __init__(
        self, client: ClientCore, group: str, counters: ConsumerCounters, subscriber: LiteSubscriber
    ) -> None:
        super().__init__(client, group, counters)
        self._subscriber = subscriber

    async def pop(
        self, broker_name: str, spec: PopSpec, *, hold: float, queue_id: int = ALL_QUEUES
    ) -> list[PoppedMessage]:
        """Pop messages of the subscribed lite topics from a broker. See ``PopRequests.pop``."""
        timeout = self._client.settings.request_timeout
        connection = await self._connect(broker_name, timeout)
        await self._subscriber.ensure_current(broker_name, connection)
        header = PopLiteMessageRequest(
            client_id=self._client.client_id,
            consumer_group=self._group,
            topic=spec.subscription.topic,
            max_msg_num=spec.max_messages,
            invisible_time=round(spec.invisible * 1000),
            poll_time=round(hold * 1000),
            born_time=BROKERS_OWN_TIME,
        )
        answer = await self._client.brokers.call_over(connection, header, timeout=self._answer_timeout(hold))
        if not await self._has_messages(answer, connection, hold):
            return []
        return read_popped_lite(answer, self._client.brokers.messages(answer.body, broker_name).messages)

    async def release(self, messages: Iterable[PoppedMessage]) -> None:
        """Have brokers redeliver messages at once. A request releases all messages of a lite topic."""
        by_lite_topic = {message.lite_topic: message for message in reversed(list(messages))}
        await super().release(by_lite_topic.values())

    async def _make_visible(self, message: PoppedMessage) -> None:
        await self.change_invisible(message, 0.0, suspend=True)

    def _acknowledges_several(self, broker_name: str) -> bool:
        """Return False: brokers do not take several acknowledgements of lite topics at once."""
        return False

    def _check_version(self, connection: Connection) -> None:
        check_version(connection)

    def _delivery_fields(self, message: PoppedMessage) -> dict[str, Any]:
        return {**super()._delivery_fields(message), "lite_topic": message.lite_topic}


def read_popped_lite(answer: Command, messages: Sequence[ReceivedMessage]) -> list[PoppedMessage]:
    """Return the messages in the answer to a pop of lite topics, with their receipts.

    Java: ``MQClientAPIImpl.processPopLiteResponse``.

    Raises:
        ProtocolError: the answer is malformed, or a message lacks its lite topic or its offset there.
    """
    header = PopLiteMessageAnswer.from_fields(answer.fields)
    # An entry is a number, or ends with one: "0 qo0%120 3".
    counts = [entry.rpartition(" ")[2] for entry in (header.order_count_info or "").split(";")]
    if len(counts) != len(messages):
        counts = ["0"] * len(messages)
    return [
        _popped(message, header, int(count) if count.isdecimal() else 0)
        for message, count in zip(messages, counts, strict=True)
    ]


def _popped(message: ReceivedMessage, header: PopLiteMessageAnswer, count: int) -> PoppedMessage:
    offset = message.properties.get(LITE_OFFSETS, "")
    if not message.lite_topic or not offset.isdecimal():
        raise ProtocolError(
            f"the answer to a pop from {message.broker_name} has a message without a lite topic, or without "
            f"exactly one offset there ({offset!r}). The broker needs enableLmq and enableMultiDispatch"
        )
    values = {argument: getattr(message, name) for argument, name in MESSAGE_FIELDS}
    values |= {"queue_id": 0, "queue_offset": int(offset), "reconsume_times": count}
    receipt = ReceiptHandle(
        start_offset=0,
        pop_time_ms=header.pop_time,
        invisible_ms=header.invisible_time,
        revive_queue_id=header.revive_qid,
        topic_kind=TopicKind.NORMAL,
        broker_name=message.broker_name,
        queue_id=0,
        offset=int(offset),
    )
    return PoppedMessage(**values, receipt=receipt)
