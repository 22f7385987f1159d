"""Everything that lists settings is derived from the classes that declare them."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

import rocketmq_py
from rocketmq_py import TransactionState, aio, blocking
from rocketmq_py.broker import EmbeddedBroker
from rocketmq_py.client.settings import ClientSettings
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.relay import Relay
from rocketmq_py.shown_settings import Setting, settings_of, takes_settings
from rocketmq_py.testing import TestBroker, TestCluster, run_broker, run_cluster, simulate
from tests.generate_settings import BROKER, OWNERS, PAGE, Owner, generated, names_of
from tests.programs import run

MOST_SETTINGS = 60
KINDS = {
    "trio": {**{one.name: getattr(rocketmq_py, one.name, Relay) for one in OWNERS}},
    "aio": {one.name: getattr(aio, one.name) for one in OWNERS if one.name != "Relay"},
    "blocking": {one.name: getattr(blocking, one.name) for one in OWNERS if one.name != "Relay"},
}
EACH = [
    pytest.param(kinds[owner.name], owner, id=f"{api}-{owner.name}")
    for api, kinds in KINDS.items()
    for owner in OWNERS
    if owner.name in kinds
]
EACH += [
    pytest.param(taker, BROKER, id=taker.__name__)
    for taker in (EmbeddedBroker, TestBroker, TestCluster, run_broker, run_cluster, simulate)
]

FACTORIES = [
    pytest.param(kinds["Client"], owner, id=f"{api}-{owner.factory}")
    for api, kinds in KINDS.items()
    for owner in OWNERS
    if owner.factory
]


def keywords_of(owner: Owner) -> dict[str, Setting]:
    """Return the settings that are keywords of a class, by name, including those of a client."""
    inherited: dict[str, Setting] = {}
    for one in OWNERS:
        if one.options == owner.base:
            inherited = keywords_of(one)
    return inherited | {one.name: one for one in owner.own}


@pytest.mark.parametrize(("path", "text"), [pytest.param(*one, id=one[0].name) for one in generated()])
def test_what_lists_settings_is_current(path: Path, text: str) -> None:
    assert path.read_text() == text, "run `make apis`"


@pytest.mark.parametrize(("kind", "owner"), EACH)
def test_the_signature_has_every_setting_with_its_type_and_default(kind: Any, owner: Owner) -> None:
    parameters = inspect.signature(kind).parameters
    assert "options" not in parameters
    for name, setting in keywords_of(owner).items():
        shown = parameters[name]
        assert shown.kind is shown.KEYWORD_ONLY
        assert shown.annotation == setting.type
        assert (None if shown.default is shown.empty else repr(shown.default)) == setting.default
    assert {one.name for one in settings_of(owner.settings)} <= parameters.keys()


@pytest.mark.parametrize(("kind", "owner"), EACH)
def test_the_docstring_has_the_meaning_and_the_default_of_every_setting(kind: Any, owner: Owner) -> None:
    text = " ".join((inspect.getdoc(kind) or "").split())
    for name, setting in keywords_of(owner).items():
        default = "" if setting.default is None else f" Default: {setting.default}."
        assert f" {name}: {setting.meaning}{default}" in text


@pytest.fixture
def shared_client(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A client of the class that is the parameter."""
    client = request.param("a:1")
    yield client
    if isinstance(client, blocking.Client):  # opened by its constructor
        client.close()


@pytest.mark.parametrize(("shared_client", "owner"), FACTORIES, indirect=["shared_client"])
def test_a_factory_shows_the_settings_but_not_those_of_a_client(shared_client: Any, owner: Owner) -> None:
    factory = getattr(shared_client, owner.factory)
    parameters = inspect.signature(factory).parameters
    settings = {name: one for name, one in keywords_of(owner).items() if name not in names_of(ClientSettings)}
    assert parameters.keys() - {"group", "parent", "check", "assignment_listener"} == settings.keys()
    assert next(iter(parameters)) == "group"
    text = " ".join((inspect.getdoc(factory) or "").split())
    for name, setting in settings.items():
        shown = parameters[name]
        assert (shown.kind, shown.annotation) == (shown.KEYWORD_ONLY, setting.type)
        assert (None if shown.default is shown.empty else repr(shown.default)) == setting.default
        assert f" {name}: {setting.meaning}" in text
    for name in parameters:
        assert f" {name}: " in text


