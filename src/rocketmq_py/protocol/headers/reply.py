"""Headers of replies to messages that were sent as requests."""

from __future__ import annotations

from typing import ClassVar

from rocketmq_py.codes import RequestCode
from rocketmq_py.protocol.headers.base import Int64
from rocketmq_py.protocol.headers.send import SendMessageRequest, SendMessageRequestV2, SentMessage


class SendReplyMessageRequest(SendMessageRequest, frozen=True, kw_only=True):
    """Send the reply to a message, with long field names: it goes to the client that waits for it.

    Its fields and its answer are those of a send.
    """

    code: ClassVar[int] = RequestCode.SEND_REPLY_MESSAGE


class SendReplyMessageRequestV2(SendMessageRequestV2, frozen=True, kw_only=True):
    """Send the reply to a message, with field names of one letter."""

    code: ClassVar[int] = RequestCode.SEND_REPLY_MESSAGE_V2


class PushReplyMessageRequest(SentMessage, frozen=True, kw_only=True):
    """A broker hands a reply to the client that waits for it. Java: ``ReplyMessageRequestHeader``.

    The body is the reply's. The attributes are those of :class:`SentMessage`, as the
    replier gave them, and these.

    Attributes:
        born_host: the replier's ``host:port``.
        store_host: the broker's ``host:port``.
        store_timestamp: when the broker got the reply, epoch milliseconds.
    """

    code: ClassVar[int] = RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT

    born_host: str
    store_host: str
    store_timestamp: Int64
