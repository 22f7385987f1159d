"""What reaches a worker whose Python lacks this package says so.

Spark's pickles only name the classes of this package. What is here travels as code instead, and can tell a
user which Python it has come to.
"""

from __future__ import annotations

import pickle
import sys
from typing import Any

from pyspark import cloudpickle


def lacking(error: ModuleNotFoundError) -> ModuleNotFoundError:
    """Return the error with what a user can do."""
    import sys

    return ModuleNotFoundError(
        f"{error}: the format rocketmq needs it in the Python of Spark's workers, and this one is "
        f"{sys.executable}, {sys.version.split()[0]}. Install rocketmq-py[spark] for it, or name a Python "
        "that has it with PYSPARK_PYTHON or spark.pyspark.python",
        name=error.name,
    )


def arrive(pickled: bytes) -> Any:
    """Load an object, and make its log visible. Raises ModuleNotFoundError, which says what Python lacks."""
    import pickle

    try:
        kind, state = pickle.loads(pickled)  # noqa: S301 - it came with this function
    except ModuleNotFoundError as error:
        raise lacking(error) from None
    from rocketmq_py.spark.logs import show_log

    show_log()
    arrived = kind.__new__(kind)
    arrived.__dict__.update(state)
    return arrived


class Arrives:
    """A reader or writer of this format, which travels to the workers."""

    def __reduce__(self) -> tuple[Any, ...]:
        return arrive, (pickle.dumps((type(self), self._travels())),)

    def _travels(self) -> dict[str, Any]:
        """Return the attributes that a copy has."""
        return self.__dict__


def travels_as_code(module: str) -> None:
    """Have Spark's pickles hold what is in a module, not only its names."""
    cloudpickle.register_pickle_by_value(sys.modules[module])  # type: ignore[no-untyped-call]


travels_as_code(__name__)
