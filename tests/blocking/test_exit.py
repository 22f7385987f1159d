"""The end of a process: pending messages are sent or reported as unsent, within the close timeout."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

from rocketmq_py import Message, ReceivedMessage
from rocketmq_py.blocking import Client
from tests.blocking.conftest import ENVIRONMENT, count, run_program

PIPELINED = """
    import sys, threading
    from rocketmq_py import Message
    from rocketmq_py.blocking import Client, Producer

    address, end = sys.argv[1:]
    client = Client(address)
    producer = client.producer("g")
    alone = Producer(address, group="g", linger=5)
    for number in range(500):
        producer.submit(Message("T", b"x"))
        alone.submit(Message("T", b"x"))
    if end == "thread":
        # The thread continues to send after the main thread has ended.
        def go_on():
            threading.main_thread().join()
            for _ in range(10):
                producer.send(Message("T", b"x"))
        threading.Thread(target=go_on).start()
    elif end == "exit":
        sys.exit(0)
"""


@pytest.mark.parametrize(("end", "sent"), [("fall", 1000), ("exit", 1000), ("thread", 1010)])
def test_pending_messages_are_sent_when_the_process_ends(
    address: str, client: Client, end: str, sent: int
) -> None:
    assert run_program(PIPELINED, address, end) == ""
    assert count(client, "T") == sent


CONSUMING = """
    import logging, sys, threading
    from rocketmq_py.blocking import PushConsumer

    logging.basicConfig(level=logging.WARNING)
    address, way = sys.argv[1:]
    consumer = PushConsumer(address, group="g", consume_from="earliest", concurrency=1)
    consumer.subscribe("T")
    handled, ending = threading.Event(), threading.Event()

    def handle(message):
        print(message.body.decode())
        handled.set()
        ending.wait()  # the call is running when the process ends, and finishes

    threading.Thread(target=lambda: (threading.main_thread().join(), ending.set())).start()
    if way == "start":
        consumer.start(handle)
    else:
        threading.Thread(target=consumer.run, args=[handle], daemon=True).start()
    handled.wait()
"""


@pytest.mark.parametrize("way", ["start", "run"])
def test_a_process_that_ends_while_it_consumes_finishes_its_calls_and_loses_nothing(
    address: str, client: Client, way: str
) -> None:
    with client.producer("g") as producer:
        for number in range(20):
            producer.send(Message("T", b"%d" % number))
    handled = run_program(CONSUMING, address, way).split()
    assert handled

    def take(message: ReceivedMessage) -> None:
        handled.append(message.body.decode())
        if len(handled) == 20:
            consumer.stop()

    with client.push_consumer("g", consume_from="earliest") as consumer:
        consumer.subscribe("T")
        if len(handled) < 20:
            consumer.run(take)
    assert sorted(handled) == sorted(map(str, range(20)))


def test_the_end_of_a_worker_of_multiprocessing(address: str, client: Client) -> None:
    program = """
        import multiprocessing, sys
        from rocketmq_py import Message
        from rocketmq_py.blocking import Producer

        producer = Producer(sys.argv[1], group="g")

        def work():
            own = Producer(sys.argv[1], group="g")
            for _ in range(100):
                own.submit(Message("T", b"x"))

        producer.send(Message("T", b"x"))
        context = multiprocessing.get_context("fork")
        workers = [context.Process(target=work) for _ in range(3)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
            assert worker.exitcode == 0
        producer.send(Message("T", b"x"))
    """
    run_program(program, address)
    assert count(client, "T") == 302


LATE = """
    import select, socket, sys, threading
    from rocketmq_py import Message
    from rocketmq_py.blocking import Producer
    from rocketmq_py.handoff import trio_thread

    # A name server that accepts connections and does not respond until the process starts to end.
    host, port = sys.argv[1].split(":")
    silent = socket.create_server(("127.0.0.1", 0))
    ending = threading.Event()

    def serve():
        client, _ = silent.accept()
        ending.wait()
        threading.Event().wait(0.5)  # far longer than close_timeout
        server = socket.create_connection((host, int(port)))
        other = {client: server, server: client}
        with client, server:
            while True:
                for source in select.select(other, [], [])[0]:
                    if not (data := source.recv(65536)):
                        return
                    other[source].sendall(data)

    for _ in range(16):  # no thread can start once the process is ending
        threading.Thread(target=serve, daemon=True).start()
    address = f"127.0.0.1:{silent.getsockname()[1]}"
    options = dict(group="g", request_timeout=60, send_timeout=60, close_timeout=0.01)
    producers = Producer(address, **options), Producer(address, linger=10_000.0, **options)
    for producer in producers:
        for _ in range(10):
            producer.submit(Message("T", b"x"))

    close_all = trio_thread.TrioThread.close_all

    def end(thread):
        ending.set()
        close_all(thread)

    trio_thread.TrioThread.close_all = end
"""


def test_the_end_of_a_process_waits_longer_than_a_close(address: str, client: Client) -> None:
    assert run_program(LATE, address) == ""
    assert count(client, "T") == 20


def test_unsent_messages_are_reported_and_do_not_delay_the_exit() -> None:
    program = """
        import socket
        from rocketmq_py import Message
        from rocketmq_py.blocking import Producer
        from rocketmq_py.handoff import trio_thread

        trio_thread.EXIT_SECONDS = 1.5
        # A server that accepts connections and never responds.
        silent = socket.create_server(("127.0.0.1", 0))
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        silent.detach()  # keeps listening without a ResourceWarning at the end
        print(address)
        options = dict(group="g", request_timeout=60, send_timeout=60, close_timeout=0.01)
        producer, batching = Producer(address, **options), Producer(address, linger=0.005, **options)
        for number in range(10):
            producer.submit(Message("T" if number < 7 else "U", b"x"))
            batching.submit(Message("V", b"x"))
    """
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True, text=True, check=False, env=ENVIRONMENT,
    )  # fmt: skip
    assert ended.returncode == 0
    # If the exit had waited for the sends' timeout of a minute, each send would have failed by itself.
    one, other = sorted(ended.stderr.splitlines(), key=lambda line: "'V'" in line)
    where = f"name_servers={ended.stdout.strip()}"
    assert one.startswith(
        "10 messages were not sent before their producer was closed: "
        f"7 of topic 'T', 3 of topic 'U', {where}. Last error: the producer was closed before"
    )
    assert "closed (they may have been stored): 10 of topic 'V', " in other
    assert where in other


AFTER_THE_END = """
    import atexit, sys

    def late():  # registered before the library's own function, so that it is called after that
        print(consumer.statistics.handled, consumer.assignment, consumer.is_open, consumer.health())

    atexit.register(late)

    from rocketmq_py.blocking import PushConsumer

    consumer = PushConsumer(sys.argv[1], group="g")
"""


def test_statistics_and_health_after_the_end_of_the_process(address: str) -> None:
    printed = run_program(AFTER_THE_END, address)
    assert printed.startswith("0 [] False unhealthy: the process is ending")
