"""Profiles of managed services: how their documents say that they differ from Apache RocketMQ.

Each value of a profile has its source: a page of the vendor, a public report, or the code of Apache RocketMQ
where the vendor's pages do not say it. Nothing was tried on a live service. ``profile_rules`` applies them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Generic, TypeVar

import attrs

from rocketmq_py.arguments import check_text
from rocketmq_py.codes import RequestCode
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.names import (
    CLOUD_TRACE_PREFIX,
    DEAD_LETTER_PREFIX,
    RETRY_PREFIX,
    TRACE_TOPIC,
    is_system_topic,
)
from rocketmq_py.property_names import (
    START_DELIVER_TIME,
    TIMER_DELAY_MS,
    TIMER_DELAY_SECONDS,
    TIMER_DELIVER_MS,
)

_T = TypeVar("_T")
_KIB = 1024
_MIB = 1024 * _KIB
_DAY = 24 * 3600


@attrs.frozen
class Rule(Generic[_T]):
    """A value of a profile, and the page that says so."""

    value: _T
    source: str


@attrs.frozen
class Sizes:
    """Limits of messages in bytes: bodies, those of delayed messages and transactions, and properties."""

    body: int
    special_body: int
    properties: int


@attrs.frozen
class Delays:
    """How a service delays messages.

    Attributes:
        properties: the properties with a delivery time that it reads.
        max_seconds: the longest delay.
        beyond_is_now: whether a message with a longer delay is delivered at once. Otherwise it is refused.
    """

    properties: frozenset[str]
    max_seconds: int
    beyond_is_now: bool = False


@attrs.frozen(kw_only=True)
class Profile:
    """The rules of a managed service. A rule that is None does not apply.

    Topics are never created automatically.

    Attributes:
        name: the profile's name.
        service: the service.
        access_key, secret_key: the keys that it accepts, in the vendor's form, unless the broker's setting
            ``access_keys`` has others.
        unsigned: the remark of refused requests without keys.
        forged: the remark of refused requests with unknown keys or a wrong signature.
        hides_routes: whether requests for routes without valid keys are answered as if the topic did not
            exist.
        namespace: names of topics and groups begin with it and ``%``.
        namespace_v2: every request must have it in the field ``ns``, and ``nsd``, both of them signed.
        type_mismatch: the remark that refuses a message whose type is not that of its topic. ``{expected}``
            and ``{actual}`` stand for the types.
        not_offered: the requests that are refused as not supported.
        delays: how it delays messages.
        sizes: the limits of messages.
        sends_per_second: the number of sends in a second above which they are refused with FLOW_CONTROL.
        receives_per_second: the same for pulls and pops.
        throttled: the remark of these refusals.
        trace_topic: the topic of traces.
        untrusted_tls: whether connections use TLS with a certificate that no authority has signed.
    """

    name: str
    service: str
    access_key: str
    secret_key: str
    unsigned: Rule[str]
    forged: Rule[str]
    hides_routes: Rule[bool] | None = None
    namespace: Rule[str] | None = None
    namespace_v2: Rule[str] | None = None
    type_mismatch: Rule[str] | None = None
    not_offered: Rule[frozenset[int]]
    delays: Rule[Delays]
    sizes: Rule[Sizes]
    sends_per_second: int = 1000
    receives_per_second: int = 1000
    throttled: Rule[str]
    trace_topic: Rule[str]
    untrusted_tls: Rule[bool] | None = None

    def full_name(self, name: str) -> str:
        """Return the name of a topic or group with the namespace, unless it has one or is RocketMQ's own."""
        for prefix in (RETRY_PREFIX, DEAD_LETTER_PREFIX):
            if name.startswith(prefix):
                return prefix + self.full_name(name.removeprefix(prefix))
        if self.namespace is None or "%" in name or is_system_topic(name):
            return name
        return f"{self.namespace.value}%{name}"


