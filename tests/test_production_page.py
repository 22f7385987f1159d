"""The page "Running in production" names the defaults of settings as they are."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from rocketmq_py.client.settings import ClientSettings
from rocketmq_py.consumer.lite.settings import LiteTopicPushConsumerSettings
from rocketmq_py.consumer.lite_pull.settings import LitePullConsumerSettings
from rocketmq_py.consumer.pop.settings import PopConsumerSettings
from rocketmq_py.consumer.settings import DEFAULT_RECONSUME_TIMES, PushConsumerSettings
from rocketmq_py.producer.settings import ProducerSettings
from rocketmq_py.relay.settings import RelaySettings

PAGE = Path(__file__).parents[1] / "docs" / "production.md"
CLASSES: dict[str, Any] = {
    "all clients": ClientSettings,
    "producers": ProducerSettings,
    "push consumers": PushConsumerSettings,
    "lite pull consumers": LitePullConsumerSettings,
    "pop consumers": PopConsumerSettings,
    "lite push consumers": LiteTopicPushConsumerSettings,
    "relay": RelaySettings,
}
CONSUMERS = [PushConsumerSettings, LitePullConsumerSettings]
SCALES = {"KiB": 1 << 10, "MiB": 1 << 20}


def rows(head: str) -> Iterator[list[str]]:
    """Yield the cells of the table with these first cells."""
    table = PAGE.read_text().partition(f"\n| {head} |")[2].partition("\n\n")[0]
    for line in table.splitlines()[2:]:
        yield [cell.strip() for cell in line.strip("|").split("|")]


def number(text: str) -> float | None:
    if text in ("none", "not set"):
        return None
    digits, _, unit = text.replace(",", "").partition(" ")
    return float(digits) * SCALES.get(unit, 1)


def timeouts() -> Iterator[tuple[str, str, float | None]]:
    kind = ""
    for first, names, values, _ in rows("class | setting | default"):
        kind = first or kind
        for name, value in zip(re.findall(r"`(\w+)`", names), values.split(", "), strict=False):
            if kind in CLASSES and " of " not in names:
                yield kind, name, number(value)


def limits() -> Iterator[tuple[str, float | None]]:
    for names, values, _ in rows("setting | default | bounds"):
        found = re.findall(r"`(\w+)`", names)
        if found:
            for name, value in zip(found, values.split(", "), strict=True):
                yield name, number(value)


def test_the_tables_are_read() -> None:
    assert len({kind for kind, _, _ in timeouts()}) == len(CLASSES)
    assert len(list(timeouts())) >= 24
    assert len(list(limits())) == 9


@pytest.mark.parametrize(("kind", "name", "value"), [*timeouts()])
def test_timeouts_and_retries(kind: str, name: str, value: float | None) -> None:
    default = attrs.fields_dict(CLASSES[kind])[name].default
    if name == "max_reconsume_times":
        assert default is None, "another number for orderly consumers"
        default = DEFAULT_RECONSUME_TIMES
    assert default == value


@pytest.mark.parametrize(("name", "value"), [*limits()])
def test_limits_of_memory(name: str, value: float | None) -> None:
    defaults = {
        fields[name].default
        for fields in map(attrs.fields_dict, (*CONSUMERS, ProducerSettings))
        if name in fields
    }
    assert defaults == {value}
