"""The moment at which a message is final, before it is measured or encoded.

Single messages, messages of lists and of automatic batches, requests, replies and half messages pass through
here once, after the relay and the hooks.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from rocketmq_py.errors import InvalidMessageError, MessageTooLargeError
from rocketmq_py.message import Message
from rocketmq_py.producer.destinations import Destination, destination_of, key_of_hash
from rocketmq_py.selectors import SelectByHash


def check_message(message: object) -> None:
    """Raise InvalidMessageError if ``message`` is not a Message."""
    if isinstance(message, Message):
        return
    hint = "; use send_batch for a list" if isinstance(message, list | tuple) else ""
    raise InvalidMessageError(f"message must be a Message, not {type(message).__name__}{hint}")


def final(message: Message, queue: Destination | None, max_size: int) -> tuple[Message, Destination | None]:
    """Return a message as brokers get it, and its destination.

    Args:
        message: the message.
        queue: the queue, or a selector. None for that of its lite topic or sharding key, or a free choice.
        max_size: the largest body in bytes.

    Raises:
        InvalidMessageError: it is not a Message, is too large, or has a lite topic and ``queue``.
    """
    if type(message) is not Message:
        check_message(message)
    if len(message.body) > max_size:
        raise MessageTooLargeError(f"the body has {len(message.body)} bytes; max_message_size is {max_size}")
    if not message._is_bare:
        queue = destination_of(message, queue)
    if type(queue) is SelectByHash:
        message = _with_key_of_hash(message, queue)
    return message, queue


def final_list(messages: Sequence[Message], queue: Destination | None) -> Sequence[Message]:
    """Return the messages of a list as brokers get them. :func:`split_batch` checks their types and sizes."""
    if type(queue) is not SelectByHash:
        return messages
    return [_with_key_of_hash(one, queue) if isinstance(one, Message) else one for one in messages]


def _with_key_of_hash(message: Message, queue: SelectByHash) -> Message:
    key = key_of_hash(queue, message)
    return message if key is None else attrs.evolve(message, sharding_key=key)
