"""``python -m rocketmq_py`` is ``rocketmq-py``."""

from __future__ import annotations

from rocketmq_py.cli import main

if __name__ == "__main__":
    main(prog_name="rocketmq-py")
