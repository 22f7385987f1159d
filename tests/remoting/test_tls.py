from __future__ import annotations

import datetime
import math
import ssl
from pathlib import Path
from typing import Any

import pytest
import trio
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from rocketmq_py.errors import ConfigurationError, ConnectError, ConnectionLostError, Delivery, TLSError
from rocketmq_py.remoting import TLS
from rocketmq_py.remoting.tls import ssl_context
from tests.remoting.serving import echo, pool_of, serving

OLD = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
FAR = datetime.datetime(2090, 1, 1, tzinfo=datetime.UTC)


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def ca_file(authority: trustme.CA, tmp_path: Path) -> Path:
    path = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(path))
    return path


def server_context(authority: trustme.CA, *names: str, **validity: Any) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert(*names, **validity).configure_cert(context)
    return context


def wanting_certificates(
    authority: trustme.CA, version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3
) -> ssl.SSLContext:
    context = server_context(authority, "127.0.0.1")
    authority.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED
    context.maximum_version = version
    return context


async def test_a_trusted_certificate(authority: trustme.CA, ca_file: Path) -> None:
    context = server_context(authority, "127.0.0.1")
    async with serving(echo, tls=context) as address, pool_of(TLS(ca_file=ca_file)) as connections:
        answer = await connections.request(address, 10, {}, bytes(1 << 20), timeout=30)
        assert answer.body == bytes(1 << 20)


@pytest.mark.parametrize(
    ("names", "validity", "reason"),
    [
        (
            ["127.0.0.1"],
            {"not_before": OLD, "not_after": OLD + datetime.timedelta(days=30)},
            r"its certificate has expired; the server needs a new one .*certificate has expired",
        ),
        (
            ["127.0.0.1"],
            {"not_before": FAR, "not_after": FAR + datetime.timedelta(days=30)},
            r"its certificate is not valid yet; compare the clocks",
        ),
        (
            ["broker.example"],
            {},
            r"is for another host name; .*TLS\(server_name=\.\.\.\) .*not valid for '127\.0\.0\.1'",
        ),
    ],
    ids=["expired", "not yet valid", "another name"],
)
async def test_errors_of_invalid_certificates_have_advice(
    authority: trustme.CA, ca_file: Path, names: list[str], validity: dict[str, Any], reason: str
) -> None:
    context = server_context(authority, *names, **validity)
    async with serving(echo, tls=context) as address, pool_of(TLS(ca_file=ca_file)) as connections:
        with pytest.raises(TLSError, match=f"cannot connect to {address}: TLS: .*{reason}") as caught:
            await connections.get(address)
        assert isinstance(caught.value, ConnectError)
        assert caught.value.delivery is Delivery.NOT_SENT
        with pytest.raises(TLSError, match=reason):  # the same error during the back-off
            await connections.get(address)
        with pytest.raises(TLSError, match=reason):  # waiting is useless
            await connections.get_before(address, math.inf)
        with pytest.raises(TLSError, match=reason):
            await connections.request(address, 10, {}, timeout=1000)


async def test_the_error_of_an_unknown_authority_has_advice(
    authority: trustme.CA,
) -> None:
    context = server_context(authority, "127.0.0.1")
    async with serving(echo, tls=context) as address, pool_of(TLS()) as connections:
        with pytest.raises(TLSError, match=r"no trusted authority .*TLS\(ca_file=\.\.\.\)"):
            await connections.get(address)


async def test_server_name_may_differ_from_the_host_of_the_address(
    authority: trustme.CA, ca_file: Path
) -> None:
    tls = TLS(ca_file=ca_file, server_name="broker.example")
    async with (
        serving(echo, tls=server_context(authority, "broker.example")) as address,
        pool_of(tls) as connections,
    ):
        assert (await connections.request(address, 10, {}, timeout=60)).code == 0


INSTANCE = "MQ_INST_1380_BbXb.cn-hangzhou.mq-internal.aliyuncs.com"


