"""The requests of pop: pop messages, acknowledge them, change their invisible time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, cast

import attrs
import trio

from rocketmq_py.client.core import ClientCore
from rocketmq_py.client.features import BATCH_ACKNOWLEDGEMENTS, POP
from rocketmq_py.client.lifespan import nursery_of
from rocketmq_py.client.proxies import not_offered, unsupported_by_proxy
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.consumer.group.concurrent_queries import run_for_each
from rocketmq_py.consumer.group.counters import ConsumerCounters
from rocketmq_py.consumer.group.dead_letters import DeadLetter, DeadLetters
from rocketmq_py.consumer.group.handler_results import DEAD_LETTER
from rocketmq_py.consumer.pop.messages import (
    PoppedMessage,
    batch_acks,
    offset_of,
    read_popped,
    with_new_receipt,
)
from rocketmq_py.errors import ClosedError, Delivery, RocketMQError
from rocketmq_py.library_logger import LibraryLogger
from rocketmq_py.protocol.bodies import ALL_QUEUES, BatchAck, BatchAcks, SubscriptionData
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.headers import (
    AckMessageRequest,
    BatchAckMessageRequest,
    ChangeInvisibleTimeAnswer,
    ChangeInvisibleTimeRequest,
    PopMessageRequest,
)
from rocketmq_py.remoting import Connection
from rocketmq_py.remoting.answer_errors import broker_error
from rocketmq_py.remoting.nurseries import open_nursery

logger: Final = LibraryLogger("rocketmq_py.consumer")

FULL_SECONDS = 1.0
"""Back-off after a broker has refused to hold another pop."""
BETWEEN_DELIVERIES_SECONDS = 0.001
"""Pause before the invisible time of a message is changed.

Brokers (5.5.0) identify a delivery by the millisecond of its start. If the time is changed in the millisecond
of the pop or of the previous change, the end of the old delivery may end the new one: the message is lost."""
HELD_ANSWER_SECONDS = 10.0
"""Seconds that the answer to a held pop may take after the hold (Java: ``PullAPIWrapper.popAsync``)."""
BROKERS_OWN_TIME = 0
"""The born time of pops. The broker uses its own clock instead of comparing it with this machine's."""

_NO_MESSAGES = {ResponseCode.POLLING_TIMEOUT, ResponseCode.POLLING_FULL, ResponseCode.PULL_NOT_FOUND}


@attrs.frozen
class PopSpec:
    """The parameters of a pop.

    Attributes:
        subscription: the subscription to the topic.
        max_messages: the maximum number of messages.
        invisible: seconds until unacknowledged messages are redelivered.
        init_mode: the position at which a new group starts.
        orderly: whether the broker withholds the next messages of a queue until the popped ones are
            acknowledged.
    """

    subscription: SubscriptionData
    max_messages: int
    invisible: float
    init_mode: int
    orderly: bool = False


class _PopKey(NamedTuple):
    """The queues that an ordered pop locks."""

    broker_name: str
    topic: str
    queue_id: int


class BackgroundPop:
    """A pop in a task of the client, which outlives a cancelled caller. Then its messages are released.

    Args:
        requests: sends the pop, and releases the messages.
        broker_name: the broker, for the log.
    """

    def __init__(self, requests: PopRequests, broker_name: str) -> None:
        self._requests = requests
        self._broker_name = broker_name
        self._is_awaited = True
        self._messages: list[PoppedMessage] = []
        self._error: BaseException | None = ClosedError("this Client is closed")  # if this task is cancelled
        self._ended = trio.Event()

    async def run(self, pop: Callable[[], Awaitable[list[PoppedMessage]]]) -> list[PoppedMessage]:
        """Call ``pop``. Return its messages, or raise its error."""
        await trio.lowlevel.checkpoint_if_cancelled()  # a cancelled caller starts no pop
        nursery_of(self._requests.client).start_soon(self._pop, pop)
        try:
            await self._ended.wait()
        finally:
            self._is_awaited = False
        if self._error is not None:
            raise self._error
        return self._messages

    async def _pop(self, pop: Callable[[], Awaitable[list[PoppedMessage]]]) -> None:
        try:
            self._messages = await pop()
            self._error = None
        except trio.Cancelled:
            raise
        except BaseException as error:
            if not self._is_awaited and not isinstance(error, RocketMQError):
                raise
            self._error = error  # run() raises it
        finally:
            self._ended.set()
        if not self._is_awaited:
            if self._error is not None:
                logger.info(
                    "pop failed after its caller was cancelled: group=%s broker=%s error=%s",
                    self._requests.group, self._broker_name, self._error,
                )  # fmt: skip
            await self._requests.release(self._messages)


