"""SEND_REPLY_MESSAGE: forwards a reply to the requesting client (Java: ``ReplyMessageProcessor``)."""

from __future__ import annotations

from collections.abc import Mapping

from rocketmq_py.address import java_address
from rocketmq_py.broker.dispatch import RequestHandler, answer_with
from rocketmq_py.broker.forwarded_requests import call_client
from rocketmq_py.broker.sends.send_requests import SendHeader, SendValidator, read_header
from rocketmq_py.broker.state import BrokerState
from rocketmq_py.broker.storage.broker_message import (
    BrokerMessage,
    PutError,
    decode_complete_properties,
    packed_peer,
)
from rocketmq_py.broker.storage.delayed_delivery import MessageScheduler
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.properties import encode_properties
from rocketmq_py.property_names import PUSH_REPLY_TIME, REPLY_TO_CLIENT
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.headers import PushReplyMessageRequest
from rocketmq_py.remoting import Answer, Connection

PUSH_SECONDS = 10.0
"""Seconds that the requesting client has to confirm the reply."""


class ReplyProcessor:
    """Forwards replies to the clients that wait for them, and stores them in the reply topic.

    The replying client is answered when the requesting client has confirmed, or cannot be reached.

    Args:
        state: the broker's tables.
        validator: validates sends.
        scheduler: stores the replies.
    """

    def __init__(self, state: BrokerState, validator: SendValidator, scheduler: MessageScheduler) -> None:
        self._state = state
        self._validator = validator
        self._scheduler = scheduler

    def handlers(self) -> Mapping[int, RequestHandler]:
        """Return the request handlers by request code."""
        return {
            RequestCode.SEND_REPLY_MESSAGE: self._reply,
            RequestCode.SEND_REPLY_MESSAGE_V2: self._reply,
        }

    def _reply(self, connection: Connection, request: Command) -> None:
        header = read_header(request)
        _, queue_id = self._validator.find_queue(connection, request, header)
        properties = decode_complete_properties(header.properties)
        properties.update(self._validator.common_fields)
        reply = BrokerMessage(
            header.topic,
            queue_id,
            request.body,
            properties,
            header.flag,
            0,  # Java does not store the system flag of replies
            header.born_timestamp,
            packed_peer(connection.peer_address),
            header.reconsume_times,
        )

        def finish(error: str | None) -> None:
            answer_with(lambda *_: self._finish(connection, request, reply, error), connection, request)

        client_id = properties.get(REPLY_TO_CLIENT)
        requester = None if client_id is None else self._state.producers.connection_of(client_id)
        if client_id is None:
            finish(f"reply message properties[{REPLY_TO_CLIENT}] is null")
        elif requester is None:
            finish(f"push reply message fail, channel of <{client_id}> not found.")
        else:

            def on_answer(answer: Answer) -> None:
                is_confirmed = isinstance(answer, Command) and answer.code == ResponseCode.SUCCESS
                finish(None if is_confirmed else f"push reply message to {client_id}fail.")

            push = self._push_header(connection, header, properties)
            call_client(requester, push, request.body, PUSH_SECONDS, on_answer)

    def _push_header(
        self, connection: Connection, header: SendHeader, properties: Mapping[str, str]
    ) -> PushReplyMessageRequest:
        now_ms = self._state.now_ms()
        return PushReplyMessageRequest(
            producer_group=header.producer_group,
            topic=header.topic,
            default_topic=header.default_topic,
            default_topic_queue_nums=header.default_topic_queue_nums,
            queue_id=header.queue_id,
            sys_flag=header.sys_flag,
            born_timestamp=header.born_timestamp,
            flag=header.flag,
            properties=encode_properties({**properties, PUSH_REPLY_TIME: str(now_ms)}),
            reconsume_times=header.reconsume_times,
            unit_mode=False,
            born_host=_without_brackets(connection.address),
            store_host=_without_brackets(java_address(self._state.address)),
            store_timestamp=now_ms,
        )

    def _finish(
        self, connection: Connection, request: Command, reply: BrokerMessage, error: str | None
    ) -> None:
        """Store a reply and answer the replying client. ``error`` is why the reply was not forwarded."""
        fields = dict(self._validator.common_fields)
        if error is None:
            fields |= {"msgId": "0", "queueId": str(reply.queue_id), "queueOffset": "0"}
        if self._state.config.store_reply_message_enable:
            try:
                stored = self._scheduler.put(reply)
            except PutError:
                pass  # as on real brokers, the answer only depends on the forwarding
            else:
                fields["msgId"] = self._state.store.message_id(stored.commit_log_offset)
                fields["queueId"] = str(reply.queue_id)
                fields["queueOffset"] = str(stored.queue_offset)
        code = ResponseCode.SUCCESS if error is None else ResponseCode.SYSTEM_ERROR
        connection.respond(request, code, fields, remark=error)


def _without_brackets(address: str) -> str:
    return address.replace("[", "").replace("]", "")
