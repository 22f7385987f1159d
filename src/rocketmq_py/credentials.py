"""Credentials, and the signatures that they put on requests, after the namespace.

Brokers that check access identify a client by its signed requests. Java: ``SessionCredentials``,
``AclClientRPCHook``.
"""

from __future__ import annotations

import binascii
import hmac
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import attrs

from rocketmq_py.errors import ConfigurationError, InvalidMessageError

ACCESS_KEY: Final = "AccessKey"
"""The field with the name of the identity."""
SECURITY_TOKEN: Final = "SecurityToken"  # noqa: S105 - a field's name
"""The field with the token of a temporary identity. It is signed too."""
SIGNATURE: Final = "Signature"
"""The field with the signature, the only one that is not signed."""
_NAMESPACE: Final = "ns"
_HAS_NAMESPACE: Final = "nsd"


def _check_text(_: object, attribute: attrs.Attribute[Any], value: object) -> None:
    # The error does not quote the value: it may be a secret in the wrong argument.
    if not isinstance(value, str) or not value.strip():
        raise ConfigurationError(f"credentials: {attribute.name} must be a text that is not empty")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        position = error.start  # without the error itself, which holds the value
    else:
        return
    raise ConfigurationError(
        f"credentials: {attribute.name} has a character that cannot be encoded as UTF-8, "
        f"at position {position}"
    )


@attrs.frozen
class Credentials:
    """An identity that signs every request. Java: ``SessionCredentials``.

    Args:
        access_key: the name of the identity (5.x: of the user).
        secret_key: the key of the signatures. It is never sent, shown or logged.
        security_token: the token that a service for temporary identities issued with the keys.

    Raises:
        ConfigurationError: one of them is empty, not a text, or cannot be encoded as UTF-8.
    """

    access_key: str = attrs.field(validator=_check_text)
    secret_key: str = attrs.field(repr=False, validator=_check_text)
    security_token: str | None = attrs.field(
        default=None, repr=False, validator=attrs.validators.optional(_check_text)
    )


CredentialsProvider: TypeAlias = Callable[[], Credentials]
"""A function that returns the credentials to use from now on, for identities that expire.

It is called in a thread whenever a connection is opened, and at most once per second when a broker denies
access. The denied request is then sent again once with the new credentials. The text of an exception that it
raises appears in errors and logs.
"""


def signature(secret_key: str, fields: Mapping[str, str], body: bytes) -> str:
    """Return the signature of a request: HMAC-SHA1 of the fields' values and the body, in Base64.

    The values are concatenated in the order of their fields' names. A ``Signature`` field is skipped.

    Raises:
        InvalidMessageError: a text cannot be encoded as UTF-8.
    """
    values = [fields[name] for name in sorted(fields) if name != SIGNATURE]
    try:
        content = "".join(values).encode() + body
        digest = hmac.digest(secret_key.encode(), content, "sha1")
    except UnicodeEncodeError as error:
        reason = error.reason  # without the error itself, which holds the secret key
    else:
        return binascii.b2a_base64(digest, newline=False).decode()
    raise InvalidMessageError(f"a request cannot be signed: {reason}")


def signed(fields: Mapping[str, str], body: bytes, credentials: Credentials) -> dict[str, str]:
    """Return a copy of a request's fields with the access key and the signature added.

    Raises:
        InvalidMessageError: a text cannot be encoded as UTF-8.
    """
    result = {**fields, ACCESS_KEY: credentials.access_key}
    if credentials.security_token is not None:
        result[SECURITY_TOKEN] = credentials.security_token
    result[SIGNATURE] = signature(credentials.secret_key, result, body)
    return result


@attrs.frozen
class RequestSigner:
    """Completes the fields of every request: adds the namespace, then the access key and the signature.

    Java: ``NamespaceRpcHook``, followed by ``AclClientRPCHook``.

    Args:
        credentials: sign the fields and the body, or None.
        namespace_v2: the namespace as a field, which is signed too. Empty for none.
    """

    credentials: Credentials | None
    namespace_v2: str = ""

    def complete(self, fields: Mapping[str, str], body: bytes) -> Mapping[str, str]:
        """Return a request's fields with those of the namespace and of the credentials.

        Raises InvalidMessageError if a text cannot be encoded as UTF-8.
        """
        if self.namespace_v2:
            fields = {**fields, _HAS_NAMESPACE: "true", _NAMESPACE: self.namespace_v2}
        return fields if self.credentials is None else signed(fields, body, self.credentials)

    @classmethod
    def create(cls, credentials: Credentials | None, namespace_v2: str = "") -> RequestSigner | None:
        """Return a signer, or None if there is nothing to add."""
        return cls(credentials, namespace_v2) if credentials is not None or namespace_v2 else None
