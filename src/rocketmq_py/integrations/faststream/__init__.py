"""A FastStream broker: handlers that are decorated functions, on RocketMQ.

::

    from faststream import FastStream
    from rocketmq_py.integrations.faststream import RocketMQBroker

    broker = RocketMQBroker("127.0.0.1:9876")
    app = FastStream(broker)

    @broker.subscriber("Orders", group="billing", tags="A || B", orderly=True)
    @broker.publisher("Bills")
    async def bill(order: Order) -> Bill: ...

Needs the extra ``faststream``. README.md in ``rocketmq_py/integrations`` has a guide and the limits.

FastStream has no public interface for brokers yet. These parts of it, of which the modules here are
subclasses, are private and change between its minor releases, so the extra admits 0.7 only:
``faststream._internal.broker`` (BrokerUsecase, Registrator, BrokerRouter), ``._internal.endpoint``
(SubscriberUsecase, PublisherUsecase, their specifications, ``process_msg``), ``._internal.configs``,
``._internal.producer``, ``._internal.parser``, ``._internal.logger``, ``._internal.testing.broker``,
``._internal.constants``, ``._internal.context`` and ``._internal.di``. The modules below
``faststream.specification.asyncapi`` and ``.schema``, and ``_parser``, ``_decoder`` and ``_serializer``, are
not documented either. Public are ``faststream.message``, ``.response``, ``.middlewares``, ``.exceptions``,
``.security``, ``.opentelemetry`` and ``.prometheus``.

Start reading in ``broker`` and ``subscriber``.
"""

from __future__ import annotations

try:
    import faststream as _faststream  # noqa: F401 - is it installed?
except ImportError:
    from rocketmq_py.errors import ConfigurationError

    raise ConfigurationError(
        "the FastStream broker needs an extra: install rocketmq-py[faststream]"
    ) from None

from rocketmq_py.integrations.faststream.broker import RocketMQBroker
from rocketmq_py.integrations.faststream.commands import RocketMQResponse
from rocketmq_py.integrations.faststream.messages import RocketMQMessage
from rocketmq_py.integrations.faststream.router import RocketMQPublisher, RocketMQRoute, RocketMQRouter
from rocketmq_py.integrations.faststream.specification import RocketMQAsyncAPI
from rocketmq_py.integrations.faststream.testing import TestRocketMQBroker

__all__ = [
    "RocketMQAsyncAPI",
    "RocketMQBroker",
    "RocketMQMessage",
    "RocketMQPublisher",
    "RocketMQResponse",
    "RocketMQRoute",
    "RocketMQRouter",
    "TestRocketMQBroker",
]