def certificate_for(name: str, tmp_path: Path) -> tuple[Path, ssl.SSLContext]:
    """Return the file of an authority, and the context of a server with its certificate for any name."""
    now = datetime.datetime.now(datetime.UTC)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    certificate = (
        x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    file, key_file = tmp_path / "certificate.pem", tmp_path / "key.pem"
    file.write_bytes(certificate.public_bytes(Encoding.PEM))
    key_file.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(file, key_file)
    return file, context


@pytest.mark.parametrize(
    ("name", "host"),
    [
        ("*.cn-hangzhou.mq-internal.aliyuncs.com", INSTANCE),
        ("*.CN-Hangzhou.mq-internal.aliyuncs.com", INSTANCE),
        (INSTANCE, INSTANCE),
        (INSTANCE.lower(), INSTANCE),
        ("*.rmq.aliyuncs.com", "RMQ-cn-Ab.RMQ.aliyuncs.com"),
        ("*.region_1.example.com", "a.region_1.example.com"),
    ],
)
async def test_host_names_with_capitals_and_underscores_are_verified(
    tmp_path: Path, name: str, host: str
) -> None:
    ca_file, context = certificate_for(name, tmp_path)
    asked_for: list[str | None] = []
    context.sni_callback = lambda _, sni, __: asked_for.append(sni)
    async with (
        serving(echo, tls=context) as address,
        pool_of(TLS(ca_file=ca_file, server_name=host)) as connections,
    ):
        assert (await connections.request(address, 10, {}, timeout=60)).code == 0
    assert asked_for == [host]


@pytest.mark.parametrize(
    "name",
    ["*.example.com", "*.aliyuncs.com", "*.mq-internal.aliyuncs.com", f"x{INSTANCE}", "*"],
)
async def test_a_certificate_for_another_name_is_refused_for_a_name_with_underscores(
    tmp_path: Path, name: str
) -> None:
    ca_file, context = certificate_for(name, tmp_path)
    async with (
        serving(echo, tls=context) as address,
        pool_of(TLS(ca_file=ca_file, server_name=INSTANCE)) as connections,
    ):
        with pytest.raises(TLSError, match=r"is for another host name; .*'MQ_INST_.*', but for "):
            await connections.get(address)


async def test_names_with_and_without_underscores_are_verified_by_one_client(tmp_path: Path) -> None:
    """The name of an IP address must be checked by OpenSSL, also after that of an instance."""
    ca_file, context = certificate_for("*.cn-hangzhou.mq-internal.aliyuncs.com", tmp_path)
    async with serving(echo, tls=context) as one, pool_of(TLS(ca_file=ca_file)) as connections:
        connections.host_names = {one: INSTANCE}
        assert (await connections.request(one, 10, {}, timeout=60)).code == 0
        connections.close(one)
        connections.host_names = {}
        with pytest.raises(TLSError, match=r"not valid for '127\.0\.0\.1'"):
            await connections.get(one)


async def test_an_unknown_authority_is_refused_for_a_name_with_underscores(tmp_path: Path) -> None:
    _, context = certificate_for(INSTANCE, tmp_path)
    async with serving(echo, tls=context) as address, pool_of(TLS(server_name=INSTANCE)) as connections:
        with pytest.raises(TLSError, match="no trusted authority"):
            await connections.get(address)


@pytest.mark.parametrize("name", ["a\0b", ".a", "a" * 300, "\ud800"], ids=["NUL", "dot", "long", "surrogate"])
async def test_a_host_name_without_possible_certificates(name: str) -> None:
    async with serving(echo) as address, pool_of(TLS(server_name=name)) as connections:
        with pytest.raises(TLSError, match="no certificate can be for the host name '"):
            await connections.get(address)


async def test_verification_can_be_turned_off(authority: trustme.CA) -> None:
    context = server_context(authority, "broker.example", not_before=OLD, not_after=OLD)
    async with serving(echo, tls=context) as address, pool_of(TLS(verify=False)) as connections:
        assert (await connections.request(address, 10, {}, timeout=60)).code == 0


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_client_certificate(
    authority: trustme.CA, ca_file: Path, tmp_path: Path, version: ssl.TLSVersion
) -> None:
    own = tmp_path / "client.pem"
    authority.issue_cert("client.example").private_key_and_cert_chain_pem.write_to_path(str(own))
    context = wanting_certificates(authority, version)
    tls = TLS(ca_file=ca_file, certificate_file=own)
    async with serving(echo, tls=context) as address, pool_of(tls) as connections:
        assert (await connections.request(address, 10, {}, timeout=60)).code == 0


async def test_new_connections_use_files_that_were_replaced(
    authority: trustme.CA, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ca_file, own = tmp_path / "ca.pem", tmp_path / "client.pem"

    def write_files(issuer: trustme.CA) -> None:
        issuer.cert_pem.write_to_path(str(ca_file))
        issuer.issue_cert("client.example").private_key_and_cert_chain_pem.write_to_path(str(own))

    async def ask(address: str) -> None:
        assert (await connections.request(address, 10, {}, timeout=60)).code == 0
        connections.close(address)

    write_files(authority)
    async with pool_of(TLS(ca_file=ca_file, certificate_file=own)) as connections:
        async with serving(echo, tls=wanting_certificates(authority)) as address:
            await ask(address)
            own.write_text("half of a certificate")
            for _ in range(2):
                await ask(address)
            (warning,) = [record.getMessage() for record in caplog.records]
            assert "changed certificates not loaded" in warning
            assert str(own) in warning
        following = trustme.CA()
        async with serving(echo, tls=wanting_certificates(following)) as address:
            with pytest.raises(TLSError, match="no trusted authority signed its certificate"):
                await ask(address)
            write_files(following)
            await ask(address)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_server_requires_a_client_certificate(
    authority: trustme.CA, ca_file: Path, version: ssl.TLSVersion
) -> None:
    # In TLS 1.3 the client's handshake ends before the server has checked the client certificate.
    context = wanting_certificates(authority, version)
    async with serving(echo, tls=context) as address, pool_of(TLS(ca_file=ca_file)) as connections:
        for _ in range(2):
            with pytest.raises((ConnectError, ConnectionLostError), match="require a client certificate"):
                await connections.request(address, 10, {}, timeout=1)


async def test_a_server_without_tls(ca_file: Path) -> None:
    async with serving(echo) as address, pool_of(TLS(ca_file=ca_file)) as connections:
        with pytest.raises(TLSError, match="closed the connection during the handshake"):
            await connections.get(address)


async def test_calls_wait_for_a_server_that_stops_during_the_handshake(
    authority: trustme.CA, ca_file: Path
) -> None:
    async with pool_of(TLS(ca_file=ca_file)) as connections:
        async with serving(echo) as address:  # it closes the connection
            with pytest.raises(TLSError):
                await connections.get(address)
        context = server_context(authority, "127.0.0.1")
        async with serving(echo, port=int(address.split(":")[1]), tls=context):
            assert (await connections.request(address, 10, {}, b"x", timeout=60)).body == b"x"


async def test_a_server_that_answers_without_tls(ca_file: Path) -> None:
    async def greet(stream: trio.SocketStream) -> None:
        await stream.send_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await stream.receive_some()

    async with trio.open_nursery() as nursery, pool_of(TLS(ca_file=ca_file)) as connections:
        (listener,) = await nursery.start(
            lambda task_status: trio.serve_tcp(greet, 0, host="127.0.0.1", task_status=task_status)
        )
        port = listener.socket.getsockname()[1]
        with pytest.raises(TLSError, match="it does not speak TLS"):
            await connections.get(f"127.0.0.1:{port}")
        nursery.cancel_scope.cancel()


async def test_the_error_of_a_client_without_tls_suggests_tls(authority: trustme.CA) -> None:
    context = server_context(authority, "127.0.0.1")
    async with serving(echo, tls=context) as address, pool_of() as connections:
        with pytest.raises(ConnectionLostError, match="may require TLS"):
            await connections.request(address, 10, {}, timeout=3)


def test_a_missing_file_is_a_configuration_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"missing\.pem"):
        ssl_context(TLS(ca_file=tmp_path / "missing.pem"))


@pytest.fixture
def encrypted(authority: trustme.CA, tmp_path: Path) -> tuple[Path, Path]:
    """A certificate, and its key, which "hush" decrypts."""
    certificate, key_file = tmp_path / "client.pem", tmp_path / "client.key"
    issued = authority.issue_cert("client.example")
    issued.cert_chain_pems[0].write_to_path(str(certificate))
    key = load_pem_private_key(issued.private_key_pem.bytes(), None)
    key_file.write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"hush"))
    )
    return certificate, key_file


