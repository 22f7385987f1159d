"""``rocketmq-py check``: monitoring checks, with the output and exit codes of Nagios plugins.

``check connection`` finds the first obstacle between this machine and a topic.
"""

from __future__ import annotations

import enum
import functools
import json
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from rocketmq_py.cli.check_metrics import lag_metrics, server_metrics, step_metrics
from rocketmq_py.cli.clusters import Access, ClustersError, access_options
from rocketmq_py.cli.console import complain, print_out
from rocketmq_py.cli.options import group_argument, group_option, topic_option
from rocketmq_py.cli.tables import json_option

if TYPE_CHECKING:
    from rocketmq_py.admin import Admin, GroupDescription
    from rocketmq_py.admin.connection.steps import Step

Function = TypeVar("Function", bound=Callable[..., Any])

# Output and exit codes of Nagios plugins


class State(enum.IntEnum):
    """The result of a check. Its number is the exit code."""

    OK = 0
    WARNING = 1
    CRITICAL = 2
    UNKNOWN = 3


class MonitoringGroup(click.Group):
    """A group whose usage errors exit with 3 for UNKNOWN, since the usual 2 means CRITICAL."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the options of the group itself. See ``click.Group.parse_args``."""
        with _usage_errors_are_unknown():
            return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Parse the options of a check and run it. See ``click.Group.invoke``."""
        with _usage_errors_are_unknown():
            return super().invoke(ctx)


@contextmanager
def _usage_errors_are_unknown() -> Iterator[None]:
    try:
        yield
    except (click.UsageError, ClustersError) as error:
        error.exit_code = State.UNKNOWN.value  # type: ignore[misc]  # of this error only
        raise


def format_options(function: Function) -> Function:
    """Add ``--json`` and ``--prometheus`` to a check, which receives ``output``. The default is Nagios."""

    @functools.wraps(function)
    def command(*args: Any, as_json: bool, prometheus: bool, **options: Any) -> Any:
        if as_json and prometheus:
            raise click.UsageError("give --json or --prometheus, not both")
        return function(
            *args, output="json" if as_json else "prometheus" if prometheus else "nagios", **options
        )

    prometheus_option = click.option(
        "--prometheus", is_flag=True, help="Print metrics for Prometheus instead of a line for Nagios."
    )
    wrapped: Any = json_option(prometheus_option(command))
    return wrapped  # type: ignore[no-any-return]


def run_check(
    access: Access, work: Callable[[Admin], Awaitable[State]], print_unknown: Callable[[str], None]
) -> NoReturn:
    """Run ``work`` with an Admin and exit with the code of its state.

    If it fails, or the Admin cannot be opened, print the reason and exit with the code of UNKNOWN.
    """
    from rocketmq_py.admin import Admin
    from rocketmq_py.cli.runner import exit_for_signal, run
    from rocketmq_py.errors import RocketMQError

    state = State.UNKNOWN

    async def open_and_work() -> None:
        nonlocal state
        try:
            async with Admin(access.address, **access.client_options()) as admin:
                state = await work(admin)
        except RocketMQError as error:
            print_unknown(single_line(error))

    exit_for_signal(run(open_and_work))
    sys.exit(state)


def print_for_nagios(state: State, text: str, metrics: str = "") -> None:
    """Print a line for Nagios, where ``|`` separates the text from the metrics."""
    safe_text = text.replace("|", "/")  # names of groups and topics may contain |
    print_out(f"{state.name} - {safe_text}{f' | {metrics}' if metrics else ''}")


def single_line(error: object) -> str:
    """Return the text of an error as one line."""
    return " ".join(str(error).split())


# Checks


@click.group(cls=MonitoringGroup)
def check() -> None:
    """Checks for monitoring systems such as Nagios, Icinga and Prometheus.

    The exit code is 0 for OK, 1 for WARNING, 2 for CRITICAL and 3 for UNKNOWN.
    """


@check.command()
@topic_option("Check the route to this topic, too.")
@group_option("Check whether this consumer group may read the topic. It is not joined.")
@click.option("--send", "sends", is_flag=True, help="Send a message to the topic.")
@format_options
@access_options
def connection(access: Access, topic: str | None, group: str | None, sends: bool, output: str) -> None:
    """Find out why a client cannot connect.

    Takes the steps from the address to the topic one by one: address, TCP, TLS, name server, signature,
    namespace, route, brokers, permissions, and a message. At the first that fails it says what is wrong, and
    what to do, in the words of the service's console. It is CRITICAL then, else OK. Only brokers check the
    keys of many clusters, so that --topic is needed to check them.
    """
    if topic is None and (group or sends):
        raise click.UsageError("--group and --send need --topic")

    from rocketmq_py.admin.connection.walk import ConnectionWalk
    from rocketmq_py.cli.runner import exit_for_signal, run

    walk = ConnectionWalk(access.address, access.client_options, topic, group, sends=sends)
    exit_for_signal(run(walk.run))
    failed = walk.failed
    state = State.OK if failed is None else State.CRITICAL
    steps = walk.steps.values()
    if output == "json":
        print_out(json.dumps(_as_json(state, failed, steps), ensure_ascii=False))
    elif output == "prometheus":
        print_out(step_metrics(steps), end="")
    else:
        print_for_nagios(state, walk.summary)
        for step in steps:
            print_out(f"  {step.name:12} {step.state:8} {step.text.replace('|', '/')}")
        if failed is not None:
            print_out(f"what to do: {failed.advice.replace('|', '/')}")
    sys.exit(state)


def _as_json(state: State, failed: Step | None, steps: Iterable[Step]) -> dict[str, object]:
    reason = {"failed": None} if failed is None else {"failed": failed.name, "reason": failed.text}
    advice = {} if failed is None else {"advice": failed.advice}
    listed = [{"step": one.name, "state": one.state, "text": one.text} for one in steps]
    return {"state": state.name, **reason, **advice, "steps": listed}


@check.command()
@group_argument
@click.option("--warn", metavar="N", type=click.IntRange(min=0), help="WARNING if the lag is N or more.")
@click.option("--critical", metavar="N", type=click.IntRange(min=0), help="CRITICAL if the lag is N or more.")
@topic_option("Only this topic.  [default: all topics that the group consumes, and its retry topic]")
@format_options
@access_options
def lag(
    access: Access, group: str, warn: int | None, critical: int | None, topic: str | None, output: str
) -> None:
    """Check the lag of a consumer group: the number of messages that it has not consumed yet."""
    if warn is not None and critical is not None and warn > critical:
        raise click.UsageError(f"--warn {warn} is above --critical {critical}")

    def print_unknown(reason: str) -> None:
        if output == "json":
            print_out(json.dumps({"state": State.UNKNOWN.name, "group": group, "reason": reason}))
        elif output == "prometheus":
            complain(reason)
        else:
            print_for_nagios(State.UNKNOWN, f"{group}: {reason}")

    async def work(admin: Admin) -> State:
        from rocketmq_py.admin.group_values import OTHER_TOPICS

        described = await admin.groups.describe(group, None if topic is None else [topic])
        lags = {one.topic: one.lag for one in described.topics if topic in (None, one.topic)}
        incomplete = _why_incomplete(described, topic)
        state = _lag_state(sum(lags.values()), warn, critical, is_complete=incomplete is None)
        members = len(described.members)
        not_counted = OTHER_TOPICS if OTHER_TOPICS in described.not_offered else None
        if output == "json":
            value = {"state": state.name, "group": group, "lag": sum(lags.values()), "topics": lags}
            notes = {"reason": incomplete, "not_counted": not_counted}
            given = {name: note for name, note in notes.items() if note is not None}
            print_out(json.dumps({**value, "members": members, **given}))
        elif output == "prometheus":
            if incomplete is not None:
                complain(incomplete)
            if not_counted is not None:
                complain(f"not counted: {not_counted}")
            print_out(lag_metrics(group, lags, members), end="")
        else:
            text = _lag_text(lags, members, topic, incomplete)
            if not_counted is not None:
                text += f"; not counted: {not_counted}"
            limits = ";".join("" if limit is None else str(limit) for limit in (warn, critical))
            print_for_nagios(state, f"{group}: {text}", f"lag={sum(lags.values())};{limits};0")
        return state

    run_check(access, work, print_unknown)


def _why_incomplete(described: GroupDescription, topic: str | None) -> str | None:
    """Return why the lag is unknown or incomplete. None if it is complete."""
    if described.failures:
        failed = ", ".join(f"{name} ({error})" for name, error in described.failures.items())
        return single_line(f"no answer from {failed}")
    if topic is not None and topic not in {one.topic for one in described.topics}:
        return f"the group does not consume {topic}"
    return None


def _lag_state(lag: int, warn: int | None, critical: int | None, *, is_complete: bool) -> State:
    if critical is not None and lag >= critical:
        return State.CRITICAL  # an incomplete lag is too small
    if not is_complete:
        return State.UNKNOWN
    return State.WARNING if warn is not None and lag >= warn else State.OK


def _lag_text(lags: Mapping[str, int], members: int, topic: str | None, incomplete: str | None) -> str:
    if incomplete is not None and topic is not None and topic not in lags:
        return incomplete
    where = f" in {topic}" if topic is not None else ""
    text = f"lag {sum(lags.values())}{where}, {members} members"
    return text if incomplete is None else f"{text}; {incomplete}"


@check.command()
@click.option(
    "--brokers", "expected", metavar="N", type=click.IntRange(min=1),
    help="CRITICAL if fewer than N brokers answer. Name servers forget a broker that was killed.",
)  # fmt: skip
@format_options
@access_options
def health(access: Access, expected: int | None, output: str) -> None:
    """Check that all name servers and brokers answer.

    It is WARNING if some do not answer, and CRITICAL if no name server or no broker does. If name servers do
    not list brokers, only the name servers are checked. A server that denies access or does not offer the
    request answers.
    """
    from rocketmq_py.cli.health_check import find_servers

    def print_unknown(reason: str) -> None:
        if output == "json":
            print_out(json.dumps({"state": State.UNKNOWN.name, "servers": [], "reasons": [reason]}))
        elif output == "prometheus":
            complain(reason)
        else:
            print_for_nagios(State.UNKNOWN, reason)

    async def work(admin: Admin) -> State:
        found = await find_servers(admin, expected)
        state = State.CRITICAL if found.is_critical else State.WARNING if found.failures else State.OK
        reasons = [single_line(reason) for reason in found.reasons]
        if output == "prometheus":
            for note in found.notes:
                complain(single_line(note))
            print_out(server_metrics(found.servers), end="")
        elif output == "json":
            values = [one.as_dict() for one in found.servers]
            print_out(json.dumps({"state": state.name, "servers": values, "reasons": reasons}))
        else:
            counts = [(role, *found.up_and_total(role)) for role in found.roles]
            text = " and ".join(f"{up} of {total} {role}s answer" for role, up, total in counts)
            metrics = " ".join(f"{role.replace(' ', '_')}s={up};;;0;{total}" for role, up, total in counts)
            print_for_nagios(state, "; ".join([text, *reasons]), metrics)
        return state

    run_check(access, work, print_unknown)
