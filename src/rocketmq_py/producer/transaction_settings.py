"""Settings of transaction producers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import attrs

from rocketmq_py.arguments import check_choice, check_texts
from rocketmq_py.client.settings import ClientOptions
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.names import DEFAULT_TOPIC, check_group, check_topic
from rocketmq_py.producer.settings import ProducerFactoryOptions, ProducerSettings
from rocketmq_py.producer.transaction_values import TransactionState


def _topics(value: str | Iterable[str]) -> tuple[str, ...]:
    topics = (value,) if isinstance(value, str) else check_texts(value, "topics")
    return tuple([check_topic(topic, "topics") for topic in topics])


def _on_error(value: TransactionState | str) -> TransactionState:
    return check_choice(value, "on_error", TransactionState)


def _never_commit(_: object, attribute: attrs.Attribute[Any], value: object) -> None:
    if value not in (TransactionState.UNKNOWN, TransactionState.ROLLBACK):
        raise ConfigurationError(
            f"{attribute.name} is {value!r}; it must be TransactionState.UNKNOWN or ROLLBACK"
        )


@attrs.frozen(kw_only=True)
class TransactionSettings(ProducerSettings):
    """The settings of a transaction producer, in addition to those of a producer.

    The names of Java's ``TransactionMQProducer`` are in brackets.

    Args:
        group: the producer group, which brokers check back with (producerGroup).
        on_error: the outcome to report when local work raises. UNKNOWN: the broker will call ``check``.
            ROLLBACK: for work that has had no effect if it raises. COMMIT is not allowed.
        topics: topics that transactions are sent to (topics). The producer sends heartbeats to their brokers
            when it is opened, and answers their checks before it has sent anything. The default stands for
            the brokers that create topics automatically. Managed services have none: name the topics there.
    """

    group: str = attrs.field(converter=check_group)
    on_error: TransactionState = attrs.field(
        default=TransactionState.UNKNOWN, converter=_on_error, validator=_never_commit
    )
    topics: tuple[str, ...] = attrs.field(default=(DEFAULT_TOPIC,), converter=_topics)


class TransactionFactoryOptions(ProducerFactoryOptions, total=False):
    """Settings of a TransactionProducer that shares a client. Made by ``make apis``.

    Defaults: on_error=TransactionState.UNKNOWN, topics=('TBW102',).
    """

    on_error: TransactionState | str
    topics: str | Iterable[str]


class TransactionOptions(TransactionFactoryOptions, ClientOptions, total=False):
    """Settings of a TransactionProducer, with those of ClientOptions. Made by ``make apis``."""
