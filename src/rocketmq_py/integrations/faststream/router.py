"""Routers: subscribers and publishers that a broker includes later."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from faststream._internal.broker.router import ArgsContainer, BrokerRouter, SubscriberRoute
from faststream._internal.constants import EMPTY

from rocketmq_py.integrations.faststream.config import RocketMQBrokerConfig
from rocketmq_py.integrations.faststream.messages import RawMessage
from rocketmq_py.integrations.faststream.registrator import RocketMQRegistrator

if TYPE_CHECKING:
    from fast_depends.dependencies import Dependant
    from faststream._internal.types import BrokerMiddleware, CustomCallable
    from faststream.middlewares import AckPolicy


class RocketMQPublisher(ArgsContainer):
    """A publisher of a RocketMQRoute.

    Args:
        topic: the topic.
        **options: the other arguments of ``broker.publisher``.
    """

    def __init__(self, topic: str, **options: Any) -> None:
        super().__init__(topic, **options)


class RocketMQRoute(SubscriberRoute):
    """A handler with its subscriber and its publishers, for the argument ``handlers`` of a RocketMQRouter.

    Args:
        call: the handler.
        *topics: the topics.
        publishers: the publishers of its results.
        **options: the other arguments of ``broker.subscriber``.
    """

    def __init__(
        self,
        call: Callable[..., Any],
        *topics: str,
        publishers: Iterable[RocketMQPublisher] = (),
        **options: Any,
    ) -> None:
        super().__init__(call, *topics, publishers=publishers, **options)


class RocketMQRouter(RocketMQRegistrator, BrokerRouter[RawMessage, Any]):
    """Subscribers and publishers, for ``broker.include_router``.

    Args:
        prefix: precedes the topics. Groups stay as they are.
        handlers: handlers with their subscribers.
        dependencies: FastStream's dependencies of all handlers.
        middlewares: the middlewares of all subscribers and publishers.
        routers: other routers to include.
        parser: the parser of messages.
        decoder: the decoder of bodies.
        include_in_schema: whether AsyncAPI documents have the subscribers and publishers.
        ack_policy: the acknowledgement policy of subscribers without one of their own.
    """

    def __init__(
        self,
        prefix: str = "",
        handlers: Iterable[RocketMQRoute] = (),
        *,
        dependencies: Sequence[Dependant] = (),
        middlewares: Sequence[BrokerMiddleware[Any, Any]] = (),
        routers: Iterable[RocketMQRegistrator] = (),
        parser: CustomCallable | None = None,
        decoder: CustomCallable | None = None,
        include_in_schema: bool | None = None,
        ack_policy: AckPolicy = EMPTY,
    ) -> None:
        super().__init__(
            handlers=handlers,
            routers=routers,
            config=RocketMQBrokerConfig(
                prefix=prefix,
                broker_dependencies=dependencies,
                broker_middlewares=middlewares,
                broker_parser=parser,
                broker_decoder=decoder,
                include_in_schema=include_in_schema,
                ack_policy=ack_policy,
            ),
        )
