"""A kombu channel: declares, publishes and consumes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from queue import Empty
from typing import TYPE_CHECKING, Any, Final

from kombu.exceptions import ChannelError
from kombu.transport import virtual
from kombu.transport.base import to_rabbitmq_queue_arguments

from rocketmq_py.errors import RocketMQError
from rocketmq_py.integrations.kombu.deliveries import MAX_RECEIVED, Delivery
from rocketmq_py.integrations.kombu.poller import Poller
from rocketmq_py.library_logger import LibraryLogger

if TYPE_CHECKING:
    from rocketmq_py.integrations.kombu.transport import Transport

GET_SECONDS: Final = 0.2
"""How long ``basic_get`` waits for a message."""
BASIC_PUBLISH: Final = (60, 40)
"""The id of AMQP's method."""
NOT_FOUND: Final = "404"
"""AMQP's reply code."""

logger: Final = LibraryLogger("rocketmq_py.integrations.kombu")


class QoS(virtual.QoS):
    """Unacknowledged messages of a channel, and how many it may have."""

    channel: Channel

    def ack(self, delivery_tag: str) -> None:
        """Acknowledge a message. Raises as ``PopConsumer.ack`` does; the message then comes again."""
        self._settle(delivery_tag, requeue=False)

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """Requeue a message, or drop it as AMQP does without a dead-letter exchange."""
        self._settle(delivery_tag, requeue=requeue)

    def restore_unacked(self) -> list[Any]:
        """Requeue all unacknowledged messages."""
        errors: list[Any] = super().restore_unacked()
        self.channel.wake()
        return errors

    def _settle(self, delivery_tag: str, *, requeue: bool) -> None:
        try:
            self.channel.settle(delivery_tag, requeue=requeue)
        finally:
            super().ack(delivery_tag)
            self.channel.wake()  # the channel may have another message now


