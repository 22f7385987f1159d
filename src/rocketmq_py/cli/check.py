"""``rocketmq-py check``: monitoring checks, with the output and exit codes of Nagios plugins."""

from __future__ import annotations

import enum
import json
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import attrs
import click

from rocketmq_py.cli.access import Access, access_options
from rocketmq_py.cli.completion import complete_topics
from rocketmq_py.cli.console import complain, print_out
from rocketmq_py.cli.option_values import checked
from rocketmq_py.cli.options import group_argument
from rocketmq_py.names import check_topic

if TYPE_CHECKING:
    from rocketmq_py.admin import GroupDescription
    from rocketmq_py.errors import RocketMQError


class State(enum.IntEnum):
    """The result of a check. Its number is the exit code."""

    OK = 0
    WARNING = 1
    CRITICAL = 2
    UNKNOWN = 3


class CheckUsageError(click.UsageError):
    """A usage error of a check. The exit code is that of UNKNOWN."""

    exit_code = State.UNKNOWN.value


class CheckGroup(click.Group):
    """A group whose usage errors exit with 3, since the usual 2 means CRITICAL."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a check. See ``click.Group.invoke``."""
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            raise CheckUsageError(error.format_message(), error.ctx) from None


@click.group(cls=CheckGroup)
def check() -> None:
    """Checks for monitoring systems such as Nagios, Icinga and Prometheus.

    The exit code is 0 for OK, 1 for WARNING, 2 for CRITICAL and 3 for UNKNOWN.
    """


_output_option = click.option(
    "-o", "output", type=click.Choice(["nagios", "prometheus", "json"]), default="nagios", show_default=True,
    help="A line for Nagios, metrics for Prometheus, or JSON.",
)  # fmt: skip


@check.command()
@group_argument
@click.option("--warn", metavar="N", type=click.IntRange(min=0), help="WARNING if the lag is N or more.")
@click.option("--critical", metavar="N", type=click.IntRange(min=0), help="CRITICAL if the lag is N or more.")
@click.option(
    "--topic", metavar="TOPIC", callback=checked(check_topic), shell_complete=complete_topics,
    help="Only this topic.  [default: all topics that the group consumes, and its retry topic]",
)  # fmt: skip
@_output_option
@access_options
def lag(
    access: Access, group: str, warn: int | None, critical: int | None, topic: str | None, output: str
) -> None:
    """Check the lag of a consumer group: the number of messages that it has not consumed yet."""
    if warn is not None and critical is not None and warn > critical:
        raise click.UsageError(f"--warn {warn} is above --critical {critical}")

    from rocketmq_py.admin import Admin
    from rocketmq_py.cli.runner import exit_for_signal, run
    from rocketmq_py.errors import RocketMQError

    states: list[State] = []

    async def work() -> None:
        try:
            async with Admin(access.name_servers, **access.client_options()) as admin:
                described = await admin.groups.describe(group)
        except RocketMQError as error:
            states.append(State.UNKNOWN)
            reason = " ".join(str(error).split())
            if output == "json":
                print_out(json.dumps({"state": "UNKNOWN", "group": group, "reason": reason}))
            elif output == "prometheus":
                complain(reason)
            else:
                print_out(f"UNKNOWN - {group}: {reason}")
            return
        lags = {one.topic: one.lag for one in described.topics if topic in (None, one.topic)}
        state, text = _evaluate(described, sum(lags.values()), warn, critical, topic)
        states.append(state)
        if output == "json":
            value = {"state": state.name, "group": group, "lag": sum(lags.values()), "topics": lags}
            print_out(json.dumps({**value, "members": len(described.members)}))
        elif output == "prometheus":
            print_out(metrics(group, lags, len(described.members)), end="")
        else:
            limits = ";".join("" if limit is None else str(limit) for limit in (warn, critical))
            print_out(f"{state.name} - {group}: {text} | lag={sum(lags.values())};{limits};0")

    exit_for_signal(run(work))
    sys.exit(states[0])


def _evaluate(
    described: GroupDescription, lag: int, warn: int | None, critical: int | None, topic: str | None
) -> tuple[State, str]:
    where = f" in {topic}" if topic is not None else ""
    text = f"lag {lag}{where}, {len(described.members)} members"
    if critical is not None and lag >= critical:
        state = State.CRITICAL
    elif described.failures:
        # The lag on the failed brokers is unknown, and adds to the known one.
        failed = ", ".join(f"{name} ({error})" for name, error in described.failures.items())
        return State.UNKNOWN, " ".join(f"{text}; no answer from {failed}".split())
    elif topic is not None and topic not in {one.topic for one in described.topics}:
        return State.UNKNOWN, f"the group does not consume {topic}"
    elif warn is not None and lag >= warn:
        state = State.WARNING
    else:
        state = State.OK
    return state, text


