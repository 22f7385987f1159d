"""What a broker was asked, as tests look at it."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from rocketmq_py.broker.dispatch import topic_of
from rocketmq_py.codes import RequestCode
from rocketmq_py.credentials import SECURITY_TOKEN, SIGNATURE
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.protocol.command import Command

_FORMS = {
    RequestCode.SEND_MESSAGE: (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE),
    RequestCode.PULL_MESSAGE: (RequestCode.LITE_PULL_MESSAGE,),
    RequestCode.ACK_MESSAGE: (RequestCode.BATCH_ACK_MESSAGE,),
    RequestCode.SEND_REPLY_MESSAGE: (RequestCode.SEND_REPLY_MESSAGE_V2,),
}
"""Requests for the same thing that clients write in several ways: the first one's name means all of them."""
_SECRETS = frozenset({SIGNATURE, SECURITY_TOKEN})


@attrs.frozen
class Request:
    """One request that a broker or a name server has got.

    Attributes:
        code: a RequestCode.
        client: the address that it came from, ``host:port``.
        fields: the header's fields as they came, without secrets.
        size: bytes of its body.
        time_ms: when it came, epoch milliseconds on the broker's clock.
    """

    code: int
    client: str
    fields: Mapping[str, str]
    size: int
    time_ms: int

    @property
    def name(self) -> str:
        """The name of its code, or the number of one that has none."""
        return code_name(self.code)

    @property
    def topic(self) -> str | None:
        """The topic that it is about, None if it names none."""
        return topic_of(self.code, self.fields)

    def __str__(self) -> str:
        """Return it as a failed test shows it."""
        about = "" if self.topic is None else f" {self.topic}"
        return f"{self.name}{about} from {self.client}"


def recorded(command: Command, client: str, time_ms: int) -> Request:
    """Return what is kept of a request."""
    fields = {name: value for name, value in command.fields.items() if name not in _SECRETS}
    return Request(command.code, client, fields, len(command.body), time_ms)


def code_name(code: int) -> str:
    """Return the name of a request's code."""
    try:
        return RequestCode(code).name
    except ValueError:
        return str(code)


def codes_of(code: int | str) -> frozenset[int]:
    """Return the codes that ``code`` means: a number, or a name, which stands for all forms of the request.

    Raises ConfigurationError for a name that there is not.
    """
    if not isinstance(code, str):
        return frozenset({int(code)})
    try:
        named = RequestCode[code]
    except KeyError:
        raise ConfigurationError(f"there is no request {code!r}; RequestCode has their names") from None
    return frozenset({int(named), *[int(form) for form in _FORMS.get(named, ())]})
