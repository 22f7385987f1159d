"""Runs the embedded broker until it is cancelled."""

from __future__ import annotations

import ssl
import sys
import time
from collections.abc import Mapping

import trio

from rocketmq_py.broker import EmbeddedBroker
from rocketmq_py.cli.console import print_line, print_out
from rocketmq_py.cli.running import CommandError, show_warnings
from rocketmq_py.codes import RequestCode
from rocketmq_py.errors import ConfigurationError


async def run_broker(
    host: str,
    namesrv_port: int,
    port: int,
    advertise: str | None,
    *,
    topics: Mapping[str, int],
    access_keys: Mapping[str, str],
    cert: str | None,
    private_key: str | None,
    log_requests: bool,
) -> None:
    """Serve until cancelled.

    Raises:
        ConfigurationError: an address or a port cannot be bound, or a certificate is none.
        CommandError: nobody can read where it listens.
    """
    async with EmbeddedBroker(
        host,
        namesrv_port,
        port,
        broker_ip1=advertise or "",
        topics=topics,
        access_keys=access_keys,
        tls=None if cert is None else _tls(cert, private_key),
        on_request=_log if log_requests else None,
    ) as broker:
        try:
            print_out(f"ready: name server {broker.name_server_address}, broker {broker.broker_address}")
        except OSError as error:
            reason = error.strerror or error
            raise CommandError(f"cannot write where the broker listens: {reason}") from error
        show_warnings()
        await trio.sleep_forever()


def _tls(cert: str, private_key: str | None) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(cert, private_key)
    except OSError as error:  # an SSLError is one
        files = cert if private_key is None else f"{cert} with {private_key}"
        raise ConfigurationError(f"{files} is no certificate with its private key: {error}") from error
    return context


def _log(code: int, topic: str | None, client: str) -> None:
    """Write a line about a request: when it came, what it is, and from whom."""
    try:
        name = RequestCode(code).name
    except ValueError:
        name = str(code)
    now_ms = time.time_ns() // 1_000_000
    at = f"{time.strftime('%H:%M:%S', time.localtime(now_ms / 1000))}.{now_ms % 1000:03}"
    print_line(sys.stderr, f"{at} {name}{f' {topic}' if topic else ''} from {client}")
