"""The page on the settings of Java's client lists all setters of its classes."""

from __future__ import annotations

import re
import subprocess

import pytest

from integration.clusters import maven
from tests.test_java_settings import settings

CLASSES = {
    "ClientConfig": "org.apache.rocketmq.client.ClientConfig",
    "DefaultMQProducer": "org.apache.rocketmq.client.producer.DefaultMQProducer",
    "DefaultMQPushConsumer": "org.apache.rocketmq.client.consumer.DefaultMQPushConsumer",
    "DefaultLitePullConsumer": "org.apache.rocketmq.client.consumer.DefaultLitePullConsumer",
}


@pytest.mark.usefixtures("java_and_maven")
@pytest.mark.parametrize("name", CLASSES)
def test_all_setters_are_listed(name: str) -> None:
    jars = maven.client_jars("5.5.0")
    listing = subprocess.run(
        ["javap", "-public", "-cp", f"{jars}/*", CLASSES[name]], check=True, capture_output=True, text=True
    ).stdout
    setters = {name[0].lower() + name[1:] for name in re.findall(r" set(\w+)\(.+\);", listing)}
    assert setters - {java for java, _, _ in settings()[name]} == set()
