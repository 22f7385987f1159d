"""Messages as Arrow tables, for pandas, polars and DuckDB.

::

    messages = read_messages("Orders", "127.0.0.1:9876", tags="paid")
    orders = messages.to_pandas()  # or polars.from_arrow(messages), or duckdb.sql("… FROM messages")
    write_messages(pandas.DataFrame({"body": ["one", "two"]}), "Orders", "127.0.0.1:9876")

The columns have the types of the Spark data source, with names as in Python: ``queue_id``, not ``queueId``.
Newcomers start at ``reading`` and ``writing``; ``columns`` has the names, and accepts the types of other
libraries.
"""

from __future__ import annotations

from rocketmq_py.errors import ConfigurationError

try:
    import numpy  # noqa: F401  # the modules below need it
    import pyarrow  # noqa: F401
except ImportError:
    raise ConfigurationError(
        "data frames need an extra, with pyarrow and numpy: install rocketmq-py[data-frames]"
    ) from None

from rocketmq_py.integrations.data_frames.reading import commit_messages, read_messages
from rocketmq_py.integrations.data_frames.writing import write_messages
from rocketmq_py.spark.sink_task import WriteError

__all__ = ["WriteError", "commit_messages", "read_messages", "write_messages"]
