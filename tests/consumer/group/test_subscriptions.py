"""SqlFilters are asked about before they take effect, and tags are not."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import pytest
import trio
import trio.testing

from rocketmq_py import Client
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.consumer import PushConsumer
from rocketmq_py.consumer.group.subscriptions import Subscriptions, check_sql_filter, subscription_of
from rocketmq_py.errors import (
    ConfigurationError,
    RequestTimeoutError,
    RetriableBrokerError,
    RocketMQError,
    SqlFilterRefusedError,
    SubscriptionError,
    TopicNotFoundError,
)
from rocketmq_py.protocol.bodies import CheckClientConfig
from rocketmq_py.protocol.command import Command
from rocketmq_py.remoting import Connection
from tests.consumer.conftest import Fill
from tests.consumer.push_consumers import RecordingHandler, consumer_of, never
from tests.scripted import Answering, ignore, scripted_cluster

NOT_ENABLED = "The broker does not support consumer to filter message by SQL92"


@attrs.define(eq=False)
class Broker:
    """Says of SQL filters what a test says."""

    code: int = ResponseCode.SUCCESS
    remark: str | None = None
    checks: list[CheckClientConfig] = attrs.field(factory=list)
    before: Callable[[], None] = lambda: None

    def __call__(self, connection: Connection, request: Command) -> None:
        assert request.code == RequestCode.CHECK_CLIENT_CONFIG
        self.checks.append(CheckClientConfig.decode(request.body))
        self.before()
        connection.respond(request, self.code, remark=self.remark)


def sql(condition: str, topic: str = "T") -> object:
    return subscription_of(topic, "*", condition, version_ms=7)


def tags(expression: str, topic: str = "T") -> object:
    return subscription_of(topic, expression, None, version_ms=7)


def test_tags_or_a_sql_filter() -> None:
    assert subscription_of("T", "A || B", None, version_ms=7).tags_set == ("A", "B")
    condition = subscription_of("T", "*", "a > 5", version_ms=7)
    assert (condition.sub_string, condition.expression_type, condition.sub_version) == ("a > 5", "SQL92", 7)
    with pytest.raises(ConfigurationError, match="has tags 'A' and a SQL filter: give one"):
        subscription_of("T", "A", "a > 5", version_ms=7)
    with pytest.raises(ConfigurationError, match="needs a SQL filter"):
        subscription_of("T", "*", " ", version_ms=7)


async def check(
    *brokers: Answering, condition: str = "a > 5", topic: str = "T", **options: str
) -> RocketMQError | None:
    """Return what a client raises that asks these brokers."""
    async with (
        scripted_cluster(*brokers, topics=["T", "tenant%T"]) as cluster,
        Client(cluster.address, **options) as client,  # type: ignore[arg-type]  # what a test gives
    ):
        try:
            await check_sql_filter(client, "g", subscription_of(topic, "*", condition, version_ms=7))
        except RocketMQError as error:
            return error
    return None


async def test_a_broker_is_asked_as_java_asks() -> None:
    broker, other = Broker(), Broker()
    assert await check(broker, other, namespace="tenant") is None
    assert len(broker.checks) + len(other.checks) == 1
    [asked] = broker.checks
    assert asked.group == "tenant%g"
    assert asked.subscription_data.topic == "tenant%T"
    assert asked.subscription_data.sub_string == "a > 5"
    assert asked.client_id


async def test_what_a_broker_says_against_a_condition_is_told() -> None:
    broker = Broker(ResponseCode.SUBSCRIPTION_PARSE_FAILED, "Encountered\n <EOF>")
    error = await check(broker, condition="a >")
    assert isinstance(error, SqlFilterRefusedError)
    assert str(error).endswith("refuses the SQL filter 'a >' on topic 'T': Encountered <EOF>")
    assert (error.topic, error.sql, error.code) == ("T", "a >", 23)
    assert isinstance(error, SubscriptionError)
    assert not error.retriable


async def test_a_broker_that_filters_by_no_sql_filter() -> None:
    error = await check(Broker(ResponseCode.SYSTEM_ERROR, NOT_ENABLED))
    assert isinstance(error, SqlFilterRefusedError)
    assert str(error).endswith("message by SQL92; set enablePropertyFilter=true on the broker")


async def test_another_broker_is_asked_when_one_cannot_tell() -> None:
    other = Broker()
    assert await check(Broker(ResponseCode.SYSTEM_BUSY, "busy"), other) is None
    assert len(other.checks) == 1
    assert isinstance(await check(Broker(ResponseCode.SYSTEM_BUSY, "busy")), RetriableBrokerError)
    assert isinstance(await check(Broker(), topic="another"), TopicNotFoundError)


async def test_another_broker_is_asked_when_one_is_away(jumping_clock: trio.testing.MockClock) -> None:
    condition = subscription_of("T", "*", "a > 5", version_ms=7)
    async with scripted_cluster(ignore, Broker()) as cluster, Client(cluster.address) as client:
        await check_sql_filter(client, "g", condition)
        cluster.brokers["broker-b"].answer = ignore
        with pytest.raises(RequestTimeoutError, match=cluster.brokers["broker-a"].address):
            await check_sql_filter(client, "g", condition)


@attrs.define(eq=False)
class Subscribed:
    """Subscriptions, the broker that is asked, and the topics that changed."""

    subscriptions: Subscriptions
    broker: Broker
    topics: dict[str, tuple[int, int, int]]
    changed: list[str]

    def put(self, *subscriptions: object) -> None:
        for subscription in subscriptions:
            self.subscriptions.put(subscription)  # type: ignore[arg-type]  # see above

    @property
    def strings(self) -> dict[str, str]:
        return {topic: each.sub_string for topic, each in self.subscriptions.items()}


@pytest.fixture
async def subscribed(nursery: trio.Nursery) -> Subscribed:
    async def run(*, task_status: trio.TaskStatus[Subscribed]) -> None:
        broker = Broker()
        async with (
            scripted_cluster(broker, topics=["T", "U"]) as cluster,
            Client(cluster.address, route_refresh_interval=1e6) as client,
        ):
            changed: list[str] = []
            subscriptions = Subscriptions(client, "g", changed.append)
            result = Subscribed(subscriptions, broker, cluster.topics, changed)
            task_status.started(result)
            await trio.sleep_forever()

    started: Subscribed = await nursery.start(run)
    return started


async def test_tags_count_at_once_and_sql_filters_when_they_were_accepted(subscribed: Subscribed) -> None:
    subscribed.put(tags("A"), sql("a > 5", "U"))
    assert subscribed.strings == {"T": "A"}
    assert subscribed.subscriptions.wanted == ["T", "U"]
    assert await subscribed.subscriptions.check() == {}
    assert subscribed.strings == {"T": "A", "U": "a > 5"}
    assert subscribed.changed == ["T", "U"]
    assert await subscribed.subscriptions.check() == {}
    assert len(subscribed.broker.checks) == 1


async def test_what_was_subscribed_before_holds_until_then(subscribed: Subscribed) -> None:
    subscribed.put(tags("A"), sql("a >"))
    subscribed.broker.code = ResponseCode.SUBSCRIPTION_PARSE_FAILED
    for _ in range(2):
        with pytest.raises(SqlFilterRefusedError):
            await subscribed.subscriptions.check()
    assert subscribed.strings == {"T": "A"}
    with pytest.raises(SqlFilterRefusedError):
        subscribed.subscriptions.raise_refusal()
    subscribed.put(tags("B"))
    subscribed.subscriptions.raise_refusal()
    assert await subscribed.subscriptions.check() == {}
    assert subscribed.strings == {"T": "B"}


async def test_what_is_subscribed_while_a_broker_is_asked_counts(subscribed: Subscribed) -> None:
    subscribed.put(sql("a > 5"))
    subscribed.broker.before = lambda: subscribed.put(tags("B"))
    assert await subscribed.subscriptions.check() == {}
    assert subscribed.strings == {"T": "B"}
    subscribed.put(sql("a >"))
    subscribed.broker.code = ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert await subscribed.subscriptions.check() == {}
    subscribed.subscriptions.raise_refusal()


async def test_only_some_topics_may_be_asked_about(subscribed: Subscribed) -> None:
    subscribed.put(sql("a > 5"), sql("b > 5", "U"), sql("c > 5", "nowhere"))
    await subscribed.subscriptions.check(["U"])
    assert subscribed.strings == {"U": "b > 5"}
    unsettled = await subscribed.subscriptions.check()
    assert subscribed.strings == {"T": "a > 5", "U": "b > 5"}
    assert [type(error) for error in unsettled.values()] == [TopicNotFoundError]
    assert subscribed.subscriptions.remove("nowhere")
    assert subscribed.subscriptions.remove("U")
    assert not subscribed.subscriptions.remove("U")
    assert subscribed.subscriptions.wanted == ["T"]
    assert subscribed.changed == ["U", "T", "U"]


async def test_a_sql_filter_waits_for_a_topic_that_is_not_there_yet(
    subscribed: Subscribed, nursery: trio.Nursery, caplog: pytest.LogCaptureFixture,
    jumping_clock: trio.testing.MockClock,
) -> None:  # fmt: skip
    nursery.start_soon(subscribed.subscriptions.keep_checked)
    subscribed.put(sql("a > 5", "later"))
    await trio.sleep(30)
    assert subscribed.strings == {}
    [record] = caplog.records
    assert "SQL filter check failed, retrying: group=g topic=later" in record.message
    subscribed.topics["later"] = (4, 4, 6)
    await trio.sleep(30)
    assert subscribed.strings == {"later": "a > 5"}
    subscribed.put(sql("b > 5"))
    await trio.sleep(1)
    assert subscribed.strings == {"later": "a > 5", "T": "b > 5"}


async def test_a_refusal_is_raised_once_and_kept(
    subscribed: Subscribed, jumping_clock: trio.testing.MockClock
) -> None:
    subscribed.broker.code = ResponseCode.SUBSCRIPTION_PARSE_FAILED
    subscribed.put(sql("a >"))
    with pytest.raises(SqlFilterRefusedError):
        await subscribed.subscriptions.keep_checked()
    with trio.move_on_after(60) as scope:
        await subscribed.subscriptions.keep_checked()
    assert scope.cancelled_caught
    assert len(subscribed.broker.checks) == 1


async def test_a_consumer_may_be_stopped_while_a_broker_is_asked(
    jumping_clock: trio.testing.MockClock,
) -> None:
    asked = trio.Event()

    def answer(connection: Connection, request: Command) -> None:
        if request.code == RequestCode.CHECK_CLIENT_CONFIG:
            asked.set()
        else:
            connection.respond(request, ResponseCode.SUCCESS)

    async with (
        scripted_cluster(answer, topics=["T"]) as cluster,
        PushConsumer(cluster.address, group="g", request_timeout=1e6) as consumer,
        trio.open_nursery() as nursery,
    ):
        consumer.subscribe("T", sql="a > 5")
        nursery.start_soon(consumer.run, never)
        await asked.wait()
        with trio.fail_after(60):
            consumer.stop()
            while nursery.child_tasks:
                await trio.sleep(0.1)


@pytest.mark.parametrize("wanted", [{"tags": "B"}, {"sql": "TAGS = 'B'"}], ids=["tags", "sql"])
async def test_what_is_subscribed_anew_is_pulled_at_once(
    address: str, fill: Fill, wanted: dict[str, str], jumping_clock: trio.testing.MockClock
) -> None:
    """Else a pull under way, which the broker holds, would pass over what is wanted only now."""
    await fill("T", 1, tags="A")
    kept = RecordingHandler()
    async with consumer_of(address, pull_hold=100, pull_timeout=200, pull_max_idle_time=300) as consumer:
        consumer.subscribe("T", "A")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(consumer.run, kept)
            await kept.until(1)
            consumer.subscribe("T", **wanted)
            await trio.sleep(1)
            await fill("T", 1, tags="B", first=1)
            with trio.fail_after(50):
                await kept.until(2)
            nursery.cancel_scope.cancel()
    assert kept.numbers == [0, 1]
