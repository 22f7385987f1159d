"""What the options of several commands share, and the values that they take."""

from __future__ import annotations

import datetime
import os
import re
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, TypeVar

import click

from rocketmq_py.names import RETRY_PREFIX, check_group, check_topic, is_internal_topic

DEFAULT_ADDRESS = "127.0.0.1:9876"
"""The client's own default, repeated here for the help: the client's modules load slowly."""

LARGEST_BODY = 4 * 1024 * 1024
"""Bytes; what brokers take unless they are told otherwise."""

Value = TypeVar("Value")


def checked(check: Callable[[str], Value]) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """Return the callback of an option that has ``check`` read its value, or each of its values.

    What the ValueError of a wrong one says is shown to the user. An option that is not given stays None.
    """

    def callback(ctx: click.Context, param: click.Parameter, given: Any) -> Any:
        try:
            if isinstance(given, tuple):
                return tuple([check(value) for value in given])
            return None if given is None else check(given)
        except ValueError as error:
            raise click.BadParameter(str(error), ctx, param) from None

    return callback


def not_empty(text: str) -> str:
    """Return ``text`` if there is anything in it. Raises ValueError if there is not."""
    if not text.strip():
        raise ValueError("it is empty: is a variable of the shell not set?")
    return text


_SECONDS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def parse_duration(text: str) -> float:
    """Return the seconds of ``7.3s``, ``250ms``, ``5m``, ``2h``, ``1d`` or ``90``. Raises ValueError."""
    found = re.fullmatch(r"([0-9]{1,12}(?:\.[0-9]{1,9})?)(ms|s|m|h|d|)", text, re.ASCII)
    if found is None:
        raise ValueError(f"{text!r} is no time such as 250ms, 7.3s, 5m, 2h or 1d")
    return float(found[1]) * _SECONDS[found[2]]


def parse_sizes(text: str) -> range:
    """Return the sizes of ``100``, or ``100-4000``: any of these. Raises ValueError."""
    found = re.fullmatch("([0-9]{1,8})(?:-([0-9]{1,8}))?", text, re.ASCII)
    sizes = range(int(found[1]), int(found[2] or found[1]) + 1) if found else range(0)
    if not sizes or sizes[0] < 1 or sizes[-1] > LARGEST_BODY:
        raise ValueError(f"{text!r} is neither a size from 1 to {LARGEST_BODY} nor two of them: 100-4000")
    return sizes


def parse_moment(text: str) -> int:
    """Return the epoch milliseconds of ``@MS``, or of so long ago: ``10m``. Raises ValueError."""
    if re.fullmatch("@[0-9]{1,18}", text, re.ASCII):
        return int(text[1:])
    try:
        ago = parse_duration(text)
    except ValueError:
        raise ValueError(
            f"{text!r} is neither @MS, a time in epoch milliseconds, nor so long ago: 10m"
        ) from None
    return max(int((time.time() - ago) * 1000), 0)


def parse_time(text: str) -> int:
    """Return the epoch milliseconds of ``@MS``, or of a time such as ``2026-01-31T08:00``. Raises ValueError.

    A time without an offset is that of this machine's zone.
    """
    if re.fullmatch("@[0-9]{1,15}", text, re.ASCII):
        return int(text[1:])
    try:
        return int(datetime.datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        raise ValueError(
            f"{text!r} is neither @MS, a time in epoch milliseconds, nor a time such as 2026-01-31T08:00"
        ) from None


def parse_property(text: str) -> tuple[str, str]:
    """Return name and value of ``name=value``. Raises ValueError if it is something else."""
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise ValueError(f"{text!r} is not NAME=VALUE")
    return name, value


def check_topic_or_pattern(text: str) -> str:
    """Return a topic's name, or a pattern of such with ``*`` and ``?``. Raises ValueError if it is none."""
    check_topic(text.replace("*", "x").replace("?", "x"))
    return text


def compile_pattern(text: str) -> re.Pattern[bytes]:
    """Return a regular expression for bodies. Raises ValueError if it is none."""
    try:
        return re.compile(os.fsencode(text))
    except re.error as error:
        raise ValueError(f"{text!r} is no regular expression: {error}") from None


def parse_queue(text: str) -> tuple[str, int]:
    """Return the broker and the number of ``BROKER/N``. Raises ValueError if it is something else."""
    broker, _, number = text.rpartition("/")
    if not broker or not re.fullmatch("[0-9]{1,6}", number, re.ASCII):
        raise ValueError(f"{text!r} is not BROKER/N, such as broker-a/0")
    return broker, int(number)


def check_addresses(text: str) -> str:
    """Return ``text`` if it is a list of addresses or a URL. Raises ValueError if it is not."""
    not_empty(text)
    from rocketmq_py.client.config import ClientConfig, name_servers

    name_servers(text, ClientConfig())
    return text


PATIENCE = 2.0
"""Seconds for which a shell that completes a name waits for the cluster."""


def complete_topics(context: click.Context, _: click.Parameter, begun: str) -> list[str]:
    """Return the topics that begin with ``begun``, or none if the cluster does not answer."""
    topics = [name for name in _topics_on_wire(context) if not is_internal_topic(name)]
    return _completions(topics, begun, check_topic)


def complete_groups(context: click.Context, _: click.Parameter, begun: str) -> list[str]:
    """Return the groups that have a retry topic and begin with ``begun``, or none if there is no answer."""
    topics = [name for name in _topics_on_wire(context) if name.startswith(RETRY_PREFIX)]
    return _completions([name.removeprefix(RETRY_PREFIX) for name in topics], begun, check_group)


def _completions(names: list[str], begun: str, check: Callable[[str], object]) -> list[str]:
    """Return the names that begin with ``begun`` and are allowed: a shell would run what others contain."""
    allowed = []
    for name in names:
        if name.startswith(begun):
            with suppress(ValueError):
                check(name)
                allowed.append(name)
    return allowed


def _topics_on_wire(context: click.Context) -> list[str]:
    """Return all topics of the cluster that a command line that is not complete leads to."""
    import trio

    from rocketmq_py.cli.access import access_of
    from rocketmq_py.client import Client
    from rocketmq_py.errors import RocketMQError

    topics: list[str] = []

    async def ask() -> None:
        access = access_of(context.params)
        with trio.move_on_after(PATIENCE):
            async with Client(access.name_servers, **access.client_options()) as client:
                names = await client.name_servers.topics()
                topics.extend(sorted(client.namespace.unwrap_topic(name) for name in names))

    with suppress(RocketMQError, click.ClickException):
        trio.run(ask)
    return topics


topic_option: Final = click.option(
    "-t",
    "topic",
    metavar="TOPIC",
    callback=checked(check_topic),
    required=True,
    help="The topic.",
    shell_complete=complete_topics,
)
group_option: Final = click.option(
    "-G", "group", metavar="GROUP", callback=checked(check_group), shell_complete=complete_groups,
    help="Join this consumer group: its members share the messages, and offsets are committed.",
)  # fmt: skip
raw_option: Final = click.option(
    "--raw", is_flag=True,
    help="On a terminal, print control characters of messages as they are instead of escaped.",
)  # fmt: skip
since_option: Final = click.option(
    "--since", "begin_ms", metavar="TIME", callback=checked(parse_moment),
    help="Only what was stored since then: 10m ago, or @MS.",
)  # fmt: skip
until_option: Final = click.option(
    "--until", "end_ms", metavar="TIME", callback=checked(parse_moment),
    help="Only what was stored until then: 10m ago, or @MS.",
)  # fmt: skip
