"""A relay process that tests kill: ``python -m tests.relay.relay_program ADDRESS STORE``."""

from __future__ import annotations

import sys

import trio

from rocketmq_py.relay import Relay


async def main() -> None:
    async with Relay(sys.argv[1], topic="Buffer", store=sys.argv[2], progress_interval=0.5) as relay:
        await relay.run()


if __name__ == "__main__":
    trio.run(main)