@pytest.mark.parametrize(("shared_client", "owner"), FACTORIES, indirect=["shared_client"])
def test_a_factory_refuses_settings_of_a_client(shared_client: Any, owner: Owner) -> None:
    required: dict[str, dict[str, Any]] = {
        "transaction_producer": {"check": lambda message: TransactionState.COMMIT},
        "lite_topic_consumer": {"parent": "T"},
        "lite_topic_push_consumer": {"parent": "T"},
    }
    with pytest.raises(ConfigurationError, match=r"tls cannot be set here, .* set it on the Client"):
        getattr(shared_client, owner.factory)("g", tls=True, **required.get(owner.factory, {}))


def test_mypy_refuses_wrong_settings_of_factories() -> None:
    """`make types` fails if a comment here ignores no error."""

    def check(_: object) -> TransactionState:
        return TransactionState.COMMIT

    client = rocketmq_py.Client("a:1")
    calls: list[Callable[[], object]] = [
        lambda: client.producer("g", tls=True),  # type: ignore[call-arg]
        lambda: client.producer("g", retires=1),  # type: ignore[call-arg]
        lambda: client.transaction_producer("g", check, tls=True),  # type: ignore[call-arg]
        lambda: client.push_consumer("g", tls=True),  # type: ignore[call-arg]
        lambda: client.pop_consumer("g", tls=True),  # type: ignore[call-arg]
        lambda: client.lite_pull_consumer("g", tls=True),  # type: ignore[call-arg]
        lambda: client.lite_topic_consumer("g", parent="T", tls=True),  # type: ignore[call-arg]
        lambda: client.lite_topic_push_consumer("g", parent="T", tls=True),  # type: ignore[call-arg]
    ]
    for call in calls:
        with pytest.raises(ConfigurationError):
            call()


async def test_factories_show_settings_without_docstrings() -> None:
    program = "import inspect, rocketmq_py; print(inspect.signature(rocketmq_py.Client.pop_consumer))"
    [signature] = await run("-OO", "-c", program)
    assert signature.startswith("(self, group: str, *, max_reconsume_times: 'int' = 16, ")


def test_a_function_keeps_its_arguments_and_its_result() -> None:
    signature = inspect.signature(run_cluster)
    assert [*signature.parameters][:5] == ["brokers", "name_servers", "replicas", "topics", "tls"]
    assert "Iterator[" in str(signature.return_annotation)
    assert run_cluster.__doc__ is not None
    assert run_cluster.__doc__.startswith("Run several name servers and brokers in a thread.")


def test_a_subclass_shows_its_own_arguments() -> None:
    class Own(rocketmq_py.Producer):
        """Own."""

        def __init__(self, address: str) -> None:
            super().__init__(address, group="own")

    class Same(rocketmq_py.Producer):
        pass

    assert list(inspect.signature(Own).parameters) == ["address"]
    assert Own.__doc__ == "Own."
    assert "options" in inspect.signature(Same).parameters
    assert Own("a:1").__doc__ == "Own."


def test_defaults_are_shown_as_source_code() -> None:
    def twice(number: int) -> int:
        return 2 * number

    @attrs.frozen(kw_only=True)
    class Settings:
        """Settings.

        Args:
            factor: a number.
            function: a function.
            limit: a number.
        """

        factor: int
        function: Any = attrs.field(default=twice)
        limit: float = attrs.field(default=math.inf)

    @takes_settings(Settings)
    class Taker:
        def __init__(self, **options: Any) -> None: ...

    assert (
        str(inspect.signature(Taker)) == "(*, factor: 'int', function: 'Any' = twice, limit: 'float' = inf)"
    )


def test_the_page_lists_every_setting_once_for_each_class() -> None:
    page = PAGE.read_text()
    for owner in OWNERS:
        section = page.partition(f"\n## {owner.name}\n")[2].partition("\n## ")[0]
        for setting in owner.own:
            assert section.count(f"\n| `{setting.name}` |") == 1


def test_the_number_of_settings_does_not_grow() -> None:
    names = {one.name for owner in OWNERS for one in owner.own if owner.name != "Relay"}
    assert len(names) <= MOST_SETTINGS, sorted(names)
