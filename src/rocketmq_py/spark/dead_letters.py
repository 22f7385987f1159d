"""Dead letters: messages in a topic of their own that take the place of rows that no broker would store."""

from __future__ import annotations

from collections.abc import Mapping

import attrs
import pyarrow as pa

from rocketmq_py.errors import InvalidMessageError
from rocketmq_py.message import Message
from rocketmq_py.protocol.sends import encode_message_properties
from rocketmq_py.spark.rows import MessageBuilder, RowError, bodies_of

REASON = "SPARK_ERROR"
"""The property with the reason for the refusal. It names the row with its topic, keys and rowId."""
BODY_SIZE = "SPARK_BODY_SIZE"
"""The property with the size of the row's body in bytes. The dead letter of a long body has its beginning."""
NO_BODY = b"-"
"""The body of the dead letter of a row without a body, because brokers refuse an empty one."""
_MAX_REASON = 1000
_KEPT_COLUMNS = (("tags", "keys", "properties", "flag", "rowId"), ("rowId",), ())
"""The columns that a dead letter takes over from its row: the first of these that are valid."""
_UNIQUE_ID = "0" * 64


@attrs.frozen
class DeadLetters:
    """Makes dead letters.

    A dead letter has the row's body, tags, keys, properties, flag and stamp, and the properties REASON and
    BODY_SIZE. If they are invalid or too long together, all but the body and the stamp are left out.

    Args:
        builder: builds messages for the topic of dead letters.
        max_body_bytes: longer bodies are cut to this size.
    """

    builder: MessageBuilder
    max_body_bytes: int

    def message(self, columns: Mapping[str, pa.Array], index: int, row: int, reason: str) -> Message:
        """Return the dead letter of a row.

        Args:
            columns: the sink's columns, by name.
            index: the row's index in the columns.
            row: the row's number in its partition.
            reason: why the row was refused.
        """
        (body,) = bodies_of(columns["body"].slice(index, 1))
        own = {REASON: _printable(reason)[:_MAX_REASON], BODY_SIZE: str(len(body or b""))}
        cut = pa.array([(body or NO_BODY)[: self.max_body_bytes]], pa.binary())
        for names in _KEPT_COLUMNS:
            kept = {name: columns[name].slice(index, 1) for name in names if name in columns}
            try:
                (built,) = self.builder.build({**kept, "body": cut}, [row]).messages
                message = Message(
                    built.topic,
                    built.body,
                    built.tags,
                    built.keys,
                    {**built.properties, **own},
                    flag=built.flag,
                )
                encode_message_properties(message, _UNIQUE_ID)  # raises if the properties are too long
            except (InvalidMessageError, RowError):
                continue
            return message
        raise AssertionError("a message without columns is valid")


def _printable(text: str) -> str:
    """Return a text without characters that properties cannot contain."""
    return text.translate({1: " ", 2: " "})
