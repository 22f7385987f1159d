"""Signatures of requests, by which brokers that check access know who asks (Java: ``AclClientRPCHook``)."""

from __future__ import annotations

import binascii
import hmac
from collections.abc import Mapping
from typing import Final

from rocketmq_py.credentials import Credentials
from rocketmq_py.errors import InvalidMessageError

ACCESS_KEY: Final = "AccessKey"
"""The field that says who asks."""
SECURITY_TOKEN: Final = "SecurityToken"  # noqa: S105 - a field's name
"""The field of a temporary identity's token; it is signed as well."""
SIGNATURE: Final = "Signature"
"""The field that proves it. It is the only one that is not signed."""


def signature(secret_key: str, fields: Mapping[str, str], body: bytes) -> str:
    """Return the signature of a request: HMAC-SHA1 over the fields' values and the body, in Base64.

    The values are taken in the order of their fields' names, with nothing in between; a ``Signature``
    among the fields is passed over.

    Raises:
        InvalidMessageError: a text cannot be written as UTF-8.
    """
    values = [fields[name] for name in sorted(fields) if name != SIGNATURE]
    try:
        content = "".join(values).encode() + body
        digest = hmac.digest(secret_key.encode(), content, "sha1")
    except UnicodeEncodeError as error:
        reason = error.reason  # not the error itself, which holds the secret key
    else:
        return binascii.b2a_base64(digest, newline=False).decode()
    raise InvalidMessageError(f"a request cannot be signed: {reason}")


def signed(fields: Mapping[str, str], body: bytes, credentials: Credentials) -> dict[str, str]:
    """Return the fields of a request with those that sign it; the given ones stay as they are.

    Raises:
        InvalidMessageError: a text cannot be written as UTF-8.
    """
    result = {**fields, ACCESS_KEY: credentials.access_key}
    if credentials.security_token is not None:
        result[SECURITY_TOKEN] = credentials.security_token
    result[SIGNATURE] = signature(credentials.secret_key, result, body)
    return result
