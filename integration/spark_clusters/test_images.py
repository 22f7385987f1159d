"""The image of the example for Kubernetes: driver and executor are containers of it, in standalone mode.

Kubernetes itself is not tested. The broker is a process on this machine, which the containers reach at the
gateway of their network.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from integration.clusters import containers, engine, provider
from integration.clusters.cluster import ClusterStartError, ClusterUnavailableError
from integration.clusters.layout import LOCALHOST, START_TIMEOUT
from integration.clusters.local import start_local_cluster
from integration.clusters.plugin import QUICK, skip_or_fail
from integration.clusters.provider import VERSIONS
from integration.copied import create_topics, fill, read_copies
from integration.environments import ROOT
from integration.spark_clusters.conftest import COPYING
from integration.spark_clusters.standalone import state_of, wait_for
from integration.spark_clusters.submitting import SETTINGS
from integration.spark_copying import BATCH

if TYPE_CHECKING:
    from testcontainers.core.container import DockerContainer

EXAMPLE = ROOT / "examples" / "spark_kubernetes"
IMAGE = "rocketmq-py/spark"
COUNT = 10_000
Start = Callable[[str], "DockerContainer"]


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An image made from the example's Dockerfile, with the program that copies topics."""
    if not (provider.allows("containers") and provider.engine_answers()):
        pytest.skip("no Docker engine that tests may use answers: `make in-containers` may start one")
    context = tmp_path_factory.mktemp("image") / "orders"
    shutil.copytree(EXAMPLE, context)
    shutil.copy(COPYING, context / "job.py")
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*pip, "--wheel-dir", str(context), str(ROOT)], check=True)
    official = re.findall(r"^ARG PYTHON_IMAGE=(.+)$", (context / "Dockerfile").read_text(), re.MULTILINE)
    try:
        python = engine.python_image(*official)
        engine.build_image(IMAGE, context, "--build-arg", f"PYTHON_IMAGE={python}", network="host")
    except engine.NoEngineError as error:
        skip_or_fail(error)
    return IMAGE


@pytest.fixture
def start(image: str) -> Iterator[Start]:
    """Starts containers with a command. They are removed after the test."""
    from testcontainers.core.container import DockerContainer

    started: list[DockerContainer] = []

    def start(command: str) -> DockerContainer:
        # Without a DNS server that containers reach, each look-up of Java's would take ten seconds.
        started.append(DockerContainer(image, command=command).with_kwargs(dns=[LOCALHOST]))
        return started[-1].start()

    yield start
    for container in started:
        container.stop()


def test_driver_and_executor_in_containers_copy_each_message_once(start: Start) -> None:
    driver = start("sh -c 'exec spark-class org.apache.spark.deploy.master.Master --host $(hostname -i)'")
    address = containers.address_of(driver)
    master = f"spark://{address}:7077"
    pages = f"http://{address}:8080/json/"
    wait_for(lambda: state_of(pages), "master", START_TIMEOUT)
    worker = f"spark-class org.apache.spark.deploy.worker.Worker {master} --work-dir /tmp/work"
    start(f"{worker} --cores 2 --memory 1g")
    wait_for(lambda: (state_of(pages) or {}).get("aliveworkers"), "worker", START_TIMEOUT)
    try:
        cluster = start_local_cluster(VERSIONS[-1], host=containers.gateway_of(driver), jvm=QUICK)
    except (ClusterUnavailableError, ClusterStartError) as error:
        skip_or_fail(error)
    with cluster:
        create_topics(cluster, "Orders", "Copies")
        fill(cluster, ["Orders"], COUNT)

        # As Spark starts the driver on Kubernetes, apart from the master.
        settings = {**SETTINGS, "spark.driver.host": address}
        submit = ["timeout", "600", "/opt/entrypoint.sh", "driver", "--master", master]
        submit += [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
        program = [
            "local:///opt/orders/job.py", BATCH, "--address", cluster.name_servers,
            "--sources", "Orders", "--target", "Copies", "--directory", "/tmp",
        ]  # fmt: skip
        ended = driver.get_wrapped_container().exec_run(
            [*submit, *program], environment={"SPARK_DRIVER_BIND_ADDRESS": address}
        )
        assert ended.exit_code == 0, ended.output.decode(errors="replace")[-8000:]

        copies = read_copies(cluster, "Copies")
        assert copies.messages == COUNT
        assert copies.numbers.keys() == set(range(COUNT))
