"""Metrics of ``rocketmq-py check --prometheus``, in Prometheus' text format."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rocketmq_py.admin.connection.steps import Step
    from rocketmq_py.cli.health_check import Server


def step_metrics(steps: Iterable[Step]) -> str:
    """Return whether each step succeeded as Prometheus metrics. Skipped steps are left out."""
    lines = [
        "# HELP rocketmq_connection_step_ok Whether a step of connecting succeeded.",
        "# TYPE rocketmq_connection_step_ok gauge",
        *[
            f"rocketmq_connection_step_ok{{step={_quoted(step.name)}}} {int(step.state == 'ok')}"
            for step in steps
            if step.state != "skipped"
        ],
    ]
    return "".join(f"{line}\n" for line in lines)


def lag_metrics(group: str, lags: Mapping[str, int], members: int) -> str:
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


def server_metrics(servers: Iterable[Server]) -> str:
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


def _quoted(name: str) -> str:
    """Return a label's value for Prometheus."""
    return '"' + name.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n") + '"'
