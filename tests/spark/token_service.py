"""A function for the option ``credentialsProvider``."""

from __future__ import annotations

from rocketmq_py import Credentials

ACCESS_KEY, SECRET_KEY = "spark", "spark-secret"
not_a_function = "text"


def credentials() -> Credentials:
    """Return the credentials of the tests' broker."""
    return Credentials(ACCESS_KEY, SECRET_KEY)
