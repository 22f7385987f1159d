"""One pull: the request, and what its answer means."""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

import attrs
import msgspec

from rocketmq_py.client.client import Client
from rocketmq_py.client.namespace import Namespace
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.errors import BrokerError, QueueGoneError, RocketMQError
from rocketmq_py.message import MessageQueue, ReceivedMessage, queue_name
from rocketmq_py.protocol.bodies import MASTER_ID, SubscriptionData
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.headers import PullMessageAnswer, PullMessageRequest
from rocketmq_py.protocol.stored_message import decode_within_budget
from rocketmq_py.protocol.subscription import matches
from rocketmq_py.remoting.pending_requests import Answer, CallbackRequest, PendingRequest


class PullFlag(enum.IntFlag):
    """Bits of a pull's ``sys_flag``. Java: ``PullSysFlag``."""

    COMMIT = 1
    SUSPEND = 2
    SUBSCRIPTION = 4


class PullStatus(enum.Enum):
    """What became of a pull. Java: ``PullStatus``."""

    FOUND = ResponseCode.SUCCESS
    NO_NEW = ResponseCode.PULL_NOT_FOUND
    NO_MATCHED = ResponseCode.PULL_RETRY_IMMEDIATELY
    OFFSET_MOVED = ResponseCode.PULL_OFFSET_MOVED


_ILLEGAL_QUEUE = re.compile(r"queueId\[-?\d+\] is illegal")
"""How a 4.x broker says that it does not have a queue; the code is the same as for many other faults."""
_STATUS = {int(status.value): status for status in PullStatus}
_FOUND = PullStatus.FOUND
_COMMIT, _SUSPEND, _SUBSCRIPTION = map(int, PullFlag)  # plain numbers: there is a pull for every few messages


class Pulled(msgspec.Struct, frozen=True):
    """What a pull brought. Java: ``PullResult``.

    Attributes:
        status: what became of it.
        messages: those that the subscription wants, in the order of their offsets.
        next_offset: where the next pull begins, says the broker; after the last of the messages that it gave.
        min_offset: the queue's first message.
        max_offset: the offset that the queue's next message will get.
    """

    status: PullStatus
    messages: Sequence[ReceivedMessage]
    next_offset: int
    min_offset: int
    max_offset: int


class RawPulled(msgspec.Struct, frozen=True):
    """What a pull brought, with the messages as the broker stores them.

    Attributes:
        status: what became of it.
        body: the stored messages, one behind the other; with tags, those that share a tag's hash too.
        next_offset, min_offset, max_offset: as Pulled's.
        offset_delta: what is to be added to the offsets that are stored in the messages.
    """

    status: PullStatus
    body: bytes
    next_offset: int
    min_offset: int
    max_offset: int
    offset_delta: int

    def brings_after(self, offset: int) -> bool:
        """Tell whether it brought messages, if it asked for those from ``offset`` on."""
        return self.status is _FOUND and self.next_offset > offset


