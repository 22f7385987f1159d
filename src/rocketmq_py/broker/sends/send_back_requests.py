"""CONSUMER_SEND_MSG_BACK: schedules a retry of a message that a consumer group failed to process.

Java: ``AbstractSendMessageProcessor.consumerSendMsgBack``.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from rocketmq_py.broker.dispatch import FAQ, Refusal, RequestHandler
from rocketmq_py.broker.sends.send_requests import SendValidator
from rocketmq_py.broker.state import BrokerState
from rocketmq_py.broker.storage.broker_message import BrokerMessage, PutError
from rocketmq_py.broker.storage.delayed_delivery import MessageScheduler
from rocketmq_py.broker.topics import TopicConfig
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.names import dead_letter_topic, retry_topic
from rocketmq_py.property_names import DELAY_LEVEL, ORIGIN_MESSAGE_ID, RETRY_TOPIC, WAIT_STORE
from rocketmq_py.protocol.bodies import SubscriptionGroupConfig
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.headers import ConsumerSendMsgBackRequest
from rocketmq_py.remoting import Connection

FIRST_DELAY_LEVEL = 3
"""The delay level of the first retry, if the broker chooses it. Each further retry adds one."""


class SendBackProcessor:
    """Stores messages again, in the retry topic or the dead-letter topic of their group.

    Args:
        state: the broker's tables.
        validator: knows whether the broker is writable.
        scheduler: stores the retries.
    """

    def __init__(self, state: BrokerState, validator: SendValidator, scheduler: MessageScheduler) -> None:
        self._state = state
        self._validator = validator
        self._scheduler = scheduler

    def handlers(self) -> Mapping[int, RequestHandler]:
        """Return the request handlers by request code."""
        return {RequestCode.CONSUMER_SEND_MSG_BACK: self._send_back}

    def _send_back(self, connection: Connection, request: Command) -> None:
        header = ConsumerSendMsgBackRequest.from_fields(request.fields)
        group = self._state.subscription_groups.get_or_create(header.group)
        if group is None:
            raise Refusal(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group not exist, {header.group} {FAQ}",
            )
        if not self._validator.is_writable:
            raise Refusal(ResponseCode.NO_PERMISSION, self._validator.forbidden("sending message"))
        # Without retry queues the message is dropped, as on real brokers.
        if group.retry_queue_nums > 0:
            self._store_retry(header, group)
        connection.respond(request, ResponseCode.SUCCESS)

    def _store_retry(self, header: ConsumerSendMsgBackRequest, group: SubscriptionGroupConfig) -> None:
        state = self._state
        topic = state.topics.get_or_create(retry_topic(header.group), group.retry_queue_nums)
        if not topic.is_writable:
            raise Refusal(
                ResponseCode.NO_PERMISSION, f"the topic[{topic.topic_name}] sending message is forbidden"
            )
        stored = state.store.message_at(header.offset)
        if stored is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {header.offset}")
        failed = BrokerMessage.decode(stored)
        topic, delay_level = self._destination(failed, header, group, topic)
        properties = dict(failed.properties)
        properties.setdefault(RETRY_TOPIC, failed.topic)
        properties.setdefault(ORIGIN_MESSAGE_ID, state.store.message_id(stored.commit_log_offset))
        properties[WAIT_STORE] = "false"
        properties[DELAY_LEVEL] = str(delay_level)
        retry = replace(
            failed,
            topic=topic.topic_name,
            queue_id=state.rng.randrange(topic.write_queue_nums),
            properties=properties,
            reconsume_times=failed.reconsume_times + 1,
        )
        try:
            self._scheduler.put(retry)
        except PutError as error:
            raise Refusal(ResponseCode.SYSTEM_ERROR, error.status.name) from None

    def _destination(
        self,
        failed: BrokerMessage,
        header: ConsumerSendMsgBackRequest,
        group: SubscriptionGroupConfig,
        retry: TopicConfig,
    ) -> tuple[TopicConfig, int]:
        """Return the topic to store a message in, and the delay level."""
        max_retries = header.max_reconsume_times
        if max_retries is None:
            max_retries = group.retry_max_times
        wants_dead_letter = header.delay_level < 0
        if wants_dead_letter or failed.reconsume_times >= max_retries:
            return self._state.topics.get_or_create(dead_letter_topic(header.group), 1), 0
        return retry, header.delay_level or FIRST_DELAY_LEVEL + failed.reconsume_times
