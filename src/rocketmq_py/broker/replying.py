"""SEND_REPLY_MESSAGE: a reply goes to the client that waits for it (Java: ``ReplyMessageProcessor``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import trio

from rocketmq_py import properties as names
from rocketmq_py.address import java_address
from rocketmq_py.broker.admission import Admission, Send, read_long_form, read_short_form
from rocketmq_py.broker.config import BrokerConfig
from rocketmq_py.broker.dispatch import RequestHandler, answer_with
from rocketmq_py.broker.draft import Draft, decode_properties
from rocketmq_py.broker.groups import ProducerGroups
from rocketmq_py.broker.put_status import NotStored
from rocketmq_py.broker.schedule import Schedule
from rocketmq_py.broker.store import MessageStore
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.errors import ConnectionLostError
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.headers import PushReplyMessageRequest
from rocketmq_py.remoting import Answer, Connection

PUSH_SECONDS = 10.0
"""How long the client that waits may take to confirm that it has the reply."""


class Replying:
    """Hands replies on, and keeps them in their topic, which nobody reads.

    The replier is answered when the client has confirmed, or could not be reached.

    Args:
        config: the broker's settings.
        admission: checks what comes.
        producers: the clients that may wait.
        store: makes the ids of messages.
        schedule: keeps replies.
        address: the broker's own, ``host:port``.
        born_host: gives a connection's peer in packed form.
        now_ms: the time, epoch milliseconds.
    """

    def __init__(
        self,
        config: BrokerConfig,
        admission: Admission,
        producers: ProducerGroups,
        store: MessageStore,
        schedule: Schedule,
        *,
        address: str,
        born_host: Callable[[Connection], bytes],
        now_ms: Callable[[], int],
    ) -> None:
        self._config = config
        self._admission = admission
        self._producers = producers
        self._store = store
        self._schedule = schedule
        self._address = address
        self._born_host = born_host
        self._now_ms = now_ms

    def handlers(self) -> Mapping[int, RequestHandler]:
        """Return the handler of each request's code."""
        return {
            RequestCode.SEND_REPLY_MESSAGE: self._reply,
            RequestCode.SEND_REPLY_MESSAGE_V2: self._reply_v2,
        }

    def _reply(self, connection: Connection, request: Command) -> None:
        self._take(connection, request, read_long_form(request))

    def _reply_v2(self, connection: Connection, request: Command) -> None:
        self._take(connection, request, read_short_form(request))

    def _take(self, connection: Connection, request: Command, send: Send) -> None:
        _, queue_id = self._admission.admit(connection, request, send)
        properties = decode_properties(send.properties)
        properties.update(self._admission.marks)
        # Java leaves the system flag out of what it keeps.
        draft = Draft(
            send.topic,
            queue_id,
            request.body,
            properties,
            send.flag,
            0,
            send.born_time_ms,
            self._born_host(connection),
            send.reconsume_times,
        )

        def finish(fault: str | None) -> None:
            answer_with(lambda *_: self._finish(connection, request, draft, fault), connection, request)

        client_id = properties.get(names.REPLY_TO_CLIENT)
        waiting = None if client_id is None else self._producers.find(client_id)
        if client_id is None:
            finish(f"reply message properties[{names.REPLY_TO_CLIENT}] is null")
        elif waiting is None:
            finish(f"push reply message fail, channel of <{client_id}> not found.")
        else:
            failed = f"push reply message to {client_id}fail."
            push = self._push_of(connection, send, properties)
            _push(waiting, push, request.body, lambda is_done: finish(None if is_done else failed))

    def _push_of(
        self, connection: Connection, send: Send, properties: Mapping[str, str]
    ) -> PushReplyMessageRequest:
        now_ms = self._now_ms()
        return PushReplyMessageRequest(
            producer_group=send.producer_group,
            topic=send.topic,
            default_topic=send.default_topic,
            default_topic_queue_nums=send.default_topic_queue_nums,
            queue_id=send.queue_id,
            sys_flag=send.system_flag,
            born_timestamp=send.born_time_ms,
            flag=send.flag,
            properties=names.encode_properties({**properties, names.PUSH_REPLY_TIME: str(now_ms)}),
            reconsume_times=send.reconsume_times,
            unit_mode=False,
            born_host=_without_brackets(connection.address),
            store_host=_without_brackets(java_address(self._address)),
            store_timestamp=now_ms,
        )

    def _finish(self, connection: Connection, request: Command, draft: Draft, fault: str | None) -> None:
        """Keep a reply and answer the replier; ``fault`` is why it was not handed on."""
        fields = dict(self._admission.marks)
        if fault is None:
            fields |= {"msgId": "0", "queueId": str(draft.queue_id), "queueOffset": "0"}
        if self._config.store_reply_message_enable:
            try:
                stored = self._schedule.put(draft)
            except NotStored:
                pass  # as on real brokers: what counts is that it was handed on
            else:
                fields["msgId"] = self._store.message_id(stored.commit_log_offset)
                fields["queueId"] = str(draft.queue_id)
                fields["queueOffset"] = str(stored.queue_offset)
        code = ResponseCode.SUCCESS if fault is None else ResponseCode.SYSTEM_ERROR
        connection.respond(request, code, fields, remark=fault)


def _without_brackets(address: str) -> str:
    return address.replace("[", "").replace("]", "")


def _push(
    waiting: Connection, push: PushReplyMessageRequest, body: bytes, on_done: Callable[[bool], None]
) -> None:
    """Hand a reply to the client that waits; ``on_done`` is told whether it has confirmed."""

    def on_answer(answer: Answer) -> None:
        on_done(isinstance(answer, Command) and answer.code == ResponseCode.SUCCESS)

    if not waiting.has_space:  # it does not read
        on_done(False)
        return
    try:
        waiting.submit(
            push.code,
            push.to_fields(),
            body,
            deadline=trio.current_time() + PUSH_SECONDS,
            timeout=PUSH_SECONDS,
            on_answer=on_answer,
        )
    except ConnectionLostError:
        on_done(False)
