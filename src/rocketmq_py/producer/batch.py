"""Lists of messages as the bodies of requests, and the answers to them. Java: ``MessageBatch``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import Self, overload

import attrs

from rocketmq_py.arguments import kind_of
from rocketmq_py.errors import InvalidMessageError, MessageTooLargeError
from rocketmq_py.message import Message, SendResult
from rocketmq_py.names import RETRY_PREFIX
from rocketmq_py.properties import MAX_ENCODED_SIZE
from rocketmq_py.protocol.batch import bare_size, encode_bare, encode_batched
from rocketmq_py.protocol.send_request import encode_message_properties

MAX_BATCHED_MESSAGES = 32_767
"""Brokers of 5.x count a batch's messages in 16 bits: after a longer one, their offsets go backwards."""
MAX_BATCHED_PROPERTIES = MAX_ENCODED_SIZE - 1024
"""Bytes of the properties of a message in a batch. Brokers of 4.x append the batch's own and their cluster's
name, and where that gets too long, they lose the message and others behind it."""

_is_bare, _topic_of, _body_of = map(attrgetter, ("is_bare", "topic", "body"))


@attrs.frozen(slots=False, eq=False)
class EncodedBatch:
    """Messages that go in one request.

    Attributes:
        messages: at least one, all of one topic and one ``wait_store_ok``.
        unique_ids: the id of each. Empty if they are only in the body.
        body: the request's body; never compressed, as brokers take it apart.
    """

    messages: tuple[Message, ...] = attrs.field(repr=False)
    unique_ids: tuple[str, ...] = attrs.field(repr=False)
    body: bytes = attrs.field(repr=False)

    @classmethod
    def of_body(cls, topic: str, count: int, body: bytes) -> Self:
        """Return a batch of messages that exist in encoded form only.

        Args:
            topic: the topic of all messages.
            count: the number of messages.
            body: the messages as :func:`encode_batched` encodes them, with properties such as UNIQ_KEY.
        """
        # The placeholder provides the topic, and is counted in the statistics.
        return cls((Message(topic, b"-"),) * count, (), body)

    @property
    def topic(self) -> str:
        """Where they go."""
        return self.messages[0].topic

    @property
    def wait_store_ok(self) -> bool:
        """Whether all of them wait, or none."""
        return self.messages[0].wait_store_ok


def must_go_alone(message: Message) -> bool:
    """Tell whether brokers take no batch with this message: delayed, with a priority, for a retry topic."""
    is_delayed = message.delay_level or message.delay or message.deliver_at_ms
    return bool(is_delayed or message.priority is not None or message.topic.startswith(RETRY_PREFIX))


def split_batch(
    messages: Sequence[Message], *, max_size: int, new_unique_ids: Callable[[int], list[str]]
) -> list[EncodedBatch]:
    """Return the messages in as few requests as their order allows.

    Args:
        messages: what to send; all of one topic.
        max_size: bytes of a request's body: all that is in it, as brokers count it (maxMessageSize).
        new_unique_ids: makes so many ids.

    Raises:
        InvalidMessageError: the list is empty, the topic is a retry topic, or a message does not go with the
            first, or is delayed. The text has its place in the list, from 0.
        MessageTooLargeError: one message is too large by itself, or its properties are.
    """
    if not messages:
        raise InvalidMessageError("the list of messages is empty")
    if {*map(type, messages)} != {Message}:
        _check_all(messages)
    unique_ids = new_unique_ids(len(messages))
    # What most lists are is encoded all at once: a step for each message would take three times as long.
    if all(map(_is_bare, messages)) and len({*map(_topic_of, messages)}) == 1:
        bodies = [*map(_body_of, messages)]
        if (
            bare_size(bodies, unique_ids) <= max_size
            and len(bodies) <= MAX_BATCHED_MESSAGES
            and not messages[0].topic.startswith(RETRY_PREFIX)
        ):
            return [EncodedBatch(tuple(messages), tuple(unique_ids), encode_bare(bodies, unique_ids))]
    encoded = _encode(messages, unique_ids, max_size)
    return [
        EncodedBatch(tuple(messages[start:end]), tuple(unique_ids[start:end]), b"".join(encoded[start:end]))
        for start, end in _parts(encoded, max_size)
    ]


