"""POP_MESSAGE (Java: ``PopMessageProcessor``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import trio

from rocketmq_py.broker.config import BrokerConfig
from rocketmq_py.broker.dispatch import FAQ, Refusal, RequestHandler, answer_with
from rocketmq_py.broker.filtering import Wanted, is_tag_expression, sql_filter_of, wanted_by, wanted_by_tags
from rocketmq_py.broker.pop.holding import HeldPop, HeldPops
from rocketmq_py.broker.pop.ordering import GroupQueue, OrderedDeliveries
from rocketmq_py.broker.pop.taking import Taken, Taking
from rocketmq_py.broker.sql92 import SqlFilterError
from rocketmq_py.broker.store import ConsumeQueue, MessageStore
from rocketmq_py.broker.subscription_groups import SubscriptionGroupTable
from rocketmq_py.broker.topics import PERM_READ, TopicConfig, TopicTable
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.protocol.bodies import ALL_QUEUES, SubscriptionGroupConfig
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.handles import pop_retry_topic
from rocketmq_py.protocol.headers import PopMessageAnswer, PopMessageRequest
from rocketmq_py.protocol.subscription import make_subscription
from rocketmq_py.remoting import Connection

MAX_POPPED = 32
"""Messages in one answer."""
LATE_MS = 500
"""By how many milliseconds a pop may come after the end of its polling time."""
EARLY_MS = 50
"""How many milliseconds before the end of its polling time a pop that found nothing is answered."""
PRIORITY_TYPE = "PRIORITY"
"""The type of topics whose queues are priorities."""
PRIORITY_FACTOR = "priority.factor"
"""The attribute of a group that says how many of a hundred pops go by priority: here all, or none for 0."""


_NOTHING = PopMessageAnswer(pop_time=0, invisible_time=0, revive_qid=0, rest_num=0).to_fields()


class Popping:
    """Answers pops, at once or when messages come.

    Args:
        config: the broker's settings.
        store: has the queues.
        topics: the broker's topics.
        subscription_groups: the settings of groups.
        ordered: tells when a queue that was popped in order can be popped again.
        taking: takes the messages.
        broker_ip: what remarks call the broker.
        now_ms: the time, epoch milliseconds.

    Attributes:
        held: the pops that wait.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        topics: TopicTable,
        subscription_groups: SubscriptionGroupTable,
        ordered: OrderedDeliveries,
        taking: Taking,
        *,
        broker_ip: str,
        now_ms: Callable[[], int],
    ) -> None:
        self._config = config
        self._store = store
        self._topics = topics
        self._subscription_groups = subscription_groups
        self._ordered = ordered
        self._taking = taking
        self._broker_ip = broker_ip
        self._now_ms = now_ms
        self.held: HeldPops = HeldPops(self._answer_held)

    def handlers(self) -> Mapping[int, RequestHandler]:
        """Return the handler of each request's code."""
        return {RequestCode.POP_MESSAGE: self._pop}

    def wake_when_free(self, group_queue: GroupQueue) -> None:
        """Have pops that wait for a queue answered as soon as it can be popped in order again."""
        wait_ms = self._ordered.free_at(group_queue, None) - self._now_ms()
        self.held.wake_for_queue(group_queue, trio.current_time() + max(0, wait_ms) / 1000)

    def _pop(self, connection: Connection, request: Command) -> None:
        header = self._read(request)
        wanted = self._wanted(header)
        self._answer(connection, request, header, wanted)

    def _answer_held(self, held: HeldPop) -> None:
        def answer(connection: Connection, request: Command) -> None:
            self._answer(connection, request, held.header, held.wanted)

        answer_with(answer, held.connection, held.request)

    def _answer(
        self, connection: Connection, request: Command, header: PopMessageRequest, wanted: Wanted
    ) -> None:
        topic, group = self._check(connection, header)
        taken = self._taking.take(header, wanted, priority=_goes_by_priority(header, topic, group))
        for _, queue_id in taken.starts if header.order else ():
            self.wake_when_free(GroupQueue(header.topic, header.consumer_group, queue_id))
        code = ResponseCode.SUCCESS if taken.taken else self._hold(connection, request, topic, taken)
        if taken.rest > 0 and header.max_msg_nums > 0:  # who wants none leaves all, however often it looks
            self.held.wake(GroupQueue(header.topic, header.consumer_group, max(ALL_QUEUES, header.queue_id)))
        if code is None:
            return
        offsets = taken.offsets
        answer = PopMessageAnswer(
            pop_time=taken.pop_time_ms,
            invisible_time=header.invisible_time,
            revive_qid=taken.revive_queue_id,
            rest_num=taken.rest,
            start_offset_info=offsets.start_offset_info,
            msg_offset_info=offsets.msg_offset_info,
            order_count_info=offsets.order_count_info if header.order else None,
        )
        self._store.hand_out(header.topic, header.consumer_group, len(taken.messages))
        status = "FOUND" if taken.taken else "NO_MESSAGE_IN_QUEUE"
        connection.respond(request, code, answer.to_fields(), b"".join(taken.messages), status)

    def _hold(
        self, connection: Connection, request: Command, topic: TopicConfig, taken: Taken
    ) -> ResponseCode | None:
        """Keep a pop that found nothing; return how it is to be answered if that cannot be."""
        header = taken.header
        left_ms = header.born_time + header.poll_time - self._now_ms()
        if header.poll_time <= 0 or left_ms <= EARLY_MS:
            return ResponseCode.POLLING_TIMEOUT
        queues = self._queues(header, topic)
        seconds = (left_ms - EARLY_MS) / 1000
        if self.held.hold(connection, request, header, taken.wanted, queues, seconds):
            return None
        return ResponseCode.POLLING_FULL

    def _queues(self, header: PopMessageRequest, topic: TopicConfig) -> tuple[ConsumeQueue, ...]:
        """Return the queues that a pop takes from, those of its retry topics too."""
        ids = range(topic.read_queue_nums) if header.queue_id < 0 else (header.queue_id,)
        names = [(header.topic, queue_id) for queue_id in ids]
        if not header.order:
            names.append((pop_retry_topic(header.topic, header.consumer_group), 0))
            names.append((pop_retry_topic(header.topic, header.consumer_group, v2=True), 0))
        return tuple([self._store.queue(*name) for name in names])

    # What is asked for

    def _read(self, request: Command) -> PopMessageRequest:
        fields = request.fields
        if fields.get("bornTime", "0") == "0":
            fields = {**fields, "bornTime": str(self._now_ms())}
        return PopMessageRequest.from_fields(fields)

    def _wanted(self, header: PopMessageRequest) -> Wanted:
        if not header.exp:
            return None
        kind = header.exp_type
        try:
            if kind is None or is_tag_expression(kind):
                return wanted_by_tags(make_subscription(header.topic, header.exp, version_ms=0))
            return wanted_by(sql_filter_of(kind, header.exp))
        except (ConfigurationError, SqlFilterError):
            raise _refusal(
                ResponseCode.SUBSCRIPTION_PARSE_FAILED, "parse the consumer's subscription failed"
            ) from None

    def _check(
        self, connection: Connection, header: PopMessageRequest
    ) -> tuple[TopicConfig, SubscriptionGroupConfig]:
        broker, name, group_name = f"the broker[{self._broker_ip}]", header.topic, header.consumer_group
        if self._now_ms() - header.born_time - header.poll_time > LATE_MS:
            raise _refusal(ResponseCode.POLLING_TIMEOUT, f"{broker} pop message is timeout too much")
        if not self._config.broker_permission & PERM_READ:
            raise _refusal(ResponseCode.NO_PERMISSION, f"{broker} pop message is forbidden")
        if header.max_msg_nums > MAX_POPPED:
            raise _refusal(
                ResponseCode.INVALID_PARAMETER, f"{broker} pop message's num is greater than {MAX_POPPED}"
            )
        if not self._config.timer_wheel_enable:
            raise _refusal(
                ResponseCode.SYSTEM_ERROR,
                f"{broker} pop message is forbidden because timerWheelEnable is false",
            )
        topic = self._topics.get(name)
        if topic is None:
            raise _refusal(
                ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist, apply first please! {FAQ}"
            )
        if not topic.is_readable:
            raise _refusal(ResponseCode.NO_PERMISSION, f"the topic[{name}] peeking message is forbidden")
        if header.queue_id >= topic.read_queue_nums:
            raise _refusal(
                ResponseCode.INVALID_PARAMETER,
                f"queueId[{header.queue_id}] is illegal, topic:[{name}] topicConfig.readQueueNums:"
                f"[{topic.read_queue_nums}] consumer:[/{connection.address}]",
            )
        group = self._subscription_groups.find(group_name)
        if group is None:
            raise _refusal(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group [{group_name}] does not exist, {FAQ}",
            )
        if not group.consume_enable:
            raise _refusal(ResponseCode.NO_PERMISSION, f"subscription group no permission, {group_name}")
        return topic, group


def _refusal(code: int, remark: str) -> Refusal:
    # Java's client looks for the numbers in every answer.
    return Refusal(code, remark, _NOTHING)


def _goes_by_priority(header: PopMessageRequest, topic: TopicConfig, group: SubscriptionGroupConfig) -> bool:
    if header.order or topic.attributes.get("message.type") != PRIORITY_TYPE:
        return False
    return group.attributes.get(PRIORITY_FACTOR) != "0"
