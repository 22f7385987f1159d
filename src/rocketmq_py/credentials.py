"""Who a client says it is, to brokers that check access."""

from __future__ import annotations

from typing import Any

import attrs

from rocketmq_py.errors import ConfigurationError


def _written(_: object, attribute: attrs.Attribute[Any], value: object) -> None:
    # The value itself stays out of the text: it may be the secret, put into the wrong place.
    if not isinstance(value, str) or not value.strip():
        raise ConfigurationError(f"credentials: {attribute.name} must be a text that is not empty")


@attrs.frozen
class Credentials:
    """An identity whose secret signs every request. Java: ``SessionCredentials``.

    Args:
        access_key: the name of the identity (5.x: of the user).
        secret_key: what requests are signed with; it is never sent, shown or logged.
        security_token: what a service for temporary identities gave out with the keys.

    Raises:
        ConfigurationError: one of them is empty.
    """

    access_key: str = attrs.field(validator=_written)
    secret_key: str = attrs.field(repr=False, validator=_written)
    security_token: str | None = attrs.field(
        default=None, repr=False, validator=attrs.validators.optional(_written)
    )
