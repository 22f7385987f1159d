"""Applies the rules of a profile to the requests of name servers and brokers."""

from __future__ import annotations

import ssl
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

from rocketmq_py.broker.admin.access_control import AccessControl
from rocketmq_py.broker.config import BrokerConfig
from rocketmq_py.broker.dispatch import FAQ, Refusal
from rocketmq_py.broker.profiles import Profile
from rocketmq_py.broker.sends.send_requests import SendHeader, read_header
from rocketmq_py.broker.storage.broker_message import decode_complete_properties, illegal_message
from rocketmq_py.broker.topics import TYPE_ATTRIBUTE, TopicConfig
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.credentials import ACCESS_KEY
from rocketmq_py.names import DEAD_LETTER_PREFIX, RETRY_PREFIX
from rocketmq_py.property_names import DELAY_LEVEL, SHARDING_KEY, TRANSACTION_PREPARED
from rocketmq_py.protocol.command import Command

_SHARED_GROUPS = ("CID_RMQ_SYS_", "TOOLS_CONSUMER")
"""The beginnings of groups that are in no namespace."""
_SENDS = frozenset({RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE})
_RECEIVES = frozenset(
    {
        RequestCode.PULL_MESSAGE,
        RequestCode.LITE_PULL_MESSAGE,
        RequestCode.POP_MESSAGE,
        RequestCode.POP_LITE_MESSAGE,
    }
)


def name_server_check(config: BrokerConfig) -> Callable[[Command], None] | None:
    """Return the check of the requests to name servers by the profile, or None without one."""
    profile = config.profile
    if profile is None:
        return None
    access_control = AccessControl(access_keys_of(config))

    def check(request: Command) -> None:
        _check_offered(profile, request)
        try:
            _authenticate(profile, access_control, request)
            _check_namespace_v2(profile, request)
        except Refusal:
            is_route = request.code == RequestCode.GET_ROUTEINFO_BY_TOPIC
            if profile.hides_routes is None or not is_route:
                raise
            topic = request.fields.get("topic", "null")
            remark = f"No topic route info in name server for the topic: {topic}{FAQ}"
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, remark) from None

    return check


def access_keys_of(config: BrokerConfig) -> Mapping[str, str]:
    """Return the secret keys of a broker by access key: those of the settings, else those of the profile."""
    if config.access_keys or config.profile is None:
        return config.access_keys
    return {config.profile.access_key: config.profile.secret_key}


def server_tls(tls: ssl.SSLContext | None, config: BrokerConfig) -> ssl.SSLContext | None:
    """Return the SSL context of servers: the given one, else that of the profile if it has one."""
    if tls is not None or config.profile is None or config.profile.untrusted_tls is None:
        return tls
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(Path(__file__).with_name("untrusted_certificate.pem"))
    return context


class ProfileRules:
    """The rules of a profile for the requests to a broker.

    Args:
        profile: the profile.
        access_control: authenticates requests.
        topic: returns the settings of a topic, or None if it does not exist.
        now_ms: the clock, epoch milliseconds.
    """

    def __init__(
        self,
        profile: Profile,
        access_control: AccessControl,
        topic: Callable[[str], TopicConfig | None],
        now_ms: Callable[[], int],
    ) -> None:
        self._profile = profile
        self._access_control = access_control
        self._topic = topic
        self._now_ms = now_ms
        self._second = 0
        self._requests: Counter[str] = Counter()  # in this second

    def check(self, request: Command) -> None:
        """Raise Refusal for a request that the service refuses."""
        _check_offered(self._profile, request)
        _authenticate(self._profile, self._access_control, request)
        _check_namespace_v2(self._profile, request)
        self._check_group(request.fields.get("consumerGroup", ""))
        if request.code in _SENDS:
            self._check_rate("send", self._profile.sends_per_second)
            self._check_send(request, read_header(request))
        elif request.code in _RECEIVES:
            self._check_rate("receive", self._profile.receives_per_second)

    def _check_group(self, group: str) -> None:
        namespace = self._profile.namespace
        if group and namespace and not group.startswith((f"{namespace.value}%", *_SHARED_GROUPS)):
            raise Refusal(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {group} {FAQ}"
            )

    def _check_rate(self, kind: str, most: int) -> None:
        second = self._now_ms() // 1000
        if second != self._second:
            self._second = second
            self._requests.clear()
        self._requests[kind] += 1
        if self._requests[kind] > most:
            raise Refusal(ResponseCode.FLOW_CONTROL, self._profile.throttled.value)

    def _check_send(self, request: Command, header: SendHeader) -> None:
        properties = decode_complete_properties(header.properties)
        kind = self._type_of(properties)
        sizes = self._profile.sizes.value
        most = sizes.special_body if kind in ("DELAY", "TRANSACTION") else sizes.body
        if len(request.body) > most or len(header.properties.encode()) > sizes.properties:
            remark = illegal_message(most, sizes.properties // 1024)
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, remark)
        mismatch = self._profile.type_mismatch
        topic = self._topic(header.topic)
        if mismatch is None or topic is None or header.topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX)):
            return
        expected = topic.attributes.get(TYPE_ATTRIBUTE, "NORMAL")
        if expected not in (kind, "MIXED"):
            remark = mismatch.value.format(expected=expected, actual=kind)
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, remark)

    def _type_of(self, properties: Mapping[str, str]) -> str:
        """Return the type of a message. Java: ``TopicMessageType.parseFromMessageProperty``."""
        if properties.get(TRANSACTION_PREPARED) == "true":
            return "TRANSACTION"
        if not properties.keys().isdisjoint(self._profile.delays.value.properties | {DELAY_LEVEL}):
            return "DELAY"
        return "FIFO" if SHARDING_KEY in properties else "NORMAL"


def _check_offered(profile: Profile, request: Command) -> None:
    if request.code in profile.not_offered.value:
        raise Refusal(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f" request type {request.code} not supported")


def _check_namespace_v2(profile: Profile, request: Command) -> None:
    rule = profile.namespace_v2
    if rule is not None and (request.fields.get("nsd"), request.fields.get("ns")) != ("true", rule.value):
        # No page shows the text of the service.
        remark = f"the fields nsd and ns of the request do not name the instance {rule.value}."
        raise Refusal(ResponseCode.NO_PERMISSION, remark)


def _authenticate(profile: Profile, access_control: AccessControl, request: Command) -> None:
    try:
        access_control.authenticate(request)
    except Refusal as refusal:
        rule = profile.forged if request.fields.get(ACCESS_KEY) else profile.unsigned
        # Brokers of 4.x answer with SYSTEM_ERROR, those of 5.x with NO_PERMISSION.
        code = ResponseCode.SYSTEM_ERROR if "Exception" in rule.value else refusal.code
        raise Refusal(code, rule.value) from None
