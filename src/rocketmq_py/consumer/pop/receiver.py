"""Receives popped messages on request, acknowledges them, and changes their invisible time."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final

import trio

from rocketmq_py.arguments import Duration, check_duration, check_integer
from rocketmq_py.client.core import ClientCore
from rocketmq_py.client.retry_log import RetryLogs
from rocketmq_py.consumer.group.base_consumer import BaseConsumer
from rocketmq_py.consumer.group.counters import ConsumerCounters
from rocketmq_py.consumer.group.dead_letters import Cause, DeadLetter
from rocketmq_py.consumer.group.hooks import ConsumerHooks
from rocketmq_py.consumer.group.membership import Membership
from rocketmq_py.consumer.group.operator_requests import OperatorRequests
from rocketmq_py.consumer.group.statistics import PullState
from rocketmq_py.consumer.pop.lease import Lease
from rocketmq_py.consumer.pop.messages import ClassifiedMessages, PoppedMessage, classify, count_popped
from rocketmq_py.consumer.pop.pending_pops import BufferedMessage, PendingPops
from rocketmq_py.consumer.pop.requests import PopRequests, PopSpec
from rocketmq_py.consumer.pop.targets import SHARED_HOLD_SECONDS, PopTarget, PopTargets
from rocketmq_py.consumer.pull.retry import RETRY_DELAYS
from rocketmq_py.errors import (
    ConfigurationError,
    ConnectionLostError,
    FlowControlError,
    RocketMQError,
    TopicNotFoundError,
)
from rocketmq_py.library_logger import LibraryLogger

logger: Final = LibraryLogger("rocketmq_py.consumer")

MAX_MESSAGES = 32
"""The maximum number of messages of a pop."""
LAST_MOMENT_SECONDS = 0.1
"""The remaining wait below which ``receive`` returns. Brokers answer a held pop a little early."""
REGISTRATION_PAUSE = 0.5
"""Seconds until name servers are asked again for a topic while no broker is registered, or they limit the
rate."""


class PopReceiver:
    """Pops messages from the brokers of topics, for consumers whose program asks for messages.

    Args:
        client: provides the routes.
        requests: sends the requests.
        group: the consumer group, for log lines.
        max_reconsume_times: redeliveries after which a message becomes a dead letter.
        hooks: called for the received messages.
        counters: the consumer's counters.
        check_open: raises ClosedError if the consumer is not open.
    """

    def __init__(
        self,
        client: ClientCore,
        requests: PopRequests,
        group: str,
        *,
        max_reconsume_times: int,
        hooks: ConsumerHooks,
        counters: ConsumerCounters,
        check_open: Callable[[], None],
    ) -> None:
        self._requests = requests
        self._max_reconsume_times = max_reconsume_times
        self._hooks = hooks
        self._counters = counters
        self._check_open = check_open
        self._pending_pops = PendingPops(self._pop)
        self._targets = PopTargets(client, group)
        self._acknowledge_logs = RetryLogs(logger, "acknowledgement", "broker", group=group)
        self._renewal_logs = RetryLogs(logger, "renewal of the invisible time", "broker", group=group)
        self._nursery: trio.Nursery

    def open(self, nursery: trio.Nursery) -> None:
        """Run pops, which may outlive a cancelled call, in ``nursery``."""
        self._nursery = nursery

    async def receive(
        self, specs: Mapping[str, PopSpec], count: int, wait: float, started: float
    ) -> list[PoppedMessage]:
        """Return up to ``count`` messages as soon as there are any, or none after ``wait`` seconds.

        While no broker can be reached, or all of them refuse pops by flow control, it asks them again, and
        raises the error after ``wait`` seconds.

        Args:
            specs: the parameters of the pops of each topic.
            count: the maximum number of messages.
            wait: seconds to wait for the first message.
            started: the time on trio's clock at which the wait started.
        """
        deadline = started + wait
        now = started
        # In the first round, a broker without messages must not delay the messages of another one.
        shared_hold = 0.0
        while True:
            round_started = now
            buffered: list[BufferedMessage] = []
            try:
                buffered = await self._pop_from_each(specs, count, deadline=deadline, shared_hold=shared_hold)
            except RocketMQError as error:
                if not _is_retried(error, deadline):
                    raise
                # If no broker is registered, or the name servers limit the rate, no pop has waited.
                is_limited = isinstance(error, FlowControlError)
                if is_limited or isinstance(error, TopicNotFoundError):
                    pause = self._targets.pause(specs) if is_limited else 0.0
                    left = deadline - trio.current_time()
                    await trio.sleep(min(pause or REGISTRATION_PAUSE, left))
                    now = trio.current_time()
                    continue
            now = trio.current_time()
            if buffered or deadline - now < LAST_MOMENT_SECONDS:
                return await self._deliver(buffered, now - started)
            if shared_hold:  # pause, in case the broker does not hold pops but answers at once
                await trio.sleep_until(round_started + RETRY_DELAYS[PullState.STALLED])
                now = trio.current_time()
            shared_hold = SHARED_HOLD_SECONDS

    async def _deliver(self, buffered: Sequence[BufferedMessage], seconds: float) -> list[PoppedMessage]:
        """Call the hooks for messages that were just taken, and return the messages for the user.

        When cancelled, the messages are put back for the next call.

        Args:
            buffered: the messages.
            seconds: how long the call has waited for them.
        """
        messages = [each.message for each in buffered]
        if not messages or not self._hooks.all:
            return messages
        queues = [message.queue for message in messages]
        try:
            return await self._hooks.call_for_received(messages, queues, seconds)
        except BaseException:
            self._pending_pops.put_back(buffered)
            raise

    async def acknowledge(self, messages: Sequence[PoppedMessage]) -> None:
        """Acknowledge messages, with one call for each broker. Raises the error of the first failed call."""
        by_broker: dict[str, list[PoppedMessage]] = {}
        for message in messages:
            by_broker.setdefault(message.receipt.broker_name, []).append(message)
        errors: list[RocketMQError] = []
        for broker_name, of_broker in by_broker.items():
            try:
                await self._requests.acknowledge(broker_name, of_broker)
            except RocketMQError as error:
                errors.append(error)
            else:
                for message in of_broker:
                    self._counters.of(message.topic).handled += 1
        if errors:
            raise errors[0]

    async def change_invisible(
        self, message: PoppedMessage, seconds: float, *, suspend: bool = False
    ) -> PoppedMessage:
        """Redeliver a message ``seconds`` from now. Return it with its new receipt handle."""
        changed = await self._requests.change_invisible(message, seconds, suspend=suspend)
        self._counters.of(message.topic).sent_back += 1
        return changed

    async def reject(self, message: PoppedMessage) -> None:
        """Make an unacknowledged message a dead letter. It is acknowledged then."""
        await self._send_to_dead_letters(DeadLetter(message, Cause.REJECTED))

    async def _send_to_dead_letters(self, dead_letter: DeadLetter) -> None:
        await self._requests.send_to_dead_letters(dead_letter, max_reconsume_times=self._max_reconsume_times)
        counts = self._counters.of(dead_letter.message.topic)
        counts.failed += 1
        counts.sent_back += 1

    @asynccontextmanager
    async def holding(self, message: PoppedMessage, invisible: float) -> AsyncIterator[None]:
        """Renew the invisible time of a message while the block runs, then acknowledge it."""
        retry_log = self._renewal_logs.of(message.receipt.broker_name)
        lease = Lease(self._requests, message, invisible, retry_log)
        await lease.renew()
        self._check_open()
        self._nursery.start_soon(lease.run)
        try:
            yield
        finally:
            lease.stop()
        await lease.wait_ended()
        self._check_open()
        await self.acknowledge([lease.message])

    async def release(self) -> None:
        """Have brokers redeliver the messages that no call has returned."""
        await self._requests.release(self._pending_pops.take_all())

    async def _pop_from_each(
        self, specs: Mapping[str, PopSpec], count: int, *, deadline: float, shared_hold: float
    ) -> list[BufferedMessage]:
        """Pop from each broker of the topics once, until messages arrive.

        Args:
            specs: the parameters of the pops of each topic.
            count: the maximum number of messages.
            deadline: the time on trio's clock until which a single broker may hold the pop.
            shared_hold: seconds that each of several brokers may hold its pop.
        """
        topics = specs.keys()
        await trio.lowlevel.checkpoint()
        if messages := self._pending_pops.take(topics, count):
            return messages
        targets = await self._targets.of(topics)
        self._check_open()
        failures: dict[PopTarget, RocketMQError] = {}
        raised: RocketMQError | None = None
        try:
            for target in targets:
                left = max(deadline - trio.current_time(), 0.0)
                if len(targets) > 1:
                    left = min(shared_hold, left)
                try:
                    await self._pending_pops.wait(
                        self._nursery, target.broker_name, specs[target.topic], hold=left, topics=topics
                    )
                except RocketMQError as error:
                    self._check_open()
                    if isinstance(error, FlowControlError):
                        self._counters.of(target.topic).throttled += 1
                    if not (error.retriable or error._invalidates_route):
                        raise
                    failures[target] = error
                else:
                    self._check_open()
                    self._targets.succeeded(target)
                if messages := self._pending_pops.take(topics, count):
                    return messages
            if len(failures) == len(targets):
                errors = failures.values()
                raised = next(
                    (one for one in errors if isinstance(one, FlowControlError)), next(iter(errors))
                )
                raise raised
            return []
        finally:
            is_raised = raised is not None and not _is_retried(raised, deadline)
            for target, failure in failures.items():
                self._targets.failed(target, failure, is_raised=is_raised)

    async def _pop(self, broker_name: str, spec: PopSpec, hold: float) -> list[PoppedMessage]:
        """Pop and return the deliverable messages. The others are removed in the background."""
        started = trio.current_time()
        popped = await self._requests.pop_or_release(broker_name, spec, hold=hold)
        if popped:
            counts = self._counters.of(spec.subscription.topic)
            count_popped(counts, popped, trio.current_time() - started)
        classified = classify(popped, spec.subscription, self._max_reconsume_times)
        if classified.filtered_out or classified.exhausted:
            self._nursery.start_soon(self._remove_undeliverable, broker_name, classified)
        return classified.deliverable

    async def _remove_undeliverable(self, broker_name: str, classified: ClassifiedMessages) -> None:
        """Acknowledge filtered-out messages and make exhausted ones dead letters.

        If that fails, the broker redelivers them, and the next pop tries again.
        """
        try:
            if classified.filtered_out:
                await self._requests.acknowledge(broker_name, classified.filtered_out)
            for message in classified.exhausted:
                await self._send_to_dead_letters(DeadLetter(message, Cause.NOT_ACKNOWLEDGED))
        except RocketMQError as error:
            self._acknowledge_logs.failed(broker_name, error)
        else:
            self._acknowledge_logs.succeeded(broker_name)


def _is_retried(error: RocketMQError, deadline: float) -> bool:
    """Return whether ``receive`` pops again after an error of all brokers, instead of raising it."""
    is_away = error._not_reached or isinstance(error, ConnectionLostError)
    may_end = is_away or isinstance(error, FlowControlError)
    return may_end and deadline - trio.current_time() >= LAST_MOMENT_SECONDS


class ReceivingConsumer(BaseConsumer):
    """A consumer whose program asks for messages. It is a member of its group while it is open.

    Attributes:
        _membership: the membership of the group.
        _stopping: set when the consumer is closed.
    """

    _membership: Membership
    _stopping: trio.Event
    _receiver: PopReceiver
    _member_left: trio.Event

    def _create_receiver(self, requests: PopRequests) -> None:
        """Create the receiver. It sends its requests through ``requests``."""
        self._receiver = PopReceiver(
            self._client,
            requests,
            self._group,
            max_reconsume_times=self._settings.max_reconsume_times,
            hooks=self._hooks,
            counters=self._counters,
            check_open=self._check_open,
        )
        self._member_left = trio.Event()

    @asynccontextmanager
    async def holding(self, message: PoppedMessage, *, invisible: Duration = 60.0) -> AsyncIterator[None]:
        """Keep a message invisible for as long as the block runs, then acknowledge it.

        ::

            for message in await consumer.receive(max_messages=1):
                async with consumer.holding(message):
                    await work(message)  # may take hours

        The invisible time is renewed when the block begins, and three times per ``invisible`` seconds. So if
        this process ends, the message is redelivered after at most ``invisible`` seconds. An exception in the
        block leaves the message unacknowledged, with the same effect, and propagates. Failed renewals are
        logged and tried again.

        Only the block may change or acknowledge the message: each renewal changes its receipt handle.

        Args:
            message: an unacknowledged message. Of an ordered queue or a lite topic, receive one message at
                once: others that were received with it are not renewed, and are redelivered if their time
                is over when the block ends.
            invisible: seconds from a renewal until the message is redelivered.

        Raises:
            ConfigurationError: ``invisible`` is not above 0. ClosedError: the consumer is not open.
            BrokerError, NoQueueError, ConnectError, ConnectionLostError, RequestTimeoutError: the first
            renewal or the acknowledgement failed. The message is redelivered.

        When cancelled, the message is redelivered.
        """
        self._check_open()
        check_popped(message)
        number = check_invisible(invisible)
        async with self._receiver.holding(message, number):
            yield

    async def _open(self) -> None:
        await super()._open()
        self._receiver.open(self._nursery)
        await self._nursery.start(self._run_as_member)

    async def _run_as_member(self, *, task_status: trio.TaskStatus[None]) -> None:
        self._membership.join()
        try:
            with OperatorRequests(
                self._client,
                self._group,
                membership=self._membership,
                properties={"maxReconsumeTimes": str(self._settings.max_reconsume_times)},
                counters=self._counters,
                nursery=self._nursery,
            ).serve():
                task_status.started()
                await self._stopping.wait()
        finally:
            await self._membership.leave()
            self._member_left.set()

    async def _close(self) -> None:
        self._stopping.set()
        await self._member_left.wait()
        await super()._close()
        await self._receiver.release()


def check_receive(max_messages: int, invisible: Duration, wait: Duration) -> tuple[int, float, float]:
    """Return the arguments as numbers. Raise ConfigurationError if one is out of range."""
    max_messages = check_integer(max_messages, "max_messages", lowest=1, highest=MAX_MESSAGES)
    return max_messages, check_invisible(invisible), check_seconds("wait", wait)


def check_invisible(invisible: Duration) -> float:
    """Return a finite number of seconds above 0. Raise ConfigurationError for others."""
    number = check_seconds("invisible", invisible)
    if not number:
        raise ConfigurationError("invisible is 0; it must be above 0")
    return number


def check_seconds(name: str, duration: Duration) -> float:
    """Return a finite, non-negative number of seconds. Raise ConfigurationError for others."""
    number = check_duration(duration, name)
    if number == math.inf:
        raise ConfigurationError(f"{name} is {number!r}; it must be a number of seconds")
    return number


def check_popped(message: object) -> None:
    """Raise ConfigurationError unless ``message`` was returned by ``receive``."""
    if not isinstance(message, PoppedMessage):
        raise ConfigurationError(
            f"expected a message returned by receive(), not {type(message).__name__}. For a list, use "
            "ack(*messages)"
        )
