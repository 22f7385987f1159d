"""Certificates for clusters whose servers present one and require one from clients."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import attrs
import trustme
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from integration.clusters import provider

TLS_FOR_WHO_WANTS_IT = "-Dtls.server.mode=permissive"
"""The option of servers that accept both TLS and plain text, which is their default."""

TLS_PROPERTIES = """
tls.test.mode.enable=false
tls.server.certPath={home}/conf/server.pem
tls.server.keyPath={home}/conf/server.key
tls.server.trustCertPath={home}/conf/ca.pem
tls.server.authClient=true
tls.server.need.client.auth=require
"""


@attrs.frozen
class Certificates:
    """The certificates of a test: those of its servers and those of its clients.

    Attributes:
        files: the servers' files, for ``start_own_cluster``.
        ca_file: the authority that signed the certificates of the servers and of ``own``.
        own: a client certificate signed by that authority.
        foreign: a client certificate signed by another authority.
        jvm: JVM options for the servers.
    """

    files: Mapping[str, str]
    ca_file: Path
    own: Path
    foreign: Path
    jvm: tuple[str, ...] = (
        TLS_FOR_WHO_WANTS_IT,
        "-Dtls.config.file={home}/conf/tls.properties",
    )


def make_certificates(folder: Path) -> Certificates:
    """Make certificates. Those of clients and of the authority go to a folder; those of the servers carry
    their address.
    """
    authority = trustme.CA(key_type=trustme.KeyType.RSA)
    server = authority.issue_cert(*provider.server_addresses(), key_type=trustme.KeyType.RSA)
    # The key format that Java's servers read.
    key = load_pem_private_key(server.private_key_pem.bytes(), None)
    pkcs8 = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    ca_file, own, foreign = folder / "ca.pem", folder / "own.pem", folder / "foreign.pem"
    authority.cert_pem.write_to_path(str(ca_file))
    authority.issue_cert("client.example").private_key_and_cert_chain_pem.write_to_path(str(own))
    trustme.CA().issue_cert("client.example").private_key_and_cert_chain_pem.write_to_path(str(foreign))
    files = {
        "conf/tls.properties": TLS_PROPERTIES,
        "conf/server.pem": b"".join(one.bytes() for one in server.cert_chain_pems).decode(),
        "conf/server.key": pkcs8.decode(),
        "conf/ca.pem": authority.cert_pem.bytes().decode(),
    }
    return Certificates(files, ca_file, own, foreign)
