"""Requests to single brokers and name servers, and which version they are."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from rocketmq_py.admin.asking import have_each_do
from rocketmq_py.client import Client
from rocketmq_py.codes import RequestCode, ResponseCode, version_name
from rocketmq_py.errors import BrokerError, UnsupportedByBrokerError
from rocketmq_py.protocol import headers
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.headers.base import Request

FIRST_5 = 413
"""The ordinal of Java's ``MQVersion.V5_0_0``."""


async def call(client: Client, address: str, header: Request, body: bytes = b"") -> Command:
    """Ask the broker at ``address`` and return its answer, which is a success.

    Raises:
        UnsupportedByBrokerError: it does not know this request.
        BrokerError: it answered with another error; ConnectError and others as ``BrokerCalls`` does.
    """
    try:
        return await client.brokers.call(address, header, body)
    except BrokerError as error:
        if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            raise
    raise _unsupported(address, await version_at(client, address), header)


def _unsupported(address: str, version: int, header: Request) -> UnsupportedByBrokerError:
    return UnsupportedByBrokerError(
        f"{address} is of version {version_name(version)}, and does not know {RequestCode(header.code).name}"
    )


async def call_name_server(client: Client, address: str, header: Request, body: bytes = b"") -> Command:
    """Ask the name server at ``address`` and return its answer, which is a success.

    Raises as :func:`call` does.
    """
    fields = client.namespace.wrap(header).to_fields()
    answer = await client.connections.request(
        address, header.code, fields, body, timeout=client.config.request_timeout
    )
    if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
        raise _unsupported(address, answer.version, header)
    if answer.code != ResponseCode.SUCCESS:
        raise BrokerError.from_answer(answer.code, answer.remark, address)
    return answer


async def tell_name_servers(
    client: Client, header: Request, what: str, body: bytes = b""
) -> Mapping[str, Command]:
    """Ask all name servers, which do not tell each other; return their answers by address.

    Raises:
        SomeBrokersFailedError: not all of several did it; of a single one its own error.
    """
    return await have_each_do(
        await client.name_servers.all_addresses(),
        lambda address: call_name_server(client, address, header, body),
        what,
    )


async def version_at(client: Client, address: str) -> int:
    """Return the version of the broker at ``address``, as an ordinal: all of its answers tell it."""
    connection = await client.connections.get(client.brokers.channel(address))
    if not connection.peer_version:
        with contextlib.suppress(BrokerError):  # an answer, too
            await client.brokers.call(address, headers.GetBrokerRuntimeInfoRequest())
    return connection.peer_version


async def check_is_5(client: Client, address: str, what: str) -> None:
    """Raise UnsupportedByBrokerError if the broker at ``address`` is older than 5.0 and cannot do this."""
    version = await version_at(client, address)
    if version < FIRST_5:
        raise UnsupportedByBrokerError(
            f"{address} is of version {version_name(version)}; {what} needs 5.0 or newer"
        )