_TIMER_PROPERTIES = frozenset({TIMER_DELAY_SECONDS, TIMER_DELAY_MS, TIMER_DELIVER_MS})
_CREATIONS = frozenset(
    {
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        RequestCode.DELETE_TOPIC_IN_BROKER,
        RequestCode.DELETE_TOPIC_IN_NAMESRV,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        RequestCode.DELETE_SUBSCRIPTIONGROUP,
    }
)
_SETTINGS = frozenset(
    {
        RequestCode.UPDATE_BROKER_CONFIG,
        RequestCode.UPDATE_NAMESRV_CONFIG,
        RequestCode.PUT_KV_CONFIG,
        RequestCode.DELETE_KV_CONFIG,
        RequestCode.WIPE_WRITE_PERM_OF_BROKER,
        RequestCode.ADD_WRITE_PERM_OF_BROKER,
    }
)
_REPLIES = frozenset({RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2})
_ADMINISTRATION = (
    _CREATIONS
    | _SETTINGS
    | {
        RequestCode.GET_BROKER_CLUSTER_INFO,
        RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
        RequestCode.GET_TOPICS_BY_CLUSTER,
        RequestCode.GET_NAMESRV_CONFIG,
        RequestCode.GET_BROKER_CONFIG,
        RequestCode.GET_BROKER_RUNTIME_INFO,
        RequestCode.GET_ALL_TOPIC_CONFIG,
        RequestCode.GET_TOPIC_CONFIG,
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG,
        RequestCode.GET_TOPIC_STATS_INFO,
        RequestCode.GET_CONSUME_STATS,
        RequestCode.GET_PRODUCER_CONNECTION_LIST,
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
        RequestCode.QUERY_MESSAGE,
        RequestCode.VIEW_MESSAGE_BY_ID,
        *[code for code in RequestCode if code.name.startswith("AUTH_")],
    }
)

_ALIBABA = "https://www.alibabacloud.com/help/"
_ALIBABA_ERRORS = "https://help.aliyun.com/document_detail/462909.htm"
_ALIBABA_EXCEPTION = "com.aliyun.openservices.ons.api.impl.authority.exception.AuthenticationException: "
_ALIBABA_TYPES = "current message type not match with topic accept message types"
_TENCENT = "https://cloud.tencent.com/document/"
_HUAWEI = "https://support.huaweicloud.com/"
_VOLCENGINE = "https://www.volcengine.com/docs/6410/"
_APACHE = "https://github.com/apache/rocketmq: "
_APACHE_TYPES = Rule(
    "TopicMessageType validate failed, the expected type is {expected}, but actual type is {actual}",
    _APACHE + "DefaultTopicMessageTypeValidator (proxy 5.x)",
)
_ACL = "org.apache.rocketmq.acl.common.AclException: "
_ACL_UNSIGNED = Rule(_ACL + "No accessKey is configured", _APACHE + "PlainPermissionManager (4.9)")
_ACL_FORGED = Rule(_ACL + "Check signature failed", _APACHE + "PlainPermissionManager (4.9)")

