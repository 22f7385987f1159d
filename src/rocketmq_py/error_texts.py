"""How values read in error messages: peers' texts, durations, queues."""

from __future__ import annotations

import shlex
import traceback

from rocketmq_py.queues import MessageQueue

_MAX_REMARK_LENGTH = 500
"""Characters of a peer's remark. It may have megabytes, and its error may be logged repeatedly."""
_MAX_INPUT_LENGTH = 200
"""Characters of a peer's input that cannot be decoded, and of lists of names."""


def one_line(text: str | None) -> str:
    """Return a peer's remark as one line of bounded length. Remarks contain line breaks and links."""
    if not text:
        return "no reason given"
    line = " ".join(text[: 2 * _MAX_REMARK_LENGTH].split())
    if len(text) <= 2 * _MAX_REMARK_LENGTH and len(line) <= _MAX_REMARK_LENGTH:
        return line
    return f"{line[:_MAX_REMARK_LENGTH]}... ({len(text)} characters)"


def error_line(error: BaseException) -> str:
    """Return the class and the text of an exception as one line, even if its ``__str__`` raises."""
    return one_line("".join(traceback.format_exception_only(error)))


def shortened(text: str) -> str:
    """Return a peer's input, or a list of names, cut after 200 characters."""
    if len(text) <= _MAX_INPUT_LENGTH:
        return text
    return f"{text[:_MAX_INPUT_LENGTH]}… ({len(text)} characters)"


def rounded(seconds: float) -> str:
    """Return a duration with few digits. The rest of a timeout may have seventeen."""
    return f"{round(seconds, 1 if seconds >= 1 else 3):g}"


def described(queue: MessageQueue) -> str:
    """Return a queue in words: its id, topic and broker."""
    return f"queue {queue.queue_id} of topic {queue.topic!r} on broker {queue.broker_name!r}"


def allow_reading(topic: str) -> str:
    """Return the command that lets consumers read a topic, for errors.

    Brokers before 4.9.2 create topics of dead letters that may only be written to.
    """
    return f"allow reading with: rocketmq-py topic alter {shlex.quote(topic)} --permission RW"
