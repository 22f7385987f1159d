"""The errors of administrative requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rocketmq_py.errors import RocketMQError


class AlreadyExistsError(RocketMQError):
    """The topic, group, user or rule to create exists already.

    Attributes:
        kind: ``topic``, ``group``, ``user`` or ``rule``.
        name: its name. That of a rule has the user and the resource.
        brokers: the names of the brokers that have it.
        differences: with ``if_not_exists``, the settings that differ, in words, such as ``orderly is true,
            not false``. Empty without ``if_not_exists``.
    """

    def __init__(self, kind: str, name: str, brokers: Sequence[str], differences: Sequence[str] = ()) -> None:
        others = f" with other settings: {', '.join(differences)}" if differences else ""
        super().__init__(f"{kind} {name!r} exists already on {', '.join(brokers)}{others}")
        self.kind = kind
        self.name = name
        self.brokers: tuple[str, ...] = tuple(brokers)
        self.differences: tuple[str, ...] = tuple(differences)


class GroupNotFoundError(RocketMQError):
    """None of the asked brokers knows the group.

    A managed service may not say which groups exist. Then it has no members and no offsets in ``topics``.
    """

    def __init__(self, group: str, asked: str, namespace: str = "", topics: Sequence[str] = ()) -> None:
        where = f" in namespace {namespace!r}" if namespace else ""
        state = f"has no members, and no offsets in {', '.join(topics)}" if topics else "does not exist"
        super().__init__(f"group {group!r} {state}{where} (asked {asked})")
        self.group = group


class AccessNotFoundError(RocketMQError):
    """None of the asked brokers has the user, or a rule of the user to delete.

    Attributes:
        kind: ``user`` or ``rule``.
        name: its name. That of a rule has the user and the resource.
    """

    def __init__(self, kind: str, name: str, asked: Sequence[str]) -> None:
        super().__init__(f"{kind} {name!r} does not exist (asked {', '.join(asked)})")
        self.kind = kind
        self.name = name


class SomeBrokersFailedError(RocketMQError):
    """A request to several brokers or name servers failed on some of them, or on all.

    Attributes:
        done: the names or addresses of those on which it succeeded.
        answers: the answers of those, by name or address.
        failures: the errors of the others, by name or address.
    """

    def __init__(
        self, action: str, answers: Mapping[str, Any], failures: Mapping[str, RocketMQError]
    ) -> None:
        self.done: tuple[str, ...] = tuple(answers)
        reasons = "; ".join(f"{name}: {error}" for name, error in failures.items())
        others = f"; it is done on {', '.join(answers)}" if answers else ""
        total = len(failures) + len(answers)
        super().__init__(f"{action} failed on {len(failures)} of {total}: {reasons}{others}")
        self.answers: dict[str, Any] = dict(answers)
        self.failures: dict[str, RocketMQError] = dict(failures)
