"""Requests to brokers that several parts of the client share: offsets, locks, pulls, messages sent back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

import trio

from rocketmq_py.address import vip_address
from rocketmq_py.client.features import FEATURE_OF_REQUEST, TOPIC_CHANGES, raise_if_older
from rocketmq_py.client.flow_control import ask_within
from rocketmq_py.client.namespace import Namespace
from rocketmq_py.client.proxies import raise_not_offered
from rocketmq_py.client.routes import Routes
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.errors import (
    BrokerError,
    ConfigurationError,
    ConnectError,
    ConnectionLostError,
    NoQueueError,
    RequestTimeoutError,
    RocketMQError,
)
from rocketmq_py.message import MessageQueue, ReceivedMessage
from rocketmq_py.names import DEFAULT_TOPIC
from rocketmq_py.property_names import RETRY_TOPIC
from rocketmq_py.protocol import headers
from rocketmq_py.protocol.bodies import ConsumerList, LockedQueues, QueueLock
from rocketmq_py.protocol.bodies.base import Body
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.headers.base import Request
from rocketmq_py.queues import is_logical_broker_name, java_broker_name
from rocketmq_py.remoting import Connection, ConnectionPool
from rocketmq_py.remoting.answer_errors import broker_error
from rocketmq_py.remoting.pending_requests import PendingRequest
from rocketmq_py.remoting.reachability import RECHECK_SECONDS

if TYPE_CHECKING:
    from rocketmq_py.protocol.stored_message import DecodedMessages

REPEATABLE: Final = frozenset(
    [code for code in RequestCode if code.name.startswith(("GET_", "QUERY_", "SEARCH_", "VIEW_"))]
    + [
        RequestCode.ACK_MESSAGE,
        RequestCode.BATCH_ACK_MESSAGE,
        RequestCode.LOCK_BATCH_MQ,
        RequestCode.UNLOCK_BATCH_MQ,
        RequestCode.UPDATE_CONSUMER_OFFSET,
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
    ]
)
"""Requests that may be executed twice: they read, or have the same effect again."""

Result = TypeVar("Result")

_ANSWERED_BY_ALL: Final = headers.GetBrokerRuntimeInfoRequest()
"""A request that brokers of each version answer. Proxies refuse it."""


class BrokerCalls:
    """Requests to brokers. Java: ``MQClientAPIImpl``.

    Methods that wait for an answer, except :meth:`pull`, raise BrokerError (or a subclass) if the broker does
    not answer with success, NoQueueError if no address of the broker is known, UnsupportedByBrokerError if
    the broker is too old for the request or a proxy in front of it does not offer it, and ConnectError,
    ConnectionLostError or RequestTimeoutError if it cannot be reached. When cancelled, the answer is ignored,
    and the broker may have executed the request. Names of topics and groups are the user's.

    Args:
        connections: the connections to brokers.
        routes: the addresses of brokers.
        namespace: converts the names.
        vip_channel: whether requests other than pulls go to the VIP channel of brokers.
        timeout: seconds for one request.
    """

    def __init__(
        self,
        connections: ConnectionPool,
        routes: Routes,
        *,
        namespace: Namespace,
        vip_channel: bool,
        timeout: float,
    ) -> None:
        self._connections = connections
        self._routes = routes
        self._namespace = namespace
        self._vip_channel = vip_channel
        self._timeout = timeout

    async def call(self, address: str, header: Request, body: Body | bytes = b"") -> Command:
        """Send a request to the broker at ``address``, or its VIP channel. Return the successful answer.

        The names in the header, and in a body that is not bytes, are converted to those on the wire. A
        request that may be executed twice is sent again, once, if its connection breaks. It waits then for
        the broker to be back. Each request is repeated, within the timeout, while the service limits the
        rate.
        """
        fields, data, target = self.fields(header), self._data(body), self.request_address(address)
        if header.code in FEATURE_OF_REQUEST:
            raise_if_older(address, header.code, await self.version(address))
        ask = partial(self._ask, target, header.code, fields, data)
        answer = await ask_within(self._timeout, ask)
        if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            await raise_not_offered(
                self._connections, target, header.code, answer.version, timeout=self._timeout
            )
        if answer.code != ResponseCode.SUCCESS:
            raise broker_error(answer.code, answer.remark, address)
        return answer

    async def read(
        self, address: str, header: Request, decode: Callable[[bytes], Result], body: Body | bytes = b""
    ) -> Result:
        """Send a request as :meth:`call`. Return the decoded body of the answer, with the user's names."""
        return self._namespace.unwrap(decode((await self.call(address, header, body)).body))

    def messages(self, data: bytes, broker_name: str) -> DecodedMessages:
        """Return messages of an answer with the user's topics, as many as the budget of a pull allows."""
        from rocketmq_py.protocol.stored_message import decode_within_budget  # not for clients that only send

        return self._namespace.unwrap(decode_within_budget(data, broker_name))

    async def call_over(
        self, connection: Connection, header: Request, body: Body | bytes = b"", *, timeout: float
    ) -> Command:
        """Send a request over a connection, with the names on the wire. Return the answer with any code."""
        return await connection.request(header.code, self.fields(header), self._data(body), timeout=timeout)

    def fields(self, header: Request) -> dict[str, str]:
        """Return the ext fields of a request, with the names on the wire."""
        return self._namespace.wrap(header).to_fields()

    def _data(self, body: Body | bytes) -> bytes:
        return body if isinstance(body, bytes) else self._namespace.wrap(body).encode()

    async def _ask(
        self, target: str, code: int, fields: Mapping[str, str], body: bytes, timeout: float
    ) -> Command:
        """Send a request, twice at most, and return the answer with any code."""
        started = trio.current_time()
        try:
            return await self._connections.request(target, code, fields, body, timeout=timeout)
        except ConnectionLostError:
            if code not in REPEATABLE or self._connections.is_closed:
                raise
            left = max(started + timeout - trio.current_time(), 0.0)
            return await self._connections.request(target, code, fields, body, timeout=left)

    async def version(self, address: str) -> int:
        """Return the version of the broker at ``address``, an ordinal of Java's ``MQVersion``.

        Asks the broker unless it has answered a request, because every answer contains the version.
        """
        target = self.request_address(address)
        known = await self._connections.get_before(target, trio.current_time() + self._timeout)
        if known.peer_version:
            return known.peer_version
        header = _ANSWERED_BY_ALL
        return (await self._ask(target, header.code, header.to_fields(), b"", self._timeout)).version

    def request_address(self, address: str) -> str:
        """Return where requests to the broker at ``address`` go: to its VIP channel if that is on.

        Pulls, pops and heartbeats go to the broker itself. An invalid address of a name server is returned
        unchanged. Dialling it fails.
        """
        if self._vip_channel:
            with suppress(ConfigurationError):
                return vip_address(address)
        return address

    def is_unreachable(self, broker_name: str) -> bool:
        """Whether the last dial of a broker has failed. Also if its address is unknown."""
        try:
            address = self._routes.broker_address(broker_name, any_id=True)
        except NoQueueError:
            return True
        return self._connections.is_unreachable(address)

    async def wait_until_reachable(self, queue: MessageQueue) -> None:
        """Wait until the broker of a queue is connected, for any time.

        Meanwhile the topic's route is refreshed, because the broker may come back at another address. Returns
        after a second if waiting is useless, or the broker's address is unknown. The next request has the
        error.
        """
        while True:
            try:
                address = self._routes.broker_address(queue.broker_name, any_id=True)
                recheck_at = trio.current_time() + RECHECK_SECONDS
                await self._connections.get_before(address, recheck_at)
            except (ConnectError, RequestTimeoutError) as error:
                if not error._not_reached:
                    await trio.sleep(RECHECK_SECONDS)
                    return
                self._routes.invalidate(queue.topic)
            except RocketMQError:
                await trio.sleep(RECHECK_SECONDS)
                return
            else:
                return

    async def max_offset(self, queue: MessageQueue) -> int:
        """Return the max offset of a queue: the offset of its next message."""
        header = headers.GetMaxOffsetRequest(
            topic=queue.topic, queue_id=queue.queue_id, broker_name=queue.broker_name
        )
        return _offset(await self.call(self.offsets_address(queue), header))

    async def min_offset(self, queue: MessageQueue) -> int:
        """Return the min offset of a queue: the offset of the oldest message that the broker has."""
        header = headers.GetMinOffsetRequest(
            topic=queue.topic, queue_id=queue.queue_id, broker_name=queue.broker_name
        )
        return _offset(await self.call(self.offsets_address(queue), header))

    async def first_store_time(self, queue: MessageQueue) -> int:
        """Return the store time of the message at :meth:`min_offset`, epoch ms. -1 if there is none."""
        header = headers.GetEarliestStoreTimeRequest(
            topic=queue.topic, queue_id=queue.queue_id, broker_name=queue.broker_name
        )
        answer = await self.call(self.offsets_address(queue), header)
        return headers.GetEarliestStoreTimeAnswer.from_fields(answer.fields).timestamp

    async def offset_at(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Return the offset of the first message stored at or after ``timestamp_ms``, or the max offset.

        Brokers 4.x may return the offset of the message before it.
        """
        header = headers.SearchOffsetRequest(
            topic=queue.topic,
            queue_id=queue.queue_id,
            timestamp=timestamp_ms,
            broker_name=queue.broker_name,
        )
        return _offset(await self.call(self.offsets_address(queue), header))

    async def committed_offset(
        self, group: str, queue: MessageQueue, *, zero_if_new: bool = True
    ) -> int | None:
        """Return the committed offset of a group in a queue, or None if it has none.

        Args:
            group: the group.
            queue: the queue.
            zero_if_new: True: a broker that still has the first message of the queue in memory may answer 0
                for a new group. False: brokers 5.x answer None instead. Brokers 4.x ignore this.
        """
        header = headers.QueryConsumerOffsetRequest(
            consumer_group=group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            set_zero_if_not_found=None if zero_if_new else False,
            broker_name=queue.broker_name,
        )
        try:
            return _offset(await self.call(self.offsets_address(queue), header))
        except BrokerError as error:
            if error.code == ResponseCode.QUERY_NOT_FOUND:
                return None
            raise

    def offsets_address(self, queue: MessageQueue) -> str:
        """Return the address of the broker with the offsets of a queue: the master, else a replica.

        Raises NoQueueError if neither is known.
        """
        return self._routes.broker_address(queue.broker_name, any_id=True)

    async def commit_offset(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Commit the offset of a group in a queue."""
        await self.call(self.offsets_address(queue), _commit(group, queue, offset))

    async def commit_offset_oneway(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Commit the offset of a group in a queue, without waiting for an answer."""
        header = _commit(group, queue, offset)
        address = self.request_address(self.offsets_address(queue))
        connection = await self._connections.get_before(address, trio.current_time() + self._timeout)
        await connection.oneway(header.code, self.fields(header))

    async def consumer_ids(self, group: str, broker_name: str) -> Sequence[str]:
        """Return the client ids of the group's members that the broker knows."""
        header = headers.GetConsumerListByGroupRequest(consumer_group=group)
        address = self._routes.broker_address(broker_name, any_id=True)
        return ConsumerList.decode((await self.call(address, header)).body).consumer_id_list

    async def lock(
        self, group: str, client_id: str, broker_name: str, queues: Sequence[MessageQueue]
    ) -> set[MessageQueue]:
        """Lock queues of one broker for a client, or renew the locks. Return the locked queues.

        Only a master has locks.
        """
        address = self._routes.broker_address(broker_name)
        body = self._namespace.wrap(_lock(group, client_id, queues))
        answer = await self.call(address, headers.LockBatchMqRequest(), body)
        by_wire = dict(zip(body.queues, queues, strict=True))
        return {by_wire[queue] for queue in LockedQueues.decode(answer.body).queues if queue in by_wire}

    async def unlock(
        self, group: str, client_id: str, broker_name: str, queues: Iterable[MessageQueue]
    ) -> None:
        """Release a client's locks on queues of one broker."""
        address = self._routes.broker_address(broker_name)
        await self.call(address, headers.UnlockBatchMqRequest(), _lock(group, client_id, queues))

    async def send_back(
        self, message: ReceivedMessage, group: str, *, delay_level: int, max_reconsume_times: int
    ) -> None:
        """Send a message back, so that the broker redelivers it to the group later.

        Args:
            message: a message that was pulled from a broker.
            group: the group that failed to consume it.
            delay_level: 0: the broker chooses by the number of failures. -1: the message becomes a dead
                letter. 1 to 18: a level of the broker's table.
            max_reconsume_times: the number of failures after which it becomes a dead letter.

        Raises NoQueueError for a message of a logical queue, because another broker than that of the queue
        may have stored it. Send a copy instead.
        """
        if is_logical_broker_name(message.broker_name):
            raise NoQueueError(f"message {message.message_id} of a logical queue cannot be sent back")
        header = headers.ConsumerSendMsgBackRequest(
            offset=message.commit_log_offset,
            group=group,
            delay_level=delay_level,
            origin_msg_id=message.message_id,
            origin_topic=message.topic,
            unit_mode=False,
            max_reconsume_times=max_reconsume_times,
            broker_name=message.broker_name,
        )
        await self.call(self._routes.broker_address(message.broker_name), header)

    async def send(self, queue: MessageQueue, fields: Mapping[str, str], body: bytes) -> Command:
        """Send a message to its queue, and return the answer when it is stored.

        Args:
            queue: the queue.
            fields: the ext fields of ``sends.send_fields``, with the names on the wire.
            body: the body.
        """
        from rocketmq_py.protocol.sends import STORED  # loaded only by clients that send

        address = self._routes.broker_address(queue.broker_name)
        target, code = self.request_address(address), RequestCode.SEND_MESSAGE_V2
        ask = partial(self._connections.request, target, code, fields, body)
        answer = await ask_within(self._timeout, ask)
        if answer.code not in STORED:
            raise broker_error(answer.code, answer.remark, address)
        return answer

    async def send_to_first(
        self,
        queues: Iterable[MessageQueue],
        fields: Callable[..., Mapping[str, str]],
        body: bytes,
        system_properties: Mapping[str, str],
    ) -> tuple[MessageQueue, Command]:
        """Send one of the client's own messages to the first of ``queues`` whose broker stores it.

        For trace records, messages sent back by a group, and dead letters. Java has inner producers for
        them. They do not use a producer's Sender, because they must not be counted, traced, passed to hooks,
        or affect the latency-fault table.

        Args:
            queues: the candidates. Each gets one attempt, first those whose brokers can be reached.
            fields: ``sends.send_fields`` with all of its arguments but the queue and the system
                properties. The producer group must have its name on the wire, because RocketMQ's own are
                shared by all namespaces.
            body: the body.
            system_properties: RocketMQ's own properties.

        Returns the queue and the answer. Raises the error of the last attempt, or NoQueueError if ``queues``
        is empty.
        """
        properties = dict(system_properties)
        if RETRY_TOPIC in properties:
            properties[RETRY_TOPIC] = self._namespace.wrap_topic(properties[RETRY_TOPIC])
        error: RocketMQError = NoQueueError("there is no queue to send the message to")
        for queue in sorted(queues, key=lambda queue: self.is_unreachable(queue.broker_name)):
            on_wire = self._namespace.wrap(queue)
            try:
                answer = await self.send(queue, fields(on_wire, system_properties=properties), body)
            except RocketMQError as failure:
                if failure._invalidates_route:
                    self._routes.invalidate(queue.topic)
                error = failure
            else:
                return queue, answer
        raise error

    async def recall(self, broker_name: str, group: str, topic: str, recall_handle: str) -> Command:
        """Recall a timed message. Return the answer, whose fields are a RecallMessageAnswer."""
        header = headers.RecallMessageRequest(
            producer_group=group, topic=topic, recall_handle=recall_handle, broker_name=broker_name
        )
        return await self.call(self._routes.broker_address(broker_name), header)

    async def pull(self, address: str, request: PendingRequest) -> Command:
        """Send a pull with :meth:`fields` to the broker at ``address``, and return its answer with any code.

        Pulls have long timeouts. The wait for a connection is limited to the timeout of other requests, so
        that the next pull goes to another address if the broker has moved.
        """
        if not self._connections.begin(address, request):
            await self._connections.get_before(address, trio.current_time() + self._timeout)
            return await self._connections.exchange(address, request)
        answer = await request.wait()
        assert isinstance(answer, Command)
        return answer

    def begin_pull(self, address: str, request: PendingRequest) -> bool:
        """Send a pull if it can be written at once, and return whether it was. ``answered`` gets the answer.

        See ``ConnectionPool.begin``.
        """
        return self._connections.begin(address, request)

    async def create_topic(self, address: str, topic: str, *, queues: int, perm: int = 6) -> None:
        """Create or change a topic on the broker at ``address``. ``perm`` 6 allows reading and writing."""
        header = headers.CreateTopicRequest(
            topic=topic,
            default_topic=DEFAULT_TOPIC,
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=perm,
            topic_sys_flag=0,
        )
        await self.change_topic(address, header)

    async def change_topic(self, address: str, header: headers.CreateTopicRequest) -> None:
        """Create or change a topic on the broker at ``address``, and wait until that is done."""
        await self.call(address, header)
        if not TOPIC_CHANGES.is_supported_by(await self.version(address)):
            # These brokers answer first, and make one change at a time, of a topic or of their settings.
            await self.call(address, headers.UpdateBrokerConfigRequest())


def _lock(group: str, client_id: str, queues: Iterable[MessageQueue]) -> QueueLock:
    """Return the body with queues as Java's clients name them, so that both exclude each other."""
    named = [
        MessageQueue(queue.topic, java_broker_name(queue.broker_name), queue.queue_id) for queue in queues
    ]
    return QueueLock.of(group, client_id, named)


def _commit(group: str, queue: MessageQueue, offset: int) -> headers.UpdateConsumerOffsetRequest:
    return headers.UpdateConsumerOffsetRequest(
        consumer_group=group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        commit_offset=offset,
        broker_name=queue.broker_name,
    )


def _offset(answer: Command) -> int:
    return headers.OffsetAnswer.from_fields(answer.fields).offset
