"""What a pop consumer asks brokers: for messages, to forget them, to deliver them at another time."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Final

import attrs
import trio

from rocketmq_py.client.client import Client
from rocketmq_py.codes import V5_0_0_SNAPSHOT, ResponseCode
from rocketmq_py.consumer.group.handler_results import DEAD_LETTER
from rocketmq_py.consumer.pop.messages import (
    PoppedMessage,
    batch_acks,
    offset_of,
    read_popped,
    with_new_time,
)
from rocketmq_py.errors import BrokerError, UnsupportedByBrokerError
from rocketmq_py.protocol.bodies import ALL_QUEUES, BatchAck, BatchAcks, SubscriptionData
from rocketmq_py.protocol.headers import (
    AckMessageRequest,
    BatchAckMessageRequest,
    ChangeInvisibleTimeAnswer,
    ChangeInvisibleTimeRequest,
    PopMessageRequest,
)
from rocketmq_py.remoting import Connection

logger: Final = logging.getLogger("rocketmq_py.consumer")

FULL_SECONDS = 1.0
"""How long a broker that holds as many pops as it can is left alone."""
BETWEEN_DELIVERIES_SECONDS = 0.001
"""Brokers (5.5.0) tell a message's deliveries apart by the millisecond in which they begin. If its time is
changed in that of the pop, or of the last change, the old delivery's end may end the new one: it is lost."""
BROKERS_OWN_TIME = 0
"""Says that a pop was made when the broker gets it: else it would compare its clock with this machine's."""

_NOTHING = {ResponseCode.POLLING_TIMEOUT, ResponseCode.POLLING_FULL, ResponseCode.PULL_NOT_FOUND}


@attrs.frozen
class PopSpec:
    """What one pop asks for.

    Attributes:
        subscription: the topic, and what of it.
        max_messages: how many at the most.
        invisible: seconds until what is not acknowledged comes again.
        init_mode: where a new group begins.
        orderly: whether nothing more of a queue shall come before what came of it is acknowledged.
    """

    subscription: SubscriptionData
    max_messages: int
    invisible: float
    init_mode: int
    orderly: bool = False


class PopRequests:
    """A group's requests. Java: ``PullAPIWrapper.popAsync`` and its neighbours.

    Every method raises BrokerError for an answer that is not a success, NoQueueError when the broker has no
    address, and ConnectError, ConnectionLostError, RequestTimeoutError when it cannot be reached.

    Args:
        client: how brokers are reached.
        group: in whose name.
    """

    def __init__(self, client: Client, group: str) -> None:
        self._client = client
        self._group = group

    async def pop(
        self, broker_name: str, spec: PopSpec, *, hold: float, queue_id: int = ALL_QUEUES
    ) -> list[PoppedMessage]:
        """Take messages from a queue of a broker, or all of them, and from the group's retry topic there.

        Args:
            broker_name: the broker.
            spec: what is asked for.
            hold: seconds that the broker may wait for messages; 0 for none.
            queue_id: the queue; ALL_QUEUES for any.

        Raises:
            UnsupportedByBrokerError: it is older than 5.0; nothing was asked.
            ProtocolError: its answer cannot be read.

        When cancelled, messages may be taken all the same: they come again when their time is up.
        """
        timeout = self._client.config.request_timeout
        connection = await self._connect(broker_name, timeout)
        header = self._client.namespace.wrap(
            PopMessageRequest(
                consumer_group=self._group,
                topic=spec.subscription.topic,
                queue_id=queue_id,
                max_msg_nums=spec.max_messages,
                invisible_time=round(spec.invisible * 1000),
                poll_time=round(hold * 1000),
                born_time=BROKERS_OWN_TIME,
                init_mode=spec.init_mode,
                exp_type=spec.subscription.expression_type,
                exp=spec.subscription.sub_string,
                order=spec.orderly,
            )
        )
        answer = await connection.request(header.code, header.to_fields(), timeout=hold + timeout)
        if answer.code == ResponseCode.POLLING_FULL:
            await trio.sleep(min(hold, FULL_SECONDS))
        if answer.code in _NOTHING:
            return []
        if answer.code != ResponseCode.SUCCESS:
            raise BrokerError.from_answer(answer.code, answer.remark, connection.address)
        return read_popped(answer, broker_name, self._client.namespace)

    async def acknowledge(self, broker_name: str, messages: Sequence[PoppedMessage]) -> None:
        """Say that messages of one broker were consumed. Doing so twice, or late, changes nothing."""
        address = self._client.routes.broker_address(broker_name)
        if len(messages) == 1:
            [message] = messages
            await self._client.brokers.call(address, AckMessageRequest(**self._names(message)))
            return
        namespace = self._client.namespace
        acks: list[BatchAck] = []
        for topic in dict.fromkeys([message.topic for message in messages]):
            of_topic = [message for message in messages if message.topic == topic]
            acks += batch_acks(of_topic, namespace.wrap_topic(topic), namespace.wrap_group(self._group))
        body = BatchAcks(broker_name=broker_name, acks=tuple(acks)).encode()
        await self._client.brokers.call(address, BatchAckMessageRequest(), body)

    async def change_invisible(self, message: PoppedMessage, seconds: float) -> PoppedMessage:
        """Have a message come again after so many seconds from now; return it with its new handle."""
        await trio.sleep(BETWEEN_DELIVERIES_SECONDS)
        address = self._client.routes.broker_address(message.receipt.broker_name)
        header = ChangeInvisibleTimeRequest(**self._names(message), invisible_time=round(seconds * 1000))
        answer = await self._client.brokers.call(address, header)
        return with_new_time(message, ChangeInvisibleTimeAnswer.from_fields(answer.fields))

    async def send_to_dead_letters(
        self, message: PoppedMessage, *, failures: int, max_reconsume_times: int
    ) -> None:
        """Have a message be one of the group's dead letters, and delivered no more."""
        await self._client.brokers.send_back(
            message, self._group, delay_level=DEAD_LETTER, max_reconsume_times=max_reconsume_times
        )
        await self.acknowledge(message.receipt.broker_name, [message])
        logger.warning(
            "group %s: message %s of topic %s was delivered %d times: it is a dead letter now",
            self._group, message.message_id, message.topic, failures,
        )  # fmt: skip

    async def _connect(self, broker_name: str, timeout: float) -> Connection:
        """Return a connection to a broker that knows this client, and pop."""
        client = self._client
        deadline = trio.current_time() + timeout
        address = client.routes.broker_address(broker_name)
        connection = await client.connections.get_before(address, deadline)
        # Its answer tells the broker's version.
        await client.heartbeats.ensure_current(connection, timeout=max(deadline - trio.current_time(), 0.0))
        if connection.peer_version < V5_0_0_SNAPSHOT:
            raise UnsupportedByBrokerError(
                f"{address} is older than 5.0 and knows no pop; consume from it with a PushConsumer"
            )
        return connection

    def _names(self, message: PoppedMessage) -> dict[str, Any]:
        """Return what names a message's delivery."""
        namespace, receipt = self._client.namespace, message.receipt
        topic, group = namespace.wrap_topic(message.topic), namespace.wrap_group(self._group)
        return {
            "consumer_group": group,
            "topic": receipt.topic_kind.topic(topic, group),
            "queue_id": receipt.queue_id,
            "extra_info": str(receipt),
            "offset": offset_of(message),
        }
