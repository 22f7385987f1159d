"""The settings of a producer of transactions."""

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
            f"{attribute.name} is {value!r}; TransactionState.UNKNOWN and ROLLBACK are allowed"
        )


@attrs.frozen(kw_only=True)
class TransactionConfig:
    """How a producer treats transactions. Java: ``TransactionMQProducer``, whose names stand in brackets.

    Args:
        on_error: what the broker is told when local work raises: UNKNOWN, so that it asks ``check``, or
            ROLLBACK, where an exception means for certain that nothing was done. COMMIT is refused.
        topics: what transactions are sent to: the brokers of these topics hear of this producer when it is
            opened, so that it answers their questions before it has sent anything (topics). The default is
            the brokers that create topics by themselves.
        check_concurrency: how many calls of ``check`` may run at the same time (checkThreadPoolMaxSize,
            which is 1 in Java: there, one call that does not end stops all of them).
    """

    on_error: TransactionState = attrs.field(
        default=TransactionState.UNKNOWN, converter=_on_error, validator=_never_commit
    )
    topics: tuple[str, ...] = attrs.field(default=(DEFAULT_TOPIC,), converter=_topics)
    check_concurrency: int = attrs.field(default=8, validator=positive)


class TransactionOptions(ProducerOptions, total=False):
    """The fields of TransactionConfig, of ProducerConfig but ``group``, and of ClientConfig, as keywords."""

    on_error: TransactionState | str
    topics: str | Iterable[str]
    check_concurrency: int
