"""Generate what is derived from the declarations of settings: ``make apis``.

These are the TypedDicts of keywords at the end of the modules of settings, the page ``docs/settings.md``, and
the column of counterparts of ``docs/java-settings.md``. ``rocketmq_py.shown_settings`` reads the
declarations.
"""

from __future__ import annotations

import importlib
import re
import textwrap
from collections.abc import Iterator
from enum import Enum
from pathlib import Path

import attrs

from rocketmq_py.broker.config import BrokerConfig
from rocketmq_py.client.settings import ClientSettings
from rocketmq_py.consumer.lite.settings import LiteTopicConsumerSettings, LiteTopicPushConsumerSettings
from rocketmq_py.consumer.lite_pull.settings import LitePullConsumerSettings
from rocketmq_py.consumer.pop.settings import PopConsumerSettings
from rocketmq_py.consumer.settings import PushConsumerSettings
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.producer.settings import ProducerSettings
from rocketmq_py.producer.transaction_settings import TransactionSettings
from rocketmq_py.relay.settings import RelaySettings
from rocketmq_py.shown_settings import Setting, settings_of

DOCS = Path(__file__).parent.parent / "docs"
PAGE, JAVA_PAGE = DOCS / "settings.md", DOCS / "java-settings.md"

CLIENT = "ClientOptions"


@attrs.frozen
class Owner:
    """A class whose keywords are settings.

    Attributes:
        name: its name.
        settings: the class of its settings.
        options: the TypedDict of the keywords of its constructor.
        base: the TypedDict with the settings that it also has.
        named: settings that are parameters of their own, or that the base class of the settings declares.
        factory: the method of a Client that returns an instance. Empty if there is none.
        java: the section of the page of Java's settings. Empty for classes without a counterpart there.
    """

    name: str
    settings: type[attrs.AttrsInstance]
    options: str
    base: str = CLIENT
    named: frozenset[str] = frozenset({"group"})
    factory: str = ""
    java: str = ""

    @property
    def own(self) -> list[Setting]:
        """The settings that are keywords of the class, without those of ``base``."""
        return [one for one in settings_of(self.settings) if one.name not in self.named]


def names_of(kind: type[attrs.AttrsInstance]) -> frozenset[str]:
    """Return the names of the settings of a class."""
    return frozenset({field.name for field in attrs.fields(kind)})


OWNERS = [
    Owner("Client", ClientSettings, CLIENT, "TypedDict", java="ClientConfig"),
    Owner(
        "Producer", ProducerSettings, "ProducerOptions", factory="producer", java="DefaultMQProducer",
    ),
    Owner(
        "TransactionProducer", TransactionSettings, "TransactionOptions", "ProducerOptions",
        names_of(ProducerSettings), "transaction_producer", "DefaultMQProducer",
    ),
    Owner(
        "PushConsumer", PushConsumerSettings, "PushConsumerOptions",
        factory="push_consumer", java="DefaultMQPushConsumer",
    ),
    Owner(
        "LitePullConsumer", LitePullConsumerSettings, "LitePullConsumerOptions",
        factory="lite_pull_consumer", java="DefaultLitePullConsumer",
    ),
    Owner("PopConsumer", PopConsumerSettings, "PopConsumerOptions", factory="pop_consumer"),
    Owner(
        "LiteTopicConsumer", LiteTopicConsumerSettings, "LiteTopicConsumerOptions",
        named=frozenset({"group", "parent"}), factory="lite_topic_consumer",
    ),
    Owner(
        "LiteTopicPushConsumer", LiteTopicPushConsumerSettings, "LiteTopicPushConsumerOptions",
        "LiteTopicConsumerOptions", names_of(LiteTopicConsumerSettings) - {"close_timeout"},
        "lite_topic_push_consumer",
    ),
    Owner("Relay", RelaySettings, "RelayOptions", named=frozenset({"topic", "store"})),
]  # fmt: skip

