"""Takes the steps from an address to a message, until one fails."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from rocketmq_py.admin.connection.consoles import Console, console_of
from rocketmq_py.admin.connection.servers import ServerSteps
from rocketmq_py.admin.connection.steps import Step, StepFailedError, StepSkipped
from rocketmq_py.admin.connection.topics import TopicSteps, full_name_of
from rocketmq_py.client import ClientOptions
from rocketmq_py.client.core import ClientCore
from rocketmq_py.error_texts import one_line
from rocketmq_py.errors import ConfigurationError, RocketMQError


class ConnectionWalk:
    """Takes the steps.

    Args:
        address: the name servers, as for a Client.
        options: returns the settings of the client. It may raise ConfigurationError.
        topic: the topic, or None to skip the steps that need one.
        group: a consumer group whose rights are checked, or None.
        sends: whether to send a message.

    Attributes:
        steps: the outcomes by the name of the step, in order.
    """

    def __init__(
        self,
        address: str,
        options: Callable[[], ClientOptions],
        topic: str | None,
        group: str | None,
        *,
        sends: bool,
    ) -> None:
        self._address = address
        self._options = options
        self._topic = topic
        self._group = group
        self._sends = sends
        self._console: Console = console_of(address)
        self.steps: dict[str, Step] = {}

    @property
    def failed(self) -> Step | None:
        """The step that failed, or None."""
        return next((step for step in self.steps.values() if step.state == "failed"), None)

    @property
    def summary(self) -> str:
        """The step that failed with its reason, or that none did. It says if the keys were not checked."""
        if self.failed is not None:
            return f"{self.failed.name}: {self.failed.text}"
        if self.steps["signature"].state == "skipped":
            return "no step failed, but the signature was not checked; pass --topic"
        return "all steps succeeded"

    async def run(self) -> None:
        """Take the steps. A failure is recorded as the outcome of its step, and not raised."""
        try:
            options = self._options()
            client = ClientCore(self._address, **options)
            full_name = full_name_of(self._topic, client)
        except ConfigurationError as error:
            self.steps["address"] = Step("address", "failed", str(error), self._console.endpoint)
            return
        async with client:
            servers = ServerSteps(
                client, options, self._address, full_name, has_topic=self._topic is not None
            )
            topics = TopicSteps(servers, self._topic, self._group, sends=self._sends)
            for name, take in (
                ("address", servers.look_up),
                ("tcp", servers.connect),
                ("tls", servers.secure),
                ("name server", servers.ask),
                ("signature", servers.check_signature),
                ("namespace", topics.check_namespace),
                ("route", topics.check_route),
                ("brokers", topics.reach_brokers),
                ("permissions", topics.check_permissions),
                ("message", topics.send),
            ):
                if not await self._take(name, take):
                    return

    async def _take(self, name: str, take: Callable[[], Awaitable[str]]) -> bool:
        """Take a step. Return whether to go on."""
        try:
            self.steps[name] = Step(name, "ok", await take())
        except StepSkipped as skipped:
            self.steps[name] = Step(name, "skipped", str(skipped))
        except StepFailedError as failure:
            cause = failure.step or name
            self.steps[cause] = Step(cause, "failed", failure.text, failure.advice)
            return False
        except RocketMQError as error:
            self.steps[name] = Step(name, "failed", one_line(str(error)), self._console.network)
            return False
        return True
