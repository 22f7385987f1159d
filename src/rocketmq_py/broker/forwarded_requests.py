"""Requests of tools that the broker forwards to consumers (Java: ``Broker2Client``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial

import trio

from rocketmq_py.broker.dispatch import UNSET_REMARK, Refusal, RequestHandler
from rocketmq_py.broker.groups import GroupMember
from rocketmq_py.broker.state import BrokerState
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.errors import (
    ConfigurationError,
    ConnectionLostError,
    Delivery,
    ProtocolError,
    RequestTimeoutError,
)
from rocketmq_py.message import MessageQueue
from rocketmq_py.protocol.bodies import ConsumerOffsets
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.headers import (
    ConsumeMessageDirectlyRequest,
    GetConsumerRunningInfoRequest,
    GetConsumerStatusRequest,
    Request,
)
from rocketmq_py.protocol.message_id import OffsetMessageId
from rocketmq_py.remoting import Answer, Connection

FORWARD_SECONDS = 10.0
"""Timeout of a request that is forwarded to one consumer."""
STATUS_SECONDS = 5.0
"""Timeout of a request that is sent to all consumers of a group."""
MIN_VERSION = 62
"""The ordinal of Java's ``MQVersion.V3_1_8_SNAPSHOT``. Older clients do not support forwarded requests."""


class ForwardingProcessor:
    """Forwards requests to consumers, and their answers back."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state

    def handlers(self) -> Mapping[int, RequestHandler]:
        """Return the request handlers by request code."""
        return {
            RequestCode.GET_CONSUMER_RUNNING_INFO: self._running_info,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self._consume_directly,
            RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: self._status,
        }

    def _running_info(self, connection: Connection, request: Command) -> None:
        header = GetConsumerRunningInfoRequest.from_fields(request.fields)
        self._forward(connection, request, header, header.consumer_group, header.client_id)

    def _consume_directly(self, connection: Connection, request: Command) -> None:
        state = self._state
        header = ConsumeMessageDirectlyRequest.from_fields(request.fields)
        try:
            message_id = OffsetMessageId.parse(header.msg_id or "")
        except ConfigurationError as error:
            raise Refusal(ResponseCode.SYSTEM_ERROR, str(error)) from None
        stored = state.store.message_at(message_id.commit_log_offset)
        if stored is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"there is no message {header.msg_id} on this broker")
        topic = state.topics.get(header.topic or "")
        group = state.subscription_groups.get_or_create(header.consumer_group)
        forwarded = ConsumeMessageDirectlyRequest(
            consumer_group=header.consumer_group,
            client_id=header.client_id,
            msg_id=header.msg_id,
            source_broker_name=state.config.broker_name,
            topic=header.topic,
            topic_sys_flag=topic.topic_sys_flag if topic else None,
            group_sys_flag=group.group_sys_flag if group else None,
        )
        self._forward(connection, request, forwarded, header.consumer_group, header.client_id, stored.data)

    def _forward(
        self,
        connection: Connection,
        request: Command,
        header: Request,
        group: str,
        client_id: str | None,
        body: bytes = b"",
    ) -> None:
        """Send a request to a member of a group, and answer with the member's answer."""

        def on_answer(answer: Answer) -> None:
            if isinstance(answer, Command):
                connection.respond(request, answer.code, answer.fields, answer.body, answer.remark)
            elif isinstance(answer, RequestTimeoutError):
                remark = f"consumer <{group}> <{client_id}> Timeout: {answer}"
                connection.respond(request, ResponseCode.CONSUME_MSG_TIMEOUT, remark=remark)
            else:
                remark = f"invoke consumer <{group}> <{client_id}> Exception: {answer}"
                connection.respond(request, ResponseCode.SYSTEM_ERROR, remark=remark)

        for consumer, member in self._members(group):
            if member.client_id == client_id:
                if member.version < MIN_VERSION:
                    raise Refusal(
                        ResponseCode.SYSTEM_ERROR,
                        f"The Consumer <{client_id}> Version <{member.version}> too low to finish, please"
                        " upgrade it to V3_1_8_SNAPSHOT",
                    )
                call_client(consumer, header, body, FORWARD_SECONDS, on_answer)
                return
        shown_id = "null" if client_id is None else client_id
        raise Refusal(ResponseCode.SYSTEM_ERROR, f"The Consumer <{group}> <{shown_id}> not online")

    def _members(self, name: str) -> Sequence[tuple[Connection, GroupMember]]:
        group = self._state.consumers.get(name)
        return [] if group is None else list(group.members.items())

    def _status(self, connection: Connection, request: Command) -> None:
        header = GetConsumerStatusRequest.from_fields(request.fields)
        members = self._members(header.group)
        if not members:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR, f"No Any Consumer online in the consumer group: [{header.group}]"
            )
        client_id = (header.client_addr or "").strip()
        selected = [(consumer, member) for consumer, member in members if client_id in ("", member.client_id)]
        collector = _StatusCollector(connection, request, len(selected))
        forwarded = GetConsumerStatusRequest(topic=header.topic, group=header.group)
        for consumer, member in selected:
            on_answer = partial(collector.add, member.client_id)
            call_client(consumer, forwarded, b"", STATUS_SECONDS, on_answer)


class _StatusCollector:
    """Collects the offsets of consumers, and answers a request when each consumer has answered or failed."""

    def __init__(self, connection: Connection, request: Command, missing: int) -> None:
        self._connection = connection
        self._request = request
        self._missing = missing
        self._tables: dict[str, Mapping[MessageQueue, int]] = {}
        self._answer_if_complete()

    def add(self, client_id: str, answer: Answer) -> None:
        self._missing -= 1
        if isinstance(answer, Command) and answer.code == ResponseCode.SUCCESS and answer.body:
            with suppress(ProtocolError):
                self._tables[client_id] = ConsumerOffsets.decode(answer.body).offset_table
        self._answer_if_complete()

    def _answer_if_complete(self) -> None:
        if not self._missing:
            body = ConsumerOffsets(client_tables=self._tables).encode()
            self._connection.respond(self._request, ResponseCode.SUCCESS, body=body, remark=UNSET_REMARK)


def call_client(
    client: Connection, header: Request, body: bytes, seconds: float, on_answer: Callable[[Answer], None]
) -> None:
    """Send a request to a client.

    Args:
        client: the client's connection.
        header: the request.
        body: its body.
        seconds: the timeout.
        on_answer: called once, with the answer or with the error.
    """
    if not client.has_space:
        on_answer(ConnectionLostError(client.address, "it does not read", Delivery.NOT_SENT))
        return
    try:
        client.submit(
            header.code,
            header.to_fields(),
            body,
            deadline=trio.current_time() + seconds,
            timeout=seconds,
            on_answer=on_answer,
        )
    except ConnectionLostError as error:
        on_answer(error)
