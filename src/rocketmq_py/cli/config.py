"""``rocketmq-py config``: the clusters that have a name."""

from __future__ import annotations

from typing import Any

import attrs
import click

from rocketmq_py.cli.clusters import FLAGS, SECRETS, TEXTS, Clusters, ClustersError
from rocketmq_py.cli.console import print_out
from rocketmq_py.cli.options import checked, parse_property

HIDDEN = "(not shown)"


@click.group
def config() -> None:
    """Name clusters, and how they are reached: ``-C NAME`` uses one, and so does ``config use NAME``.

    They are kept in a file that only you may read: ROCKETMQ_CONFIG, or config.toml in the folder where
    this system keeps settings. `config list` says where that is.
    """


def _load() -> Clusters:
    try:
        return Clusters.load()
    except ClustersError as error:
        raise click.ClickException(str(error)) from None


def _save(clusters: Clusters) -> None:
    try:
        clusters.save()
    except ClustersError as error:
        raise click.ClickException(str(error)) from None


@config.command("list")
def list_clusters() -> None:
    """Print the names of all clusters; a star marks the one that is used."""
    clusters = _load()
    print_out(f"# {clusters.path}")
    for name, settings in sorted(clusters.by_name.items()):
        mark = "*" if name == clusters.current else " "
        print_out(f"{mark} {name}  {settings.get('name_servers', '')}".rstrip())


@config.command()
@click.argument("name", required=False)
def show(name: str | None) -> None:
    """Print the settings of a cluster, without its secrets; of the one that is used if none is named."""
    clusters = _load()
    name = name or clusters.current
    if name is None:
        raise click.UsageError("no cluster is used: name one, or set one with `rocketmq-py config use NAME`")
    try:
        settings = clusters.settings_of(name)
    except ClustersError as error:
        raise click.ClickException(str(error)) from None
    for key, value in settings.items():
        text = str(value).lower() if isinstance(value, bool) else value
        shown = HIDDEN if key in SECRETS and not text.startswith("@") else text
        print_out(f"{key} = {shown}")


@config.command("set")
@click.argument("name")
@click.argument("settings", nargs=-1, required=True, callback=checked(parse_property))
def set_settings(name: str, settings: tuple[tuple[str, str], ...]) -> None:
    """Set NAME=VALUE of a cluster, which is made if it is not there; an empty VALUE takes one away.

    \b
    The names: name_servers access_key secret_key security_token tls ca cert key
               insecure namespace
    secret_key and security_token may be @FILE, and secret_key=- is asked for.
    """  # fmt: skip
    clusters = _load()
    changed: dict[str, Any] = dict(clusters.by_name.get(name, {}))
    for key, text in settings:
        if key not in (*TEXTS, *FLAGS):
            raise click.UsageError(f"there is no setting {key!r}; there are {', '.join((*TEXTS, *FLAGS))}")
        if key in FLAGS and text not in ("true", "false", ""):
            raise click.UsageError(f"{key} is true or false, not {text!r}")
        if not text:
            changed.pop(key, None)
        elif key in SECRETS and text == "-":
            changed[key] = click.prompt(key, hide_input=True, err=True)
        else:
            changed[key] = text == "true" if key in FLAGS else text
    _save(attrs.evolve(clusters, by_name={**clusters.by_name, name: changed}))


@config.command()
@click.argument("name")
def use(name: str) -> None:
    """Use a cluster wherever none is named."""
    clusters = _load()
    try:
        clusters.settings_of(name)
    except ClustersError as error:
        raise click.ClickException(str(error)) from None
    _save(attrs.evolve(clusters, current=name))
