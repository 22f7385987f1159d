"""The way that all messages of a producer leave: hooks, request, tries, counts, hooks."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import trio

from rocketmq_py.client.instance import ClientInstance
from rocketmq_py.errors import BatchError, ClosedError, InvalidMessageError, RocketMQError
from rocketmq_py.message import Message, SendResult
from rocketmq_py.producer.batch import BatchResults, split_batch
from rocketmq_py.producer.config import ProducerConfig
from rocketmq_py.producer.hooks import Hooks, SendContext, SendMode
from rocketmq_py.producer.in_flight import InFlight
from rocketmq_py.producer.pending import PendingReply, PendingSend
from rocketmq_py.producer.preparing import Preparing
from rocketmq_py.producer.requests import Requests
from rocketmq_py.producer.sender import Sender
from rocketmq_py.producer.sending import Destination, Outcome, Sending


class Outbox:
    """Sends in all modes; the arguments and errors are those of the Producer's methods.

    Args:
        client: ids, the time, routes.
        config: the producer's settings.
        sender: brings requests to brokers.
        in_flight: the places for pipelined sends.

    Attributes:
        hooks: what is called around sends.
        preparing: makes requests.
    """

    def __init__(
        self, client: ClientInstance, config: ProducerConfig, sender: Sender, in_flight: InFlight
    ) -> None:
        self._client = client
        self._config = config
        self._sender = sender
        self._in_flight = in_flight
        self._nursery: trio.Nursery | None = None
        self._closed = False
        self.hooks = Hooks()
        self.preparing = Preparing(client, config)

    def open(self, nursery: trio.Nursery) -> None:
        """Begin: hooks after pipelined sends run in ``nursery``."""
        self._nursery = nursery

    def close(self) -> None:
        """Take no more: pipelined sends that wait for a place are not sent."""
        self._closed = True

    def abandon(self) -> None:
        """End: no hook is called any more."""
        self._nursery = None

    def context(self, mode: SendMode, messages: Sequence[Message], *, is_half: bool = False) -> SendContext:
        """Return what hooks see of a send."""
        return SendContext(
            producer_group=self._config.group,
            client_id=self._client.client_id,
            mode=mode,
            messages=list(messages),
            is_half=is_half,
            started_ms=self._client.now_ms(),
        )

    async def deliver(self, sending: Sending) -> SendResult:
        """Compress the body if it is large, try until it is stored, and count it."""
        if sending.may_be_compressed:
            await self.preparing.compress(sending)
        try:
            result = await self._sender.deliver(sending)
        except RocketMQError:
            self._sender.counters.failed += len(sending.messages)
            raise
        self._sender.counters.sent += len(sending.messages)
        return result

    # Awaited

    async def send(self, message: Message, queue: Destination | None, timeout: float | None) -> SendResult:
        """Send a message and wait for its result."""
        if not self.hooks.all:
            return await self._send(message, queue, timeout)
        async with self.hooks.around(self.context(SendMode.AWAITED, [message])) as context:
            result = await self._send(context.messages[0], queue, timeout, context)
            context.results = (result,)
        return result

    async def _send(
        self,
        message: Message,
        queue: Destination | None,
        timeout: float | None,
        context: SendContext | None = None,
    ) -> SendResult:
        return await self.deliver(
            self.preparing.prepare(message, queue, timeout, self._config.retries, context)
        )

    async def send_batch(
        self, messages: Sequence[Message], queue: Destination | None, timeout: float | None
    ) -> Sequence[SendResult]:
        """Send a list of messages and wait for their results."""
        if not self.hooks.all:
            return await self._send_batch(messages, queue, timeout)
        async with self.hooks.around(self.context(SendMode.AWAITED, messages)) as context:
            if len(context.messages) != len(messages):
                raise InvalidMessageError("a hook must not change how many messages there are")
            results = await self._send_batch(context.messages, queue, timeout, context)
            context.results = results
        return results

    async def _send_batch(
        self,
        messages: Sequence[Message],
        queue: Destination | None,
        timeout: float | None,
        context: SendContext | None = None,
    ) -> Sequence[SendResult]:
        batches = split_batch(
            messages, max_size=self._config.max_message_size, new_unique_ids=self._client.unique_ids.take
        )
        results: Sequence[SendResult] = ()
        for batch in batches:
            sending = self.preparing.prepare_batch(batch, queue, timeout, self._config.retries, context)
            try:
                more = BatchResults(await self.deliver(sending), batch.unique_ids)
            except RocketMQError as error:
                if not results:
                    raise
                raise BatchError(results, len(messages), error) from error
            results = [*results, *more] if results else more
        return results

    # Oneway

    async def send_oneway(self, message: Message, queue: Destination | None) -> None:
        """Send a message that no broker answers."""
        if not self.hooks.all:
            await self._send_oneway(message, queue)
            return
        async with self.hooks.around(self.context(SendMode.ONEWAY, [message])) as context:
            await self._send_oneway(context.messages[0], queue, context)

    async def _send_oneway(
        self, message: Message, queue: Destination | None, context: SendContext | None = None
    ) -> None:
        sending = self.preparing.prepare(message, queue, None, 0, context)
        if sending.may_be_compressed:
            await self.preparing.compress(sending)
        await self._sender.send_oneway(sending)

    # Pipelined

    async def send_soon(
        self, pending: PendingSend, message: Message, queue: Destination | None, timeout: float | None
    ) -> None:
        """Send a message; ``pending`` gets the outcome."""
        if not self.hooks.all:
            sending = self.preparing.prepare(message, queue, timeout, self._config.retries_pipelined)
            sending.on_done = partial(self._resolve, pending)
            await self._submit(sending, pending)
            return
        context = self.context(SendMode.PIPELINED, [message])
        await self.hooks.before_send(context)
        started = trio.current_time()
        try:
            sending = self.preparing.prepare(
                context.messages[0], queue, timeout, self._config.retries_pipelined, context
            )
            sending.on_done = partial(self._sent_with_hooks, context, started, pending)
            await self._submit(sending, pending)
        except BaseException as error:
            await self.hooks.after_send(context, started, error)
            raise

    async def _submit(self, sending: Sending, pending: PendingSend) -> None:
        await self._in_flight.enter(pending, len(sending.body))
        try:
            if self._closed:
                raise ClosedError("the producer was closed while the send waited for a place in flight")
            if sending.may_be_compressed:
                await self.preparing.compress(sending)
            await self._sender.submit(sending)
        except BaseException:
            self._in_flight.leave(pending)
            raise

    async def request(
        self,
        requests: Requests,
        pending: PendingReply,
        message: Message,
        queue: Destination | None,
        timeout: float | None,
    ) -> None:
        """Send a request; ``pending`` gets the reply, or what failed."""
        timeout = self._config.send_timeout if timeout is None else timeout
        properties = requests.properties(pending, timeout)
        retries = self._config.retries_pipelined
        if not self.hooks.all:
            sending = self.preparing.prepare(message, queue, timeout, retries, system_properties=properties)
            await requests.submit(sending, pending)
            return
        context = self.context(SendMode.PIPELINED, [message])
        await self.hooks.before_send(context)
        started = trio.current_time()
        try:
            sending = self.preparing.prepare(
                context.messages[0], queue, timeout, retries, context, system_properties=properties
            )
            await requests.submit(sending, pending, partial(self._sent_with_hooks, context, started, None))
        except BaseException as error:
            await self.hooks.after_send(context, started, error)
            raise

    def _resolve(self, pending: PendingSend, outcome: Outcome) -> None:
        if pending.done:
            return  # abandoned when the producer was closed
        counters = self._sender.counters
        if isinstance(outcome, RocketMQError):
            counters.failed += 1
        else:
            counters.sent += 1
        self._in_flight.leave(pending)
        pending.resolve(outcome)

    def _sent_with_hooks(
        self, context: SendContext, started: float, pending: PendingSend | None, outcome: Outcome
    ) -> None:
        if self._nursery is not None:
            self._nursery.start_soon(self._run_hooks, context, started, pending, outcome)

    async def _run_hooks(
        self, context: SendContext, started: float, pending: PendingSend | None, outcome: Outcome
    ) -> None:
        error = outcome if isinstance(outcome, RocketMQError) else None
        context.results = () if isinstance(outcome, RocketMQError) else (outcome,)
        await self.hooks.after_send(context, started, error)
        if pending is not None:
            self._resolve(pending, outcome)
