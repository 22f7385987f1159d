"""A function for the option ``credentialsProvider``, which reads a file."""

from __future__ import annotations

import json
import os
from pathlib import Path

from rocketmq_py import Credentials

FILE = "KEYS_FILE"
"""The environment variable with the path of the file: a JSON list of an access key and a secret key."""


def credentials() -> Credentials:
    """Return the credentials that the file has now."""
    access_key, secret_key = json.loads(Path(os.environ[FILE]).read_text())
    return Credentials(access_key, secret_key)
