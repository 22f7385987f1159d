"""Finalizers and weakref callbacks that call the library, wherever the garbage collector runs them."""

from __future__ import annotations

import pytest

from rocketmq_py.blocking import Client
from tests.blocking.conftest import count
from tests.handoff.conftest import run_watched

COLLECTED = """
    import collections, gc, sys, threading, time, weakref
    from rocketmq_py import Message
    from rocketmq_py.blocking import Producer

    address, call, kind = sys.argv[1:]
    producer = Producer(address, group="g", max_in_flight=50)
    ran_in, sent, results = collections.Counter(), collections.deque(), []
    main = threading.current_thread()

    def finalize(*_):
        where = threading.current_thread()
        ran_in[where is main] += 1
        if call == "thread":
            if where.name == "rocketmq-py":
                return  # it would wait for itself
            send = lambda: results.append(producer.send(Message("T", b"finalizer")))
            sending = threading.Thread(target=send)
            sending.start()
            sending.join()
            return
        future = producer.submit(Message("T", b"finalizer"))
        sent.append(future)
        # If the thread of futures waited for results, the collector would hardly run in the main thread.
        if call == "result" and where.name != "rocketmq-py futures":
            try:
                results.append(future.result())
            except RuntimeError as error:
                assert "background thread" in str(error) and where.name == "rocketmq-py"

    class Cyclic:
        def __init__(self):
            self.me = self
        if kind == "del":
            __del__ = finalize

    watched = []

    def make():
        one = Cyclic()
        if kind == "weakref":
            watched.append(weakref.ref(one, finalize))

    gc.set_threshold(50, 2, 2)
    number = 0
    while ran_in[True] < 200 and number < 50_000:  # on a busy machine, the collector runs in other threads
        number += 1
        make()
        sent.append(producer.submit(Message("T", b"main")))
        if number % 10 == 0:
            results.append(producer.send(Message("T", b"main")))
    assert ran_in[True] + ran_in[False] >= 200
    gc.disable()
    collected_in = set()
    gc.callbacks.append(lambda *_: collected_in.add(threading.current_thread()))
    while main not in collected_in:  # so long, another thread collects, and its finalizers may still send
        gc.collect()
        time.sleep(0.001)
    producer.flush()
    results += [future.result() for future in sent]
    assert producer.statistics.retried == 0
    print(len({result.message_id for result in results}))
"""


@pytest.mark.parametrize("kind", ["del", "weakref"])
@pytest.mark.parametrize("call", ["submit", "result", "thread"])
def test_the_collector_runs_finalizers_inside_of_calls(
    address: str, client: Client, call: str, kind: str
) -> None:
    sent, _ = run_watched(COLLECTED, address, call, kind)
    assert count(client, "T") == int(sent)


AT_EXIT = """
    import os, sys
    from rocketmq_py import Message
    from rocketmq_py.blocking import Producer
    from rocketmq_py.errors import ClosedError

    address, call = sys.argv[1:]
    producer, message = Producer(address, group="g"), Message("T", b"x")
    producer.send(message)

    class Shipper:
        def __init__(self):  # module globals may be gone when it is finalized
            self.write, self.error = os.write, ClosedError
            self.call = {
                "close": producer.close,
                "send": lambda send=producer.send, message=message: send(message),
                "submit": lambda send=producer.submit, message=message: send(message).result(),
                "flush": producer.flush,
                "statistics": lambda producer=producer: producer.statistics,
                "new": lambda Producer=Producer, address=address: Producer(address, group="other"),
            }[call]

        def __del__(self):
            try:
                self.call()
                self.write(1, b"returned")
            except self.error:
                self.write(1, b"ClosedError")

    shipper = Shipper()
"""


@pytest.mark.parametrize(
    ("call", "outcome"),
    [
        ("close", "returned"),
        ("send", "ClosedError"),
        ("submit", "ClosedError"),
        ("flush", "ClosedError"),
        ("statistics", "returned"),
        ("new", "ClosedError"),
    ],
)
def test_a_finalizer_at_the_end_of_the_interpreter(address: str, call: str, outcome: str) -> None:
    said, errors = run_watched(AT_EXIT, address, call)
    assert (said, errors) == (outcome, "")


AT_EXIT_AFTER_CTRL_C = """
    import os, signal, socket, sys, threading
    from rocketmq_py import Message
    from rocketmq_py.blocking import Producer
    from rocketmq_py.errors import ClosedError

    # A name server that accepts connections and does not respond, so that closing takes its time.
    silent = socket.create_server(("127.0.0.1", 0))
    producer, message = Producer(f"127.0.0.1:{silent.getsockname()[1]}", group="g"), Message("T", b"x")
    producer.submit(message)

    class Shipper:
        def __init__(self):  # module globals may be gone when it is finalized
            self.write, self.error = os.write, ClosedError
            self.call = lambda send=producer.send, message=message: send(message)

        def __del__(self):
            try:
                self.call()
            except self.error:
                self.write(1, b"ClosedError")

    shipper = Shipper()

    def press_ctrl_c():
        while not producer._send_queue._is_closed:  # until the end of the process closes it
            threading.Event().wait(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=press_ctrl_c, daemon=True).start()
"""


def test_a_finalizer_after_ctrl_c_while_the_process_ends() -> None:
    said, errors = run_watched(AT_EXIT_AFTER_CTRL_C, limit=60)
    assert said == "ClosedError"
    assert "KeyboardInterrupt" in errors


EARLIER_ATEXIT = """
    import atexit, sys

    def late():
        for call in (lambda: producer.send(message), lambda: producer.submit(message), producer.flush):
            try:
                call()
            except ClosedError:
                print("ClosedError", end=" ")
        producer.close()
        print("closed")

    atexit.register(late)  # before the library's, so it runs after that has closed everything

    from rocketmq_py import Message
    from rocketmq_py.blocking import Producer
    from rocketmq_py.errors import ClosedError

    def early():
        producer.send(message)
        producer.submit(message)

    atexit.register(early)
    producer, message = Producer(sys.argv[1], group="g"), Message("T", b"x")
"""


def test_atexit_functions_before_and_after_those_of_the_library(address: str, client: Client) -> None:
    said, errors = run_watched(EARLIER_ATEXIT, address)
    assert (said, errors) == ("ClosedError ClosedError ClosedError closed\n", "")
    assert count(client, "T") == 2


CALLBACKS_AT_EXIT = """
    import os, sys
    from rocketmq_py import Message
    from rocketmq_py.blocking import Producer

    producer = Producer(sys.argv[1], group="g")
    for _ in range(500):
        producer.submit(Message("T", b"x")).add_done_callback(lambda _: os.write(1, b"."))
"""


def test_callbacks_of_futures_that_are_pending_when_the_process_ends(address: str) -> None:
    said, errors = run_watched(CALLBACKS_AT_EXIT, address)
    assert (said, errors) == ("." * 500, "")
