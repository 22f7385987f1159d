"""The description of the provider for Airflow's entry point ``apache_airflow_provider``."""

from __future__ import annotations

from typing import Any

_PACKAGE = "rocketmq_py.integrations.airflow"
_TEXT = {"schema": {"type": ["string", "null"]}}


def get_provider_info() -> dict[str, Any]:
    """Return the provider's hooks, operators, sensors, triggers and queues. Imports nothing of Airflow."""
    integration = "Apache RocketMQ"

    def modules(name: str) -> list[dict[str, Any]]:
        return [{"integration-name": integration, "python-modules": [f"{_PACKAGE}.{name}"]}]

    return {
        "package-name": "rocketmq-py",
        "name": integration,
        "description": "Send and await messages of Apache RocketMQ.",
        "integrations": [
            {
                "integration-name": integration,
                "external-doc-url": "https://rocketmq.apache.org/",
                "tags": ["apache"],
            }
        ],
        "hooks": modules("hook"),
        "operators": modules("operators"),
        "sensors": modules("sensors"),
        "triggers": modules("trigger"),
        "queues": [f"{_PACKAGE}.queues.RocketMQMessageQueueProvider"],
        "connection-types": [
            {
                "connection-type": "rocketmq",
                "hook-name": integration,
                "hook-class-name": f"{_PACKAGE}.hook.RocketMQHook",
                "conn-fields": {
                    "namespace": {"label": "Namespace", **_TEXT},
                    "security_token": {
                        "label": "Security token",
                        "schema": {"type": ["string", "null"], "format": "password"},
                    },
                    "tls": {"label": "TLS", "schema": {"type": ["boolean", "null"], "default": False}},
                    "ca_file": {"label": "File of certificate authorities", **_TEXT},
                },
                "ui-field-behaviour": {
                    "hidden-fields": ["schema"],
                    "relabeling": {
                        "host": "Name servers",
                        "login": "Access key",
                        "password": "Secret key",
                    },
                    "placeholders": {"host": "10.0.0.1:9876;10.0.0.2:9876"},
                },
            }
        ],
    }
