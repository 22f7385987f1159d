"""Where code runs: inside ``trio.run``, as all of this needs, or elsewhere."""

from __future__ import annotations

import trio

from rocketmq_py.errors import OutsideTrioError


def check_inside_trio(name: str) -> None:
    """Raise OutsideTrioError, which says what to use for ``name`` instead, unless trio runs this."""
    if not trio.lowlevel.in_trio_run():
        raise OutsideTrioError(
            f"{name} runs on trio: open it in a function that trio.run(...) runs; "
            "asyncio programs use rocketmq_py.aio, others rocketmq_py.blocking"
        )
