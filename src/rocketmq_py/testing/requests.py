"""Requests that the servers of a test cluster have received."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from rocketmq_py.arguments import check_integer
from rocketmq_py.broker.dispatch import topic_of
from rocketmq_py.codes import RequestCode
from rocketmq_py.credentials import SECURITY_TOKEN, SIGNATURE
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.protocol.command import Command

_VARIANTS = {
    RequestCode.SEND_MESSAGE: (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE),
    RequestCode.PULL_MESSAGE: (RequestCode.LITE_PULL_MESSAGE,),
    RequestCode.ACK_MESSAGE: (RequestCode.BATCH_ACK_MESSAGE,),
    RequestCode.SEND_REPLY_MESSAGE: (RequestCode.SEND_REPLY_MESSAGE_V2,),
}
"""Requests of the same purpose with several codes. The name of the first code selects all of them."""
_SECRETS = frozenset({SIGNATURE, SECURITY_TOKEN})


@attrs.frozen
class Request:
    """A request that a broker or a name server has received.

    Attributes:
        code: the RequestCode.
        client_address: the client's address, ``host:port``.
        fields: the header's fields, without secrets.
        size: bytes of the body.
        time_ms: when it was received, epoch milliseconds on the broker's clock.
    """

    code: int
    client_address: str
    fields: Mapping[str, str]
    size: int
    time_ms: int

    @property
    def name(self) -> str:
        """The name of the code, or the code as a string if it has no name."""
        return code_name(self.code)

    @property
    def topic(self) -> str | None:
        """The topic in the header's fields, or None."""
        return topic_of(self.code, self.fields)

    def __str__(self) -> str:
        """Return a description for the output of failed tests."""
        topic = "" if self.topic is None else f" {self.topic}"
        return f"{self.name}{topic} from {self.client_address}"


def record_request(command: Command, client_address: str, time_ms: int) -> Request:
    """Create the record of a received request."""
    fields = {name: value for name, value in command.fields.items() if name not in _SECRETS}
    return Request(command.code, client_address, fields, len(command.body), time_ms)


def code_name(code: int) -> str:
    """Return the name of a request code, or the code as a string if it has no name."""
    try:
        return RequestCode(code).name
    except ValueError:
        return str(code)


def codes_of(code: int | str) -> frozenset[int]:
    """Return the request codes that a code or a name selects. A name selects all variants of the request.

    Raises ConfigurationError for an unknown name, and for another value than a name or a whole number.
    """
    if not isinstance(code, str):
        return frozenset({check_integer(code, "request")})
    try:
        named = RequestCode[code]
    except KeyError:
        raise ConfigurationError(f"there is no request {code!r}; RequestCode has their names") from None
    return frozenset({int(named), *[int(variant) for variant in _VARIANTS.get(named, ())]})
