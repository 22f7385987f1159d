"""Who may ask anything: those who sign their requests with a key that is known here.

Java: ``DefaultAuthenticationHandler`` of 5.x; users have no rights of their own, each may do everything.
"""

from __future__ import annotations

import hmac

from rocketmq_py.broker.accounts import DISABLED, Accounts
from rocketmq_py.broker.dispatch import Refusal
from rocketmq_py.codes import ResponseCode
from rocketmq_py.credentials import ACCESS_KEY, SIGNATURE, signature
from rocketmq_py.protocol.command import Command


class Authentication:
    """Checks the signatures of requests.

    Args:
        accounts: the users: their names are access keys, their passwords secret keys.
    """

    def __init__(self, accounts: Accounts) -> None:
        self._accounts = accounts

    def check(self, request: Command) -> None:
        """Raise Refusal if the request is not signed, or not as it should be."""
        fields = request.fields
        access_key = fields.get(ACCESS_KEY)
        if not access_key:
            raise _refusal("username cannot be null.")
        user = self._accounts.user(access_key)
        if user is None:
            raise _refusal(f"User:{access_key} is not found.")
        if user.user_status == DISABLED:
            raise _refusal(f"User:{access_key} is disabled.")
        expected = signature(user.password or "", fields, request.body)
        given = fields.get(SIGNATURE, "")
        if not hmac.compare_digest(expected.encode(), given.encode(errors="replace")):
            raise _refusal("check signature failed.")


def _refusal(remark: str) -> Refusal:
    return Refusal(ResponseCode.NO_PERMISSION, remark)
