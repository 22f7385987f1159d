"""Signal handlers that call the library while the interrupted code does."""

from __future__ import annotations

import signal

import pytest

from rocketmq_py.blocking import Client
from tests.blocking.conftest import count
from tests.handoff.conftest import run_watched

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="this system has no interval timers"),
]

TIMER = """
    import signal, sys
    from rocketmq_py import Message
    from rocketmq_py.blocking import Producer

    address, call = sys.argv[1:]
    producer = Producer(address, group="g", max_in_flight=50)
    handled, sent = [], []
    calls = {
        "send": lambda: producer.send(Message("T", b"handler")),
        "submit": lambda: producer.submit(Message("T", b"handler")),
        "result": lambda: producer.submit(Message("T", b"handler")).result(),
        "flush": producer.flush,
    }

    def handle(*_):
        handled.append(calls[call]())
        signal.setitimer(signal.ITIMER_REAL, 0.002)

    signal.signal(signal.SIGALRM, handle)
    signal.setitimer(signal.ITIMER_REAL, 0.002)
    while len(handled) < 300:
        sent.append(producer.submit(Message("T", b"main")))
        if len(sent) % 10 == 0:
            producer.send(Message("T", b"main"))
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    producer.close()
    assert producer.statistics.retried == 0
    assert all(future.result() for future in sent)
    print(len(sent) + len(sent) // 10 + len(handled) * (call != "flush"))
"""


@pytest.mark.parametrize("call", ["send", "submit", "result", "flush"])
def test_a_timer_calls_the_library_while_the_main_thread_does(
    address: str, client: Client, call: str
) -> None:
    sent, _ = run_watched(TIMER, address, call)
    assert count(client, "T") == int(sent)


NESTED_AT_EVERY_BYTECODE = """
    import os, sys, threading
    from rocketmq_py import Message
    from rocketmq_py.blocking import Producer
    import rocketmq_py

    address, call, by = sys.argv[1:]
    library = os.path.dirname(rocketmq_py.__file__)
    producer = Producer(address, group="g")
    producer.send(Message("T", b"first"))
    seen, is_nested = set(), False

    def nest(frame, event, _):
        global is_nested
        frame.f_trace_opcodes = True
        place = frame.f_code, frame.f_lasti
        if event == "opcode" and place not in seen and not is_nested:
            seen.add(place)
            is_nested = True
            try:
                if by == "finalizer":
                    Finalized()
                else:
                    make_call()
            finally:
                is_nested = False
        return nest

    class Finalized:
        def __del__(self):
            make_call()

    def make_call():
        if call == "send":
            producer.send(Message("T", b"nested"), timeout=60)
        elif call == "result":
            producer.submit(Message("T", b"nested")).result()
        else:
            sending = threading.Thread(target=producer.send, args=[Message("T", b"nested")])
            sending.start()
            sending.join()

    def trace(frame, event, _):
        return nest if frame.f_code.co_filename.startswith(library) else None

    for _ in range(3):
        sys.settrace(trace)
        producer.submit(Message("T", b"outer")).result()
        producer.send(Message("T", b"outer"))
        producer.flush()
        sys.settrace(None)
    assert len(seen) > 100
    producer.close()
    print(len(seen) + 7)
"""


@pytest.mark.parametrize("by", ["handler", "finalizer"])
@pytest.mark.parametrize("call", ["send", "result", "thread"])
def test_a_call_between_any_two_bytecodes_of_another_call(
    address: str, client: Client, call: str, by: str
) -> None:
    sent, _ = run_watched(NESTED_AT_EVERY_BYTECODE, address, call, by)
    assert count(client, "T") == int(sent)


TERMINATED = """
    import os, signal, sys, threading
    from rocketmq_py import Message
    from rocketmq_py.blocking import Producer
    from rocketmq_py.errors import ClosedError

    producer = Producer(sys.argv[1], group="g", max_in_flight=50)
    closed = []

    def close(*_):
        producer.close()
        closed.append(not producer.is_open)

    signal.signal(signal.SIGTERM, close)
    producer.send(Message("T", b"first"))
    sent, enough = [], threading.Event()

    def terminate():
        enough.wait()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=terminate).start()
    try:
        while True:
            sent.append(producer.submit(Message("T", b"x")))
            if len(sent) == 200:
                enough.set()
    except ClosedError:
        pass
    assert closed == [True]
    print(1 + sum(future.exception() is None for future in sent))
"""


def test_a_handler_of_sigterm_closes_the_producer_inside_of_submit(address: str, client: Client) -> None:
    sent, _ = run_watched(TERMINATED, address)
    assert count(client, "T") == int(sent) > 200


CLOSED_AT_EVERY_BYTECODE = """
    import itertools, sys
    from rocketmq_py import Message
    from rocketmq_py.blocking import Client
    from rocketmq_py.errors import ClosedError
    from tests.handoff.interrupting import Interruption

    client = Client(sys.argv[1])
    sent = 0
    for step in itertools.count(1):
        producer = client.producer("g")
        producer.submit(Message("T", b"first"))
        interruption = Interruption(step, producer.close)
        try:
            with interruption:
                future = producer.submit(Message("T", b"second"))
        except ClosedError:
            sent += 1
        else:
            sent += 1 if isinstance(future.exception(), ClosedError) else 2
        if interruption.place is None:
            break
        assert not producer.is_open
    assert step > 50
    client.close()
    print(sent)
"""


def test_a_handler_that_closes_the_producer_between_any_two_bytecodes_of_submit(
    address: str, client: Client
) -> None:
    sent, _ = run_watched(CLOSED_AT_EVERY_BYTECODE, address)
    assert count(client, "T") == int(sent)
