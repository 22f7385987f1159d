"""SQL92 filters on the properties of messages, as brokers evaluate them (Java: ``SqlFilter``).

``AND OR NOT``, ``= <> > >= < <=``, ``BETWEEN``, ``IN``, ``IS [NOT] NULL``, ``CONTAINS``, ``STARTSWITH`` and
``ENDSWITH``, on numbers, texts and booleans. Properties are texts: beside a number they count as one, and a
message whose property then is none does not match. A property that is not there makes what is said of it
neither true nor false, which is not enough to match either.
"""

from __future__ import annotations

from rocketmq_py.broker.sql92.nodes import Condition
from rocketmq_py.broker.sql92.parser import parse
from rocketmq_py.broker.sql92.tokens import SqlFilterError

__all__ = ["Condition", "SqlFilterError", "parse"]
