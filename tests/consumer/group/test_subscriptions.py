"""SQL filters take effect when a broker has accepted them, tag filters at once."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import pytest
import trio
import trio.testing

from rocketmq_py import Client
from rocketmq_py.client import core_of
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.consumer import PushConsumer
from rocketmq_py.consumer.group.subscriptions import Subscriptions, check_sql_filter, subscription_of
from rocketmq_py.errors import (
    ConfigurationError,
    RequestTimeoutError,
    RetriableBrokerError,
    RocketMQError,
    SqlFilterRefusedError,
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
    """A broker that answers all checks of SQL filters alike.

    Attributes:
        before: called before each response.
    """

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


def test_a_subscription_has_tags_or_a_sql_filter() -> None:
    assert subscription_of("T", "A || B", None, version_ms=7).tags_set == ("A", "B")
    condition = subscription_of("T", "*", "a > 5", version_ms=7)
    assert (condition.sub_string, condition.expression_type, condition.sub_version) == ("a > 5", "SQL92", 7)
    with pytest.raises(ConfigurationError, match="has both tags 'A' and a SQL filter"):
        subscription_of("T", "A", "a > 5", version_ms=7)
    with pytest.raises(ConfigurationError, match="needs a SQL filter"):
        subscription_of("T", "*", " ", version_ms=7)


async def check(
    *brokers: Answering, condition: str = "a > 5", topic: str = "T", **options: str
) -> RocketMQError | None:
    """Check a SQL filter with these brokers. Returns the error that is raised."""
    async with (
        scripted_cluster(*brokers, topics=["T", "tenant%T"]) as cluster,
        Client(cluster.address, **options) as client,  # type: ignore[arg-type]
    ):
        try:
            await check_sql_filter(core_of(client), "g", subscription_of(topic, "*", condition, version_ms=7))
        except RocketMQError as error:
            return error
    return None


async def test_one_broker_is_asked_with_the_request_of_java() -> None:
    broker, other = Broker(), Broker()
    assert await check(broker, other, namespace="tenant") is None
    assert len(broker.checks) + len(other.checks) == 1
    [check_request] = broker.checks
    assert check_request.group == "tenant%g"
    assert check_request.subscription_data.topic == "tenant%T"
    assert check_request.subscription_data.sub_string == "a > 5"
    assert check_request.client_id


async def test_the_error_of_a_refused_filter_contains_the_brokers_remark() -> None:
    broker = Broker(ResponseCode.SUBSCRIPTION_PARSE_FAILED, "Encountered\n <EOF>")
    error = await check(broker, condition="a >")
    assert isinstance(error, SqlFilterRefusedError)
    assert str(error).endswith("refuses the SQL filter 'a >' on topic 'T': Encountered <EOF>")
    assert (error.topic, error.sql, error.code) == ("T", "a >", 23)
    assert not error.retriable


async def test_the_error_names_the_broker_setting_if_sql_filters_are_disabled() -> None:
    error = await check(Broker(ResponseCode.SYSTEM_ERROR, NOT_ENABLED))
    assert isinstance(error, SqlFilterRefusedError)
    assert str(error).endswith("message by SQL92; set enablePropertyFilter=true on the broker")


async def test_another_broker_is_asked_if_one_fails() -> None:
    other = Broker()
    assert await check(Broker(ResponseCode.SYSTEM_BUSY, "busy"), other) is None
    assert len(other.checks) == 1
    assert isinstance(await check(Broker(ResponseCode.SYSTEM_BUSY, "busy")), RetriableBrokerError)
    assert isinstance(await check(Broker(), topic="another"), TopicNotFoundError)


async def test_another_broker_is_asked_if_one_does_not_answer(jumping_clock: trio.testing.MockClock) -> None:
    condition = subscription_of("T", "*", "a > 5", version_ms=7)
    async with scripted_cluster(ignore, Broker()) as cluster, Client(cluster.address) as client:
        await check_sql_filter(core_of(client), "g", condition)
        cluster.brokers["broker-b"].answer = ignore
        with pytest.raises(RequestTimeoutError, match=cluster.brokers["broker-a"].address):
            await check_sql_filter(core_of(client), "g", condition)


@attrs.define(eq=False)
class Subscribed:
    """Subscriptions, their broker, the existing topics, and the topics passed to ``on_change``."""

    subscriptions: Subscriptions
    broker: Broker
    topics: dict[str, tuple[int, int, int]]
    changed: list[str]

    def put(self, *subscriptions: object) -> None:
        for subscription in subscriptions:
            self.subscriptions.put(subscription)  # type: ignore[arg-type]

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
            subscriptions = Subscriptions(core_of(client), "g", changed.append)
            result = Subscribed(subscriptions, broker, cluster.topics, changed)
            task_status.started(result)
            await trio.sleep_forever()

    started: Subscribed = await nursery.start(run)
    return started


async def test_tags_take_effect_at_once_and_sql_filters_once_accepted(subscribed: Subscribed) -> None:
    subscribed.put(tags("A"), sql("a > 5", "U"))
    assert subscribed.strings == {"T": "A"}
    assert subscribed.subscriptions.topics == ["T", "U"]
    assert await subscribed.subscriptions.check_filters() == {}
    assert subscribed.strings == {"T": "A", "U": "a > 5"}
    assert subscribed.changed == ["T", "U"]
    assert await subscribed.subscriptions.check_filters() == {}
    assert len(subscribed.broker.checks) == 1


async def test_the_previous_subscription_stays_if_a_filter_is_refused(subscribed: Subscribed) -> None:
    subscribed.put(tags("A"), sql("a >"))
    subscribed.broker.code = ResponseCode.SUBSCRIPTION_PARSE_FAILED
    for _ in range(2):
        with pytest.raises(SqlFilterRefusedError):
            await subscribed.subscriptions.check_filters()
    assert subscribed.strings == {"T": "A"}
    with pytest.raises(SqlFilterRefusedError):
        subscribed.subscriptions.raise_refusal()
    subscribed.put(tags("B"))
    subscribed.subscriptions.raise_refusal()
    assert await subscribed.subscriptions.check_filters() == {}
    assert subscribed.strings == {"T": "B"}


async def test_a_subscription_made_during_the_check_wins(subscribed: Subscribed) -> None:
    subscribed.put(sql("a > 5"))
    subscribed.broker.before = lambda: subscribed.put(tags("B"))
    assert await subscribed.subscriptions.check_filters() == {}
    assert subscribed.strings == {"T": "B"}
    subscribed.put(sql("a >"))
    subscribed.broker.code = ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert await subscribed.subscriptions.check_filters() == {}
    subscribed.subscriptions.raise_refusal()


async def test_the_filters_of_some_topics_can_be_checked(subscribed: Subscribed) -> None:
    subscribed.put(sql("a > 5"), sql("b > 5", "U"), sql("c > 5", "nowhere"))
    await subscribed.subscriptions.check_filters(["U"])
    assert subscribed.strings == {"U": "b > 5"}
    failures = await subscribed.subscriptions.check_filters()
    assert subscribed.strings == {"T": "a > 5", "U": "b > 5"}
    assert [type(error) for error in failures.values()] == [TopicNotFoundError]
    assert subscribed.subscriptions.remove("nowhere")
    assert subscribed.subscriptions.remove("U")
    assert not subscribed.subscriptions.remove("U")
    assert subscribed.subscriptions.topics == ["T"]
    assert subscribed.changed == ["U", "T", "U"]


async def test_a_sql_filter_is_checked_again_until_its_topic_exists(
    subscribed: Subscribed, nursery: trio.Nursery, caplog: pytest.LogCaptureFixture,
    jumping_clock: trio.testing.MockClock,
) -> None:  # fmt: skip
    nursery.start_soon(subscribed.subscriptions.keep_checking_filters)
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


async def test_a_refused_filter_is_not_checked_again(
    subscribed: Subscribed, jumping_clock: trio.testing.MockClock
) -> None:
    subscribed.broker.code = ResponseCode.SUBSCRIPTION_PARSE_FAILED
    subscribed.put(sql("a >"))
    with pytest.raises(SqlFilterRefusedError):
        await subscribed.subscriptions.keep_checking_filters()
    with trio.move_on_after(60) as scope:
        await subscribed.subscriptions.keep_checking_filters()
    assert scope.cancelled_caught
    assert len(subscribed.broker.checks) == 1


async def test_a_consumer_can_be_stopped_during_the_check(
    jumping_clock: trio.testing.MockClock,
) -> None:
    check_received = trio.Event()

    def answer(connection: Connection, request: Command) -> None:
        if request.code == RequestCode.CHECK_CLIENT_CONFIG:
            check_received.set()
        else:
            connection.respond(request, ResponseCode.SUCCESS)

    async with (
        scripted_cluster(answer, topics=["T"]) as cluster,
        PushConsumer(cluster.address, group="g", request_timeout=1e6) as consumer,
        trio.open_nursery() as nursery,
    ):
        consumer.subscribe("T", sql="a > 5")
        nursery.start_soon(consumer.run, never)
        await check_received.wait()
        with trio.fail_after(60):
            consumer.stop()
            while nursery.child_tasks:
                await trio.sleep(0.1)


@pytest.mark.parametrize("subscription", [{"tags": "B"}, {"sql": "TAGS = 'B'"}], ids=["tags", "sql"])
async def test_a_changed_subscription_restarts_the_pull_request(
    address: str, fill: Fill, subscription: dict[str, str], jumping_clock: trio.testing.MockClock
) -> None:
    """The broker applies the previous filter to a pull request that it already holds."""
    await fill("T", 1, tags="A")
    kept = RecordingHandler()
    async with consumer_of(address, pull_hold=100, pull_timeout=200) as consumer:
        consumer.subscribe("T", "A")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(consumer.run, kept)
            await kept.until(1)
            consumer.subscribe("T", **subscription)
            await trio.sleep(1)
            await fill("T", 1, tags="B", first=1)
            with trio.fail_after(50):
                await kept.until(2)
            nursery.cancel_scope.cancel()
    assert kept.numbers == [0, 1]
