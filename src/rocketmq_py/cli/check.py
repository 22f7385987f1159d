"""``rocketmq-py check``: monitoring checks, with the output and exit codes of Nagios plugins."""

from __future__ import annotations

import enum
import json
import sys
from typing import TYPE_CHECKING, Any

import click

from rocketmq_py.cli.access import Access, access_options
from rocketmq_py.cli.completion import complete_topics
from rocketmq_py.cli.console import complain, print_out
from rocketmq_py.cli.option_values import checked
from rocketmq_py.cli.options import group_argument
from rocketmq_py.names import check_topic

if TYPE_CHECKING:
    from rocketmq_py.admin import GroupDescription


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


@check.command()
@group_argument
@click.option("--warn", metavar="N", type=click.IntRange(min=0), help="WARNING if the lag is N or more.")
@click.option("--critical", metavar="N", type=click.IntRange(min=0), help="CRITICAL if the lag is N or more.")
@click.option(
    "--topic", metavar="TOPIC", callback=checked(check_topic), shell_complete=complete_topics,
    help="Only this topic.  [default: all topics that the group consumes, and its retry topic]",
)  # fmt: skip
@click.option(
    "-o", "output", type=click.Choice(["nagios", "prometheus", "json"]), default="nagios", show_default=True,
    help="A line for Nagios, metrics for Prometheus, or JSON.",
)  # fmt: skip
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


def metrics(group: str, lags: dict[str, int], members: int) -> str:
    """Return the lag of each topic and the number of members as Prometheus metrics."""

    def quoted(name: str) -> str:
        return '"' + name.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n") + '"'

    lines = [
        "# HELP rocketmq_group_lag Messages that a consumer group has not consumed yet.",
        "# TYPE rocketmq_group_lag gauge",
        *[
            f"rocketmq_group_lag{{group={quoted(group)},topic={quoted(topic)}}} {lag}"
            for topic, lag in lags.items()
        ],
        "# HELP rocketmq_group_members Members of a consumer group that are online.",
        "# TYPE rocketmq_group_members gauge",
        f"rocketmq_group_members{{group={quoted(group)}}} {members}",
    ]
    return "".join(f"{line}\n" for line in lines)
