"""The steps from a topic's name to a message in it."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Final

from rocketmq_py.admin.connection.servers import ServerSteps
from rocketmq_py.admin.connection.steps import KEYS_ADVICE, StepFailedError, StepSkipped, listed
from rocketmq_py.client.client import BorrowedClient
from rocketmq_py.client.core import ClientCore
from rocketmq_py.client.proxies import is_answer_of_proxy
from rocketmq_py.client.routes import Route
from rocketmq_py.client.settings import ClientSettings, namespace_of
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.error_texts import one_line
from rocketmq_py.errors import AccessDeniedError, BrokerError, MessageRefusedError
from rocketmq_py.message import Message
from rocketmq_py.names import DEFAULT_TOPIC
from rocketmq_py.producer import Producer
from rocketmq_py.protocol.bodies import MASTER_ID, ClusterInfo, TopicList, TopicRoute
from rocketmq_py.protocol.command import Command
from rocketmq_py.remoting.answer_errors import is_type_mismatch

GROUP: Final = "rocketmq-py-check"
"""The producer group of the test message."""
BODY: Final = b"rocketmq-py check connection"
_WITHOUT_TOPIC = "pass --topic"


def full_name_of(topic: str | None, client: ClientCore) -> str:
    """Return the name on the wire. The steps show it, so that users can compare it with their console."""
    return client.namespace.wrap_topic(topic or DEFAULT_TOPIC)


class TopicSteps:
    """Looks for the topic and its brokers, and asks whether it may be read, and whether it may be written to.

    Args:
        servers: the name servers.
        topic: the topic, or None to skip the steps.
        group: a consumer group whose rights are checked, or None.
        sends: whether to send a message.
    """

    def __init__(self, servers: ServerSteps, topic: str | None, group: str | None, *, sends: bool) -> None:
        self._servers = servers
        self._client = servers.client
        self._console = servers.console
        self._topic = topic
        self._group = group
        self._sends = sends
        self._full_name = full_name_of(topic, self._client)
        self._route: Route | None = None
        self._listed: Sequence[str] | None = None  # all topics, after the first request for them

    def _found(self) -> dict[str, Command]:
        """Return the answers of the name servers that know the topic."""
        answers = self._servers.answers.items()
        return {address: answer for address, answer in answers if answer.code == ResponseCode.SUCCESS}

    async def check_namespace(self) -> str:
        """If the topic does not exist, look for it with other namespaces."""
        name, v2 = self._client.namespace.name, self._client.settings.namespace_v2
        source = "from the address" if self._client.settings.namespace is None else "as given"
        text = f"{name}, {source}" if name else "none"
        if self._topic is not None and not self._found():
            for full_name, advice in await self._other_names(self._topic):
                if (await self._servers.route_of(full_name)).code == ResponseCode.SUCCESS:
                    raise StepFailedError(
                        f"topic {self._full_name} does not exist, but {full_name} does",
                        f"{advice}. {self._console.namespace}",
                    )
        return f"{text}; requests name the namespace {v2}" if v2 else text

    async def _other_names(self, topic: str) -> list[tuple[str, str]]:
        """Return full names that the topic may have, with advice how to use them."""
        short = topic.rpartition("%")[2]
        others = []
        if self._client.namespace.name:
            others.append((topic, "Pass --namespace '' to use names unchanged"))
            full_name = self._client.namespace.wrap_topic(short)
            others.append((full_name, f"Pass the name without a namespace: {short}"))
        instance = namespace_of(self._servers.given_address, ClientSettings())
        if instance:
            others.append((f"{instance}%{short}", "Leave --namespace out: the address has the namespace"))
        for one in await self._listed_topics():
            namespace, _, name = one.rpartition("%")
            if name == short and namespace and not one.startswith("%"):
                others.append((one, f"Pass --namespace '{namespace}' and the topic {short}"))
        return [one for one in others if one[0] != self._full_name]

    async def _listed_topics(self) -> Sequence[str]:
        """Return all topics, or none if the service does not list them."""
        if self._listed is None:
            answer = await self._servers.query(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
            self._listed = () if answer is None else TopicList.decode(answer.body).topic_list
        return self._listed

    async def check_route(self) -> str:
        """Check that all name servers know the topic, and that it has queues."""
        if self._topic is None:
            raise StepSkipped(_WITHOUT_TOPIC)
        found = self._found()
        if not found:
            raise await self._why_missing(self._topic)
        missing = self._servers.answers.keys() - found.keys()
        if missing:
            raise StepFailedError(
                f"topic {self._full_name} exists at {', '.join(sorted(found))} but not at "
                f"{', '.join(sorted(missing))}: they are of different clusters, or brokers are registered at "
                "some of them only",
                f"Pass the name servers of one cluster. {self._console.endpoint}",
            )
        self._route = Route.of(self._topic, TopicRoute.decode(next(iter(found.values())).body))
        self._check_queues(self._route)
        return f"{len(self._route.write_queues)} queues to write on {len(self._route.brokers)} brokers"

    def _check_queues(self, route: Route) -> None:
        only_reads = self._group is not None and not self._sends
        if route.read_queues if only_reads else route.write_queues:
            return
        has_master = any(MASTER_ID in addresses for addresses in route.brokers.values())
        reason = "be read" if only_reads else "be written to"
        if has_master:
            text = f"topic {self._full_name} exists, but none of its queues may {reason}"
            raise StepFailedError(text, "Change its permission to read and write (RW)")
        text = f"topic {self._full_name} exists, but none of its queues can {reason}: no master is up"
        raise StepFailedError(text, "Start its brokers again, or wait until they have started")

    async def _why_missing(self, topic: str) -> StepFailedError:
        """Return why no name server knows the topic under any name."""
        text = f"topic {self._full_name} does not exist at {', '.join(self._servers.answers)}"
        info = await self._servers.query(RequestCode.GET_BROKER_CLUSTER_INFO)
        is_proxy = any(map(is_answer_of_proxy, self._servers.answers.values()))
        if info is None and not self._servers.is_signing and not is_proxy:
            return StepFailedError(
                f"{text}. Requests are not signed, and some services hide topics then",
                f"{KEYS_ADVICE}. {self._console.keys}",
                step="signature",
            )
        if info is None:
            return StepFailedError(
                text,
                f"{self._console.topics}. If it is there, the namespace, the address or the keys are "
                f"those of another instance.{self._servers.namespace_advice} {self._console.keys}",
            )
        brokers = ClusterInfo.decode(info.body).broker_addr_table
        if not brokers:
            return StepFailedError(
                f"{text}, and no broker is registered there",
                "Wait until the brokers have started. Otherwise their setting namesrvAddr names other name "
                "servers",
            )
        near = difflib.get_close_matches(topic, await self._listed_topics(), n=3)
        hint = f" Similar topics exist: {', '.join(near)}." if near else ""
        return StepFailedError(
            f"{text}, where the brokers {', '.join(sorted(brokers))} are registered",
            f"{self._console.topics}.{hint} If it exists, the address is that of another cluster, or the "
            "brokers of the topic are down",
        )

    async def reach_brokers(self) -> str:
        """Connect to each broker of the topic."""
        if self._route is None:
            raise StepSkipped(_WITHOUT_TOPIC)
        addresses = [one[min(one)] for one in self._route.brokers.values() if one]
        failures = await self._servers.connect_to_each(addresses)
        if failures:
            raise StepFailedError(
                f"the route is known, but not all brokers can be reached: {listed(failures)}",
                f"The broker is down, or announces an address of another network. {self._console.network}",
            )
        return "connected to " + ", ".join(addresses)

    async def check_permissions(self) -> str:
        """Ask each broker for an offset: of the group if there is one, else of the topic."""
        if self._topic is None or self._route is None:
            raise StepSkipped(_WITHOUT_TOPIC)
        await self._client.routes.get(self._topic)
        for queue in {queue.broker_name: queue for queue in self._route.read_queues}.values():
            try:
                if self._group is None:
                    await self._client.brokers.max_offset(queue)
                else:
                    await self._client.brokers.committed_offset(self._group, queue)
            except AccessDeniedError as error:
                failure = self._servers.denial(error)
                if failure.step == "signature" or self._group is not None:
                    raise failure from None
                # Users who may only publish are denied.
                raise StepSkipped("the keys are valid, but may not read the topic; pass --send") from None
            except BrokerError as error:
                if error.code != ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
                    raise
                group = self._client.namespace.wrap_group(self._group or "")
                text = f"the consumer group {group} does not exist: {one_line(error.remark)}"
                raise StepFailedError(text, self._console.topics) from None
        return "reading is permitted"

    async def send(self) -> str:
        """Send a message, if wanted."""
        if self._topic is None or not self._sends:
            raise StepSkipped("pass --topic and --send")
        try:
            async with Producer(BorrowedClient(self._client), group=GROUP) as producer:
                result = await producer.send(Message(self._topic, BODY))
        except AccessDeniedError as error:
            raise self._servers.denial(error) from None
        except MessageRefusedError as error:
            if not is_type_mismatch(error.remark):
                raise
            advice = "The connection works. Send messages of the topic's type"
            raise StepFailedError(str(error), advice) from None
        return f"stored as {result.message_id} in queue {result.queue.queue_id} on {result.queue.broker_name}"
