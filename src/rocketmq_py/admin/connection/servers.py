"""The steps from an address to a name server that accepts the keys."""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping, Sequence
from typing import Final

import trio

from rocketmq_py.address import split_address
from rocketmq_py.admin.connection.consoles import Console, console_of
from rocketmq_py.admin.connection.steps import KEYS_ADVICE, StepFailedError, StepSkipped, listed
from rocketmq_py.client import ClientOptions
from rocketmq_py.client.core import ClientCore
from rocketmq_py.client.host_lookup import has_host_name
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.error_texts import one_line
from rocketmq_py.errors import BrokerError, NameServerError, RocketMQError, TLSError
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.headers import GetRouteInfoRequest
from rocketmq_py.remoting import TLS
from rocketmq_py.remoting.answer_errors import broker_error, denies_access
from rocketmq_py.remoting.streams import StreamOpener, reason_of

_OF_KEYS: Final = re.compile(
    r"signature|access_?key|username|is not found|is disabled|acl config", re.IGNORECASE
)
"""Refusals that are about the keys, and not about the rights of their user."""
_OF_NAMESPACE: Final = re.compile(r"\bnsd?\b|namespace|instance", re.IGNORECASE)
"""Refusals that are about the namespace in a field of the request."""


class ServerSteps:
    """Reaches the name servers, and asks each of them for a route.

    Args:
        client: the client, which is open.
        options: the settings of the client, as the user gave them.
        given_address: the address, as the user gave it.
        full_name: the full name of the topic, or of another one to ask for.
        has_topic: whether the user gave the topic.

    Attributes:
        answers: the answer of each name server, after :meth:`ask`.
    """

    def __init__(
        self,
        client: ClientCore,
        options: ClientOptions,
        given_address: str,
        full_name: str,
        *,
        has_topic: bool,
    ) -> None:
        self.client = client
        self._options = options
        self.given_address = given_address
        self.console: Console = console_of(given_address)
        self._full_name = full_name
        self._has_topic = has_topic
        self._addresses: Sequence[str] = ()
        self.answers: dict[str, Command] = {}

    async def look_up(self) -> str:
        """Fetch the addresses, if a URL has them, and look up their host names."""
        try:
            self._addresses = await self.client.name_servers.all_addresses()
        except NameServerError as error:
            raise StepFailedError(str(error), self.console.endpoint) from None
        if self.client.settings.proxy is None:
            for address in filter(has_host_name, self._addresses):
                await self._look_up_name(*split_address(address))
        return "name servers " + ", ".join(self._addresses)

    async def _look_up_name(self, host: str, port: int) -> None:
        reason = f"no answer in {self.client.settings.request_timeout:g} s"
        with trio.move_on_after(self.client.settings.request_timeout):
            try:
                await trio.socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            except OSError as error:
                reason = reason_of(error)
            else:
                return
        advice = f"{self.console.endpoint}. {self.console.network}"
        raise StepFailedError(f"the host name {host} has no address: {reason}", advice)

    async def connect(self) -> str:
        """Connect to each name server. One is enough."""
        failures = await self.connect_to_each(self._addresses)
        reached = [address for address in self._addresses if address not in failures]
        if not reached:
            raise StepFailedError(f"cannot connect to {listed(failures)}", self.console.network)
        self._addresses = reached
        return f"connected to {', '.join(reached)}" + (f"; not to {listed(failures)}" if failures else "")

    async def connect_to_each(self, addresses: Sequence[str]) -> dict[str, str]:
        """Return why connections to addresses fail, without TLS, by address."""
        opener = StreamOpener(None, self.client.settings.proxy)
        failures = {}
        for address in addresses:
            failures[address] = f"no answer in {self.client.settings.connect_timeout:g} s"
            with trio.move_on_after(self.client.settings.connect_timeout):
                try:
                    await (await opener.open(address, None)).aclose()
                except (OSError, ValueError, RocketMQError) as error:
                    failures[address] = reason_of(error)
                else:
                    del failures[address]
        return failures

    async def secure(self) -> str:
        """Make the TLS handshake."""
        tls = self.client.settings.tls
        if tls is None:
            raise StepSkipped("off")
        for address in self._addresses:
            try:
                await self.client.connections.get(address)
            except TLSError as error:
                if await self._answers(address, tls=None):
                    text = f"{address} expects no TLS, and it is on"
                    raise StepFailedError(
                        text, "Leave out --tls, --insecure, --tls-ca and --tls-cert"
                    ) from None
                advice = "If no authority has signed the certificate of the service, pass --insecure"
                raise StepFailedError(str(error), advice) from None
        return "the certificate is valid" if tls.verify else "the certificate is not verified"

    async def ask(self) -> str:
        """Ask each name server for the route of the topic."""
        failures = {}
        for address in self._addresses:
            try:
                self.answers[address] = await self.route_of(self._full_name, address)
            except RocketMQError as error:
                failures[address] = one_line(str(error))
        if not self.answers:
            raise await self._why_silent(failures)
        for address, answer in self.answers.items():
            self._check_answer(address, answer)
        return "it answers" + (f"; no answer from {listed(failures)}" if failures else "")

    def _check_answer(self, address: str, answer: Command) -> None:
        """Raise StepFailedError unless a name server has found the topic or not, or denies access."""
        if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            raise StepFailedError(
                f"{address} is no name server and no proxy: it has no routes. The port may be a broker's",
                self.console.endpoint,
            )
        is_known = answer.code in (ResponseCode.SUCCESS, ResponseCode.TOPIC_NOT_EXIST)
        if not is_known and not denies_access(answer.code, answer.remark):
            text = one_line(str(broker_error(answer.code, answer.remark, address)))
            if _OF_NAMESPACE.search(answer.remark or ""):
                advice = "Pass --namespace-v2 with the ID of the instance, as the console shows it"
                raise StepFailedError(text, advice, step="namespace")
            raise StepFailedError(text, self.console.endpoint)

    async def _why_silent(self, failures: Mapping[str, str]) -> StepFailedError:
        for address in failures:
            if self.client.settings.tls is None and await self._answers(address, tls=TLS(verify=False)):
                advice = "Pass --tls, or --insecure if no authority has signed the certificate of the service"
                return StepFailedError(f"{address} expects TLS, and it is off", advice, step="tls")
        return StepFailedError(
            f"no name server: {listed(failures)}. The port may be for clients with gRPC or HTTP",
            self.console.endpoint,
        )

    async def _answers(self, address: str, *, tls: TLS | None) -> bool:
        """Return whether a name server answers with other settings of TLS."""
        options = self._options.copy()
        options["tls"] = tls
        try:
            async with ClientCore(address, **options) as client:
                await _ask_for_route(client, self._full_name, address)
        except RocketMQError:
            return False
        return True

    async def route_of(self, full_name: str, address: str | None = None) -> Command:
        """Ask a name server for the route of a topic: the first that has answered, or another."""
        return await _ask_for_route(self.client, full_name, address or next(iter(self.answers)))

    async def query(self, code: int) -> Command | None:
        """Send a request of operators to a name server. None if the service does not offer or permit it."""
        timeout = self.client.settings.request_timeout
        answer = await self.client.connections.request(next(iter(self.answers)), code, {}, timeout=timeout)
        return answer if answer.code == ResponseCode.SUCCESS else None

    async def check_signature(self) -> str:
        """Check whether the name servers accept the keys.

        Those of Apache RocketMQ accept all keys. Only brokers check them, in a later step that needs a topic.
        """
        for address, answer in self.answers.items():
            if denies_access(answer.code, answer.remark):
                error = broker_error(answer.code, answer.remark, address)
                raise self.denial(error)
        if not self._has_topic:
            raise StepSkipped("not checked, as only brokers may check it; pass --topic")
        if all(answer.code != ResponseCode.SUCCESS for answer in self.answers.values()):
            raise StepSkipped("not checked, as only brokers may check it, and the topic was not found")
        return f"{'signed' if self.is_signing else 'unsigned'} requests are not refused"

    @property
    def is_signing(self) -> bool:
        """Whether the client has keys."""
        return self.client.settings.credentials is not None

    @property
    def namespace_advice(self) -> str:
        """The name and option of the service's namespace. Empty if it has none, or if it is given."""
        option = self.console.namespace_option
        namespace_v2 = self.client.settings.namespace_v2
        given = self.client.namespace.name if option == "--namespace" else namespace_v2
        return f" {self.console.namespace}: pass {option}." if option and not given else ""

    def denial(self, error: BrokerError) -> StepFailedError:
        """Return the failure for an answer that denies access: of the keys, or of their rights."""
        hint = f".{self.namespace_advice}" if self.console.namespace_option == "--namespace-v2" else ""
        if _OF_KEYS.search(error.remark or ""):
            what = "Compare the keys with the console's" if self.is_signing else KEYS_ADVICE
            return StepFailedError(str(error), f"{what}. {self.console.keys}{hint}", step="signature")
        advice = "Give the user of the keys the rights PUB and SUB for the topic, and SUB for the group"
        return StepFailedError(str(error), f"{advice}{hint}", step="permissions")


async def _ask_for_route(client: ClientCore, full_name: str, address: str) -> Command:
    header = GetRouteInfoRequest(topic=full_name, accept_standard_json_only=True)
    return await client.connections.request(
        address,
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
        header.to_fields(),
        timeout=client.settings.request_timeout,
    )