BROKER = Owner("EmbeddedBroker", BrokerConfig, "BrokerOptions", "TypedDict", frozenset())
"""The embedded broker. The brokers of the test kit have the same settings. The page leaves them out."""

INHERITED_KEYS = {owner.options: {one.name for one in owner.own} for owner in OWNERS} | {"TypedDict": set()}

# The TypedDicts


def typed_dicts(owner: Owner) -> str:
    """Return the source code of the TypedDicts of a class.

    If a Client has a factory for the class, it takes the settings of the class. The constructor also takes
    those of a Client.
    """
    if not owner.factory:
        inherited = "" if owner.base == "TypedDict" else f", with those of {owner.base}"
        return typed_dict(owner, owner.options, owner.base, f"{_article(owner)} {owner.name}{inherited}")
    base = "TypedDict" if owner.base == CLIENT else factory_options(owner.base)
    options = factory_options(owner.options)
    both = (
        f"class {owner.options}({options}, {CLIENT}, total=False):\n"
        f'    """Settings of a {owner.name}, with those of {CLIENT}. Made by ``make apis``."""\n'
    )
    return typed_dict(owner, options, base, f"a {owner.name} that shares a client") + "\n\n" + both


def _article(owner: Owner) -> str:
    return "an" if owner.name[0] in "AEIOU" else "a"


def factory_options(options: str) -> str:
    """Return the name of the TypedDict of a factory, from that of the constructor."""
    return options.replace("Options", "FactoryOptions")


def typed_dict(owner: Owner, name: str, base: str, meaning: str) -> str:
    """Return the source code of a TypedDict with the settings of a class."""
    defaults = ", ".join([f"{one.name}={one.default}" for one in owner.own if one.default is not None])
    first = f'"""Settings of {meaning}. Made by ``make apis``.'
    text = textwrap.fill(f"Defaults: {defaults}.", 106, break_long_words=False, break_on_hyphens=False)
    head = f"class {name}({base}, total=False):\n    {first}\n\n{textwrap.indent(text, '    ')}\n"
    return f'{head}    """\n\n' + "".join(
        [f"    {one.name}: {one.type}\n" for one in owner.own if one.name not in INHERITED_KEYS[owner.base]]
    )


def module_of(owner: Owner) -> Path:
    """Return the path of the module of the settings of a class."""
    path = importlib.import_module(owner.settings.__module__).__file__
    assert path is not None
    return Path(path)


def with_typed_dicts(path: Path) -> str:
    """Return the text of a module of settings with current TypedDicts."""
    text = path.read_text()
    for owner in (*OWNERS, BROKER):
        if module_of(owner) == path:
            of_factory = rf"(?:class {factory_options(owner.options)}\(.*?\n\n\n)?"
            pattern = rf"^{of_factory}class {owner.options}\(.*?\n(?=\n\n|\Z)"
            [current] = re.findall(pattern, text, re.S | re.M)
            text = text.replace(current, typed_dicts(owner))
    return text


# The page of settings


PAGE_HEAD = """\
# Settings

Settings are keyword arguments: `Producer("127.0.0.1:9876", group="orders", retries=5)`. All three APIs have
the same ones. An unknown keyword raises `ConfigurationError`, which suggests the nearest name, and so does a
value out of its range. `producer.settings` shows the values in use, without secrets.

`help(PushConsumer)` lists the settings of a consumer, and `help(client.push_consumer)` those that it can have
if it shares a client. Type checkers report unknown keywords, and the settings of a client in such a call.

Durations are numbers of seconds or `timedelta`s. `math.inf` means no limit where the range allows it. The
names in brackets are those of Java's client. [Settings of the Java client](java-settings.md) lists them in
its order, with the reasons for those that have no counterpart.

All producers and consumers also have the argument `group`, the producer or consumer group. Consumers of lite
topics also have `parent`, the parent topic.

<!-- Generated by `make apis` from the classes of settings: do not edit. -->
"""


