"""The rules of the profiles of managed services."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from typing import Any

import attrs
import pytest
import trio

from rocketmq_py.broker.config import BrokerConfig
from rocketmq_py.broker.profile_rules import access_keys_of, name_server_check, server_tls
from rocketmq_py.broker.profiles import PROFILES, Profile, Rule
from rocketmq_py.broker.topics import TopicConfig
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.credentials import Credentials, RequestSigner, signed
from rocketmq_py.errors import ConfigurationError
from tests.broker.offline import START_MS, Answer, OfflineBroker, OfflineClient

OpenBroker = Callable[..., OfflineBroker]
ALIBABA_4, TENCENT_4 = PROFILES["alibaba-4"], PROFILES["tencent-4"]
TYPES = ("NORMAL", "FIFO", "DELAY", "TRANSACTION")


def complete(
    profile: Profile, credentials: Credentials, fields: Mapping[str, str], body: bytes = b""
) -> Mapping[str, str]:
    """Return the fields of a request as a client with the settings of the profile sends them."""
    namespace = "" if profile.namespace_v2 is None else profile.namespace_v2.value
    return RequestSigner(credentials, namespace).complete(fields, body)


class SigningClient:
    """A client that signs its requests to a broker with a profile."""

    def __init__(self, broker: OfflineBroker, profile: Profile) -> None:
        self.client: OfflineClient = broker.connect()
        self._profile = profile
        self._credentials = Credentials(profile.access_key, profile.secret_key)
        for kind in TYPES:
            name = profile.full_name(kind)
            broker.broker.state.topics.put(TopicConfig(name, 1, 1, attributes={"message.type": kind}))

    def ask(self, code: int, fields: Mapping[str, str], body: bytes = b"") -> Answer:
        return self.client.ask(code, complete(self._profile, self._credentials, fields, body), body)

    def send(self, topic: str, body: bytes = b"x", **properties: str) -> Answer:
        text = "".join([f"{name}\x01{value}\x02" for name, value in {"UNIQ_KEY": "1", **properties}.items()])
        fields = {
            "a": "senders", "b": self._profile.full_name(topic), "c": "TBW102", "d": "4", "e": "0", "f": "0",
            "g": "1690000000000", "h": "0", "i": text, "j": "0", "k": "false",
        }  # fmt: skip
        return self.ask(RequestCode.SEND_MESSAGE_V2, fields, body)

    def pull(self, topic: str, group: str = "readers") -> Answer:
        fields = self.client.pull_fields(self._profile.full_name(topic), 0)
        return self.ask(RequestCode.PULL_MESSAGE, {**fields, "consumerGroup": group})

    def count(self, topic: str) -> int:
        return len(self.pull(topic, self._profile.full_name("readers")).messages)


@pytest.fixture
def connect(open_broker: OpenBroker) -> Callable[[Profile | str], SigningClient]:
    def connect(profile: Profile | str) -> SigningClient:
        broker = open_broker(profile=profile)
        assert broker.broker.config.profile is not None
        return SigningClient(broker, broker.broker.config.profile)

    return connect


Connect = Callable[[Profile | str], SigningClient]


def test_each_rule_has_a_source() -> None:
    for profile in PROFILES.values():
        rules = [value for value in attrs.astuple(profile, recurse=False) if isinstance(value, Rule)]
        assert len(rules) >= 7
        assert all(rule.source.startswith("https://") for rule in rules), profile.name


def test_an_unknown_profile_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"no profile 'other'; there are alibaba-4, "):
        BrokerConfig(profile="other")


@pytest.mark.parametrize("name", PROFILES)
async def test_unsigned_requests_are_refused_with_the_vendors_text(
    open_broker: OpenBroker, name: str
) -> None:
    profile = PROFILES[name]
    broker = open_broker(profile=name)
    plain = broker.connect()
    fields = plain.pull_fields("T", 0)
    answer = plain.ask(RequestCode.PULL_MESSAGE, fields)
    assert answer.remark == profile.unsigned.value
    assert answer.code in (ResponseCode.SYSTEM_ERROR, ResponseCode.NO_PERMISSION)
    for credentials in (Credentials(profile.access_key, "wrong"), Credentials("unknown", "wrong")):
        answer = plain.ask(RequestCode.PULL_MESSAGE, signed(fields, b"", credentials))
        assert answer.remark == profile.forged.value


@pytest.mark.parametrize("name", PROFILES)
async def test_name_servers_check_signatures(name: str) -> None:
    profile = PROFILES[name]
    check = name_server_check(BrokerConfig(profile=name))
    assert check is not None
    broker = OfflineBroker(BrokerConfig())
    broker.name_server_dispatch._check = check  # as servers create it
    client = broker.connect()
    code, fields = RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "TBW102"}
    answer = client.ask_name_server(code, fields)
    if profile.hides_routes is None:
        assert answer.remark == profile.unsigned.value
    else:
        assert answer.code == ResponseCode.TOPIC_NOT_EXIST
    keys = Credentials(profile.access_key, profile.secret_key)
    assert client.ask_name_server(code, complete(profile, keys, fields)).code == ResponseCode.SUCCESS
    for refused in profile.not_offered.value & {RequestCode.UPDATE_NAMESRV_CONFIG, RequestCode.PUT_KV_CONFIG}:
        answer = client.ask_name_server(refused, signed({}, b"", keys))
        assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED


def test_servers_without_a_profile_check_nothing() -> None:
    assert name_server_check(BrokerConfig()) is None
    assert server_tls(None, BrokerConfig()) is None


def test_keys_of_the_settings_replace_those_of_the_profile() -> None:
    config = BrokerConfig(profile=ALIBABA_4, access_keys={"own": "secret"})
    assert access_keys_of(config) == {"own": "secret"}
    assert access_keys_of(attrs.evolve(config, access_keys={})) == {
        ALIBABA_4.access_key: ALIBABA_4.secret_key
    }


@pytest.mark.parametrize("name", ["alibaba-4", "tencent-4"])
async def test_groups_and_topics_without_the_namespace_do_not_exist(connect: Connect, name: str) -> None:
    client = connect(name)
    assert client.send("NORMAL").code == ResponseCode.SUCCESS
    assert client.count("NORMAL") == 1
    answer = client.pull("NORMAL", "readers")
    assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    without = attrs.evolve(PROFILES[name], namespace=None)
    other = SigningClient(client.client._to, without)
    client.client._to.broker.state.topics.delete("NORMAL")
    assert other.send("NORMAL").code == ResponseCode.TOPIC_NOT_EXIST


async def test_each_request_names_the_instance_of_a_serverless_profile(open_broker: OpenBroker) -> None:
    profile = PROFILES["alibaba-5-serverless"]
    broker = open_broker(profile=profile)
    check = name_server_check(BrokerConfig(profile=profile))
    broker.name_server_dispatch._check = check
    client = broker.connect()
    keys = Credentials(profile.access_key, profile.secret_key)
    instance = {"nsd": "true", "ns": "rmq-cn-test1234"}
    route = RequestCode.GET_ROUTEINFO_BY_TOPIC
    for fields in ({}, {"ns": "rmq-cn-test1234"}, {**instance, "ns": "other"}, {**instance, "nsd": "false"}):
        for answer in (
            client.ask(RequestCode.HEART_BEAT, signed(fields, b"", keys)),
            client.ask_name_server(route, signed({"topic": "TBW102", **fields}, b"", keys)),
        ):
            assert answer.code == ResponseCode.NO_PERMISSION
            assert "do not name the instance rmq-cn-test1234" in (answer.remark or "")
    fields = {"topic": "missing", **instance}
    assert client.ask_name_server(route, signed(fields, b"", keys)).code == ResponseCode.TOPIC_NOT_EXIST
    # The fields are signed.
    answer = client.ask_name_server(route, {**signed({"topic": "TBW102"}, b"", keys), **instance})
    assert answer.remark == profile.forged.value


@pytest.mark.parametrize("name", [name for name, one in PROFILES.items() if one.type_mismatch])
async def test_messages_of_another_type_are_refused(connect: Connect, name: str) -> None:
    client = connect(name)
    ways: Mapping[str, Mapping[str, Any]] = {
        "NORMAL": {},
        "FIFO": {"__SHARDINGKEY": "key"},
        "DELAY": {"__STARTDELIVERTIME": "1"},
        "TRANSACTION": {"TRAN_MSG": "true", "PGROUP": "senders"},
    }
    client.client._to.broker.state.topics.put(
        TopicConfig(PROFILES[name].full_name("MIXED"), 1, 1, attributes={"message.type": "MIXED"})
    )
    for kind, properties in ways.items():
        assert client.send("MIXED", **properties).code == ResponseCode.SUCCESS
        for topic in TYPES:
            answer = client.send(topic, **properties)
            if topic == kind:
                assert answer.code == ResponseCode.SUCCESS, answer
            else:
                assert answer.code == ResponseCode.MESSAGE_ILLEGAL
                assert "type" in (answer.remark or "")


async def test_a_profile_without_types_does_not_compare_them(connect: Connect) -> None:
    client = connect("tencent-4")
    assert client.send("FIFO").code == ResponseCode.SUCCESS


async def test_retry_topics_have_no_type(connect: Connect) -> None:
    client = connect("alibaba-4")
    state = client.client._to.broker.state
    state.topics.put(TopicConfig(ALIBABA_4.full_name("%RETRY%readers"), 1, 1))
    assert client.send("%RETRY%readers", DELAY="1").code == ResponseCode.SUCCESS


async def test_a_service_delivers_by_its_own_property_only(
    connect: Connect, autojump_clock: trio.testing.MockClock
) -> None:
    client = connect("tencent-4")
    due_ms = str(START_MS + 60_000)
    client.send("NORMAL", TIMER_DELIVER_MS=due_ms)
    client.send("FIFO", TIMER_DELIVER_MS=due_ms, __STARTDELIVERTIME=due_ms)
    client.send("DELAY", __STARTDELIVERTIME=due_ms)
    assert [client.count(topic) for topic in ("NORMAL", "FIFO", "DELAY")] == [1, 0, 0]
    await trio.sleep(61)
    assert [client.count(topic) for topic in ("NORMAL", "FIFO", "DELAY")] == [1, 1, 1]


async def test_a_delay_beyond_the_limit_is_refused_or_ends_at_once(
    connect: Connect, autojump_clock: trio.testing.MockClock
) -> None:
    too_late = str(START_MS + 41 * 24 * 3600 * 1000)
    strict = connect("alibaba-4")
    assert strict.send("DELAY", __STARTDELIVERTIME=too_late).code == ResponseCode.MESSAGE_ILLEGAL
    assert strict.send("DELAY", __STARTDELIVERTIME="soon").code == ResponseCode.MESSAGE_ILLEGAL
    lenient = connect("alibaba-5")
    assert lenient.send("DELAY", __STARTDELIVERTIME=too_late).code == ResponseCode.SUCCESS
    assert lenient.count("DELAY") == 1


async def test_sizes_are_limited_by_type(connect: Connect) -> None:
    client = connect("volcengine")
    assert client.send("NORMAL", b"x" * 65_537).code == ResponseCode.SUCCESS
    answer = client.send("NORMAL", b"x" * 65_537, DELAY="1")
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert "length limit 65536B" in (answer.remark or "")
    assert client.send("NORMAL", b"x" * (4 * 1024 * 1024 + 1)).code == ResponseCode.MESSAGE_ILLEGAL
    assert client.send("NORMAL", long="x" * 17_000).code == ResponseCode.MESSAGE_ILLEGAL


async def test_sends_above_a_rate_are_refused_until_the_next_second(
    connect: Connect, autojump_clock: trio.testing.MockClock
) -> None:
    client = connect(attrs.evolve(PROFILES["alibaba-5"], sends_per_second=2))
    codes = [client.send("NORMAL").code for _ in range(3)]
    assert codes == [ResponseCode.SUCCESS, ResponseCode.SUCCESS, ResponseCode.FLOW_CONTROL]
    await trio.sleep(1)
    assert client.send("NORMAL").code == ResponseCode.SUCCESS


async def test_pulls_above_a_rate_are_refused_until_the_next_second(
    connect: Connect, autojump_clock: trio.testing.MockClock
) -> None:
    client = connect(attrs.evolve(PROFILES["alibaba-5"], receives_per_second=1, sends_per_second=1))
    assert client.send("NORMAL").code == ResponseCode.SUCCESS  # not counted among the pulls
    codes = [client.pull("NORMAL").code for _ in range(2)]
    assert codes == [ResponseCode.SUCCESS, ResponseCode.FLOW_CONTROL]
    await trio.sleep(1)
    assert client.pull("NORMAL").code == ResponseCode.SUCCESS


@pytest.mark.parametrize("name", PROFILES)
async def test_requests_that_a_service_does_not_offer_are_refused(connect: Connect, name: str) -> None:
    client = connect(name)
    for code in PROFILES[name].not_offered.value:
        assert client.ask(code, {}).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED, code.__repr__()


@pytest.mark.parametrize("name", PROFILES)
async def test_topics_are_not_created_automatically_and_that_of_traces_exists(
    connect: Connect, name: str
) -> None:
    client = connect(name)
    assert client.send("missing").code == ResponseCode.TOPIC_NOT_EXIST
    trace_topic = PROFILES[name].trace_topic.value
    assert client.send(trace_topic).code == ResponseCode.SUCCESS


def test_the_certificate_of_a_profile_is_trusted_by_nobody() -> None:
    context = server_tls(None, BrokerConfig(profile=PROFILES["huawei"]))
    assert isinstance(context, ssl.SSLContext)
    own = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    assert server_tls(own, BrokerConfig(profile=PROFILES["huawei"])) is own
