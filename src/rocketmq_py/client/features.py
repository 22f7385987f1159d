"""The features that need a version of the brokers. Every check of a broker's version uses this table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

from rocketmq_py.codes import RequestCode, version_name, version_ordinal
from rocketmq_py.errors import UnsupportedByBrokerError
from rocketmq_py.remoting import Connection


@attrs.frozen
class Feature:
    """A feature that older brokers do not have.

    Attributes:
        name: the feature, in words for users.
        since: the first version of RocketMQ that has it: ``5.0.0``.
        on_older: what this client does if a broker is older.
        advice: what users may do instead, for the error. Empty if there is nothing.
    """

    name: str
    since: str
    on_older: str
    advice: str = ""

    def is_supported_by(self, version: int) -> bool:
        """Whether brokers of this version, an ordinal of Java's ``MQVersion``, have the feature."""
        return version >= version_ordinal(self.since)

    def check(self, connection: Connection) -> None:
        """Raise UnsupportedByBrokerError unless the broker has the feature.

        The broker must have answered a request, such as a heartbeat, over the connection.
        """
        self.require(connection.address, connection.peer_version)

    def require(self, address: str, version: int, *, name: str | None = None) -> None:
        """Raise UnsupportedByBrokerError if a broker of this version does not have the feature.

        ``name`` describes the feature more closely, for the error.
        """
        if not self.is_supported_by(version):
            raise self.unsupported(address, version, name=name)

    def unsupported(self, address: str, version: int, *, name: str | None = None) -> UnsupportedByBrokerError:
        """Return the error for a broker of an older version. ``name`` describes the feature more closely."""
        advice = f". {self.advice}" if self.advice else ""
        return UnsupportedByBrokerError(
            f"broker {address} (version {version_name(version)}) does not support {name or self.name}, which "
            f"needs {self.since} or newer{advice}"
        )


_RAISES = "raises `UnsupportedByBrokerError`"
_NOTHING_SENT = f"{_RAISES}; nothing was sent"

TRANSACTIONS: Final = Feature("transactional messages", "4.3.0", _NOTHING_SENT)
ACL_2_ONLY: Final = version_ordinal("5.3.3")
"""The first version without ACL 1.0."""
ACL_1: Final = Feature("the versions of ACL 1.0 files", "4.5.0", _RAISES)
REPLIES: Final = Feature("requests with replies", "4.6.0", _NOTHING_SENT)
TOPIC_CHANGES: Final = Feature(
    "changes of topics that are made before the broker answers",
    "4.7.0",
    "waits for the change: the broker answers to a change of no setting after it",
)
OFFSET_DELETION: Final = Feature(
    "deletion of a group's offsets with the group", "4.9.0", "deletes the group; its offsets stay"
)
READABLE_DEAD_LETTERS: Final = Feature(
    "topics of dead letters that may be read",
    "4.9.2",
    "raises `NoQueueError` with the command that allows reading",
)
WRITE_PERMISSIONS: Final = Feature("giving back the write permission of a broker", "4.9.2", _RAISES)
LARGE_LISTS: Final = Feature(
    "lists of messages that take more than 4 MiB in the broker's store",
    "4.9.4",
    "raises `RetriableBrokerError` with `message size exceeded`; send shorter lists",
)
OFFSETS_BEYOND_THE_END: Final = Feature(
    "an offset beyond the end of a queue means its end",
    "4.9.4",
    "begins again at the first message of a queue that has not lost any, with a warning in the log",
)
PRODUCER_LISTS: Final = Feature(
    "lists of all producers", "4.9.4", "lists the consumers, and the error for each such broker"
)
TIMED_MESSAGES: Final = Feature(
    "timed messages",
    "5.0.0",
    f"{_NOTHING_SENT}, or a relay delivers the message if `delay_relay` is set",
    "It would deliver them at once. Use delay_level, or a relay (delay_relay)",
)
POP: Final = Feature(
    "pop consumption", "5.0.0", f"{_RAISES}; nothing was popped", "Use a PushConsumer or a LitePullConsumer"
)
BROKER_ASSIGNMENT: Final = Feature(
    "the assignment of queues by the broker",
    "5.0.0",
    "logs a warning; the members allocate the queues themselves",
)
TOPIC_ATTRIBUTES: Final = Feature(
    "attributes of topics, such as message types", "5.0.0", f"{_RAISES}; nothing was changed"
)
SINGLE_SETTINGS: Final = Feature(
    "the settings of a single topic or group", "5.0.0", "asks for the settings of all"
)
GROUP_QUERIES: Final = Feature("the topics and subscriptions of a group", "5.0.0", _RAISES)
STATIC_TOPICS: Final = Feature("static topics", "5.0.0", "does not meet any: such brokers have none")
ZONES: Final = Feature("availability zones", "5.0.0", "uses all brokers: name servers ignore it")
SEVERAL_MESSAGES_WITH_TLS: Final = Feature(
    "answers to queries with several messages over TLS",
    "5.1.0",
    "asks for the newest message only: such brokers cut off the answer",
)
BATCH_ACKNOWLEDGEMENTS: Final = Feature(
    "acknowledgements of several popped messages at once", "5.1.3", "acknowledges them one by one"
)
OFFSET_RESETS: Final = Feature(
    "resets of a group to given offsets while its members run",
    "5.2.0",
    "resets to earliest, latest or a time; otherwise raises `UnsupportedByBrokerError`. Brokers 5.1 have the "
    "feature if `useServerSideResetOffset` is `true`",
    "Stop the members, or reset to earliest, latest or a time",
)
OFFSET_RESETS_BY_SETTING: Final = version_ordinal("5.1.0")
"""The first version with the setting ``useServerSideResetOffset``."""
ACL_2: Final = Feature("users and access rules (ACL 2.0)", "5.3.0", f"{_RAISES}; nothing was changed")
RECALLS: Final = Feature("recalls of timed messages", "5.3.2", _RAISES)
PRIORITIES: Final = Feature(
    "priorities of messages",
    "5.4.0",
    "sends the message; the broker ignores its priority. Topics of the type PRIORITY are refused with "
    "`UnsupportedByBrokerError`",
)
GROUP_ATTRIBUTES: Final = Feature(
    "attributes of groups, such as `priority.factor`", "5.4.0", f"{_RAISES}; nothing was changed"
)
LITE_TOPICS: Final = Feature("lite topics", "5.5.0", _NOTHING_SENT)