def page() -> str:
    """Return the page of settings."""
    return PAGE_HEAD + "".join(map(section, OWNERS))


def section(owner: Owner) -> str:
    """Return the section of a class, with a table of its settings."""
    head = f"\n## {owner.name}\n\n{introduction(owner)}"
    rows = ["| setting | default | unit and range | meaning |", "| --- | --- | --- | --- |"]
    rows += [row(owner, one) for one in owner.own]
    return f"{head}\n\n" + "\n".join(rows) + "\n"


def introduction(owner: Owner) -> str:
    """Return the sentence that says which other settings a class has."""
    if owner.name == "Client":
        return "Also for `Reader`, `Admin`, and every producer and consumer that does not share a client."
    if owner.base == CLIENT:
        return "In addition to those of [`Client`](#client), unless a client is shared."
    base = next(one.name for one in OWNERS if one.options == owner.base)
    return f"In addition to those of [`{base}`](#{base.lower()})."


def row(owner: Owner, setting: Setting) -> str:
    """Return the row of a setting."""
    meaning = setting.meaning.replace("``", "`").replace("|", "\\|")
    meaning = meaning[0].upper() + meaning[1:]
    cells = [
        f"`{setting.name}`",
        default(setting),
        ", ".join(filter(None, [setting.unit, range_of(owner, setting)])),
        meaning,
    ]
    return "| " + " | ".join(cells) + " |"


def default(setting: Setting) -> str:
    """Return a default as it is shown on the page."""
    value = setting.value
    if setting.default is None:
        return "required"
    if value is None or value == "":
        return "none"
    if setting.unit == "bytes" and isinstance(value, int):
        return f"{value >> 20:,} MiB" if value >= 1 << 20 else f"{value >> 10:,} KiB"
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, int | float) and not isinstance(value, Enum):
        return f"{value:,g}" if value < 1e6 else f"{value:,}"
    return f"`{setting.default}`"


def range_of(owner: Owner, setting: Setting) -> str:
    """Return the values that a number may have, as the error for a wrong one words it."""
    if setting.type.split(" ")[0] not in ("int", "Duration", "float"):
        return ""
    required = {"group": "g", "parent": "T", "topic": "T", "store": "folder"}
    needed = {name: value for name, value in required.items() if name in names_of(owner.settings)}
    try:
        owner.settings(**needed, **{setting.name: -1})
    except ConfigurationError as error:
        return str(error).rpartition("must be ")[2].removesuffix(", in seconds")
    return ""


# The page of Java's settings


def java_counterparts(owner: Owner) -> Iterator[tuple[str, str]]:
    """Yield Java's names in the meanings of the settings of a class, each with its counterpart."""
    for setting in owner.own:
        for brackets in re.findall(r"\(([\w., ]+)\)", setting.meaning):
            for name in re.findall(r"(?<![\w.])[a-z]\w*(?![\w.])", brackets):
                yield name, f"`{owner.name}({setting.name})`"


def with_java_counterparts(text: str) -> str:
    """Return the page of Java's settings with the counterparts that the settings declare."""
    head, *sections = text.split("\n## ")
    for owner in filter(lambda one: one.java, OWNERS):
        for number, part in enumerate(sections):
            if part.startswith(f"`{owner.java}`"):
                for name, counterpart in java_counterparts(owner):
                    part = re.sub(rf"^\| {name} \| [^|]* \|", f"| {name} | {counterpart} |", part, flags=re.M)
                sections[number] = part
    return "\n## ".join([head, *sections])


def generated() -> Iterator[tuple[Path, str]]:
    """Yield the path and the current text of every generated file."""
    for path in sorted({module_of(owner) for owner in (*OWNERS, BROKER)}):
        yield path, with_typed_dicts(path)
    yield PAGE, page()
    yield JAVA_PAGE, with_java_counterparts(JAVA_PAGE.read_text())


if __name__ == "__main__":
    for path, text in generated():
        path.write_text(text)