def check_list(messages: object) -> None:
    """Raise InvalidMessageError unless it is a list, or another sequence, of anything but letters."""
    if isinstance(messages, Message):
        raise InvalidMessageError("messages is a list of Messages, not one Message; send sends that")
    if not isinstance(messages, Sequence) or isinstance(messages, str | bytes):
        raise InvalidMessageError(f"messages must be a list of Message, not {kind_of(messages)}")


def _check_all(messages: Sequence[Message]) -> None:
    for place, message in enumerate(messages):
        if not isinstance(message, Message):
            raise InvalidMessageError(
                f"message {place} of the list is no Message(topic, body) but {type(message).__name__}"
            )


def _encode(messages: Sequence[Message], unique_ids: Sequence[str], max_size: int) -> list[bytes]:
    first = messages[0]
    topic, wait_store_ok = first.topic, first.wait_store_ok
    if topic.startswith(RETRY_PREFIX):
        raise InvalidMessageError(f"{topic!r} is a retry topic; brokers take no batches for those")
    encoded = []
    try:
        for message, unique_id in zip(messages, unique_ids, strict=True):
            if message.topic != topic:
                raise InvalidMessageError(f"its topic is {message.topic!r}, that of the first is {topic!r}")
            if message.wait_store_ok is not wait_store_ok:
                raise InvalidMessageError(
                    f"its wait_store_ok is {message.wait_store_ok}, that of the first is {wait_store_ok}"
                )
            one = _encode_one(message, unique_id)
            if len(one) > max_size:
                raise MessageTooLargeError(
                    f"it takes {len(one)} bytes, with its properties; max_message_size is {max_size}"
                )
            encoded.append(one)
    except InvalidMessageError as error:
        raise type(error)(f"message {len(encoded)} of the list: {error}") from None
    return encoded


def _encode_one(message: Message, unique_id: str) -> bytes:
    if message.delay_level or message.delay or message.deliver_at_ms:
        raise InvalidMessageError("it is delayed; brokers deliver a batch at once")
    if message.priority is not None:
        raise InvalidMessageError("it has a priority; a batch goes to one queue")
    properties = encode_message_properties(message, unique_id).encode()
    if len(properties) > MAX_BATCHED_PROPERTIES:
        raise MessageTooLargeError(
            f"the properties, with tags and keys, take {len(properties)} bytes; in a batch at most "
            f"{MAX_BATCHED_PROPERTIES} are allowed"
        )
    return encode_batched(message.flag, message.body, properties)


def _parts(encoded: Sequence[bytes], max_size: int) -> Iterator[tuple[int, int]]:
    """Yield from where to where each part goes."""
    start = size = 0
    for index, one in enumerate(encoded):
        size += len(one)
        if size > max_size or index - start == MAX_BATCHED_MESSAGES:
            yield start, index
            start, size = index, len(one)
    yield start, len(encoded)


class BatchResults(Sequence[SendResult]):
    """Each message's own result, for that of the whole batch.

    They are made when they are looked at, which most never are: one costs as much as encoding its message.

    Args:
        result: what the broker answered to the batch; it has the ids of all messages, with commas between.
        unique_ids: the id of each message.
    """

    __slots__ = ("_offset_ids", "_result", "_unique_ids")

    def __init__(self, result: SendResult, unique_ids: Sequence[str]) -> None:
        self._result = result
        self._unique_ids = unique_ids
        self._offset_ids: Sequence[str] | None = None

    def __repr__(self) -> str:
        return repr(list(self))

    def __len__(self) -> int:
        return len(self._unique_ids)

    @overload
    def __getitem__(self, index: int) -> SendResult: ...

    @overload
    def __getitem__(self, index: slice) -> list[SendResult]: ...

    def __getitem__(self, index: int | slice) -> SendResult | list[SendResult]:
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(len(self)))]
        unique_id = self._unique_ids[index]
        place = index if index >= 0 else index + len(self)
        result = self._result
        return SendResult(
            result.status, unique_id, self._offset_id(place), result.queue, result.queue_offset + place
        )

    def _offset_id(self, place: int) -> str:
        offset_ids = self._offset_ids
        if offset_ids is None:
            offset_ids = self._offset_ids = self._result.offset_message_id.split(",")
        if len(offset_ids) != len(self._unique_ids):
            # A topic of the kind BatchCQ may keep a batch as one entry, which has one id.
            return self._result.offset_message_id
        return offset_ids[place]
