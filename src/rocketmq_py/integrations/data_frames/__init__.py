"""Messages as Arrow tables, for pandas, polars and DuckDB.

::

    messages = read_messages("Orders", "127.0.0.1:9876", tags="paid")
    orders = messages.to_pandas()  # or polars.from_arrow(messages), or duckdb.sql("… FROM messages")
    write_messages(pandas.DataFrame({"body": ["one", "two"]}), "Orders", "127.0.0.1:9876")

The columns have the names and types of the Spark data source, so each can write the tables of the other.
Newcomers start at ``reading`` and ``writing``; ``columns`` accepts the types of other libraries.
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

from rocketmq_py.integrations.data_frames.columns import ArrowStream
from rocketmq_py.integrations.data_frames.reading import Position, commit_messages, read_messages
from rocketmq_py.integrations.data_frames.writing import write_messages
from rocketmq_py.spark.sink_task import WriteError

__all__ = ["ArrowStream", "Position", "WriteError", "commit_messages", "read_messages", "write_messages"]
