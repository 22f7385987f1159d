"""SQL92 filters on message properties, evaluated as Java brokers do (Java: ``SqlFilter``).

Supported: ``AND OR NOT``, ``= <> > >= < <=``, ``BETWEEN``, ``IN``, ``IS [NOT] NULL``, ``CONTAINS``,
``STARTSWITH`` and ``ENDSWITH`` on numbers, strings and booleans. Property values are strings. Compared with a
number they are parsed as one, and a message whose property is not a number does not match. A missing property
makes a condition neither true nor false, which does not match either.

``parse()`` turns the text into a ``Condition``, and ``Condition.matches()`` evaluates it for one message.
Start reading in ``parser``; ``expressions`` holds the tree that it builds, with Java's comparisons.
"""

from __future__ import annotations

from rocketmq_py.broker.sql92.expressions import Condition
from rocketmq_py.broker.sql92.parser import parse
from rocketmq_py.broker.sql92.tokens import SqlFilterError

__all__ = ["Condition", "SqlFilterError", "parse"]
