"""TLS settings. RocketMQ speaks TLS on the same port as plain text."""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from typing import Any, Final

import attrs

from rocketmq_py.arguments import flag, path, text
from rocketmq_py.errors import ConfigurationError, TLSError
from rocketmq_py.library_logger import LibraryLogger

logger: Final = LibraryLogger("rocketmq_py.remoting")

MOST_PASSWORD_BYTES = 1024
"""OpenSSL's limit."""


_file = attrs.validators.optional(path)


def _key_password(_: object, __: attrs.Attribute[Any], value: object) -> None:
    # Neither the errors nor their causes may contain it.
    if value is None:
        return
    if not isinstance(value, str):
        raise ConfigurationError(f"TLS: key_password must be a str, not {type(value).__name__}")
    size = _size_in_utf8(value)
    if size is None:
        raise ConfigurationError("TLS: key_password has a character that cannot be encoded as UTF-8")
    if size > MOST_PASSWORD_BYTES:
        raise ConfigurationError(f"TLS: key_password is longer than {MOST_PASSWORD_BYTES} bytes")


def _size_in_utf8(text: str) -> int | None:
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        return None


@attrs.frozen
class TLS:
    """Settings of encrypted connections. The peer's certificate and host name are verified by default.

    If the verification fails, connecting raises TLSError, with advice. Java's and Go's clients do not verify
    by default. Each new connection uses the present contents of the files.

    Args:
        ca_file: PEM file of trusted certificate authorities, instead of the system's.
        certificate_file: PEM file of the client certificate, for brokers that require one.
        key_file: PEM file of its private key, if that is not in ``certificate_file``.
        key_password: the password of the private key.
        server_name: the host name that certificates must have, instead of the host of the address.
        verify: False turns verification off. The client then trusts every server.

    Raises:
        ConfigurationError: a file is missing or cannot be loaded, or the password is not valid.
    """

    ca_file: str | os.PathLike[str] | None = attrs.field(default=None, validator=_file)
    certificate_file: str | os.PathLike[str] | None = attrs.field(default=None, validator=_file)
    key_file: str | os.PathLike[str] | None = attrs.field(default=None, validator=_file)
    key_password: str | None = attrs.field(default=None, repr=False, validator=_key_password)
    server_name: str | None = attrs.field(default=None, validator=attrs.validators.optional(text))
    verify: bool = attrs.field(default=True, validator=flag)


def ssl_context(tls: TLS) -> ssl.SSLContext:
    """Return a new client-side context. Raises ConfigurationError."""
    files = [str(file) for file in (tls.ca_file, tls.certificate_file, tls.key_file) if file is not None]
    shown = ", ".join(files) or "the system's authorities"

    def password() -> str:
        # Only called for an encrypted key. Without a password, OpenSSL would prompt at the terminal.
        if tls.key_password is None:
            raise ConfigurationError(f"TLS: the private key in {shown} is encrypted; set key_password")
        return tls.key_password

    try:
        context = ssl.create_default_context(cafile=tls.ca_file)
        if tls.certificate_file is not None:
            context.load_cert_chain(tls.certificate_file, tls.key_file, password)
    except (OSError, ssl.SSLError, ValueError) as error:  # ValueError: NUL in a path
        raise ConfigurationError(f"TLS: cannot load {shown}: {error}") from error
    if not tls.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


class CurrentContext:
    """The client-side context of TLS settings, loaded anew when a file of theirs has changed.

    Certificates may be valid for a day only, and clients run for longer. While the files cannot be loaded, as
    when they are just being replaced, the last context remains in use.

    Args:
        tls: the settings.

    Raises:
        ConfigurationError: a file is missing or cannot be loaded, or the password is not valid.
    """

    def __init__(self, tls: TLS) -> None:
        self._tls = tls
        self._versions = _versions_of_files(tls)
        self._refused: list[tuple[int, ...]] | None = None  # the versions that a warning was logged of
        self._context = ssl_context(tls)

    def get(self) -> ssl.SSLContext:
        """Return the context for the next connection."""
        versions = _versions_of_files(self._tls)
        if versions != self._versions:
            try:
                self._context = ssl_context(self._tls)
            except ConfigurationError as error:
                if versions != self._refused:
                    logger.warning("changed certificates not loaded: %s", error)
                self._refused = versions
            else:
                self._versions = versions
        return self._context