class QueuePuller:
    """Pulls from one queue, from the broker that last said it should be asked. Java: ``PullAPIWrapper``.

    Args:
        client: how brokers are reached.
        group: in whose name; the broker has to know it.
        queue: the queue.
        batch_size: messages asked for at once.
        hold: seconds that the broker may keep a pull while there is nothing to give; 0 for none.
        timeout: seconds until a pull has failed.
    """

    __slots__ = (
        "_batch_size", "_broker_id", "_client", "_hold", "_prepared", "_timeout", "group", "queue",
    )  # fmt: skip

    def __init__(
        self,
        client: Client,
        group: str,
        queue: MessageQueue,
        *,
        batch_size: int,
        hold: float,
        timeout: float,
    ) -> None:
        self._client = client
        self.group: str = group
        self.queue: MessageQueue = queue
        self._batch_size = batch_size
        self._hold = hold
        self._timeout = timeout
        self._broker_id = MASTER_ID
        self._prepared: tuple[SubscriptionData, int, dict[str, str]] | None = None

    @property
    def namespace(self) -> Namespace:
        """What turns the names on the wire into those that users know."""
        return self._client.namespace

    async def pull(self, offset: int, subscription: SubscriptionData, *, commit: int | None = None) -> Pulled:
        """Ask for the messages from ``offset`` on.

        Args:
            offset: the first one wanted.
            subscription: what of the topic is wanted. It goes with the pull, so that a broker that has
                been started anew serves it before the next heartbeat.
            commit: the offset to commit by the way, which only a master does; None for none.

        Raises:
            BrokerError: the broker refused. ProtocolError: its answer cannot be read.
            NoQueueError: it does not serve the queue any more, or no address of it is known.
            ConnectError, ConnectionLostError, RequestTimeoutError: it cannot be reached.

        When cancelled, nothing stays behind and nothing is lost: ask for the same offset again.
        """
        return self._decode(await self.pull_raw(offset, subscription, commit=commit), subscription)

    async def pull_raw(
        self,
        offset: int,
        subscription: SubscriptionData,
        *,
        commit: int | None = None,
        batch_size: int | None = None,
    ) -> RawPulled:
        """Ask as :meth:`pull` does, and leave the messages as they are; ``batch_size`` is for this time."""
        routes, name = self._client.routes, self.queue.broker_name
        # Replicas serve as long as there is no master.
        address = routes.broker_address(name, broker_id=self._broker_id, any_id=True)
        flag = _SUBSCRIPTION | _SUSPEND if self._hold else _SUBSCRIPTION
        if commit is not None and address == routes.master_address_nowait(name):
            flag |= _COMMIT
        batch_size = self._batch_size if batch_size is None else batch_size
        fields = self._fields(subscription, batch_size, offset, flag, commit or 0)
        request = PendingRequest(RequestCode.PULL_MESSAGE, fields, b"", self._timeout)
        try:
            answer = await self._client.brokers.pull(address, request)
        except RocketMQError:
            self._broker_id = MASTER_ID  # a replica that fails is not asked again
            raise
        return self._read(answer, address)

    def begin_raw(
        self,
        offset: int,
        subscription: SubscriptionData,
        *,
        batch_size: int,
        on_end: Callable[[RawPulled | None], None],
    ) -> CallbackRequest | None:
        """Ask as :meth:`pull_raw` does, without waiting: ``on_end`` gets what came, None if it failed.

        It runs in another task, and must not raise. None is returned, and nothing asked, where that has to
        wait. What is returned can be forgotten.

        Raises: as :meth:`pull_raw`, for what is known at once.
        """
        routes, name = self._client.routes, self.queue.broker_name
        address = routes.broker_address(name, broker_id=self._broker_id, any_id=True)
        flag = _SUBSCRIPTION | _SUSPEND if self._hold else _SUBSCRIPTION
        fields = self._fields(subscription, batch_size, offset, flag, 0)
        on_answer = partial(self._end_raw, address, on_end)
        request = CallbackRequest(RequestCode.PULL_MESSAGE, fields, b"", self._timeout, on_answer)
        return request if self._client.brokers.begin_pull(address, request) else None

    def _end_raw(self, address: str, on_end: Callable[[RawPulled | None], None], answer: Answer) -> None:
        pulled = None
        if isinstance(answer, RocketMQError):
            self._broker_id = MASTER_ID
        else:
            with suppress(RocketMQError):
                pulled = self._read(answer, address)
        on_end(pulled)

    def _fields(
        self, subscription: SubscriptionData, batch_size: int, offset: int, flag: int, commit: int
    ) -> dict[str, str]:
        """Return the ext fields of a pull. Those that are the same for the next pull are kept."""
        prepared = self._prepared
        if (
            prepared is None
            or prepared[0] is not subscription  # another one is another object
            or prepared[1] != batch_size
        ):
            common = self._client.brokers.pull_fields(
                PullMessageRequest(
                    consumer_group=self.group,
                    topic=self.queue.topic,
                    queue_id=self.queue.queue_id,
                    queue_offset=0,
                    max_msg_nums=batch_size,
                    sys_flag=0,
                    commit_offset=0,
                    suspend_timeout_millis=int(self._hold * 1000),
                    sub_version=subscription.sub_version,
                    subscription=subscription.sub_string,
                    expression_type=subscription.expression_type,
                    broker_name=self.queue.broker_name,
                )
            )
            self._prepared = prepared = subscription, batch_size, common
        varying = {"queueOffset": str(offset), "sysFlag": str(flag), "commitOffset": str(commit)}
        return prepared[2] | varying

    def ask_master(self) -> None:
        """Ask the master next, whatever the last answer said."""
        self._broker_id = MASTER_ID

    def _read(self, answer: Command, address: str) -> RawPulled:
        status = _STATUS.get(answer.code)
        if status is None:
            if answer.code == ResponseCode.INVALID_PARAMETER or (
                answer.code == ResponseCode.SYSTEM_ERROR and _ILLEGAL_QUEUE.search(answer.remark or "")
            ):
                raise QueueGoneError(f"{address} does not serve {queue_name(self.queue)}: {answer.remark}")
            raise BrokerError.from_answer(answer.code, answer.remark, address)
        header = PullMessageAnswer.from_fields(answer.fields)
        self._broker_id = header.suggest_which_broker_id
        return RawPulled(
            status,
            answer.body if status is _FOUND else b"",
            header.next_begin_offset,
            header.min_offset,
            header.max_offset,
            header.offset_delta or 0,
        )

    def _decode(self, raw: RawPulled, subscription: SubscriptionData) -> Pulled:
        messages: list[ReceivedMessage] = []
        next_offset = raw.next_offset
        if raw.status is PullStatus.FOUND:
            answer = decode_within_budget(raw.body, self.queue.broker_name)
            messages = self.namespace.unwrap_messages(answer.messages)
            if answer.continue_at is not None:  # they come with the next pull
                next_offset = answer.continue_at + raw.offset_delta
            if delta := raw.offset_delta:
                messages = [
                    attrs.evolve(message, queue_offset=message.queue_offset + delta) for message in messages
                ]
            if messages:  # whatever the broker says: else the same ones might come again
                next_offset = max(next_offset, messages[-1].queue_offset + 1)
            if subscription.tags_set:
                messages = [
                    message for message in messages if matches(subscription, message.encoded_properties)
                ]
        return Pulled(raw.status, messages, next_offset, raw.min_offset, raw.max_offset)
