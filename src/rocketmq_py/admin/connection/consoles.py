"""The places and names of the endpoint, keys and namespace in the consoles of managed services."""

from __future__ import annotations

import re
from typing import Final

import attrs


@attrs.frozen(kw_only=True)
class Console:
    """The words of a console, as advice for the user.

    Attributes:
        hosts: the addresses of the service.
        endpoint: where the console shows the address.
        keys: what the access key and the secret key are.
        namespace: what the namespace is.
        namespace_option: the option for it. Empty if the service has none.
        topics: where topics and groups are created.
        network: why the address may not be reached.
    """

    hosts: re.Pattern[str]
    endpoint: str
    keys: str
    namespace: str
    namespace_option: str = "--namespace"
    topics: str = "Create it in the console, in the instance of this address"
    network: str


ALIBABA_4: Final = Console(
    hosts=re.compile(r"\.(mq-internal|mq-internet|mq)\.aliyuncs\.com\b", re.IGNORECASE),
    endpoint="Copy the TCP endpoint from the details of the instance, not the HTTP endpoint",
    keys="They are the AccessKey ID and AccessKey secret of the account, or of a RAM user with rights for "
    "the instance",
    namespace="The namespace is the instance ID MQ_INST_..., with which the endpoint begins. Instances "
    "without a namespace need --namespace ''",
    network="The internal endpoint works in the VPC of its region only. Elsewhere, use the Internet endpoint",
)
ALIBABA_5: Final = Console(
    hosts=re.compile(r"\.rmq\.aliyuncs\.com\b", re.IGNORECASE),
    endpoint="Copy the endpoint from the details of the instance",
    keys="They are the user name and password of the instance (Access Control), not the AccessKey of the "
    "account",
    namespace="Names have no namespace. A serverless instance needs its instance ID over the Internet",
    namespace_option="--namespace-v2",
    network="The VPC endpoint works in its VPC only. For the public endpoint, add this machine to the IP "
    "address whitelist",
)
TENCENT: Final = Console(
    hosts=re.compile(r"\.tencenttdmq\.com\b", re.IGNORECASE),
    endpoint="Copy the access address from the details of the cluster",
    keys="In a 4.x cluster, the access key is the token of the role (eyJ...), and the secret key is the "
    "name of the role. In a 5.x cluster, they are the AccessKey and SecretKey of Cluster permissions",
    namespace="In a 4.x cluster, the namespace is rocketmq-...|name or MQ_INST_rocketmq..._name. Clusters "
    "of 5.x have none",
    network="For the public address, add this machine to the IP rules: an empty list refuses everyone",
)
HUAWEI: Final = Console(
    hosts=re.compile(r":(8100|8200)\b"),
    endpoint="Copy all connection addresses of the instance: port 8100 in its VPC, 8200 outside",
    keys="They are the name and the secret key of a user of the instance, if its ACL is on",
    namespace="Names have no namespace",
    namespace_option="",
    network="The security group must allow this machine port 8100 (8200 outside the VPC), and 10100 to "
    "10199 of the brokers",
)
VOLCENGINE: Final = Console(
    hosts=re.compile(r"\.rocketmq\.i?volces\.com\b", re.IGNORECASE),
    endpoint="Copy the TCP address of the instance",
    keys="They are an AccessKey and SecretKey of the instance, which it always needs",
    namespace="The namespace is the instance ID, if that begins with MQ_INST_. Newer instances have none",
    network="Private addresses are known outside their VPC only if that is switched on",
)
OWN_CLUSTER: Final = Console(
    hosts=re.compile(""),
    endpoint="It is the host and port of a name server, usually port 9876, or of a proxy",
    keys="They are a user name and its password (5.x), or the accessKey and secretKey of plain_acl.yml (4.x)",
    namespace="It must be the namespace of the other clients of the topic",
    topics="Create it with: rocketmq-py topic create. On a managed service, create it in the console",
    network="Check that the server runs, that this machine can reach its network, and that no firewall is "
    "in between",
)
CONSOLES: Final = (ALIBABA_4, ALIBABA_5, TENCENT, HUAWEI, VOLCENGINE, OWN_CLUSTER)


def console_of(addresses: str) -> Console:
    """Return the console of the service at ``host:port;host:port``."""
    return next(console for console in CONSOLES if console.hosts.search(addresses))
