"""The names of files that ``tail --to`` writes to."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rocketmq_py.message import ReceivedMessage

_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_VALUES: dict[str, Callable[[ReceivedMessage], str]] = {
    "topic": lambda message: message.topic,
    "broker": lambda message: message.broker_name,
    "queue": lambda message: str(message.queue_id),
    "tag": lambda message: message.tags,
    "key": lambda message: message.keys[0] if message.keys else "",
}


def compile_name(text: str) -> Callable[[ReceivedMessage], str]:
    """Return what says which file a message goes to. Raises ValueError for a placeholder that is none."""
    if not text.strip():
        raise ValueError("it is empty: is a variable of the shell not set?")
    for name in _PLACEHOLDER.findall(text):
        if name not in _VALUES:
            known = " ".join(f"{{{known}}}" for known in _VALUES)
            raise ValueError(f"a name of a file knows no {{{name}}}; it knows {known}")

    def name_of(message: ReceivedMessage) -> str:
        return _PLACEHOLDER.sub(lambda found: in_a_name(_VALUES[found[1]](message)), text)

    return name_of


def in_a_name(value: str) -> str:
    """Return a message's attribute as a part of a file's name: it cannot lead to another folder."""
    value = value.replace("/", "_").replace("\0", "_")
    return value if value.strip(".") else "_" * (len(value) or 1)
