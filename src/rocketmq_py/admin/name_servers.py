"""Name servers: their settings."""

from __future__ import annotations

from collections.abc import Mapping

from rocketmq_py.admin.asking import Answers, ask_each
from rocketmq_py.admin.calling import call_name_server, tell_name_servers
from rocketmq_py.admin.part import Part
from rocketmq_py.arguments import check_settings
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.protocol.bodies import read_properties, write_properties
from rocketmq_py.protocol.headers import GetNameServerConfigRequest, UpdateNameServerConfigRequest


class NameServers(Part):
    """``admin.name_servers``: all that the client has an address of."""

    async def settings(self) -> Answers[str, Mapping[str, str]]:
        """Return the settings of each by address, under Java's names, sorted. Java: ``getNamesrvConfig``."""
        client = self._client

        async def ask(address: str) -> Mapping[str, str]:
            answer = await call_name_server(client, address, GetNameServerConfigRequest())
            return dict(sorted(read_properties(answer.body).items()))

        return await ask_each(await client.name_servers.all_addresses(), ask)

    async def alter(self, settings: Mapping[str, str]) -> None:
        """Change settings of all of them. Java: ``updateNamesrvConfig``.

        Raises:
            ConfigurationError: they have no such setting, or a value cannot be written. Nothing was changed.
            SomeBrokersFailedError: not all of several did it; of a single one its own error.
        """
        settings = check_settings(settings, "settings")
        body = write_properties(settings)
        for address, known in (await self.settings()).values.items():
            if unknown := sorted(settings.keys() - known.keys()):
                raise ConfigurationError(f"name server {address} has no setting {', '.join(unknown)}")
        header = UpdateNameServerConfigRequest()
        await tell_name_servers(self._client, header, "changing settings of name servers", body)
