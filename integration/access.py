"""Settings for 5.x brokers that check access (ACL 2.0), and the credentials of their administrator."""

from __future__ import annotations

import json

from rocketmq_py import Credentials

ADMIN = Credentials("the-admin", "admin-secret-Grüße")

_AUTH = "org.apache.rocketmq.auth"
SETTINGS_OF_5 = {
    "authenticationEnabled": "true",
    "authenticationProvider": f"{_AUTH}.authentication.provider.DefaultAuthenticationProvider",
    "authenticationMetadataProvider": f"{_AUTH}.authentication.provider.LocalAuthenticationMetadataProvider",
    # Brokers read the properties file as Latin-1.
    "initAuthenticationUser": json.dumps(
        {"username": ADMIN.access_key, "password": ADMIN.secret_key}
    ).replace("\\", "\\\\"),
    "innerClientAuthenticationCredentials": '{"accessKey":"the-broker","secretKey":"broker-secret"}',
    "authorizationEnabled": "true",
    "authorizationProvider": f"{_AUTH}.authorization.provider.DefaultAuthorizationProvider",
    "authorizationMetadataProvider": f"{_AUTH}.authorization.provider.LocalAuthorizationMetadataProvider",
}
SETTINGS_OF_PROXIES = {
    **{name: value for name, value in SETTINGS_OF_5.items() if name != "initAuthenticationUser"},
    "authenticationEnabled": True,
    "authorizationEnabled": True,
    "authenticationMetadataProvider": "org.apache.rocketmq.proxy.auth.ProxyAuthenticationMetadataProvider",
    "authorizationMetadataProvider": "org.apache.rocketmq.proxy.auth.ProxyAuthorizationMetadataProvider",
    "enableAclRpcHookForClusterMode": True,
}
"""For proxies in front of such brokers."""
