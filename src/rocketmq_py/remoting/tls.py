"""TLS settings. RocketMQ speaks TLS on the same port as plain text."""

from __future__ import annotations

import os
import ssl

import attrs

from rocketmq_py.errors import ConfigurationError


@attrs.frozen
class TLS:
    """How connections are encrypted. The peer's certificate and host name are verified by default.

    Java's and Go's clients skip verification unless told otherwise; this one does not.

    Args:
        ca_file: PEM file of the authorities to trust instead of the system's.
        certificate_file: PEM file of this client's own certificate, where brokers ask for one.
        key_file: PEM file of its private key, if it is not in ``certificate_file``.
        key_password: what decrypts the private key.
        server_name: the name that certificates must be for, instead of the host that is dialled.
        verify: False turns verification off: whoever answers is trusted.

    Raises:
        ConfigurationError: a file is missing or is not what it should be.
    """

    ca_file: str | os.PathLike[str] | None = None
    certificate_file: str | os.PathLike[str] | None = None
    key_file: str | os.PathLike[str] | None = None
    key_password: str | None = attrs.field(default=None, repr=False)
    server_name: str | None = None
    verify: bool = True

    def context(self) -> ssl.SSLContext:
        """Return a new context for the client's end."""
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
            if self.certificate_file is not None:
                context.load_cert_chain(self.certificate_file, self.key_file, self.key_password)
        except (OSError, ssl.SSLError) as error:
            raise ConfigurationError(f"TLS: cannot load {self._files()}: {error}") from error
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context

    def _files(self) -> str:
        files = (self.ca_file, self.certificate_file, self.key_file)
        return ", ".join(str(file) for file in files if file is not None) or "the system's authorities"