FEATURES: Final = (
    TRANSACTIONS, ACL_1, REPLIES, TOPIC_CHANGES, OFFSET_DELETION, READABLE_DEAD_LETTERS,
    WRITE_PERMISSIONS, LARGE_LISTS, OFFSETS_BEYOND_THE_END, PRODUCER_LISTS, TIMED_MESSAGES, POP,
    BROKER_ASSIGNMENT, TOPIC_ATTRIBUTES, SINGLE_SETTINGS, GROUP_QUERIES, STATIC_TOPICS, ZONES,
    SEVERAL_MESSAGES_WITH_TLS, BATCH_ACKNOWLEDGEMENTS, OFFSET_RESETS, ACL_2, RECALLS, PRIORITIES,
    GROUP_ATTRIBUTES, LITE_TOPICS,
)  # fmt: skip
"""All features, by version."""

FEATURE_OF_REQUEST: Mapping[int, Feature] = {
    RequestCode.GET_BROKER_CLUSTER_ACL_INFO: ACL_1,
    RequestCode.SEND_REPLY_MESSAGE: REPLIES,
    RequestCode.SEND_REPLY_MESSAGE_V2: REPLIES,
    RequestCode.ADD_WRITE_PERM_OF_BROKER: WRITE_PERMISSIONS,
    RequestCode.GET_ALL_PRODUCER_INFO: PRODUCER_LISTS,
    RequestCode.QUERY_ASSIGNMENT: BROKER_ASSIGNMENT,
    RequestCode.SET_MESSAGE_REQUEST_MODE: POP,
    RequestCode.POP_MESSAGE: POP,
    RequestCode.ACK_MESSAGE: POP,
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME: POP,
    RequestCode.GET_TOPIC_CONFIG: SINGLE_SETTINGS,
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: SINGLE_SETTINGS,
    RequestCode.QUERY_TOPICS_BY_CONSUMER: GROUP_QUERIES,
    RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: GROUP_QUERIES,
    RequestCode.BATCH_ACK_MESSAGE: BATCH_ACKNOWLEDGEMENTS,
    RequestCode.AUTH_CREATE_USER: ACL_2,
    RequestCode.AUTH_UPDATE_USER: ACL_2,
    RequestCode.AUTH_DELETE_USER: ACL_2,
    RequestCode.AUTH_LIST_USER: ACL_2,
    RequestCode.AUTH_CREATE_ACL: ACL_2,
    RequestCode.AUTH_UPDATE_ACL: ACL_2,
    RequestCode.AUTH_DELETE_ACL: ACL_2,
    RequestCode.AUTH_LIST_ACL: ACL_2,
    RequestCode.RECALL_MESSAGE: RECALLS,
    RequestCode.POP_LITE_MESSAGE: LITE_TOPICS,
    RequestCode.LITE_SUBSCRIPTION_CTL: LITE_TOPICS,
    RequestCode.GET_BROKER_LITE_INFO: LITE_TOPICS,
    RequestCode.GET_PARENT_TOPIC_INFO: LITE_TOPICS,
    RequestCode.GET_LITE_TOPIC_INFO: LITE_TOPICS,
    RequestCode.GET_LITE_CLIENT_INFO: LITE_TOPICS,
    RequestCode.GET_LITE_GROUP_INFO: LITE_TOPICS,
    RequestCode.TRIGGER_LITE_DISPATCH: LITE_TOPICS,
}
"""The features whose requests older servers do not know.

Brokers from 4.9.1 on and name servers from 5.0.0 on answer such requests with REQUEST_CODE_NOT_SUPPORTED.
Older ones do not answer at all.
"""


def raise_if_older(address: str, code: int, version: int) -> None:
    """Raise UnsupportedByBrokerError if a server is too old for a request.

    Args:
        address: the server.
        code: the code of the request.
        version: the server's version, which each of its answers contains.
    """
    feature = FEATURE_OF_REQUEST.get(code)
    if feature is not None:
        feature.require(address, version)
