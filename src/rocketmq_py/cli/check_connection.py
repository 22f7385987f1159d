"""``rocketmq-py check connection``: the first obstacle between this machine and a topic."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import click

from rocketmq_py.cli.cluster_access import access_options
from rocketmq_py.cli.clusters import Access
from rocketmq_py.cli.completion import complete_groups, complete_topics
from rocketmq_py.cli.console import print_out
from rocketmq_py.cli.monitoring import State, format_options, print_for_nagios, quoted
from rocketmq_py.cli.option_values import checked
from rocketmq_py.names import check_group, check_topic

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rocketmq_py.admin.connection.steps import Step


@click.command()
@click.option(
    "-t", "--topic", metavar="TOPIC", callback=checked(check_topic), shell_complete=complete_topics,
    help="Check the route to this topic, too.",
)  # fmt: skip
@click.option(
    "-G", "--group", metavar="GROUP", callback=checked(check_group), shell_complete=complete_groups,
    help="Check whether this consumer group may read the topic. It is not joined.",
)  # fmt: skip
@click.option("--send", "sends", is_flag=True, help="Send a message to the topic.")
@format_options
@access_options
def connection(access: Access, topic: str | None, group: str | None, sends: bool, output: str) -> None:
    """Find out why a client cannot connect.

    Takes the steps from the address to the topic one by one: address, TCP, TLS, name server, signature,
    namespace, route, brokers, permissions, and a message. At the first that fails it says what is wrong, and
    what to do, in the words of the service's console. It is CRITICAL then, else OK.
    """
    if topic is None and (group or sends):
        raise click.UsageError("--group and --send need --topic")

    from rocketmq_py.admin.connection.walk import ConnectionWalk
    from rocketmq_py.cli.runner import exit_for_signal, run

    walk = ConnectionWalk(access.name_servers, access.client_options, topic, group, sends=sends)
    exit_for_signal(run(walk.run))
    failed = walk.failed
    state = State.OK if failed is None else State.CRITICAL
    steps = walk.steps.values()
    if output == "json":
        print_out(json.dumps(_as_json(state, failed, steps), ensure_ascii=False))
    elif output == "prometheus":
        print_out(step_metrics(steps), end="")
    else:
        print_for_nagios(state, f"{failed.name}: {failed.text}" if failed else "all steps succeeded")
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


def step_metrics(steps: Iterable[Step]) -> str:
    """Return whether each step succeeded as Prometheus metrics. Skipped steps are left out."""
    lines = [
        "# HELP rocketmq_connection_step_ok Whether a step of connecting succeeded.",
        "# TYPE rocketmq_connection_step_ok gauge",
        *[
            f"rocketmq_connection_step_ok{{step={quoted(step.name)}}} {int(step.state == 'ok')}"
            for step in steps
            if step.state != "skipped"
        ],
    ]
    return "".join(f"{line}\n" for line in lines)
