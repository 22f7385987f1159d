"""Settings of transaction producers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import attrs

from rocketmq_py.arguments import check_choice, check_texts, positive
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.names import DEFAULT_TOPIC, check_topic
from rocketmq_py.producer.config import ProducerOptions
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
class TransactionConfig:
    """The settings of transactions. The names of Java's ``TransactionMQProducer`` are in brackets.

    Args:
        on_error: the outcome to report when local work raises. UNKNOWN: the broker will call ``check``.
            ROLLBACK: for work that has had no effect if it raises. COMMIT is not allowed.
        topics: topics that transactions are sent to (topics). The producer sends heartbeats to their brokers
            when it is opened, and answers their checks before it has sent anything. The default stands for
            the brokers that create topics automatically.
        check_concurrency: the largest number of concurrent calls of ``check`` (checkThreadPoolMaxSize).
            Java's default is 1, with which one hanging call blocks all others.
    """

    on_error: TransactionState = attrs.field(
        default=TransactionState.UNKNOWN, converter=_on_error, validator=_never_commit
    )
    topics: tuple[str, ...] = attrs.field(default=(DEFAULT_TOPIC,), converter=_topics)
    check_concurrency: int = attrs.field(default=8, validator=positive)


class TransactionOptions(ProducerOptions, total=False):
    """The fields of TransactionConfig, of ProducerConfig except ``group``, and of ClientConfig."""

    on_error: TransactionState | str
    topics: str | Iterable[str]
    check_concurrency: int
