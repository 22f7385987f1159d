"""The named clusters, as read from ``config.toml``. :mod:`~rocketmq_py.cli.cluster_file` writes the file."""

from __future__ import annotations

import os
import stat
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import click

from rocketmq_py.cli.console import complain

TEXT_SETTINGS = (
    "name_servers",
    "access_key",
    "secret_key",
    "security_token",
    "ca",
    "cert",
    "key",
    "proxy",
    "namespace",
    "namespace_v2",
)
FLAG_SETTINGS = ("tls", "insecure")
FILE_SETTINGS = ("ca", "cert", "key")
"""Settings that are names of files."""
SECRET_SETTINGS = ("secret_key", "security_token", "proxy")
"""Settings that may be ``@FILE``, the name of a file that contains the value."""


def is_secret(name: str, value: object) -> bool:
    """Return whether a setting's value is a secret. Names of files and proxies without a password are not."""
    text = str(value)
    return name in SECRET_SETTINGS and not text.startswith("@") and (name != "proxy" or "@" in text)


class ClustersError(click.ClickException):
    """The file cannot be read or written, or does not have a cluster. The text says why."""


def file_of_clusters() -> Path:
    """Return where the file is: ROCKETMQ_CONFIG, else where this system keeps settings."""
    if named := os.environ.get("ROCKETMQ_CONFIG"):
        return Path(named)
    from platformdirs import user_config_path

    return user_config_path("rocketmq-py") / "config.toml"


def read_file(path: Path) -> str:
    """Return the text of the file, empty if it does not exist. Raises ClustersError if it is unreadable."""
    try:
        return path.read_bytes().decode()
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ClustersError(f"cannot read {path}: {reason}") from None


@attrs.frozen
class Clusters:
    """The content of the file.

    Attributes:
        path: the file.
        current: the default cluster.
        by_name: the settings of each cluster.
    """

    path: Path
    current: str | None = None
    by_name: Mapping[str, Mapping[str, Any]] = attrs.field(factory=dict)

    @classmethod
    def load(cls) -> Clusters:
        """Read the file. Without a file there are no clusters.

        Prints a warning if other users may read a file with a secret.

        Raises:
            ClustersError: the file cannot be read, or its content is invalid.
        """
        path = file_of_clusters()
        loaded = cls.parse(path, read_file(path))
        loaded._warn_of_readers()
        return loaded

    @classmethod
    def parse(cls, path: Path, text: str) -> Clusters:
        """Return the clusters in the text of a file. Raises ClustersError if the text is invalid."""
        try:
            document = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise ClustersError(f"{path} is not valid TOML: {error}") from None
        clusters = document.get("clusters", {})
        current = document.get("current")
        if not isinstance(clusters, dict) or not isinstance(current, str | None):
            raise ClustersError(f'{path} must contain current = "NAME" and tables [clusters.NAME]')
        for name, settings in clusters.items():
            _check(path, name, settings)
        return cls(path, current, clusters)

    def settings_of(self, name: str) -> dict[str, Any]:
        """Return the settings of a cluster. Raises ClustersError if no cluster has this name."""
        if name not in self.by_name:
            known = ", ".join(sorted(self.by_name)) or "none"
            raise ClustersError(f"{self.path} has no cluster {name!r}; it has {known}")
        return dict(self.by_name[name])

    def _warn_of_readers(self) -> None:
        holds_secret = any(
            is_secret(name, value) for settings in self.by_name.values() for name, value in settings.items()
        )
        if holds_secret and os.name == "posix" and self.path.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH):
            complain(f"{self.path} contains a secret and is readable by other users; run chmod 600 on it")


def _check(path: Path, name: str, settings: object) -> None:
    if not isinstance(settings, dict):
        raise ClustersError(f"{path}: clusters.{name} is not a table")
    for key, value in settings.items():
        if key not in (*TEXT_SETTINGS, *FLAG_SETTINGS):
            known = ", ".join((*TEXT_SETTINGS, *FLAG_SETTINGS))
            raise ClustersError(f"{path}: cluster {name!r} has an unknown setting {key!r}; settings: {known}")
        if not isinstance(value, bool if key in FLAG_SETTINGS else str):
            kind = "true or false" if key in FLAG_SETTINGS else "a string"
            raise ClustersError(f"{path}: {key} of cluster {name!r} must be {kind}")
