"""What clients ask brokers apart from a user's sends: typed requests, typed answers, errors raised."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import attrs

from rocketmq_py.address import vip_address
from rocketmq_py.client.namespace import Namespace
from rocketmq_py.client.routes import Routes
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.errors import BrokerError, NoQueueError, RocketMQError
from rocketmq_py.message import MessageQueue, ReceivedMessage
from rocketmq_py.names import DEFAULT_TOPIC
from rocketmq_py.protocol import headers
from rocketmq_py.protocol.bodies import ConsumerList, LockedQueues, QueueLock
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.headers.base import Request
from rocketmq_py.remoting import ConnectionPool
from rocketmq_py.remoting.pending_requests import PendingRequest


class BrokerCalls:
    """Requests to brokers, by queue or by broker name. Java: ``MQClientAPIImpl``.

    Every method raises BrokerError (or a subclass) for an answer that is not a success, NoQueueError
    when no address of the broker is known, and ConnectError, ConnectionLostError or
    RequestTimeoutError when it cannot be reached. A cancellation leaves nothing behind. Topics and groups
    are named as the user knows them, in what is asked and in what is answered.

    Args:
        connections: how brokers are reached.
        routes: their addresses.
        namespace: what turns the names into those on the wire.
        vip_channel: whether all but pulls goes to the brokers' VIP channel.
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

    async def call(self, address: str, header: Request, body: bytes = b"") -> Command:
        """Ask ``address`` and return its answer, which is a success."""
        answer = await self._ask(address, header, body)
        if answer.code != ResponseCode.SUCCESS:
            raise BrokerError.from_answer(answer.code, answer.remark, address)
        return answer

    def channel(self, address: str) -> str:
        """Return where sends, and all calls but pulls and heartbeats, to the broker at ``address`` go."""
        return vip_address(address) if self._vip_channel else address

    async def max_offset(self, queue: MessageQueue) -> int:
        """Return the offset that the queue's next message will get."""
        header = headers.GetMaxOffsetRequest(
            topic=queue.topic, queue_id=queue.queue_id, broker_name=queue.broker_name
        )
        return _offset(await self.call(self._master(queue), header))

    async def min_offset(self, queue: MessageQueue) -> int:
        """Return the offset of the oldest message that the broker still has."""
        header = headers.GetMinOffsetRequest(
            topic=queue.topic, queue_id=queue.queue_id, broker_name=queue.broker_name
        )
        return _offset(await self.call(self._master(queue), header))

    async def first_store_time(self, queue: MessageQueue) -> int:
        """Return when the message at :meth:`min_offset` was stored, epoch ms; -1 if it is not there."""
        header = headers.GetEarliestStoreTimeRequest(topic=queue.topic, queue_id=queue.queue_id)
        answer = await self.call(self._master(queue), header)
        return headers.GetEarliestStoreTimeAnswer.from_fields(answer.fields).timestamp

    async def offset_at(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Return the offset of the first message stored at ``timestamp_ms`` or later, else the max offset.

        Brokers of 4.x may answer with the offset of the message before that one.
        """
        header = headers.SearchOffsetRequest(
            topic=queue.topic,
            queue_id=queue.queue_id,
            timestamp=timestamp_ms,
            broker_name=queue.broker_name,
        )
        return _offset(await self.call(self._master(queue), header))

    async def committed_offset(
        self, group: str, queue: MessageQueue, *, zero_if_new: bool = True
    ) -> int | None:
        """Return where the group goes on in the queue, or None if it has never been there.

        Args:
            group: the group.
            queue: the queue.
            zero_if_new: a broker that still has the queue's first message in memory may answer 0 for a
                group that is new to it. If False, 5.x brokers say None instead; 4.x ones know no such wish.
        """
        header = headers.QueryConsumerOffsetRequest(
            consumer_group=group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            set_zero_if_not_found=None if zero_if_new else False,
            broker_name=queue.broker_name,
        )
        address = self._master(queue)
        answer = await self._ask(address, header)
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        if answer.code != ResponseCode.SUCCESS:
            raise BrokerError.from_answer(answer.code, answer.remark, address)
        return _offset(answer)

    def offsets_address(self, queue: MessageQueue) -> str:
        """Return who keeps the groups' offsets of a queue: its master, or a replica while there is none.

        Raises NoQueueError if neither is known.
        """
        return self._master(queue)

    async def commit_offset(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Set where the group goes on in the queue."""
        await self.call(self._master(queue), _commit(group, queue, offset))

    async def commit_offset_oneway(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Set where the group goes on in the queue, and wait for no answer."""
        header = self._namespace.wrap(_commit(group, queue, offset))
        connection = await self._connections.get(self.channel(self._master(queue)))
        await connection.oneway(header.code, header.to_fields())

    async def consumer_ids(self, group: str, broker_name: str) -> Sequence[str]:
        """Return the ids of the clients that the broker knows as members of the group."""
        header = headers.GetConsumerListByGroupRequest(consumer_group=group)
        address = self._routes.broker_address(broker_name, any_id=True)
        return ConsumerList.decode((await self.call(address, header)).body).consumer_id_list

    async def lock(
        self, group: str, client_id: str, broker_name: str, queues: Iterable[MessageQueue]
    ) -> set[MessageQueue]:
        """Lock queues of one broker for a client, or renew its locks; return those that it has now.

        Only a master has locks.
        """
        address = self._routes.broker_address(broker_name)
        answer = await self.call(address, headers.LockBatchMqRequest(), self._lock(group, client_id, queues))
        return {self._unwrapped(queue) for queue in LockedQueues.decode(answer.body).queues}

    async def unlock(
        self, group: str, client_id: str, broker_name: str, queues: Iterable[MessageQueue]
    ) -> None:
        """Release the locks that a client has on queues of one broker."""
        address = self._routes.broker_address(broker_name)
        await self.call(address, headers.UnlockBatchMqRequest(), self._lock(group, client_id, queues))

    async def send_back(
        self, message: ReceivedMessage, group: str, *, delay_level: int, max_reconsume_times: int
    ) -> None:
        """Have the broker deliver the message to the group again, later.

        Args:
            message: one that was pulled from a broker.
            group: who failed on it.
            delay_level: 0 lets the broker choose by the number of failures, -1 gives the message up
                (it goes to the dead-letter topic), 1 to 18 is a level of the broker's table.
            max_reconsume_times: after so many failures it is given up.
        """
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

    async def send(self, queue: MessageQueue, fields: Mapping[str, str], body: bytes) -> None:
        """Send a message to its queue, and return when it is stored.

        Args:
            queue: the queue.
            fields: what ``send_request.send_fields`` wrote, with the names as they are on the wire.
            body: the body.
        """
        from rocketmq_py.protocol.send_request import STORED  # who only asks does without what it loads

        address = self._routes.broker_address(queue.broker_name)
        answer = await self._connections.request(
            self.channel(address), RequestCode.SEND_MESSAGE_V2, fields, body, timeout=self._timeout
        )
        if answer.code not in STORED:
            raise BrokerError.from_answer(answer.code, answer.remark, address)

    async def send_to_first(
        self, queues: Iterable[MessageQueue], fields: Callable[[MessageQueue], Mapping[str, str]], body: bytes
    ) -> None:
        """Send one of the client's own messages to the first of ``queues`` whose broker stores it.

        Such are trace records, and copies of what a group failed on; Java has inner producers for them. They
        do without a producer's Sender on purpose: no user waits for them, so they are not counted, traced or
        shown to hooks, and what becomes of them is held against no broker.

        Args:
            queues: where it may go; each is tried once.
            fields: gives the fields for a queue, whose topic is the one on the wire; see :meth:`send`.
            body: the body.

        Raises the error of the last try; NoQueueError if there are no queues.
        """
        error: RocketMQError = NoQueueError("there is no queue that the message may go to")
        for queue in queues:
            on_wire = attrs.evolve(queue, topic=self._namespace.wrap_topic(queue.topic))
            try:
                await self.send(queue, fields(on_wire), body)
            except RocketMQError as failure:
                if failure.invalidates_route:
                    self._routes.invalidate(queue.topic)
                error = failure
            else:
                return
        raise error

    async def recall(self, broker_name: str, group: str, topic: str, recall_handle: str) -> str:
        """Have a broker take a timed message back; return the message's id."""
        header = headers.RecallMessageRequest(
            producer_group=group, topic=topic, recall_handle=recall_handle, broker_name=broker_name
        )
        answer = await self.call(self._routes.broker_address(broker_name), header)
        return headers.RecallMessageAnswer.from_fields(answer.fields).msg_id

    def pull_fields(self, header: headers.PullMessageRequest) -> dict[str, str]:
        """Return the ext fields of a pull, for :meth:`pull`."""
        return self._namespace.wrap(header).to_fields()

    async def pull(self, address: str, request: PendingRequest) -> Command:
        """Return the broker's answer to a pull, whatever its code is."""
        return await self._connections.exchange(address, request)

    def begin_pull(self, address: str, request: PendingRequest) -> bool:
        """Send a pull that nobody waits for, if it can go at once; see ``ConnectionPool.begin``."""
        return self._connections.begin(address, request)

    async def create_topic(self, address: str, topic: str, *, queues: int, perm: int = 6) -> None:
        """Create a topic, or change it, on the broker at ``address``; ``perm`` 6 is reading and writing."""
        header = headers.CreateTopicRequest(
            topic=topic,
            default_topic=DEFAULT_TOPIC,
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=perm,
            topic_sys_flag=0,
        )
        await self.call(address, header)

    def _lock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> bytes:
        wrap = self._namespace.wrap_topic
        wrapped = [attrs.evolve(queue, topic=wrap(queue.topic)) for queue in queues]
        return QueueLock.of(self._namespace.wrap_group(group), client_id, wrapped).encode()

    def _unwrapped(self, queue: MessageQueue) -> MessageQueue:
        return attrs.evolve(queue, topic=self._namespace.unwrap_topic(queue.topic))

    def _master(self, queue: MessageQueue) -> str:
        return self._routes.broker_address(queue.broker_name, any_id=True)

    async def _ask(self, address: str, header: Request, body: bytes = b"") -> Command:
        fields = self._namespace.wrap(header).to_fields()
        return await self._connections.request(
            self.channel(address), header.code, fields, body, timeout=self._timeout
        )


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