def _versions_of_files(tls: TLS) -> list[tuple[int, ...]]:
    versions: list[tuple[int, ...]] = []
    for file in (tls.ca_file, tls.certificate_file, tls.key_file):
        try:
            status = os.stat(file or "")
        except (OSError, ValueError):  # ValueError: NUL in a path
            versions.append(())
        else:
            versions.append((status.st_ino, status.st_mtime_ns, status.st_size))
    return versions


_UNTRUSTED = "no trusted authority signed its certificate; set TLS(ca_file=...) to the file of its authority"
_WRONG_NAME = "its certificate is for another host name; connect to a name in it, or set TLS(server_name=...)"
_INVALID_CERTIFICATES: Mapping[int, str] = {
    2: _UNTRUSTED,
    9: "its certificate is not valid yet; compare the clocks of both machines",
    10: "its certificate has expired; the server needs a new one",
    18: _UNTRUSTED,
    19: _UNTRUSTED,
    20: _UNTRUSTED,
    21: _UNTRUSTED,
    62: _WRONG_NAME,
    64: _WRONG_NAME,
}
"""Texts with advice for the result codes of OpenSSL's verification (X509_V_ERR_...)."""

_NO_TLS = "it does not speak TLS; check that it is a RocketMQ server with TLS turned on"
_CLOSED_BY_PEER = (
    "it closed the connection during the handshake; it may not speak TLS, or require a client certificate"
)
_CLIENT_CERTIFICATE = (
    "it requires a client certificate, or another one; set TLS(certificate_file=..., key_file=...)"
)
_HANDSHAKE_FAILURES: Mapping[str, str] = {
    "WRONG_VERSION_NUMBER": _NO_TLS,
    "RECORD_LAYER_FAILURE": _NO_TLS,
    "HTTP_REQUEST": _NO_TLS,
    "UNEXPECTED_EOF_WHILE_READING": _CLOSED_BY_PEER,
    "SSLV3_ALERT_HANDSHAKE_FAILURE": _CLOSED_BY_PEER,
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": _CLIENT_CERTIFICATE,
    "SSLV3_ALERT_BAD_CERTIFICATE": _CLIENT_CERTIFICATE,
    "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE": _CLIENT_CERTIFICATE,
    "SSLV3_ALERT_CERTIFICATE_REVOKED": _CLIENT_CERTIFICATE,
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": _CLIENT_CERTIFICATE,
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": _CLIENT_CERTIFICATE,
    "TLSV1_ALERT_UNKNOWN_CA": _CLIENT_CERTIFICATE,
}
"""Texts with advice for OpenSSL's reasons of other failed handshakes."""


def is_refused_by_wildcards(name: str) -> bool:
    """Return whether OpenSSL does not accept ``*.example`` for a host name, because it has an underscore.

    The hosts of some managed services have one. Check such names with :func:`check_certificate`.
    """
    return "_" in name


def check_certificate(certificate: Mapping[str, Any] | None, name: str, address: str) -> None:
    """Raise TLSError unless a certificate, whose chain is verified, is for a host name.

    Args:
        certificate: the value of ``getpeercert()``.
        name: the host name. A wildcard in the certificate stands for its first label.
        address: the address of the server, for the error.
    """
    host = name.lower().rstrip(".")
    names = [value for kind, value in (certificate or {}).get("subjectAltName", ()) if kind == "DNS"]
    wildcard = "*." + host.partition(".")[2]
    if not {host, wildcard} & {one.lower() for one in names}:
        valid_for = ", ".join(names) or "no host name"
        raise TLSError(
            address, f"TLS: {_WRONG_NAME} (certificate is not valid for {name!r}, but for {valid_for})"
        )


def tls_reason(error: ssl.SSLError) -> str:
    """Return the reason of a TLS failure as text, with advice."""
    if isinstance(error, ssl.SSLCertVerificationError):
        advice = _INVALID_CERTIFICATES.get(error.verify_code, "its certificate is not accepted")
        return f"TLS: {advice} (certificate verify failed: {error.verify_message})"
    words = str(error)
    advice = _HANDSHAKE_FAILURES.get(error.reason or "", "")
    return f"TLS: {advice} ({words})" if advice else f"TLS: {words}"


def handshake_reason(error: BaseException | None) -> str:
    """Return the reason of a failed handshake as text, with advice."""
    return tls_reason(error) if isinstance(error, ssl.SSLError) else f"TLS: {_CLOSED_BY_PEER}"


def is_closed_by_peer(error: BaseException | None) -> bool:
    """Whether a handshake failed because the connection ended, as it does when the peer is stopped."""
    return not isinstance(error, ssl.SSLError) or isinstance(error, ssl.SSLEOFError)