class Channel(virtual.Channel):
    """A channel of a connection to RocketMQ. Made by the connection.

    A queue is *private* if it was declared ``auto_delete`` or ``exclusive``. It is an inbox of this process,
    which ExchangeListeners fill. Any other queue is *shared*: a topic with a consumer group.
    """

    QoS = QoS
    supports_fanout = True
    connection: Transport
    closed: bool

    def __init__(self, connection: Transport, **kwargs: Any) -> None:
        super().__init__(connection, **kwargs)
        self._unsettled: dict[str, Delivery] = {}
        self._no_ack: set[str] = set()
        self._is_delivering = False  # True while a message is neither in an inbox nor counted by the QoS
        self._poller: Poller | None = None
        self._qos = self.QoS(self)  # now and not on first use: the poller's thread uses it, too

    # Declaring

    def prepare_queue_arguments(self, arguments: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Return AMQP's arguments of a queue, such as ``x-max-priority``."""
        prepared: dict[str, Any] = to_rabbitmq_queue_arguments(arguments, **kwargs)
        return prepared

    def _new_queue(
        self,
        queue: str,
        auto_delete: bool = False,
        exclusive: bool = False,
        arguments: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        if auto_delete or exclusive:
            self.connection.private_queues.add(queue)
        else:
            self.connection.cluster.declare_queue(queue, (arguments or {}).get("x-max-priority"))

    def _has_queue(self, queue: str, **kwargs: Any) -> bool:
        transport = self.connection
        return queue in transport.private_queues or transport.cluster.has_queue(queue)

    def _queue_bind(self, exchange: str, routing_key: str, pattern: str | None, queue: str) -> None:
        transport = self.connection
        # A message of a fanout exchange goes to every process, unacknowledged, also for a shared queue.
        if queue in transport.private_queues or self.typeof(exchange).type == "fanout":
            transport.listen(queue, exchange, self._binding_test(queue, exchange))

    def _binding_test(self, queue: str, exchange: str) -> Callable[[str], bool]:
        """Return a predicate of routing keys: whether the queue is bound to the exchange with that key."""
        kind, state = self.typeof(exchange), self.state

        def is_bound(routing_key: str) -> bool:
            table = state.exchanges.get(exchange, {}).get("table", ())
            return queue in kind.lookup(table, exchange, routing_key, None)

        return is_bound

    def exchange_delete(self, exchange: str, if_unused: bool = False, nowait: bool = False) -> None:
        """Delete an exchange and its bindings. ``if_unused`` is ignored.

        As in AMQP, the queues stay. kombu's own method deletes them.
        """
        for queue, bound_to, routing_key in list(self.state.bindings):
            if bound_to == exchange:
                self.state.binding_delete(queue, exchange, routing_key)
        self.state.exchanges.pop(exchange, None)
        self.connection.stop_listening(exchange)

    def queue_delete(
        self, queue: str, if_unused: bool = False, if_empty: bool = False, **kwargs: Any
    ) -> None:
        """Delete a queue with its topic and group, and its bindings.

        ``if_unused`` is ignored, as consumers in other processes are not known here.
        """
        if if_empty and self._size(queue):
            return
        self._delete(queue)
        for exchange, _, _ in self.state.queue_bindings(queue):
            table = self.state.exchanges.get(exchange, {}).get("table", [])
            table[:] = [binding for binding in table if binding[2] != queue]
        self.state.queue_bindings_delete(queue)

    def _delete(self, queue: str, *args: Any, **kwargs: Any) -> None:
        transport = self.connection
        was_private = queue in transport.private_queues
        for channel in transport.channels:
            channel.stop_polling(queue)
        transport.forget(queue)
        if not was_private:
            transport.cluster.delete_queue(queue)

    def after_reply_message_received(self, queue: str) -> None:
        """Keep a reply queue until the connection is closed: kombu uses it again and does not declare it."""

    def _size(self, queue: str) -> int:
        transport = self.connection
        if queue in transport.private_queues:
            return len(transport.inbox(queue))
        return transport.cluster.backlog(queue)

    def _purge(self, queue: str) -> int:
        transport = self.connection
        with transport.activity:
            inbox = transport.inbox(queue)
            dropped = list(inbox)
            inbox.clear()
        transport.wake()
        for delivery in dropped:
            delivery.acknowledge()
        if queue in transport.private_queues:
            return len(dropped)
        return len(dropped) + transport.shared_queue(queue).purge()

    # Publishing

    def basic_publish(self, message: dict[str, Any], exchange: str, routing_key: str, **kwargs: Any) -> None:
        """Store a message in the queues that this connection has bound, or send it to current listeners.

        Raises:
            ChannelError: the exchange is not declared, or no queue is bound to a durable direct exchange with
                the routing key, so that the message would be lost.
            RocketMQError: as ``Producer.send`` does.
        """
        self._inplace_augment_message(message, exchange, routing_key)
        cluster, private = self.connection.cluster, self.connection.private_queues
        if not exchange:  # the default exchange, where a routing key is the name of a queue
            if routing_key not in private and cluster.has_queue(routing_key):
                self._put(routing_key, message)
            else:  # the queue may be private to another process
                cluster.publish("", message, routing_key)
            return
        declared = self.state.exchanges.get(exchange)
        if declared is None:
            raise ChannelError(
                f"no exchange {exchange!r}: declare it", BASIC_PUBLISH, "basic_publish", NOT_FOUND
            )
        kind = self.typeof(exchange)
        bound = kind.lookup(declared["table"], exchange, routing_key, None)
        if not bound and kind.type == "direct" and declared["durable"]:
            raise ChannelError(
                f"this connection knows no queue that is bound to exchange {exchange!r} with routing key "
                f"{routing_key!r}: declare the queue before publishing, with declare=[queue]",
                BASIC_PUBLISH, "basic_publish", NOT_FOUND,
            )  # fmt: skip
        if kind.type == "fanout":
            cluster.publish(exchange, message, routing_key)
            return
        for queue in bound:
            if queue not in private:
                self._put(queue, message)
        has_private = any(queue in private for queue in bound)
        if has_private or not bound:  # listeners put it into private queues, here or in other processes
            cluster.publish(exchange, message, routing_key)

    def _put(self, queue: str, message: dict[str, Any], **kwargs: Any) -> None:
        self.connection.cluster.send(queue, message)

    # Consuming

    def basic_consume(
        self, queue: str, no_ack: bool, callback: Any, consumer_tag: str, **kwargs: Any
    ) -> None:
        """Consume a queue: its messages are delivered by ``drain_events`` or the event loop."""
        super().basic_consume(queue, no_ack, callback, consumer_tag, **kwargs)
        if no_ack:
            self._no_ack.add(queue)
        transport = self.connection
        transport.start_listening(queue)
        if queue not in transport.private_queues:
            if self._poller is None:
                self._poller = Poller(transport, self)
            self._poller.add(transport.shared_queue(queue), transport.inbox(queue))

    def basic_cancel(self, consumer_tag: str) -> None:
        """Stop consuming. Messages that were received and not delivered yet are requeued."""
        queue = self._tag_to_queue.get(consumer_tag)
        super().basic_cancel(consumer_tag)
        if queue is not None and queue not in self._active_queues:
            self._no_ack.discard(queue)
            self.stop_polling(queue)

    def is_polling(self, queue: str) -> bool:
        """Return whether messages of a queue are received in the background."""
        return self._poller is not None and queue in self._active_queues

    def stop_polling(self, queue: str) -> None:
        """Stop receiving messages of a queue. Those that were not delivered yet are requeued."""
        if self._poller is not None:
            self._poller.remove(queue)

    def basic_get(self, queue: str, no_ack: bool = False, **kwargs: Any) -> Any:
        """Return a message, or None if none came."""
        try:
            delivery = self._next_delivery(queue)
        except Empty:
            return None
        message = self.Message(delivery.payload, channel=self)
        if no_ack:
            delivery.acknowledge()
        else:
            self._unsettled[message.delivery_tag] = delivery
            self.qos.append(message, message.delivery_tag)
        self.wake()
        return message

    def _next_delivery(self, queue: str) -> Delivery:
        transport = self.connection
        transport.start_listening(queue)
        is_received_in_background = queue in transport.private_queues or any(
            channel.is_polling(queue) for channel in transport.channels
        )
        with transport.activity:
            inbox = transport.inbox(queue)
            if is_received_in_background:
                transport.activity.wait_for(lambda: bool(inbox), GET_SECONDS)
            if inbox:
                return inbox.popleft()
        deliveries = (
            [] if is_received_in_background else transport.shared_queue(queue).receive(1, GET_SECONDS)
        )
        if not deliveries:
            raise Empty
        return deliveries[0]

    def basic_qos(self, prefetch_size: int = 0, prefetch_count: int = 0, apply_global: bool = False) -> None:
        """Set how many unacknowledged messages the channel may have. 0 is no limit."""
        super().basic_qos(prefetch_size, prefetch_count, apply_global)
        self.connection.wake()

    def free_space(self) -> int:
        """Return how many messages may be received now (the transport's ``activity`` is held)."""
        if self.closed or self.connection is None:
            return 0
        waiting = sum(len(self.connection.inbox(queue)) for queue in set(self._active_queues))
        allowed = self.qos.can_consume_max_estimate()
        return (MAX_RECEIVED if allowed is None else allowed) - waiting - self._is_delivering

    def take(self) -> tuple[str, Delivery] | None:
        """Remove and return a message that may be delivered now (the transport's ``activity`` is held)."""
        if self.closed:
            return None
        for _ in range(len(self._active_queues)):
            self._active_queues.append(queue := self._active_queues.pop(0))  # in turn
            inbox: deque[Delivery] = self.connection.inbox(queue)
            if inbox and (queue in self._no_ack or self.qos.can_consume()):
                self._is_delivering = True
                return queue, inbox.popleft()
        return None

    def deliver(self, queue: str, delivery: Delivery) -> None:
        """Call the consumer of a queue with a message that :meth:`take` returned."""
        try:
            if queue in self._no_ack:
                delivery.acknowledge()
            else:
                self._unsettled[delivery.payload["properties"]["delivery_tag"]] = delivery
            self.connection.deliver(queue, delivery.payload)
        finally:
            self._is_delivering = False
            self.wake()

    # Settling

    def settle(self, delivery_tag: str, *, requeue: bool) -> None:
        """Acknowledge or requeue a message. Nothing happens if that was done before."""
        delivery = self._unsettled.pop(delivery_tag, None)
        if delivery is not None:
            (delivery.requeue if requeue else delivery.acknowledge)()

    def wake(self) -> None:
        """Make the transport look for work, unless the channel is closed."""
        if self.connection is not None:
            self.connection.wake()

    def _restore(self, message: virtual.Message) -> None:
        """Requeue a message, for ``close`` and ``basic_recover``. If that fails, it comes again later."""
        try:
            self.settle(message.delivery_tag, requeue=True)
        except RocketMQError as error:
            logger.warning(
                "could not requeue an unacknowledged message: %s; it and others come again after the "
                "visibility timeout", error,
            )  # fmt: skip
            self._unsettled.clear()  # each of the others would wait for a timeout, too

    def close(self) -> None:
        """Cancel consumers, and requeue messages that are not acknowledged.

        In a forked child nothing is sent: the channel is the parent's.
        """
        if self.closed:
            return
        if not self.connection.is_of_this_process:
            self.closed = True
            return
        poller = self._poller
        super().close()
        if poller is not None:
            poller.stop()
