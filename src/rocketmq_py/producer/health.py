"""The health of a producer: a snapshot for readiness probes."""

from __future__ import annotations

import attrs

from rocketmq_py.client.health import ClientHealth, Health


@attrs.frozen(kw_only=True)
class ProducerHealth(Health):
    """The health of a producer.

    Attributes:
        reasons: why it cannot send now: those of its client. Failed sends are not among them, because the
            next one may succeed.
        client: the health of its client.
        in_flight: pipelined sends in flight, messages in batches, and requests that wait for replies.
        last_error: the error of the last send that failed after all attempts. None if none has failed.
        last_error_age: seconds since then. None if none has failed.
    """

    client: ClientHealth
    in_flight: int = 0
    last_error: str | None = None
    last_error_age: float | None = None
