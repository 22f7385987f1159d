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
from rocketmq_py.codes import RequestCode, ResponseCode
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
        """End the held pulls of a topic and send new ones.

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
        self._wire_group = client.namespace.wrap_group(group)
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
            for code, server in (
                (RequestCode.RESET_CONSUMER_CLIENT_OFFSET, self._reset_offsets),
                (RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, self._get_offsets),
                (RequestCode.GET_CONSUMER_RUNNING_INFO, self._get_running_info),
                (RequestCode.CONSUME_MESSAGE_DIRECTLY, self._consume_directly),
            ):
                stack.callback(self._client.add_request_handler(code, server))
            yield

    def _reset_offsets(self, connection: Connection, request: Command) -> bool:
        header = ResetOffsetRequest.from_fields(request.fields)
        if header.group != self._wire_group or self._pulled is None or self._handler is None:
            return False
        table = ResetOffsets.decode(request.body).offset_table if request.body else {}
        unwrap = self._client.namespace.unwrap_topic
        offsets = {attrs.evolve(queue, topic=unwrap(queue.topic)): offset for queue, offset in table.items()}
        logger.warning(
            "offsets reset by an operator: group=%s topic=%s queues=%d broker=%s",
            self._group, unwrap(header.topic), len(offsets), connection.address,
        )  # fmt: skip
        self._nursery.start_soon(self._pulled.seek, offsets)
        connection.respond(request, ResponseCode.SUCCESS)
        return True

    def _get_offsets(self, connection: Connection, request: Command) -> bool:
        header = GetConsumerStatusRequest.from_fields(request.fields)
        if header.group != self._wire_group:
            return False
        known = {} if self._pulled is None else self._pulled.offsets()
        offsets = {self._on_wire(queue): offset for queue, offset in known.items()}
        of_topic = {queue: offset for queue, offset in offsets.items() if queue.topic == header.topic}
        connection.respond(request, ResponseCode.SUCCESS, body=ConsumerOffsets(of_topic).encode())
        if self._pulled is not None:
            self._pulled.pull_again(self._client.namespace.unwrap_topic(header.topic))
        return True

    def _get_running_info(self, connection: Connection, request: Command) -> bool:
        header = GetConsumerRunningInfoRequest.from_fields(request.fields)
        if header.consumer_group != self._wire_group:
            return False
        data = self._client.namespace.wrap(self._membership.describe())
        unwrap = self._client.namespace.unwrap_topic
        pulled = {} if self._pulled is None else self._pulled.infos()
        popped = {} if self._popped is None else self._popped.infos()
        info = ConsumerRunningInfo(
            properties={**self._properties, **self._common_properties(data)},
            subscription_set=data.subscription_data_set,
            queue_table={self._on_wire(queue): info for queue, info in pulled.items()},
            status_table={
                subscription.topic: self._counters.status(unwrap(subscription.topic))
                for subscription in data.subscription_data_set
            },
            pop_queue_table={self._on_wire(queue): info for queue, info in popped.items()},
            jstack=_stacks(self._nursery) if header.jstack_enable else None,
        )
        connection.respond(request, ResponseCode.SUCCESS, body=info.encode())
        return True

    def _common_properties(self, data: ConsumerData) -> dict[str, str]:
        return {
            "consumerGroup": data.group_name,
            "messageModel": data.message_model,
            "consumeFromWhere": data.consume_from_where,
            "instanceName": self._client.client_id,
            "PROP_CLIENT_VERSION": CLIENT_VERSION,
            "PROP_CONSUMER_START_TIMESTAMP": str(self._started_ms),
            "PROP_CONSUME_TYPE": data.consume_type,
            "PROP_NAMESERVER_ADDR": self._client.name_servers.addresses,
        }

    def _on_wire(self, queue: MessageQueue) -> MessageQueue:
        return attrs.evolve(queue, topic=self._client.namespace.wrap_topic(queue.topic))

    def _consume_directly(self, connection: Connection, request: Command) -> bool:
        header = ConsumeMessageDirectlyRequest.from_fields(request.fields)
        if header.consumer_group != self._wire_group or self._handler is None:
            return False
        namespace = self._client.namespace
        (message,) = namespace.unwrap(
            decode_messages(request.body, header.source_broker_name or header.broker_name or "")
        )
        original = message.properties.get(RETRY_TOPIC)
        if original is not None:
            message = attrs.evolve(message, topic=namespace.unwrap_topic(original))
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
