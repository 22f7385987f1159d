"""The programs in the README of the integrations run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import rocketmq_py.integrations
from rocketmq_py.testing import run_broker
from tests.blocking.conftest import ENVIRONMENT, run_program

README = Path(rocketmq_py.integrations.__file__).parent / "README.md"
PROGRAMS = re.findall(r"^## (.+?)$.*?^```python\n(.*?)^```", README.read_text(), re.DOTALL | re.MULTILINE)
DATA_FRAME = """\
2
      body  tags
0  b'7.50'  book
"""
OUTPUTS = {
    "Log records": "0\n",
    "Prometheus": "['rocketmq_client_sent_messages_total']\n",
    "CloudEvents": "order.placed b'{\"order\": 7}'\n{'order': 7}\n",
    "Data frames": DATA_FRAME,
    "Taskiq": "32\n",
    "Airflow": "['send', 'wait']\n",
    "FastStream": "{'total': 2.0}\n",
    "Celery": "",
}
NEEDED = {
    "Prometheus": ["prometheus_client"],
    "CloudEvents": ["cloudevents.core"],
    "Data frames": ["pandas", "pyarrow"],
    "Taskiq": ["taskiq"],
    "Airflow": ["airflow"],
    "FastStream": ["faststream"],
    "Celery": ["celery", "kombu"],
}
"""The packages of a program, which not every environment of the tests has."""


def test_each_section_has_a_program() -> None:
    assert [title for title, _ in PROGRAMS] == list(OUTPUTS)


@pytest.mark.long
@pytest.mark.parametrize(("title", "program"), PROGRAMS, ids=[title for title, _ in PROGRAMS])
def test_a_program_of_the_readme(title: str, program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in NEEDED.get(title, ()):
        pytest.importorskip(package)
    with run_broker(topics=["Orders", "Bills"]) as broker:
        monkeypatch.setitem(ENVIRONMENT, "NAMESRV_ADDR", broker.name_server_address)
        assert run_program(program) == OUTPUTS[title]
