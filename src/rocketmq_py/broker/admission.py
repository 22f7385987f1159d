"""What all sends have in common: their header, and the checks that come before a message is stored.

Java: ``AbstractSendMessageProcessor.msgCheck``.
"""

from __future__ import annotations

import random

import msgspec

from rocketmq_py import properties as names
from rocketmq_py.broker.config import BrokerConfig
from rocketmq_py.broker.dispatch import FAQ, Refusal
from rocketmq_py.broker.topics import PERM_WRITE, TopicConfig, TopicTable, is_sendable, topic_name_error
from rocketmq_py.codes import ResponseCode
from rocketmq_py.errors import ProtocolError
from rocketmq_py.names import DEFAULT_TOPIC, RETRY_PREFIX
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.headers import SendMessageRequest
from rocketmq_py.remoting import Connection


class Send(msgspec.Struct, frozen=True, eq=False):
    """The header of a send, of either form; see ``SendMessageRequest`` for its attributes."""

    producer_group: str
    topic: str
    queue_id: int
    system_flag: int
    born_time_ms: int
    flag: int
    properties: str
    reconsume_times: int
    max_reconsume_times: int | None
    is_batch: bool
    default_topic: str
    default_topic_queue_nums: int


def read_long_form(request: Command) -> Send:
    """Return the header of a request whose fields have long names. Raises ProtocolError."""
    header = SendMessageRequest.from_fields(request.fields)
    return Send(
        header.producer_group,
        header.topic,
        header.queue_id,
        header.sys_flag,
        header.born_timestamp,
        header.flag,
        header.properties or "",
        header.reconsume_times or 0,
        header.max_reconsume_times,
        bool(header.batch),
        header.default_topic,
        header.default_topic_queue_nums,
    )


def read_short_form(request: Command) -> Send:
    """Return the header of a request whose fields have names of one letter. Raises ProtocolError."""
    # The hot path: the names of SendMessageRequestV2, read without building one.
    fields = request.fields
    try:
        most = fields.get("l")
        return Send(
            fields["a"],
            fields["b"],
            int(fields["e"]),
            int(fields["f"]),
            int(fields["g"]),
            int(fields["h"]),
            fields.get("i", ""),
            int(fields.get("j", 0)),
            int(most) if most is not None else None,
            fields.get("m") == "true",
            fields.get("c", DEFAULT_TOPIC),
            int(fields.get("d", 0)),
        )
    except KeyError as error:
        raise ProtocolError(f"SendMessageRequestV2: field {error} is missing") from None
    except ValueError as error:
        raise ProtocolError(f"SendMessageRequestV2: {error}") from None


class Admission:
    """Checks sends, and makes topics for them.

    Args:
        config: the broker's settings.
        topics: the broker's topics; a send may add one.
        broker_ip: what remarks call the broker.
        rng: chooses a queue when a send leaves that to the broker.

    Attributes:
        marks: what answers and messages say of the broker: its region, and whether it wants traces.
    """

    def __init__(
        self, config: BrokerConfig, topics: TopicTable, *, broker_ip: str, rng: random.Random
    ) -> None:
        self._config = config
        self._topics = topics
        self._rng = rng
        self._broker_ip = broker_ip
        self.marks: dict[str, str] = {
            names.MESSAGE_REGION: config.region_id,
            names.TRACE_SWITCH: "true" if config.trace_on else "false",
        }

    @property
    def is_writable(self) -> bool:
        """Whether the broker is there to be sent to."""
        return self._config.broker_permission & PERM_WRITE != 0

    def admit(self, connection: Connection, request: Command, send: Send) -> tuple[TopicConfig, int]:
        """Return where a message goes: the topic, made if it is new, and the queue's id.

        Raises Refusal.
        """
        if not request.body:
            raise Refusal(ResponseCode.SYSTEM_ERROR, "the request has no body: a message needs one")
        topic = self._topics.get(send.topic)
        if topic is not None and topic.order and not self.is_writable:
            # Of other topics it is the route that keeps producers away, as on real brokers.
            raise self.refusal(ResponseCode.NO_PERMISSION, self.forbidden("sending message"))
        if topic is None or not is_sendable(send.topic):
            topic = self._new_topic(send)
        queue_id = send.queue_id
        if queue_id >= topic.write_queue_nums and queue_id >= topic.read_queue_nums:
            raise self.refusal(
                ResponseCode.INVALID_PARAMETER,
                f"request queueId[{queue_id}] is illegal, {topic} Producer: {connection.address}",
            )
        if queue_id < 0:
            queue_id = self._rng.randrange(max(1, topic.write_queue_nums))
        return topic, queue_id

    def refusal(self, code: int, remark: str) -> Refusal:
        """Return the refusal of a send, to be raised."""
        return Refusal(code, remark, self.marks)

    def forbidden(self, what: str) -> str:
        """Return the remark that this broker forbids something."""
        return f"the broker[{self._broker_ip}] {what} is forbidden"

    def _new_topic(self, send: Send) -> TopicConfig:
        fault = topic_name_error(send.topic)
        if fault is not None:
            raise self.refusal(ResponseCode.INVALID_PARAMETER, fault)
        if not is_sendable(send.topic):
            raise self.refusal(
                ResponseCode.NO_PERMISSION, f"Sending message to topic[{send.topic}] is forbidden."
            )
        topic = self._topics.create_for_send(send.topic, send.default_topic, send.default_topic_queue_nums)
        if topic is None and send.topic.startswith(RETRY_PREFIX):
            topic = self._topics.get_or_create(send.topic, 1)
        if topic is None:
            raise self.refusal(
                ResponseCode.TOPIC_NOT_EXIST, f"topic[{send.topic}] not exist, apply first please!{FAQ}"
            )
        return topic
