"""Completion of commands, topics and groups in shells."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from rocketmq_py.cli.console import print_out

PROGRAM = "rocketmq-py"
_VARIABLE = "_ROCKETMQ_PY_COMPLETE"


@click.command
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script that has a shell complete commands and options, and topics and groups of the cluster.

    \b
    bash:  eval "$(rocketmq-py completion bash)"      in ~/.bashrc
    zsh:   eval "$(rocketmq-py completion zsh)"       in ~/.zshrc
    fish:  rocketmq-py completion fish | source       in ~/.config/fish/config.fish

    Topics and groups are those of the cluster that the command line, the environment or the configuration
    names; groups that never had a member are not among them.
    """
    kind = get_completion_class(shell)
    assert kind is not None
    root = click.get_current_context().find_root().command
    print_out(kind(root, {}, PROGRAM, _VARIABLE).source())