ALIBABA_4: Final = Profile(
    name="alibaba-4",
    service="Alibaba Cloud, ApsaraMQ for RocketMQ 4.x",
    access_key="LTAI5tTestAccessKey",
    secret_key="testSecretKey",  # noqa: S106 - of the test kit
    unsigned=Rule(
        _ALIBABA_EXCEPTION + "com.alibaba.ons.open.exception.OnsException: __accessKey is blank.",
        "https://github.com/ali-sdk/ali-ons/pull/68",
    ),
    forged=Rule(_ALIBABA_EXCEPTION + "signature validate by dauth failed", _ALIBABA_ERRORS),
    hides_routes=Rule(True, "https://github.com/alibaba/canal/issues/3187"),
    namespace=Rule(
        "MQ_INST_1380156306793859_BbXbx0Y4",
        _ALIBABA + "en/apsaramq-for-rocketmq/cloud-message-queue-rocketmq-4-x-series/"
        "mqclientexception-no-route-info-of-this-topic-is-returned-when-you-attempt-to-send-messages",
    ),
    type_mismatch=Rule(_ALIBABA_TYPES, _ALIBABA_ERRORS),
    not_offered=Rule(_ADMINISTRATION | {RequestCode.SEND_BATCH_MESSAGE}, _ALIBABA + "doc-detail/85006.htm"),
    delays=Rule(
        Delays(frozenset({START_DELIVER_TIME}), 40 * _DAY),
        "https://help.aliyun.com/document_detail/43349.html",
    ),
    sizes=Rule(Sizes(4 * _MIB, 64 * _KIB, 16 * _KIB), _ALIBABA + "doc-detail/85006.htm"),
    throttled=Rule(
        "messages flow control",
        "https://help.aliyun.com/en/apsaramq-for-rocketmq/cloud-message-queue-rocketmq-4-x-series/"
        "developer-reference/throttling",
    ),
    trace_topic=Rule(
        CLOUD_TRACE_PREFIX + "DefaultRegion", "https://github.com/apache/rocketmq-client-go/issues/842"
    ),
)
ALIBABA_5: Final = Profile(
    name="alibaba-5",
    service="Alibaba Cloud, ApsaraMQ for RocketMQ 5.x, over the Internet",
    access_key="testInstanceUser",
    secret_key="testInstancePassword",  # noqa: S106 - of the test kit
    unsigned=Rule("username cannot be null.", _APACHE + "DefaultAuthenticationHandler (5.x)"),
    forged=Rule("check signature failed.", _APACHE + "DefaultAuthenticationHandler (5.x)"),
    type_mismatch=Rule(_ALIBABA_TYPES, _ALIBABA_ERRORS),
    not_offered=Rule(
        _ADMINISTRATION | _REPLIES,
        _ALIBABA + "zh/apsaramq-for-rocketmq/cloud-message-queue-rocketmq-5-x-series/developer-reference/"
        "overview-8; " + _APACHE + "RemotingProtocolServer (proxy 5.x)",
    ),
    delays=Rule(
        Delays(_TIMER_PROPERTIES | {START_DELIVER_TIME}, 7 * _DAY, beyond_is_now=True),
        _ALIBABA + "doc-detail/440242.html",
    ),
    sizes=Rule(Sizes(4 * _MIB, 4 * _MIB, 16 * _KIB), "https://help.aliyun.com/document_detail/440347.html"),
    throttled=Rule(
        "Proxy rocketmq-proxy-rmq-cn-test messages flow control", "https://developer.aliyun.com/ask/648765"
    ),
    trace_topic=Rule(
        CLOUD_TRACE_PREFIX + "DefaultRegion", "https://github.com/apache/rocketmq-client-go/issues/842"
    ),
)
ALIBABA_5_SERVERLESS: Final = attrs.evolve(
    ALIBABA_5,
    name="alibaba-5-serverless",
    service="Alibaba Cloud, ApsaraMQ for RocketMQ 5.x, a serverless instance over the Internet",
    # The page says so for gRPC. The fields for remoting are those of NamespaceRpcHook of Apache's client 5.2.
    namespace_v2=Rule(
        "rmq-cn-test1234",
        _ALIBABA + "en/apsaramq-for-rocketmq/cloud-message-queue-rocketmq-5-x-series/developer-reference/"
        "sample-code-for-the-sdk-for-python; " + _APACHE + "NamespaceRpcHook (client 5.2)",
    ),
)
TENCENT_4: Final = Profile(
    name="tencent-4",
    service="Tencent Cloud, TDMQ for RocketMQ 4.x",
    access_key="eyJrZXlJZCI6InRlc3Qta2l0In0.testRoleToken",
    secret_key="testRoleName",  # noqa: S106 - of the test kit
    unsigned=_ACL_UNSIGNED,
    forged=_ACL_FORGED,
    namespace=Rule("rocketmq-test1234|demo", _TENCENT + "faq/1493/89196"),
    not_offered=Rule(_ADMINISTRATION, _TENCENT + "faq/1493/89196"),
    delays=Rule(
        Delays(frozenset({START_DELIVER_TIME}), 40 * _DAY),
        "https://www.tencentcloud.com/document/product/1113/58502",
    ),
    sizes=Rule(Sizes(4 * _MIB, 4 * _MIB, 32 * _KIB), _TENCENT + "product/1493/115875"),
    throttled=Rule("Rate of message sending reaches limit", _TENCENT + "product/1493/116237"),
    trace_topic=Rule(TRACE_TOPIC, "https://www.tencentcloud.com/document/product/1113/57454"),
)
HUAWEI: Final = Profile(
    name="huawei",
    service="Huawei Cloud, DMS for RocketMQ 5.x with ACL and SSL",
    access_key="testUser",
    secret_key="testUserSecret",  # noqa: S106 - of the test kit
    unsigned=_ACL_UNSIGNED,
    forged=_ACL_FORGED,
    type_mismatch=attrs.evolve(_APACHE_TYPES, source=_HUAWEI + "intl/en-us/devg-hrm/hrm-devg-003.html"),
    not_offered=Rule(_SETTINGS | _REPLIES, _HUAWEI + "intl/zh-cn/eu-west-0-usermanual-hrm/hrm-pd-010.html"),
    delays=Rule(
        Delays(_TIMER_PROPERTIES | {START_DELIVER_TIME}, 7 * _DAY),
        _HUAWEI + "intl/en-us/productdesc-hrm/hrm-pd-006.html",
    ),
    sizes=Rule(
        Sizes(4 * _MIB, 4 * _MIB, 16 * _KIB), _HUAWEI + "intl/zh-cn/eu-west-0-usermanual-hrm/hrm-pd-010.html"
    ),
    throttled=Rule("messages flow control", _HUAWEI + "hrm_faq/hrm_faq_029.html"),
    trace_topic=Rule(TRACE_TOPIC, _HUAWEI + "intl/en-us/usermanual-hrm/hrm-ug-028.html"),
    untrusted_tls=Rule(True, _HUAWEI + "eu/hrm_faq/hrm_faq_031.html"),
)
VOLCENGINE: Final = Profile(
    name="volcengine",
    service="Volcengine, Message Queue for RocketMQ 4.8",
    access_key="testAccessKey",
    secret_key="testSecretKey",  # noqa: S106 - of the test kit
    unsigned=attrs.evolve(_ACL_UNSIGNED, source=_VOLCENGINE + "1112387"),
    forged=attrs.evolve(_ACL_FORGED, source=_VOLCENGINE + "1112387"),
    not_offered=Rule(_CREATIONS | _SETTINGS, _VOLCENGINE + "1112387"),
    delays=Rule(Delays(_TIMER_PROPERTIES | {START_DELIVER_TIME}, 3 * _DAY), _VOLCENGINE + "111593"),
    sizes=Rule(Sizes(4 * _MIB, 64 * _KIB, 16 * _KIB), _VOLCENGINE + "111593"),
    throttled=Rule("messages flow control", _APACHE + "ResponseCode.FLOW_CONTROL"),
    trace_topic=Rule(TRACE_TOPIC, _VOLCENGINE + "671523"),
)

PROFILES: Final[Mapping[str, Profile]] = {
    profile.name: profile
    for profile in (ALIBABA_4, ALIBABA_5, ALIBABA_5_SERVERLESS, TENCENT_4, HUAWEI, VOLCENGINE)
}
"""The profiles by name."""


def profile_of(value: Profile | str | None) -> Profile | None:
    """Return a profile by its name. Raises ConfigurationError for an unknown one."""
    if value is None or isinstance(value, Profile):
        return value
    name = check_text(value, "profile")
    if name not in PROFILES:
        raise ConfigurationError(f"there is no profile {name!r}; there are {', '.join(PROFILES)}")
    return PROFILES[name]