@check.command()
@_output_option
@access_options
def health(access: Access, output: str) -> None:
    """Check that all name servers and brokers answer.

    It is WARNING if some do not answer, and CRITICAL if no name server or no broker does.
    """
    from rocketmq_py.admin import Admin
    from rocketmq_py.cli.runner import exit_for_signal, run
    from rocketmq_py.errors import NameServerError

    states: list[State] = []

    async def work() -> None:
        servers: list[_Server] = []
        reason: str | None = None
        async with Admin(access.name_servers, **access.client_options()) as admin:
            try:
                listed = await admin.brokers.list()
                answers = await admin.name_servers.settings()
            except NameServerError as error:
                reason = str(error)
            else:
                servers += _servers("name server", answers.values, answers.failures)
                servers += _servers("broker", [broker.address for broker in listed], listed.failures)
        state = _state_of(servers)
        states.append(state)
        if output == "prometheus":
            if reason is not None:
                complain(reason)
            print_out(server_metrics(servers), end="")
            return
        failed = [f"{one.role} {one.address}: {one.error}" for one in servers if one.error is not None]
        reasons = [" ".join(text.split()) for text in ([reason] if reason is not None else failed)]
        if output == "json":
            print_out(
                json.dumps(
                    {"state": state.name, "servers": [one.as_dict() for one in servers], "reasons": reasons}
                )
            )
        else:
            counts = [_counted(servers, role) for role in ("name server", "broker")]
            text = " and ".join(f"{up} of {count} {role}s answer" for role, up, count in counts)
            figures = " ".join(f"{role.replace(' ', '_')}s={up};;;0;{count}" for role, up, count in counts)
            print_out(f"{state.name} - {'; '.join([text, *reasons])} | {figures}")

    exit_for_signal(run(work))
    sys.exit(states[0])


@attrs.frozen
class _Server:
    """A name server or a broker, with its error if it did not answer."""

    role: str
    address: str
    error: str | None

    def as_dict(self) -> dict[str, object]:
        """Return the server for JSON."""
        return {"role": self.role, "address": self.address, "up": self.error is None, "error": self.error}


def _servers(role: str, answered: Iterable[str], failures: Mapping[str, RocketMQError]) -> list[_Server]:
    up = [_Server(role, address, None) for address in answered]
    return up + [_Server(role, address, str(error)) for address, error in failures.items()]


def _state_of(servers: list[_Server]) -> State:
    up = {one.role for one in servers if one.error is None}
    if len(up) < len(("name server", "broker")):
        return State.CRITICAL
    return State.WARNING if any(one.error is not None for one in servers) else State.OK


def _counted(servers: list[_Server], role: str) -> tuple[str, int, int]:
    errors = [one.error for one in servers if one.role == role]
    return role, errors.count(None), len(errors)


def _quoted(name: str) -> str:
    """Return a label's value for Prometheus."""
    return '"' + name.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n") + '"'


def server_metrics(servers: list[_Server]) -> str:
    """Return whether each server answers as Prometheus metrics."""
    lines = [
        "# HELP rocketmq_server_up Whether a name server or broker answers.",
        "# TYPE rocketmq_server_up gauge",
        *[
            f"rocketmq_server_up{{role={_quoted(one.role)},address={_quoted(one.address)}}} "
            f"{int(one.error is None)}"
            for one in servers
        ],
    ]
    return "".join(f"{line}\n" for line in lines)


def metrics(group: str, lags: dict[str, int], members: int) -> str:
    """Return the lag of each topic and the number of members as Prometheus metrics."""
    lines = [
        "# HELP rocketmq_group_lag Messages that a consumer group has not consumed yet.",
        "# TYPE rocketmq_group_lag gauge",
        *[
            f"rocketmq_group_lag{{group={_quoted(group)},topic={_quoted(topic)}}} {lag}"
            for topic, lag in lags.items()
        ],
        "# HELP rocketmq_group_members Members of a consumer group that are online.",
        "# TYPE rocketmq_group_members gauge",
        f"rocketmq_group_members{{group={_quoted(group)}}} {members}",
    ]
    return "".join(f"{line}\n" for line in lines)
