"""CONSUMER_SEND_MSG_BACK: a message that a group failed on comes again later, or is given up.

Java: ``AbstractSendMessageProcessor.consumerSendMsgBack``.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

from msgspec.structs import replace

from rocketmq_py import properties as names
from rocketmq_py.broker.admission import Admission
from rocketmq_py.broker.dispatch import FAQ, Refusal, RequestHandler
from rocketmq_py.broker.groups import SubscriptionGroupTable
from rocketmq_py.broker.storage.broker_message import BrokerMessage, PutError
from rocketmq_py.broker.storage.delayed_delivery import MessageScheduler
from rocketmq_py.broker.storage.message_store import MessageStore
from rocketmq_py.broker.topics import TopicTable
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.names import dead_letter_topic, retry_topic
from rocketmq_py.protocol.bodies import SubscriptionGroupConfig
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.headers import ConsumerSendMsgBackRequest
from rocketmq_py.remoting import Connection

FIRST_DELAY_LEVEL = 3
"""The delay level of the first retry, where the broker chooses; each further failure adds one."""


class Retrying:
    """Takes messages back."""

    def __init__(
        self,
        admission: Admission,
        topics: TopicTable,
        subscription_groups: SubscriptionGroupTable,
        store: MessageStore,
        schedule: MessageScheduler,
        *,
        rng: random.Random,
    ) -> None:
        self._admission = admission
        self._topics = topics
        self._subscription_groups = subscription_groups
        self._store = store
        self._schedule = schedule
        self._rng = rng

    def handlers(self) -> Mapping[int, RequestHandler]:
        """Return the handler of each request's code."""
        return {RequestCode.CONSUMER_SEND_MSG_BACK: self._take_back}

    def _take_back(self, connection: Connection, request: Command) -> None:
        header = ConsumerSendMsgBackRequest.from_fields(request.fields)
        group = self._subscription_groups.find(header.group)
        if group is None:
            raise Refusal(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group not exist, {header.group} {FAQ}",
            )
        if not self._admission.is_writable:
            raise Refusal(ResponseCode.NO_PERMISSION, self._admission.forbidden("sending message"))
        if group.retry_queue_nums > 0:
            self._store_again(header, group)
        connection.respond(request, ResponseCode.SUCCESS)

    def _store_again(self, header: ConsumerSendMsgBackRequest, group: SubscriptionGroupConfig) -> None:
        topic = self._topics.get_or_create(retry_topic(header.group), group.retry_queue_nums)
        if not topic.is_writable:
            raise Refusal(
                ResponseCode.NO_PERMISSION, f"the topic[{topic.topic_name}] sending message is forbidden"
            )
        stored = self._store.message_at(header.offset)
        if stored is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {header.offset}")
        failed = BrokerMessage.decode(stored)
        delay_level = header.delay_level
        most = group.retry_max_times if header.max_reconsume_times is None else header.max_reconsume_times
        if failed.reconsume_times >= most or delay_level < 0:
            delay_level = 0
            topic = self._topics.get_or_create(dead_letter_topic(header.group), 1)
        elif delay_level == 0:
            delay_level = FIRST_DELAY_LEVEL + failed.reconsume_times
        properties = dict(failed.properties)
        properties.setdefault(names.RETRY_TOPIC, failed.topic)
        properties.setdefault(names.ORIGIN_MESSAGE_ID, self._store.message_id(stored.commit_log_offset))
        properties[names.WAIT_STORE] = "false"
        properties[names.DELAY_LEVEL] = str(delay_level)
        again = replace(
            failed,
            topic=topic.topic_name,
            queue_id=self._rng.randrange(topic.write_queue_nums),
            properties=properties,
            reconsume_times=failed.reconsume_times + 1,
        )
        try:
            self._schedule.put(again)
        except PutError as error:
            raise Refusal(ResponseCode.SYSTEM_ERROR, error.status.name) from None
