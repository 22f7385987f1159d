"""What operators ask a consumer by way of a broker: how it is doing, and to do something else."""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import attrs
import trio

from rocketmq_py import properties as names
from rocketmq_py.client.instance import ClientInstance
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.consumer.config import PushConsumerConfig
from rocketmq_py.consumer.group.counters import Statistics, epoch_ms
from rocketmq_py.consumer.group.results import (
    Commit,
    ConsumeLater,
    ConsumeResult,
    Rollback,
    Suspend,
    check_result,
)
from rocketmq_py.consumer.pop.push_queues import PoppedQueues
from rocketmq_py.consumer.pull.assigned_queues import AssignedQueues
from rocketmq_py.consumer.pull.pull_loop import PullLoop
from rocketmq_py.consumer.push.invoker import Invoker
from rocketmq_py.message import MessageQueue, ReceivedMessage
from rocketmq_py.protocol.bodies import (
    ConsumerData,
    ConsumerOffsets,
    ConsumerRunningInfo,
    DirectConsumption,
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

logger = logging.getLogger("rocketmq_py.consumer")

CLIENT_VERSION = "V5_5_0 (rocketmq-py)"
"""What ``command.VERSION`` is called, for people."""

_MIB = 1024 * 1024
_CODE_OF_RESULT: Mapping[type[ConsumeResult], str] = {
    ConsumeLater: "CR_LATER",
    Suspend: "CR_LATER",
    Commit: "CR_COMMIT",
    Rollback: "CR_ROLLBACK",
}


class BrokerRequests:
    """Answers for one consumer, so that tools see it as they see Java's. Java: ``ClientRemotingProcessor``.

    Args:
        client: the client that brokers ask.
        config: the consumer's settings.
        describe: gives what its heartbeats say of it.
        started_ms: when it was started, epoch milliseconds.
        queues: its queues.
        popped: what it pops from.
        statistics: how it is doing.
        caller: calls its handler.
        nursery: where what takes time is done.
    """

    def __init__(
        self,
        client: ClientInstance,
        config: PushConsumerConfig,
        *,
        describe: Callable[[], ConsumerData],
        started_ms: int,
        queues: AssignedQueues,
        popped: PoppedQueues,
        statistics: Statistics,
        caller: Invoker,
        nursery: trio.Nursery,
    ) -> None:
        self._client = client
        self._config = config
        self._describe = describe
        self._started_ms = started_ms
        self._queues = queues
        self._popped = popped
        self._statistics = statistics
        self._caller = caller
        self._nursery = nursery
        self._wire_group = client.namespace.wrap_group(config.group)

    @contextmanager
    def answers(self) -> Iterator[None]:
        """Answer as long as the block runs."""
        with ExitStack() as stack:
            for code, server in (
                (RequestCode.RESET_CONSUMER_CLIENT_OFFSET, self._reset),
                (RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, self._tell_offsets),
                (RequestCode.GET_CONSUMER_RUNNING_INFO, self._tell_all),
                (RequestCode.CONSUME_MESSAGE_DIRECTLY, self._consume),
            ):
                stack.callback(self._client.serve(code, server))
            yield

    # Offsets

    def _reset(self, connection: Connection, request: Command) -> bool:
        header = ResetOffsetRequest.from_fields(request.fields)
        if header.group != self._wire_group:
            return False
        table = ResetOffsets.decode(request.body).offset_table if request.body else {}
        unwrap = self._client.namespace.unwrap_topic
        offsets = {attrs.evolve(queue, topic=unwrap(queue.topic)): offset for queue, offset in table.items()}
        logger.warning(
            "group %s: %s resets the offsets of %d queues of topic %s",
            self._config.group, connection.address, len(offsets), unwrap(header.topic),
        )  # fmt: skip
        self._nursery.start_soon(self._queues.go_on_from, offsets)
        connection.respond(request, ResponseCode.SUCCESS)
        return True

    def _tell_offsets(self, connection: Connection, request: Command) -> bool:
        header = GetConsumerStatusRequest.from_fields(request.fields)
        if header.group != self._wire_group:
            return False
        offsets = {
            queue: loop.safe_offset
            for queue, loop in self._loops().items()
            if loop.safe_offset is not None and queue.topic == header.topic
        }
        connection.respond(request, ResponseCode.SUCCESS, body=ConsumerOffsets(offsets).encode())
        return True

    # Everything

    def _tell_all(self, connection: Connection, request: Command) -> bool:
        header = GetConsumerRunningInfoRequest.from_fields(request.fields)
        if header.consumer_group != self._wire_group:
            return False
        data = self._client.namespace.wrap_consumer(self._describe())
        info = ConsumerRunningInfo(
            properties=self._properties(data),
            subscription_set=data.subscription_data_set,
            queue_table={queue: self._queue_info(loop) for queue, loop in self._loops().items()},
            status_table={
                subscription.topic: self._statistics.status(
                    self._client.namespace.unwrap_topic(subscription.topic)
                )
                for subscription in data.subscription_data_set
            },
            pop_queue_table={
                self._on_wire(loop.queue): PopQueueInfo(
                    wait_ack_count=len(loop.held),
                    dropped=loop.dropped,
                    last_pop_timestamp=self._ms(loop.asked_at),
                )
                for loop in self._popped
            },
            jstack=_stacks(self._nursery) if header.jstack_enable else None,
        )
        connection.respond(request, ResponseCode.SUCCESS, body=info.encode())
        return True

    def _properties(self, data: ConsumerData) -> dict[str, str]:
        config = self._config
        return {
            "consumerGroup": data.group_name,
            "messageModel": data.message_model,
            "consumeFromWhere": data.consume_from_where,
            "consumeThreadMax": str(config.concurrency),
            "consumeMessageBatchMaxSize": str(config.batch_size or 1),
            "pullBatchSize": str(config.pull_batch_size),
            "pullThresholdForQueue": str(config.pull_threshold_for_queue),
            "popInvisibleTime": str(round(config.pop_invisible_time * 1000)),
            "popBatchNums": str(config.pop_batch_nums),
            "popThresholdForQueue": str(config.pop_threshold_for_queue),
            "maxReconsumeTimes": str(config.reconsume_limit),
            "consumeTimeout": str(config.consume_timeout / 60),
            "instanceName": self._client.client_id,
            "PROP_CLIENT_VERSION": CLIENT_VERSION,
            "PROP_CONSUMEORDERLY": "true" if config.orderly else "false",
            "PROP_CONSUMER_START_TIMESTAMP": str(self._started_ms),
            "PROP_CONSUME_TYPE": data.consume_type,
            "PROP_NAMESERVER_ADDR": self._client.name_servers.addresses,
            "PROP_THREADPOOL_CORE_SIZE": str(config.concurrency),
        }

    def _queue_info(self, loop: PullLoop) -> ProcessQueueInfo:
        held, lock = loop.held, loop.lock
        if held is None:
            return ProcessQueueInfo(last_pull_timestamp=self._ms(loop.asked_at))
        first, uncommitted = held.safe_offset, held.uncommitted
        return ProcessQueueInfo(
            commit_offset=first,
            cached_msg_min_offset=first if len(held) else 0,
            cached_msg_max_offset=first + held.span if len(held) else 0,
            cached_msg_count=len(held),
            cached_msg_size_in_mib=held.size // _MIB,
            transaction_msg_min_offset=uncommitted[0].queue_offset if uncommitted else 0,
            transaction_msg_max_offset=uncommitted[-1].queue_offset if uncommitted else 0,
            transaction_msg_count=len(uncommitted),
            locked=lock is not None and lock.is_held,
            last_lock_timestamp=0 if lock is None else self._ms(lock.got_at),
            dropped=held.dropped,
            last_pull_timestamp=self._ms(loop.asked_at),
            last_consume_timestamp=self._ms(self._queues.consumed_at(loop)),
        )

    def _ms(self, time: float) -> int:
        """Return a time of trio's as epoch milliseconds; 0 for one that has not come."""
        return epoch_ms(time, self._client.now_ms()) or 0

    def _loops(self) -> dict[MessageQueue, PullLoop]:
        """Return all loops by their queues, which are named as on the wire."""
        return {self._on_wire(loop.queue): loop for loop in self._queues}

    def _on_wire(self, queue: MessageQueue) -> MessageQueue:
        return attrs.evolve(queue, topic=self._client.namespace.wrap_topic(queue.topic))

    # One message

    def _consume(self, connection: Connection, request: Command) -> bool:
        header = ConsumeMessageDirectlyRequest.from_fields(request.fields)
        if header.consumer_group != self._wire_group:
            return False
        namespace = self._client.namespace
        (message,) = namespace.unwrap_messages(
            decode_messages(request.body, header.source_broker_name or header.broker_name or "")
        )
        original = message.properties.get(names.RETRY_TOPIC)
        if original is not None:
            message = attrs.evolve(message, topic=namespace.unwrap_topic(original))
        logger.info("group %s: %s has message %s handled", self._config.group, connection.address, message)
        self._nursery.start_soon(self._call, message, partial(connection.respond, request))
        return True

    async def _call(self, message: ReceivedMessage, respond: Callable[..., None]) -> None:
        began, remark = trio.current_time(), None
        try:
            item: Any = message if self._config.batch_size is None else (message,)
            result = await self._caller.call(item)
            check_result(result)
        except Exception as error:
            logger.exception("handling message %s, as an operator wished, failed", message.message_id)
            code, remark = "CR_THROW_EXCEPTION", f"{type(error).__name__}: {error}"
        else:
            code = _CODE_OF_RESULT.get(type(result), "CR_SUCCESS")
        consumption = DirectConsumption(
            consume_result=code,
            order=self._config.orderly,
            auto_commit=self._config.auto_commit,
            remark=remark,
            spent_time_mills=round((trio.current_time() - began) * 1000),
        )
        respond(ResponseCode.SUCCESS, body=consumption.encode())


def _stacks(nursery: trio.Nursery) -> str:
    """Return what the tasks of a nursery and all threads are doing."""
    pieces = []
    for task in nursery.child_tasks:
        frames = traceback.StackSummary.extract(task.iter_await_frames())
        pieces.append(f"task {task.name}\n" + "".join(frames.format()))
    for thread, frame in sys._current_frames().items():
        pieces.append(f"thread {thread}\n" + "".join(traceback.format_stack(frame)))
    return "\n".join(pieces)
