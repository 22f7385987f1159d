"""The keys of a stream change at the broker while its executors run."""

from __future__ import annotations

import json
import os
import time
import uuid
from pathlib import Path

import pytest

from integration.access import ADMIN
from integration.clusters.cluster import Cluster
from integration.clusters.plugin import COUNTED
from integration.copied import create_topics, fill
from integration.environments import ROOT
from integration.spark_clusters.conftest import Copying, allow_all_topics
from integration.spark_clusters.copies import Record, check_copies, wait_for_copies
from integration.spark_clusters.programs import rotating_keys
from integration.spark_clusters.standalone import Standalone
from integration.spark_copying import ENDLESS
from rocketmq_py import Credentials, blocking

PROVIDER = Path(rotating_keys.__file__)
WAVE = 1_000
"""Messages before the keys change, and after it."""


def unique(name: str) -> str:
    """Return a name that no other test uses."""
    return f"{name}-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def old_keys(guarded: Cluster) -> Credentials:
    """The keys of a new user."""
    keys = Credentials(unique("user"), "the-old-secret")
    allow_all_topics(guarded, keys)
    return keys


@pytest.fixture
def new_keys(old_keys: Credentials) -> Credentials:
    """The keys that the user gets."""
    return Credentials(old_keys.access_key, "the-new-secret")


@pytest.fixture
def topics(guarded: Cluster) -> tuple[str, str]:
    """A topic with WAVE messages, and an empty one."""
    source, target = unique("Expiring"), unique("Copies")
    create_topics(guarded, source, target, credentials=ADMIN)
    fill(guarded, [source], WAVE, ADMIN)
    return source, target


@pytest.fixture
def copying_with_keys(spark_cluster: Standalone, guarded: Cluster, archive: Path, tmp_path: Path) -> Copying:
    """Submits jobs that copy topics of ``guarded``."""
    return Copying(spark_cluster, guarded.name_servers, archive, tmp_path)


def change(guarded: Cluster, keys: Credentials) -> None:
    """Give a user another secret key."""
    with blocking.Admin(guarded.name_servers, credentials=ADMIN) as admin:
        admin.access.alter_user(keys.access_key, secret=keys.secret_key)


def variables(keys: Credentials) -> dict[str, str]:
    """Return the environment variables of a driver with fixed keys."""
    return {"ACCESS_KEY": keys.access_key, "SECRET_KEY": keys.secret_key}


def test_keys_in_options_end_the_stream_and_a_restart_continues(
    copying_with_keys: Copying,
    guarded: Cluster,
    old_keys: Credentials,
    new_keys: Credentials,
    topics: tuple[str, str],
    record_property: Record,
) -> None:
    source, target = topics
    copying = copying_with_keys
    with copying.start(ENDLESS, target, sources=(source,), variables=variables(old_keys)) as job:
        wait_for_copies(guarded, target, job, WAVE, ADMIN)
        change(guarded, new_keys)
        fill(guarded, [source], WAVE, ADMIN, first=WAVE)
        began = time.monotonic()
        assert job.wait() == 1
    error = job.output()
    assert "AccessDeniedError" in error
    record_property(COUNTED, f"keys in options: the stream fails after {time.monotonic() - began:.0f} s")

    began = time.monotonic()
    copying.end()
    with copying.start(ENDLESS, target, sources=(source,), variables=variables(new_keys)) as job:
        job.check()
    fault = "keys changed at the broker, and the job restarted with the new ones"
    check_copies(guarded, target, record_property, fault, began, count=2 * WAVE, credentials=ADMIN)


def test_provider_that_reads_a_file_continues_the_stream(
    copying_with_keys: Copying,
    guarded: Cluster,
    old_keys: Credentials,
    new_keys: Credentials,
    topics: tuple[str, str],
    tmp_path: Path,
    record_property: Record,
) -> None:
    source, target = topics
    file = tmp_path / "keys.json"

    def write(keys: Credentials) -> None:
        draft = file.with_suffix(".new")
        draft.write_text(json.dumps([keys.access_key, keys.secret_key]))
        draft.replace(file)

    write(old_keys)
    with copying_with_keys.start(
        ENDLESS,
        target,
        sources=(source,),
        settings={
            "spark.submit.pyFiles": str(PROVIDER),
            f"spark.executorEnv.{rotating_keys.FILE}": str(file),
        },
        variables={
            rotating_keys.FILE: str(file),
            "CREDENTIALS_PROVIDER": f"{PROVIDER.stem}:credentials",
            # Spark does not add the files of --py-files for the process that plans a stream.
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT), str(PROVIDER.parent)]),
        },
    ) as job:
        wait_for_copies(guarded, target, job, WAVE, ADMIN)
        write(new_keys)
        change(guarded, new_keys)
        fill(guarded, [source], WAVE, ADMIN, first=WAVE)
        began = time.monotonic()
        wait_for_copies(guarded, target, job, 2 * WAVE, ADMIN)
        seconds = time.monotonic() - began
        copying_with_keys.end()
        job.check()
    fault = f"keys changed at the broker and in the provider's file, copies after {seconds:.1f} s"
    check_copies(guarded, target, record_property, fault, began, count=2 * WAVE, credentials=ADMIN)
