"""Requests that operators send to a consumer through a broker: state, offset resets, direct consumption."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Final, Protocol

import attrs
import trio

from rocketmq_py.client.core import ClientCore
from rocketmq_py.codes import ResponseCode
from rocketmq_py.consumer.group.counters import ConsumerCounters
from rocketmq_py.consumer.group.membership import Membership
from rocketmq_py.library_logger import LibraryLogger
from rocketmq_py.message import MessageQueue, ReceivedMessage
from rocketmq_py.property_names import RETRY_TOPIC
from rocketmq_py.protocol.bodies import (
    ConsumeMessageDirectlyResult,
    ConsumerData,
    ConsumerOffsets,
    ConsumerRunningInfo,
    PopQueueInfo,
    ProcessQueueInfo,
    ResetOffsets,
)
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.headers import (
    ConsumeMessageDirectlyRequest,
    GetConsumerRunningInfoRequest,
    GetConsumerStatusRequest,
    ResetOffsetRequest,
)
from rocketmq_py.protocol.stored_message import decode_messages
from rocketmq_py.remoting import Connection

logger: Final = LibraryLogger("rocketmq_py.consumer")

CLIENT_VERSION = "V5_5_0 (rocketmq-py)"
"""The version that tools show for this client: the protocol version of ``command.VERSION``."""


class PulledQueues(Protocol):
    """The pulled queues of a consumer, as operators see and move them."""

    def infos(self) -> Mapping[MessageQueue, ProcessQueueInfo]:
        """Return the state of each queue."""

    def offsets(self) -> Mapping[MessageQueue, int]:
        """Return the offset of each queue up to which all messages are acknowledged."""

    def pull_again(self, topic: str) -> None:
        """End the held pulls of a topic and send new ones. Full queues are pulled, too.

        Brokers that reset offsets by themselves answer the next pull with the new offset, and
        ``admin.offsets.reset`` asks members for their offsets after a reset, so that they pull at once.
        """

    async def seek(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Continue at these offsets, and commit them."""


class PoppedQueues(Protocol):
    """The popped queues of a consumer, as operators see them."""

    def infos(self) -> Mapping[MessageQueue, PopQueueInfo]:
        """Return the state of each queue."""


class DirectHandler(Protocol):
    """Calls the handler of a consumer for an operator."""

    async def consume_directly(self, message: ReceivedMessage) -> ConsumeMessageDirectlyResult:
        """Call the handler with one message, and return the outcome."""


