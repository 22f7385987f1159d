"""Completion of commands, topics and groups in shells. ``clusters`` completes its names."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import redirect_stderr, suppress
from io import StringIO

import click
from click.shell_completion import get_completion_class

from rocketmq_py.cli.clusters import access_of
from rocketmq_py.cli.console import print_out
from rocketmq_py.names import RETRY_PREFIX, check_group, check_topic, is_internal_topic

PROGRAM = "rocketmq-py"
TIMEOUT = 2.0
"""Seconds that a shell waits for the cluster when it completes a name."""
_VARIABLE = "_ROCKETMQ_PY_COMPLETE"


@click.command
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script of a shell. It completes commands, options and names.

    \b
    bash:  eval "$(rocketmq-py completion bash)"      in ~/.bashrc
    zsh:   eval "$(rocketmq-py completion zsh)"       in ~/.zshrc
    fish:  rocketmq-py completion fish | source       in ~/.config/fish/config.fish

    The names are those of topics, groups and named clusters. Topics and groups come from the cluster that
    the command line, the environment or the configuration selects. Groups that never had a
    member are not completed.
    """
    shell_class = get_completion_class(shell)
    assert shell_class is not None
    root = click.get_current_context().find_root().command
    print_out(shell_class(root, {}, PROGRAM, _VARIABLE).source())


def complete_topics(context: click.Context, _: click.Parameter, prefix: str) -> list[str]:
    """Return the topics that start with ``prefix``, or none if the cluster does not answer."""
    topics = [name for name in _all_topics(context) if not is_internal_topic(name)]
    return _matching(topics, prefix, check_topic)


def complete_groups(context: click.Context, _: click.Parameter, prefix: str) -> list[str]:
    """Return the groups with a retry topic that start with ``prefix``, or none without an answer."""
    topics = [name for name in _all_topics(context) if name.startswith(RETRY_PREFIX)]
    return _matching([name.removeprefix(RETRY_PREFIX) for name in topics], prefix, check_group)


def _matching(names: list[str], prefix: str, check: Callable[[str], object]) -> list[str]:
    """Return the valid names that start with ``prefix``. A shell could run code in an invalid one."""
    valid = []
    for name in names:
        if name.startswith(prefix):
            with suppress(ValueError):
                check(name)
                valid.append(name)
    return valid


def _all_topics(context: click.Context) -> list[str]:
    """Return all topics of the cluster that an incomplete command line selects."""
    import trio

    from rocketmq_py.client import ClientCore
    from rocketmq_py.errors import RocketMQError

    topics: list[str] = []

    async def query() -> None:
        access = access_of(context)
        with trio.move_on_after(TIMEOUT):
            async with ClientCore(access.address, **access.client_options()) as client:
                names = dict.fromkeys(await client.name_servers.topics())
                topics.extend(sorted(client.namespace.own_topics(names)))

    # Text on standard error would appear in the middle of the command line that the user types.
    with redirect_stderr(StringIO()), suppress(RocketMQError, click.ClickException):
        trio.run(query)
    return topics