def test_encrypted_key_needs_its_password(encrypted: tuple[Path, Path]) -> None:
    certificate, key_file = encrypted
    ssl_context(TLS(certificate_file=certificate, key_file=key_file, key_password="hush"))
    # OpenSSL must not prompt for the password.
    with pytest.raises(ConfigurationError, match=r"client\.key is encrypted; set key_password"):
        ssl_context(TLS(certificate_file=certificate, key_file=key_file))
    with pytest.raises(ConfigurationError, match=r"client\.key") as caught:
        ssl_context(TLS(certificate_file=certificate, key_file=key_file, key_password="loud"))
    assert "loud" not in str(caught.value)


def test_password_is_not_shown() -> None:
    assert "hush" not in repr(TLS(key_password="hush"))


@pytest.mark.parametrize(
    ("password", "text"),
    [
        ("secret\udce9", "key_password has a character that cannot be encoded as UTF-8"),
        ("secret" * 171, "key_password is longer than 1024 bytes"),
        (b"secret", "key_password must be a str, not bytes"),
    ],
)
def test_invalid_passwords_are_refused_without_showing_them(password: Any, text: str) -> None:
    with pytest.raises(ConfigurationError, match=text) as caught:
        TLS(key_password=password)
    assert "secret" not in str(caught.value)
    assert caught.value.__context__ is None
    assert caught.value.__cause__ is None


def test_invalid_file_name() -> None:
    with pytest.raises(ConfigurationError, match="TLS: cannot load"):
        ssl_context(TLS(ca_file="a\0b"))
