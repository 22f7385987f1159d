"""Logging handlers of the user's that send records, and wait for each other's lock meanwhile."""

from __future__ import annotations

import pytest

from rocketmq_py.blocking import Client
from tests.blocking.conftest import count
from tests.handoff.conftest import run_watched

SHIPPED = """
    import logging, socket, sys, threading
    from rocketmq_py import Message
    from rocketmq_py.blocking import Producer
    from rocketmq_py.errors import RocketMQError

    class Handler(logging.Handler):
        def __init__(self, producer):
            super().__init__()
            self.producer, self.shipped, self.failed = producer, 0, 0

        def emit(self, record):  # with the lock of the handler
            try:
                self.producer.send(Message("Logs", record.getMessage().encode()), timeout=5)
            except RocketMQError:
                self.failed += 1
            else:
                self.shipped += 1
"""

DEAD_BROKER = (
    SHIPPED.replace("timeout=5", "timeout=0.3")
    + """
    with socket.create_server(("127.0.0.1", 0)) as closed:
        dead = f"127.0.0.1:{closed.getsockname()[1]}"
    options = dict(send_timeout=0.3, request_timeout=0.1, retries=1)
    dying = Producer(dead, group="dying", **options)
    handler = Handler(Producer(dead, group="logs", **options))
    handler.emit = lambda record: Handler.emit(handler, record) if record.name == "mine" else None
    logging.getLogger().addHandler(handler)
    logging.getLogger("rocketmq_py").setLevel(logging.DEBUG)

    def work():
        for _ in range(5):
            logging.getLogger("mine").warning("something happened")
            try:
                dying.send(Message("T", b"x"), timeout=0.3)
            except RocketMQError:
                pass
            dying.submit(Message("T", b"x"), timeout=0.1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert handler.failed == 20
    dying.close()
    handler.producer.close()
    print("ended")
    """
)


@pytest.mark.long
def test_a_handler_that_sends_while_no_broker_answers() -> None:
    assert run_watched(DEAD_BROKER)[0] == "ended\n"


ALL_RECORDS = (
    SHIPPED
    + """
    # It ships the records of the library, too: each send logs, and is logged.
    handler = Handler(Producer(sys.argv[1], group="logs"))
    producer = Producer(sys.argv[1], group="g")
    logging.getLogger().addHandler(handler)
    for one in range(200):
        with handler.lock:
            producer.send(Message("T", b"x"))
        logging.getLogger("mine").warning("number %d", one)
    logging.getLogger().removeHandler(handler)
    producer.close()
    handler.producer.close()
    assert handler.shipped >= 200 and not handler.failed
    """
)


def test_a_handler_that_ships_all_records_with_a_lock(address: str, client: Client) -> None:
    run_watched(ALL_RECORDS, address)
    assert count(client, "T") == 200
    assert count(client, "Logs") >= 200


CONFIGURED = (
    SHIPPED
    + """
    import logging.config

    class Opening(Handler):
        def __init__(self):  # logging holds its own lock here
            super().__init__(Producer(sys.argv[1], group="logs"))
            self.producer.send(Message("Logs", b"hello"))
            self.producer.submit(Message("Logs", b"hello")).result()
            assert not failures(self.producer)

    def failures(producer):
        return producer.statistics.failed

    warmed = Producer(sys.argv[1], group="other")
    warmed.send(Message("T", b"x"))
    sys.modules["opening"] = type(sys)("opening")
    sys.modules["opening"].Opening = Opening
    logging.config.dictConfig({
        "version": 1,
        "disable_existing_loggers": False,
        "handlers": {"ship": {"class": "opening.Opening"}},
        "loggers": {"rocketmq_py": {"level": "DEBUG"}},
        "root": {"handlers": ["ship"]},
    })
    logging.getLogger("mine").warning("configured")
    print("configured")
    """
)


def test_a_handler_that_sends_while_logging_is_configured(address: str, client: Client) -> None:
    assert run_watched(CONFIGURED, address)[0] == "configured\n"


HOLDS_LOCK_OF_LOGGING = """
    import logging, sys
    from rocketmq_py import Message
    from rocketmq_py.blocking import Producer

    # Nine of ten name servers do not answer, which the library logs.
    addresses = ";".join([*(f"127.0.0.1:{port}" for port in range(1, 10)), sys.argv[1]])
    for level in (logging.DEBUG, logging.INFO, logging.WARNING):
        producer = Producer(addresses, group="g")
        logging.getLogger("rocketmq_py").setLevel(level)  # loggers forget which levels are enabled
        logging._lock.acquire()
        producer.send(Message("T", b"x"))
        logging._lock.release()
    print("ended")
"""


def test_a_thread_that_sends_while_it_holds_the_lock_of_logging(address: str) -> None:
    said, errors = run_watched(HOLDS_LOCK_OF_LOGGING, address)
    assert said == "ended\n"
    assert "name server request failed, retrying" in errors


BROKER = """
import trio
from rocketmq_py.broker import EmbeddedBroker

async def main():
    async with EmbeddedBroker() as broker:
        print(broker.name_server_address, flush=True)
        await trio.sleep_forever()

trio.run(main)
"""

KILLED_BROKER = (
    SHIPPED
    + """
    import subprocess, time

    broker = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdout=subprocess.PIPE, text=True)
    address = broker.stdout.readline().strip()
    options = dict(send_timeout=1.0, request_timeout=0.5)
    producer = Producer(address, group="g", **options)
    handler = Handler(Producer(address, group="logs", **options))  # it ships the library's records, too
    logging.getLogger().addHandler(handler)
    logging.getLogger("rocketmq_py").setLevel(logging.DEBUG)
    took, serving = [], threading.Barrier(4)

    def work(send):
        failed = sent = 0
        while failed < 3:
            started = time.monotonic()
            try:
                send(Message("T", b"x"))
            except RocketMQError:
                failed += 1
            else:
                sent += 1
            took.append(time.monotonic() - started)
            logging.getLogger("mine").warning("sent %d, failed %d", sent, failed)
            if sent == 20 and not failed:
                serving.wait()

    sends = [producer.send, lambda message: producer.submit(message).result(), producer.send]
    threads = [threading.Thread(target=work, args=[send]) for send in sends]
    for thread in threads:
        thread.start()
    serving.wait()
    broker.kill()
    broker.wait()
    for thread in threads:
        thread.join()
    logging.getLogger().removeHandler(handler)
    producer.close()
    handler.producer.close()
    assert handler.shipped and handler.failed
    print(max(took))
    """
)

MARGIN = 5.0
"""Seconds that a busy machine may take in addition to a timeout."""


@pytest.mark.long
def test_a_broker_is_killed_while_a_handler_ships_records() -> None:
    assert float(run_watched(KILLED_BROKER, BROKER)[0]) < 1.0 + MARGIN