class OperatorRequests:
    """Answers the requests of brokers for one consumer. Java: ``ClientRemotingProcessor``.

    Tools for operators see the consumer as they see one in Java.

    Args:
        client: the client that receives the requests.
        group: the consumer group.
        membership: the consumer's membership of the group.
        properties: the consumer's settings, by their names in Java.
        counters: the consumer's counters.
        nursery: runs requests that take time.
        pulled: the pulled queues. None if the consumer pulls none.
        popped: the popped queues. None if the consumer pops none for a handler.
        handler: calls the consumer's handler. None if the consumer has no handler, and so brokers cannot
            reset its offsets either.
    """

    def __init__(
        self,
        client: ClientCore,
        group: str,
        *,
        membership: Membership,
        properties: Mapping[str, str],
        counters: ConsumerCounters,
        nursery: trio.Nursery,
        pulled: PulledQueues | None = None,
        popped: PoppedQueues | None = None,
        handler: DirectHandler | None = None,
    ) -> None:
        self._client = client
        self._group = group
        self._membership = membership
        self._properties = properties
        self._started_ms = client.now_ms()
        self._counters = counters
        self._nursery = nursery
        self._pulled = pulled
        self._popped = popped
        self._handler = handler

    @contextmanager
    def serve(self) -> Iterator[None]:
        """Answer requests while the block runs.

        Consumers of one client register for the same codes. A method returns False if the request is for
        another group, or if this consumer cannot do it, and the client calls the next one.
        """
        with ExitStack() as stack:
            add = self._client.add_request_handler
            stack.callback(add(ResetOffsetRequest, self._reset_offsets))
            stack.callback(add(GetConsumerStatusRequest, self._get_offsets))
            stack.callback(add(GetConsumerRunningInfoRequest, self._get_running_info))
            stack.callback(add(ConsumeMessageDirectlyRequest, self._consume_directly))
            yield

    def _is_own(self, group: str) -> bool:
        return self._client.namespace.same_group(group, self._group)

    def _reset_offsets(self, connection: Connection, request: Command, header: ResetOffsetRequest) -> bool:
        if not self._is_own(header.group) or self._pulled is None or self._handler is None:
            return False
        offsets: Mapping[MessageQueue, int] = {}
        if request.body:
            offsets = self._client.body_of(request, ResetOffsets.decode).offset_table
        logger.warning(
            "offsets reset by an operator: group=%s topic=%s queues=%d broker=%s",
            self._group, header.topic, len(offsets), connection.address,
        )  # fmt: skip
        self._nursery.start_soon(self._pulled.seek, offsets)
        connection.respond(request, ResponseCode.SUCCESS)
        return True

    def _get_offsets(
        self, connection: Connection, request: Command, header: GetConsumerStatusRequest
    ) -> bool:
        if not self._is_own(header.group):
            return False
        known = {} if self._pulled is None else self._pulled.offsets()
        is_asked = partial(self._client.namespace.same_topic, header.topic)
        offsets = {queue: offset for queue, offset in known.items() if is_asked(queue.topic)}
        self._client.respond(connection, request, ConsumerOffsets(offsets))
        if self._pulled is not None:
            self._pulled.pull_again(header.topic)
        return True

    def _get_running_info(
        self, connection: Connection, request: Command, header: GetConsumerRunningInfoRequest
    ) -> bool:
        if not self._is_own(header.consumer_group):
            return False
        data = self._membership.describe()
        pulled = {} if self._pulled is None else self._pulled.infos()
        popped = {} if self._popped is None else self._popped.infos()
        info = ConsumerRunningInfo(
            properties={**self._properties, **self._common_properties(data)},
            subscription_set=data.subscription_data_set,
            queue_table=pulled,
            status_table={
                subscription.topic: self._counters.status(subscription.topic)
                for subscription in data.subscription_data_set
            },
            pop_queue_table=popped,
            jstack=_stacks(self._nursery) if header.jstack_enable else None,
        )
        self._client.respond(connection, request, info)
        return True

    def _common_properties(self, data: ConsumerData) -> dict[str, str]:
        return {
            # As in Java. The other names in an answer are converted by their type, and properties have none.
            "consumerGroup": self._client.namespace.wrap_group(self._group),
            "messageModel": data.message_model,
            "consumeFromWhere": data.consume_from_where,
            "instanceName": self._client.client_id,
            "PROP_CLIENT_VERSION": CLIENT_VERSION,
            "PROP_CONSUMER_START_TIMESTAMP": str(self._started_ms),
            "PROP_CONSUME_TYPE": data.consume_type,
            "PROP_NAMESERVER_ADDR": self._client.name_servers.addresses,
        }

    def _consume_directly(
        self, connection: Connection, request: Command, header: ConsumeMessageDirectlyRequest
    ) -> bool:
        if not self._is_own(header.consumer_group) or self._handler is None:
            return False
        broker_name = header.source_broker_name or header.broker_name or ""
        (message,) = self._client.body_of(request, lambda data: decode_messages(data, broker_name))
        original = message.properties.get(RETRY_TOPIC)
        if original is not None:
            topic = self._client.namespace.original_topic(original, self._group)
            message = attrs.evolve(message, topic=topic)
        logger.info(
            "handling a message for an operator: group=%s broker=%s message=%s",
            self._group, connection.address, message,
        )  # fmt: skip
        self._nursery.start_soon(
            self._consume_and_respond, self._handler, message, partial(connection.respond, request)
        )
        return True

    async def _consume_and_respond(
        self,
        handler: DirectHandler,
        message: ReceivedMessage,
        respond: Callable[..., None],
    ) -> None:
        respond(ResponseCode.SUCCESS, body=(await handler.consume_directly(message)).encode())


def _stacks(nursery: trio.Nursery) -> str:
    """Return the stack traces of a nursery's tasks and of all threads. Java: ``jstack``."""
    pieces = []
    for task in nursery.child_tasks:
        frames = traceback.StackSummary.extract(task.iter_await_frames())
        pieces.append(f"task {task.name}\n" + "".join(frames.format()))
    for thread, frame in sys._current_frames().items():
        pieces.append(f"thread {thread}\n" + "".join(traceback.format_stack(frame)))
    return "\n".join(pieces)