class PopRequests:
    """Sends the pop requests of a group. Java: ``PullAPIWrapper.popAsync`` and related methods.

    Every method raises BrokerError for an error answer, NoQueueError if the broker has no known address,
    UnsupportedByBrokerError if the broker is behind a proxy, and ConnectError, ConnectionLostError,
    RequestTimeoutError if it cannot be reached. Proxies (5.5.0) misread pops, and do not answer the other
    requests at all.

    Args:
        client: the client that sends the requests.
        group: the consumer group.
    """

    def __init__(self, client: ClientCore, group: str, counters: ConsumerCounters) -> None:
        self._client = client
        self._group = group
        self._dead_letters = DeadLetters(group, counters)
        self._lost_attempts: defaultdict[_PopKey, list[str]] = defaultdict(list)

    @property
    def client(self) -> ClientCore:
        """The client that sends the requests."""
        return self._client

    @property
    def group(self) -> str:
        """The consumer group."""
        return self._group

    async def pop(
        self, broker_name: str, spec: PopSpec, *, hold: float, queue_id: int = ALL_QUEUES
    ) -> list[PoppedMessage]:
        """Pop messages from a queue, or all queues, of a broker and from the group's retry topic there.

        If the answer to an ordered pop is lost, the next pop returns the same messages at once. Without that,
        their queue would be blocked until their invisible time is over.

        Args:
            broker_name: the broker.
            spec: the parameters.
            hold: seconds that the broker may hold the request until messages arrive. 0 does not hold it.
            queue_id: the queue. ALL_QUEUES pops from all queues.

        Raises:
            UnsupportedByBrokerError: the broker is older than 5.0, or behind a proxy. No pop was sent.
            ProtocolError: the answer is malformed.

        When cancelled, the broker may have popped messages. It redelivers them when their invisible time is
        over.
        """
        timeout = self._client.settings.request_timeout
        connection = await self._connect(broker_name, timeout)
        key = _PopKey(broker_name, spec.subscription.topic, queue_id)
        attempt_id = self._attempt_id(key) if spec.orderly else None
        header = PopMessageRequest(
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
            attempt_id=attempt_id,
            broker_name=broker_name,
        )
        try:
            answer = await self._client.brokers.call_over(
                connection, header, timeout=self._answer_timeout(hold)
            )
        except RocketMQError as error:
            if attempt_id is not None and error.delivery is Delivery.UNKNOWN:
                self._lost_attempts[key].append(attempt_id)
            raise
        if not await self._has_messages(answer, connection, hold):
            return []
        messages = self._client.brokers.messages(answer.body, broker_name).messages
        return read_popped(answer, messages, spec.subscription.topic)

    async def pop_or_release(
        self, broker_name: str, spec: PopSpec, *, hold: float, queue_id: int = ALL_QUEUES
    ) -> list[PoppedMessage]:
        """Pop as :meth:`pop` does, but release the messages if this is cancelled.

        A broker delivers messages to a held pop although its caller was cancelled. As long as the client is
        open, it waits for the answer then, and has the broker redeliver the messages at once.
        """
        pop = partial(self.pop, broker_name, spec, hold=hold, queue_id=queue_id)
        return await BackgroundPop(self, broker_name).run(pop)

    async def release(self, messages: Iterable[PoppedMessage]) -> None:
        """Have brokers redeliver messages at once, instead of after their invisible time.

        Failures are logged. Then the messages are redelivered after their invisible time.
        """
        async with open_nursery() as nursery:
            for message in messages:
                nursery.start_soon(self._release_one, message)

    async def _release_one(self, message: PoppedMessage) -> None:
        try:
            await self._make_visible(message)
        except RocketMQError as error:
            logger.info(
                "messages are redelivered only after their invisible time: group=%s broker=%s error=%s",
                self._group, message.receipt.broker_name, error,
            )  # fmt: skip

    async def _make_visible(self, message: PoppedMessage) -> None:
        await self.change_invisible(message, 0.0)

    def _answer_timeout(self, hold: float) -> float:
        """Return the seconds that the answer to a pop may take."""
        timeout = self._client.settings.request_timeout
        return hold + max(timeout, HELD_ANSWER_SECONDS) if hold else timeout

    def _attempt_id(self, key: _PopKey) -> str:
        """Return the id of a pop whose answer was lost, or a new one.

        A broker repeats an ordered pop for the same id. Concurrent pops therefore have different ids.
        """
        lost = self._lost_attempts[key]
        return lost.pop() if lost else self._client.unique_ids.next()

    async def acknowledge(self, broker_name: str, messages: Sequence[PoppedMessage]) -> None:
        """Acknowledge messages of one broker. A repeated or late acknowledgement has no effect.

        A broker that takes one acknowledgement at a time gets a request for each. The first error is
        raised after all of them have ended.
        """
        if len(messages) == 1:
            await self._acknowledge_one(messages[0])
            return
        if not self._acknowledges_several(broker_name):
            await run_for_each(messages, self._acknowledge_one)
            return
        address = self._address(broker_name, RequestCode.BATCH_ACK_MESSAGE)
        acks: list[BatchAck] = []
        for topic in dict.fromkeys([message.topic for message in messages]):
            of_topic = [message for message in messages if message.topic == topic]
            acks += batch_acks(of_topic, topic, self._group)
        body = BatchAcks(broker_name=broker_name, acks=tuple(acks))
        await self._client.brokers.call(address, BatchAckMessageRequest(broker_name=broker_name), body)

    async def _acknowledge_one(self, message: PoppedMessage) -> None:
        address = self._address(message.receipt.broker_name, RequestCode.ACK_MESSAGE)
        await self._client.brokers.call(address, AckMessageRequest(**self._delivery_fields(message)))

    async def change_invisible(
        self, message: PoppedMessage, seconds: float, *, suspend: bool = False
    ) -> PoppedMessage:
        """Redeliver a message ``seconds`` from now. Return it with its new receipt handle.

        With ``suspend``, which only lite topics support, the redelivery does not count as a failure.
        """
        await trio.sleep(BETWEEN_DELIVERIES_SECONDS)
        address = self._address(message.receipt.broker_name, RequestCode.CHANGE_MESSAGE_INVISIBLETIME)
        header = ChangeInvisibleTimeRequest(
            **self._delivery_fields(message), invisible_time=round(seconds * 1000), suspend=suspend
        )
        answer = await self._client.brokers.call(address, header)
        return with_new_receipt(message, ChangeInvisibleTimeAnswer.from_fields(answer.fields))

    async def send_to_dead_letters(self, dead_letter: DeadLetter, *, max_reconsume_times: int) -> None:
        """Send a popped message to the group's dead-letter queue and acknowledge it.

        The broker copies the message, so only the log has the reason and the number of deliveries.
        """
        message = cast("PoppedMessage", dead_letter.message)
        await self._client.brokers.send_back(
            message, self._group, delay_level=DEAD_LETTER, max_reconsume_times=max_reconsume_times
        )
        await self.acknowledge(message.receipt.broker_name, [message])
        self._dead_letters.note(dead_letter)

    async def _has_messages(self, answer: Command, connection: Connection, hold: float) -> bool:
        """Return whether the answer to a pop has messages. Back off if the broker holds too many pops."""
        if answer.code == ResponseCode.POLLING_FULL:
            await trio.sleep(min(hold, FULL_SECONDS))
        if answer.code in _NO_MESSAGES:
            return False
        if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            raise not_offered(connection.address, RequestCode.POP_MESSAGE, answer.version)
        if answer.code != ResponseCode.SUCCESS:
            raise broker_error(answer.code, answer.remark, connection.address)
        return True

    async def _connect(self, broker_name: str, timeout: float) -> Connection:
        """Return a connection to a broker that supports pop and has received this client's heartbeat."""
        client = self._client
        address = client.routes.broker_address(broker_name)
        connection = await client.heartbeats.connect(address, trio.current_time() + timeout)
        self._check_version(connection)
        if connection.peer_is_proxy:
            raise unsupported_by_proxy(address, RequestCode.POP_MESSAGE)
        return connection

    def _check_version(self, connection: Connection) -> None:
        """Raise UnsupportedByBrokerError if the broker does not support these requests."""
        POP.check(connection)

    def _acknowledges_several(self, broker_name: str) -> bool:
        """Return whether a broker takes several acknowledgements at once. True if its version is unknown."""
        connection = self._client.connections.get_nowait(self._client.routes.broker_address(broker_name))
        return (
            connection is None
            or not connection.peer_version
            or BATCH_ACKNOWLEDGEMENTS.is_supported_by(connection.peer_version)
        )

    def _address(self, broker_name: str, code: int) -> str:
        """Return the address of a broker, for a request with this code."""
        address = self._client.routes.broker_address(broker_name)
        connection = self._client.connections.get_nowait(address)
        if connection is not None and connection.peer_is_proxy:
            raise unsupported_by_proxy(address, code)
        return address

    def _delivery_fields(self, message: PoppedMessage) -> dict[str, Any]:
        """Return the header fields that identify a message's delivery."""
        namespace, receipt = self._client.namespace, message.receipt
        return {
            "consumer_group": self._group,
            "topic": namespace.popped_topic(message.topic, self._group, receipt.topic_kind),
            "queue_id": receipt.queue_id,
            "extra_info": str(receipt),
            "offset": offset_of(message),
            "broker_name": receipt.broker_name,
        }
