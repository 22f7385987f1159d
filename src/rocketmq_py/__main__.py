"""``python -m rocketmq_py`` is ``rocketmq-py``."""

from __future__ import annotations

import gc
import signal


def main() -> None:
    """Run the command line.

    Until a command listens for signals, Ctrl-C ends it as it ends any program: nothing has begun by then.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    # What is loaded stays: to look for garbage in it takes a tenth of a command's start.
    gc.disable()
    from rocketmq_py.cli import main

    main(prog_name="rocketmq-py")


if __name__ == "__main__":
    main()
