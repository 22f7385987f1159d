"""``rocketmq-py config``: the named clusters."""

from __future__ import annotations

import os

import click

from rocketmq_py.cli.clusters import (
    FILE_SETTINGS,
    FLAG_SETTINGS,
    SECRET_SETTINGS,
    TEXT_SETTINGS,
    Clusters,
    complete_clusters,
    is_secret,
)
from rocketmq_py.cli.console import print_out
from rocketmq_py.cli.lazy_group import UTF8_TEXT
from rocketmq_py.cli.option_values import check_addresses, checked, parse_property
from rocketmq_py.cli.prompts import ask_for_secret

HIDDEN = "(not shown)"


@click.group
def config() -> None:
    """Name clusters and their settings. Commands use the default one, or the one that `-C NAME` selects.

    The file of clusters is readable by you alone. ROCKETMQ_CONFIG is its path, by default config.toml in
    this system's folder for settings. `config list` prints the path.
    """


@config.command("list")
def list_clusters() -> None:
    """Print the names of all clusters. A star marks the default."""
    clusters = Clusters.load()
    print_out(f"# {clusters.path}")
    for name, settings in sorted(clusters.by_name.items()):
        mark = "*" if name == clusters.current else " "
        print_out(f"{mark} {name}  {settings.get('address', '')}".rstrip())


@config.command()
@click.argument("name", metavar="[CLUSTER]", required=False, shell_complete=complete_clusters)
def show(name: str | None) -> None:
    """Print the settings of CLUSTER, or of the default cluster, without its secrets."""
    clusters = Clusters.load()
    name = name or clusters.current
    if name is None:
        raise click.UsageError(
            "there is no default cluster: give CLUSTER, or choose the default with "
            "`rocketmq-py config use CLUSTER`"
        )
    settings = clusters.settings_of(name)
    for key, value in settings.items():
        text = str(value).lower() if isinstance(value, bool) else value
        shown = HIDDEN if is_secret(key, value) else text
        print_out(f"{key} = {shown}")


@config.command("set")
@click.argument("name", metavar="CLUSTER", shell_complete=complete_clusters)
@click.argument(
    "settings", metavar="SETTING=VALUE...", nargs=-1, required=True, callback=checked(parse_property)
)
def set_settings(name: str, settings: tuple[tuple[str, str], ...]) -> None:
    """Set SETTING=VALUE of CLUSTER, which is created if it does not exist. An empty VALUE removes a setting.

    \b
    Settings:  address access_key secret_key security_token
               tls tls_ca_file tls_certificate_file tls_key_file insecure
               proxy namespace namespace_v2 start_deliver_time
    secret_key, security_token and proxy may be @FILE, and - prompts for them.
    In the file, namespace = "" uses none, even if the address contains one.
    Relative names of files are stored as absolute ones.
    """  # fmt: skip
    for key, text in settings:
        if key not in (*TEXT_SETTINGS, *FLAG_SETTINGS):
            raise click.UsageError(
                f"setting {key!r} does not exist; settings: {', '.join((*TEXT_SETTINGS, *FLAG_SETTINGS))}"
            )
        if key in FLAG_SETTINGS and text not in ("true", "false", ""):
            raise click.UsageError(f"{key} is true or false, not {text!r}")
        if key == "address" and text:
            try:
                check_addresses(text)
            except ValueError as error:
                raise click.UsageError(f"{key}: {error}") from None
    # Prompts come before the file is locked: other commands would wait for the answer.
    changed = {key: _parse_value(key, text) for key, text in settings}
    from rocketmq_py.cli.cluster_file import set_cluster  # imports tomlkit, which only changes need

    set_cluster(name, changed)


def _parse_value(key: str, text: str) -> str | bool | None:
    """Return the value of a setting, None if it is removed. Prompts for a secret."""
    if not text:
        return None
    if key in SECRET_SETTINGS and text == "-":
        return ask_for_secret(key, type=UTF8_TEXT)
    if key in FLAG_SETTINGS:
        return text == "true"
    # Commands may run in any folder.
    if key in FILE_SETTINGS:
        return os.path.abspath(text)
    if key in SECRET_SETTINGS and text.startswith("@"):
        return f"@{os.path.abspath(text[1:])}"
    return text


@config.command()
@click.argument("name", metavar="CLUSTER", shell_complete=complete_clusters)
def use(name: str) -> None:
    """Make CLUSTER the default."""
    from rocketmq_py.cli.cluster_file import use_cluster  # imports tomlkit, which only changes need

    use_cluster(name)
