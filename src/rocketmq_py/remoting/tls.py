"""TLS settings. RocketMQ speaks TLS on the same port as plain text."""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from typing import Any

import attrs

from rocketmq_py.arguments import flag, path, text
from rocketmq_py.errors import ConfigurationError

MOST_PASSWORD_BYTES = 1024
"""OpenSSL's own bound."""


_file = attrs.validators.optional(path)


def _key_password(_: object, __: attrs.Attribute[Any], value: object) -> None:
    # Neither the texts nor what they are raised from may show it.
    if value is None:
        return
    if not isinstance(value, str):
        raise ConfigurationError(f"TLS: key_password must be a text, not {type(value).__name__}")
    size = _size_in_utf8(value)
    if size is None:
        raise ConfigurationError("TLS: key_password holds a character that cannot be written as UTF-8")
    if size > MOST_PASSWORD_BYTES:
        raise ConfigurationError(f"TLS: key_password is longer than {MOST_PASSWORD_BYTES} bytes")


def _size_in_utf8(text: str) -> int | None:
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        return None


@attrs.frozen
class TLS:
    """How connections are encrypted. The peer's certificate and host name are verified by default.

    Where they are wrong, TLSError is raised, and says what to do about it.

    Java's and Go's clients skip verification unless told otherwise; this one does not.

    Args:
        ca_file: PEM file of the authorities to trust instead of the system's.
        certificate_file: PEM file of this client's own certificate, where brokers ask for one.
        key_file: PEM file of its private key, if it is not in ``certificate_file``.
        key_password: what decrypts the private key.
        server_name: the name that certificates must be for, instead of the host that is dialled.
        verify: False turns verification off: whoever answers is trusted.

    Raises:
        ConfigurationError: a file is missing or is not what it should be, or the password is none.
    """

    ca_file: str | os.PathLike[str] | None = attrs.field(default=None, validator=_file)
    certificate_file: str | os.PathLike[str] | None = attrs.field(default=None, validator=_file)
    key_file: str | os.PathLike[str] | None = attrs.field(default=None, validator=_file)
    key_password: str | None = attrs.field(default=None, repr=False, validator=_key_password)
    server_name: str | None = attrs.field(default=None, validator=attrs.validators.optional(text))
    verify: bool = attrs.field(default=True, validator=flag)

    def context(self) -> ssl.SSLContext:
        """Return a new context for the client's end."""
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
            if self.certificate_file is not None:
                context.load_cert_chain(self.certificate_file, self.key_file, self._password)
        except (OSError, ssl.SSLError, ValueError) as error:  # ValueError: a NUL in a name
            raise ConfigurationError(f"TLS: cannot load {self._files()}: {error}") from error
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context

    def _password(self) -> str:
        # Called for an encrypted key only. Without an answer, OpenSSL would ask at the terminal.
        if self.key_password is None:
            raise ConfigurationError(
                f"TLS: the private key in {self._files()} is encrypted; give key_password"
            )
        return self.key_password

    def _files(self) -> str:
        files = (self.ca_file, self.certificate_file, self.key_file)
        return ", ".join(str(file) for file in files if file is not None) or "the system's authorities"


_UNTRUSTED = (
    "nobody who is trusted vouches for its certificate: name the file of its authority with TLS(ca_file=...)"
)
_WRONG_NAME = (
    "its certificate is for another name: dial it by one that is in it, or give TLS(server_name=...)"
)
_WRONG_CERTIFICATE: Mapping[int, str] = {
    2: _UNTRUSTED,
    9: "its certificate is not valid yet: compare the clocks here and there",
    10: "its certificate has expired: the server needs a new one",
    18: _UNTRUSTED,
    19: _UNTRUSTED,
    20: _UNTRUSTED,
    21: _UNTRUSTED,
    62: _WRONG_NAME,
    64: _WRONG_NAME,
}
"""What OpenSSL's verification found (X509_V_ERR_...), in words that say what to do."""

_NO_TLS = "it does not speak TLS: is it a RocketMQ server, and is TLS turned on there?"
_HUNG_UP = "it broke off the handshake: does it speak TLS, and does it want a certificate of this client?"
_OWN_CERTIFICATE = (
    "it wants another certificate of this client, or one at all: give TLS(certificate_file=..., key_file=...)"
)
_WRONG_TALK: Mapping[str, str] = {
    "WRONG_VERSION_NUMBER": _NO_TLS,
    "RECORD_LAYER_FAILURE": _NO_TLS,
    "HTTP_REQUEST": _NO_TLS,
    "UNEXPECTED_EOF_WHILE_READING": _HUNG_UP,
    "SSLV3_ALERT_HANDSHAKE_FAILURE": _HUNG_UP,
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": _OWN_CERTIFICATE,
    "SSLV3_ALERT_BAD_CERTIFICATE": _OWN_CERTIFICATE,
    "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE": _OWN_CERTIFICATE,
    "SSLV3_ALERT_CERTIFICATE_REVOKED": _OWN_CERTIFICATE,
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": _OWN_CERTIFICATE,
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": _OWN_CERTIFICATE,
    "TLSV1_ALERT_UNKNOWN_CA": _OWN_CERTIFICATE,
}
"""What OpenSSL says of a handshake that failed for another reason."""


def tls_reason(error: ssl.SSLError) -> str:
    """Return in words what a failure of TLS comes from, and what to do about it."""
    if isinstance(error, ssl.SSLCertVerificationError):
        advice = _WRONG_CERTIFICATE.get(error.verify_code, "its certificate is not accepted")
        return f"TLS: {advice} (certificate verify failed: {error.verify_message})"
    words = str(error)
    advice = _WRONG_TALK.get(error.reason or "", "")
    return f"TLS: {advice} ({words})" if advice else f"TLS: {words}"


def handshake_reason(error: BaseException | None) -> str:
    """Return in words why a handshake failed with ``error``, and what to do about it."""
    return tls_reason(error) if isinstance(error, ssl.SSLError) else f"TLS: {_HUNG_UP}"
