"""The decorators that brokers and routers share: ``subscriber`` and ``publisher``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Unpack, cast, overload

import attrs
from faststream._internal.broker.registrator import Registrator
from faststream._internal.constants import EMPTY
from faststream._internal.endpoint.subscriber.call_item import CallsCollection
from faststream.exceptions import SetupError

from rocketmq_py.arguments import Duration, check_integer
from rocketmq_py.client.settings import split_options
from rocketmq_py.consumer.settings import PushConsumerSettings
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.integrations.faststream.commands import SendOptions
from rocketmq_py.integrations.faststream.messages import RawMessage
from rocketmq_py.integrations.faststream.publisher import (
    BatchPublisher,
    DefaultPublisher,
    PublisherConfig,
    PublisherOptions,
    RocketMQPublisherSpecification,
    RocketMQPublisherSpecificationConfig,
)
from rocketmq_py.integrations.faststream.subscriber import (
    RocketMQSubscriber,
    RocketMQSubscriberSpecification,
    RocketMQSubscriberSpecificationConfig,
    SubscriberConfig,
    Subscription,
)
from rocketmq_py.message import Message
from rocketmq_py.names import check_topic
from rocketmq_py.position import Position
from rocketmq_py.protocol.subscription import ALL

if TYPE_CHECKING:
    from fast_depends.dependencies import Dependant
    from faststream._internal.parser import CodecProto
    from faststream._internal.types import BrokerMiddleware, CustomCallable
    from faststream.middlewares import AckPolicy

DEFAULT_MAX_RECORDS = 32
"""The default size of batches: the number of messages that brokers return at once."""
_ARGUMENT_OF_OPTION: Mapping[str, str] = {
    "group": "group",
    "orderly": "orderly",
    "broadcasting": "broadcasting",
    "concurrency": "max_workers",
    "consume_from": "consume_from",
    "max_reconsume_times": "max_reconsume_times",
    "batch_size": "batch and max_records",
}
"""Settings of PushConsumer that ``subscriber`` has arguments for, and these arguments."""


class RocketMQRegistrator(Registrator[RawMessage, Any]):
    """Registers subscribers and publishers. The base class of RocketMQBroker and RocketMQRouter."""

    def subscriber(  # type: ignore[override]
        self,
        *topics: str,
        group: str,
        tags: str = ALL,
        sql: str | None = None,
        orderly: bool = False,
        broadcasting: bool = False,
        batch: bool = False,
        max_records: int = DEFAULT_MAX_RECORDS,
        max_workers: int = 1,
        consume_from: Position | str = Position.latest,
        max_reconsume_times: int | None = None,
        consumer_options: Mapping[str, Any] | None = None,
        ack_policy: AckPolicy = EMPTY,
        no_reply: bool = False,
        dependencies: Sequence[Dependant] = (),
        parser: CustomCallable | None = None,
        decoder: CustomCallable | None = None,
        codec: CodecProto | None = None,
        persistent: bool = True,
        title: str | None = None,
        description: str | None = None,
        include_in_schema: bool = True,
    ) -> RocketMQSubscriber:
        """Subscribe a handler to topics, as a member of a consumer group.

        Args:
            *topics: the topics.
            group: the consumer group. No other subscriber of the broker may have the same one.
            tags: tags separated by ``||``, or ``*`` for all messages.
            sql: a SQL filter on headers, instead of tags.
            orderly: process the messages of each queue in order. A failed one is retried in place.
            broadcasting: every member of the group receives every message. Failed ones are not retried.
            batch: the handler receives a list of messages.
            max_records: the maximum size of a batch.
            max_workers: the maximum number of calls of the handler at a time.
            consume_from: where a new group starts: "earliest", "latest", or Position.time(...).
            max_reconsume_times: redeliveries before a message becomes a dead letter. None for 16 or, with
                ``orderly``, without limit.
            consumer_options: the settings of a PushConsumer for which there is no argument here.
            ack_policy: the acknowledgement policy. By default an exception has the message delivered again.
            no_reply: send no replies to requests.
            dependencies: FastStream's dependencies of the handler.
            parser: a parser of messages.
            decoder: a decoder of bodies.
            codec: a codec of bodies, instead of the decoder.
            persistent: whether the broker keeps the subscriber alive. If False, the caller has to.
            title: the name in AsyncAPI documents.
            description: the description in AsyncAPI documents.
            include_in_schema: whether AsyncAPI documents have it.

        Raises:
            ConfigurationError: a topic, the group, the filter or an option is not valid.
            SetupError: there is no topic.
        """
        if not topics:
            raise SetupError("a subscriber needs at least one topic")
        options = dict(consumer_options or {})
        for name in options.keys() & _ARGUMENT_OF_OPTION.keys():
            raise ConfigurationError(
                f"consumer_options has {name!r}; pass it as the argument {_ARGUMENT_OF_OPTION[name]} instead"
            )
        options |= {
            "orderly": orderly,
            "broadcasting": broadcasting,
            "concurrency": max_workers,
            "consume_from": consume_from,
            "max_reconsume_times": max_reconsume_times,
        }
        if batch:
            options["batch_size"] = check_integer(max_records, "max_records", lowest=1)
        PushConsumerSettings(**split_options(options, PushConsumerSettings, group=group)[0])
        subscription = Subscription(
            topics=topics,
            group=group,
            tags=tags,
            sql=sql,
            orderly=orderly,
            broadcasting=broadcasting,
            batch=batch,
            consume_from=consume_from,
        )
        for topic in topics:
            subscription.filter(topic)  # checks the topic and the filter
        calls = CallsCollection[RawMessage]()
        config: Any = self.config  # a composition of the settings of this router and of those around it
        subscriber = RocketMQSubscriber(
            SubscriberConfig(
                _outer_config=config,
                _ack_policy=ack_policy,
                no_reply=no_reply,
                subscription=subscription,
                consumer_options=options,
            ),
            RocketMQSubscriberSpecification(
                config,
                RocketMQSubscriberSpecificationConfig(
                    subscription=subscription,
                    title_=title,
                    description_=description,
                    include_in_schema=include_in_schema,
                ),
                calls,
            ),
            calls,
        )
        super().subscriber(subscriber, persistent=persistent)
        return subscriber.add_call(
            parser_=parser or self._parser,
            decoder_=decoder or self._decoder,
            codec_=codec,
            dependencies_=dependencies,
        )

    @overload  # type: ignore[override]
    def publisher(
        self, topic: str, *, batch: Literal[True], **options: Unpack[PublisherOptions]
    ) -> BatchPublisher: ...
    @overload
    def publisher(
        self, topic: str, *, batch: Literal[False] = False, **options: Unpack[PublisherOptions]
    ) -> DefaultPublisher: ...

    def publisher(
        self,
        topic: str,
        *,
        batch: bool = False,
        tags: str = "",
        keys: str | Iterable[str] = (),
        sharding_key: str = "",
        delay: Duration = 0.0,
        priority: int | None = None,
        headers: Mapping[str, Any] | None = None,
        reply_to: str = "",
        persistent: bool = True,
        title: str | None = None,
        description: str | None = None,
        schema: Any | None = None,
        include_in_schema: bool = True,
    ) -> DefaultPublisher:
        """Return a publisher. As a decorator it publishes a handler's results. It also has ``publish``.

        Args:
            topic: the topic.
            batch: each result is a list, whose items are sent as a batch, without delay or priority.
            tags: the tag of the messages.
            keys: their business keys. A str is split at blanks.
            sharding_key: their sharding key.
            delay: seconds until they are delivered.
            priority: their priority.
            headers: their own properties.
            reply_to: the topic for replies.
            persistent: whether the broker keeps the publisher alive. If False, the caller has to.
            title: the name in AsyncAPI documents.
            description: the description in AsyncAPI documents.
            schema: the type of the messages in AsyncAPI documents.
            include_in_schema: whether AsyncAPI documents have it.

        Raises:
            ConfigurationError: the topic is not valid, or a batch has a delay or a priority.
            InvalidMessageError: another option is not valid.
        """
        check_topic(topic)
        if batch and (delay or priority is not None):
            raise ConfigurationError(
                f"the publisher of {topic} has batch=True and a delay or priority, which batches cannot have"
            )
        options = SendOptions(tags=tags, keys=keys, sharding_key=sharding_key, delay=delay, priority=priority)
        Message(topic, b"-", **attrs.asdict(options))  # checks the options
        config: Any = self.config
        kind = BatchPublisher if batch else DefaultPublisher
        publisher = kind(
            PublisherConfig(
                _outer_config=config,
                topic=topic,
                options=options,
                headers=dict(headers or {}),
                reply_to=reply_to,
            ),
            RocketMQPublisherSpecification(
                config,
                RocketMQPublisherSpecificationConfig(
                    topic=topic,
                    options=options,
                    title_=title,
                    description_=description,
                    schema_=schema,
                    include_in_schema=include_in_schema,
                ),
            ),
        )
        super().publisher(publisher, persistent=persistent)
        return publisher

    def include_router(
        self,
        router: Registrator[RawMessage, Any],
        *,
        prefix: str = "",
        dependencies: Sequence[Dependant] = (),
        middlewares: Sequence[BrokerMiddleware[Any, Any]] = (),
        include_in_schema: bool | None = None,
    ) -> None:
        """Add the subscribers and publishers of a router, whose topics get the prefix.

        Raises:
            SetupError: the router is not a RocketMQRouter.
        """
        if not isinstance(router, RocketMQRegistrator):
            raise SetupError(f"a router must be a RocketMQRouter, not {type(router).__name__}")
        super().include_router(
            router,
            prefix=prefix,
            dependencies=dependencies,
            middlewares=cast("Sequence[BrokerMiddleware[Any]]", middlewares),
            include_in_schema=include_in_schema,
        )
