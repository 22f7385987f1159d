"""What tools ask consumers by way of the broker (Java: ``AdminBrokerProcessor``, ``Broker2Client``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial

import trio

from rocketmq_py.broker.config import BrokerConfig
from rocketmq_py.broker.dispatch import Refusal, RequestHandler
from rocketmq_py.broker.groups import ConsumerGroups, GroupMember, SubscriptionGroupTable
from rocketmq_py.broker.storage.message_store import MessageStore
from rocketmq_py.broker.topics import TopicTable
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.errors import (
    ConfigurationError,
    ConnectionLostError,
    Delivery,
    ProtocolError,
    RequestTimeoutError,
    RocketMQError,
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
from rocketmq_py.remoting import Connection

RELAY_SECONDS = 10.0
"""How long a consumer is waited for."""
STATUS_SECONDS = 5.0
"""How long each is waited for where all of a group are asked."""
FIRST_VERSION = 62
"""The ordinal of Java's ``MQVersion.V3_1_8_SNAPSHOT``: older clients do not understand what is relayed."""
NOT_SET = "not set any response code"
"""The remark of Java's INVOKE_BROKER_TO_GET_CONSUMER_STATUS when all is well."""


class Relaying:
    """Hands requests on to consumers, and their answers back.

    Args:
        config: the broker's settings.
        consumers: the members of groups.
        store: has the messages that are to be consumed.
        topics: the broker's topics.
        subscription_groups: the settings of groups.
    """

    def __init__(
        self,
        config: BrokerConfig,
        consumers: ConsumerGroups,
        store: MessageStore,
        topics: TopicTable,
        subscription_groups: SubscriptionGroupTable,
    ) -> None:
        self._config = config
        self._consumers = consumers
        self._store = store
        self._topics = topics
        self._subscription_groups = subscription_groups

    def handlers(self) -> Mapping[int, RequestHandler]:
        """Return the handler of each request's code."""
        return {
            RequestCode.GET_CONSUMER_RUNNING_INFO: self._running_info,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self._consume_directly,
            RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: self._status,
        }

    def _running_info(self, connection: Connection, request: Command) -> None:
        header = GetConsumerRunningInfoRequest.from_fields(request.fields)
        self._relay(connection, request, header, header.consumer_group, header.client_id)

    def _consume_directly(self, connection: Connection, request: Command) -> None:
        asked = ConsumeMessageDirectlyRequest.from_fields(request.fields)
        try:
            message_id = OffsetMessageId.parse(asked.msg_id or "")
        except ConfigurationError as error:
            raise Refusal(ResponseCode.SYSTEM_ERROR, str(error)) from None
        stored = self._store.message_at(message_id.commit_log_offset)
        if stored is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"there is no message {asked.msg_id} on this broker")
        topic = self._topics.get(asked.topic or "")
        group = self._subscription_groups.find(asked.consumer_group)
        header = ConsumeMessageDirectlyRequest(
            consumer_group=asked.consumer_group,
            client_id=asked.client_id,
            msg_id=asked.msg_id,
            source_broker_name=self._config.broker_name,
            topic=asked.topic,
            topic_sys_flag=topic.topic_sys_flag if topic else None,
            group_sys_flag=group.group_sys_flag if group else None,
        )
        self._relay(connection, request, header, asked.consumer_group, asked.client_id, stored.data)

    def _relay(
        self,
        connection: Connection,
        request: Command,
        header: Request,
        group: str,
        client_id: str | None,
        body: bytes = b"",
    ) -> None:
        """Ask one member of a group, and answer with what it answers."""

        def answer(result: Command | RocketMQError) -> None:
            if isinstance(result, Command):
                connection.respond(request, result.code, result.fields, result.body, result.remark)
            elif isinstance(result, RequestTimeoutError):
                remark = f"consumer <{group}> <{client_id}> Timeout: {result}"
                connection.respond(request, ResponseCode.CONSUME_MSG_TIMEOUT, remark=remark)
            else:
                remark = f"invoke consumer <{group}> <{client_id}> Exception: {result}"
                connection.respond(request, ResponseCode.SYSTEM_ERROR, remark=remark)

        for to, member in self._members(group):
            if member.client_id == client_id:
                if member.version < FIRST_VERSION:
                    raise Refusal(
                        ResponseCode.SYSTEM_ERROR,
                        f"The Consumer <{client_id}> Version <{member.version}> too low to finish, please"
                        " upgrade it to V3_1_8_SNAPSHOT",
                    )
                _ask(to, header, body, RELAY_SECONDS, answer)
                return
        shown_id = "null" if client_id is None else client_id
        raise Refusal(ResponseCode.SYSTEM_ERROR, f"The Consumer <{group}> <{shown_id}> not online")

    def _members(self, group: str) -> Sequence[tuple[Connection, GroupMember]]:
        members = self._consumers.get(group)
        return [] if members is None else list(members.members.items())

    def _status(self, connection: Connection, request: Command) -> None:
        header = GetConsumerStatusRequest.from_fields(request.fields)
        members = self._members(header.group)
        if not members:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR, f"No Any Consumer online in the consumer group: [{header.group}]"
            )
        wanted = (header.client_addr or "").strip()
        asked = [(to, member) for to, member in members if not wanted or member.client_id == wanted]
        gathering = _Gathering(connection, request, len(asked))
        question = GetConsumerStatusRequest(topic=header.topic, group=header.group)
        for to, member in asked:
            _ask(to, question, b"", STATUS_SECONDS, partial(gathering.note, member.client_id))


class _Gathering:
    """Answers a request when so many clients have said how far they are, or failed to."""

    def __init__(self, connection: Connection, request: Command, missing: int) -> None:
        self._connection = connection
        self._request = request
        self._missing = missing
        self._tables: dict[str, Mapping[MessageQueue, int]] = {}
        self._answer_if_complete()

    def note(self, client_id: str, result: Command | RocketMQError) -> None:
        self._missing -= 1
        if isinstance(result, Command) and result.code == ResponseCode.SUCCESS and result.body:
            with suppress(ProtocolError):
                self._tables[client_id] = ConsumerOffsets.decode(result.body).offset_table
        self._answer_if_complete()

    def _answer_if_complete(self) -> None:
        if not self._missing:
            body = ConsumerOffsets(client_tables=self._tables).encode()
            self._connection.respond(self._request, ResponseCode.SUCCESS, body=body, remark=NOT_SET)


def _ask(
    to: Connection,
    header: Request,
    body: bytes,
    seconds: float,
    on_answer: Callable[[Command | RocketMQError], None],
) -> None:
    """Ask a client; ``on_answer`` gets the answer or what went wrong, once."""
    if not to.has_space:
        on_answer(ConnectionLostError(to.address, "it does not read", Delivery.NOT_SENT))
        return
    try:
        to.submit(
            header.code,
            header.to_fields(),
            body,
            deadline=trio.current_time() + seconds,
            timeout=seconds,
            on_answer=on_answer,
        )
    except ConnectionLostError as error:
        on_answer(error)
