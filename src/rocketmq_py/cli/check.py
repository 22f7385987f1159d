"""``rocketmq-py check``: for monitoring, in the words and with the exit codes of Nagios' plugins."""

from __future__ import annotations

import enum
import json
import sys
from typing import TYPE_CHECKING, Any

import click

from rocketmq_py.cli.access import Access, takes_access
from rocketmq_py.cli.console import complain, print_out
from rocketmq_py.cli.consumer_group import group_argument
from rocketmq_py.cli.options import checked, complete_topics
from rocketmq_py.names import check_topic

if TYPE_CHECKING:
    from rocketmq_py.admin import GroupDescription


class State(enum.IntEnum):
    """How it is; its number is the exit code."""

    OK = 0
    WARNING = 1
    CRITICAL = 2
    UNKNOWN = 3


class WrongCheckError(click.UsageError):
    """What is wrong with the command line of a check."""

    exit_code = State.UNKNOWN.value


class Checks(click.Group):
    """A group whose wrong command lines end with 3: a slip of the pen in a check is no alarm."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a check; see ``click.Group.invoke``."""
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            raise WrongCheckError(error.format_message(), error.ctx) from None


@click.group(cls=Checks)
def check() -> None:
    """Checks for monitoring, which Nagios, Icinga and their like can run.

    The exit code is 0 for OK, 1 for WARNING, 2 for CRITICAL, and 3 for UNKNOWN, when nobody could say.
    """


@check.command()
@group_argument
@click.option("--warn", metavar="N", type=click.IntRange(min=0), help="WARNING from a lag of N on.")
@click.option("--critical", metavar="N", type=click.IntRange(min=0), help="CRITICAL from a lag of N on.")
@click.option(
    "--topic", metavar="TOPIC", callback=checked(check_topic), shell_complete=complete_topics,
    help="Only this topic. Without it: all that the group consumes, retries too.",
)  # fmt: skip
@click.option(
    "-o", "form", type=click.Choice(["nagios", "prometheus", "json"]), default="nagios", show_default=True,
    help="A line for Nagios, metrics for Prometheus, or JSON.",
)  # fmt: skip
@takes_access
def lag(
    access: Access, group: str, warn: int | None, critical: int | None, topic: str | None, form: str
) -> None:
    """Check how many messages a consumer group has still to consume."""
    if warn is not None and critical is not None and warn > critical:
        raise click.UsageError(f"--warn {warn} is above --critical {critical}")

    from rocketmq_py.admin import Admin
    from rocketmq_py.cli.running import end_for_signal, run
    from rocketmq_py.errors import RocketMQError

    states: list[State] = []

    async def work() -> None:
        try:
            async with Admin(access.name_servers, **access.client_options()) as admin:
                described = await admin.groups.describe(group)
        except RocketMQError as error:
            states.append(State.UNKNOWN)
            reason = " ".join(str(error).split())
            if form == "json":
                print_out(json.dumps({"state": "UNKNOWN", "group": group, "reason": reason}))
            elif form == "prometheus":
                complain(reason)
            else:
                print_out(f"UNKNOWN - {group}: {reason}")
            return
        lags = {one.topic: one.lag for one in described.topics if topic in (None, one.topic)}
        state, words = _judged(described, sum(lags.values()), warn, critical, topic)
        states.append(state)
        if form == "json":
            value = {"state": state.name, "group": group, "lag": sum(lags.values()), "topics": lags}
            print_out(json.dumps({**value, "members": len(described.members)}))
        elif form == "prometheus":
            print_out(metrics(group, lags, len(described.members)), end="")
        else:
            limits = ";".join("" if limit is None else str(limit) for limit in (warn, critical))
            print_out(f"{state.name} - {group}: {words} | lag={sum(lags.values())};{limits};0")

    end_for_signal(run(work))
    sys.exit(states[0])


def _judged(
    described: GroupDescription, lag: int, warn: int | None, critical: int | None, topic: str | None
) -> tuple[State, str]:
    where = f" in {topic}" if topic is not None else ""
    words = f"lag {lag}{where}, {len(described.members)} members"
    if critical is not None and lag >= critical:
        state = State.CRITICAL
    elif described.failures:
        # The others' lag comes on top.
        silent = ", ".join(f"{name} ({error})" for name, error in described.failures.items())
        return State.UNKNOWN, " ".join(f"{words}; no answer of {silent}".split())
    elif topic is not None and topic not in {one.topic for one in described.topics}:
        return State.UNKNOWN, f"it does not consume {topic}"
    elif warn is not None and lag >= warn:
        state = State.WARNING
    else:
        state = State.OK
    return state, words


def metrics(group: str, lags: dict[str, int], members: int) -> str:
    """Return the lag of each topic and the number of members in the exposition format of Prometheus."""

    def quoted(name: str) -> str:
        return '"' + name.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n") + '"'

    lines = [
        "# HELP rocketmq_group_lag Messages that a consumer group has still to consume.",
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
