"""Both APIs at once, while signal handlers, finalizers, logging handlers, callbacks and forks call them.

Nothing hangs, each caller gets its own result, no connection fails, and every acknowledged message is stored.
"""

from __future__ import annotations

import os
import random
import signal

import pytest

from tests.handoff.conftest import TIME_LIMIT, run_watched

pytestmark = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="this system has no interval timers")

SECONDS = float(os.environ.get("STRESS_SECONDS", "30"))

PROGRAM = """
    import asyncio, gc, itertools, logging, os, random, signal, sys, threading, time, traceback, weakref
    from collections import Counter, deque
    from concurrent.futures import wait
    from rocketmq_py import Message, aio
    from rocketmq_py.blocking import Client
    from rocketmq_py.errors import ClosedError

    address, seconds, seed = sys.argv[1], float(sys.argv[2]), sys.argv[3]
    sys.setswitchinterval(1e-5)
    ends = time.monotonic() + seconds
    failures, records = deque(), deque()
    counts = Counter()  # calls by their kind; the counts of threads may miss some
    numbers = itertools.count()

    client = Client(address)
    producer = client.producer("stress", max_in_flight=64)
    batching = client.producer("batching", linger=0.005, max_in_flight_bytes=20_000)
    shipping = client.producer("shipping")
    results, pipelined = deque(), deque()  # (body, result), (body, future)
    polled, pushed, aio_pushed = set(), set(), set()  # (queue, offset, body)

    def is_running():
        return (time.monotonic() < ends or not all([polled, pushed, aio_pushed])) and not failures

    def message(kind):
        counts[kind] += 1
        return Message("T", f"{kind} {next(numbers)}".encode())

    def send(kind, by=producer):
        one = message(kind)
        results.append((one.body, by.send(one)))

    def submit(kind, by=producer):
        one = message(kind)
        future = by.submit(one)
        pipelined.append((one.body, future))
        return future

    def contained(function):
        def run(*arguments):
            try:
                function(*arguments)
            except BaseException:
                failures.append(traceback.format_exc())
        return run

    send("first")  # consumers would warn that there is no such topic

    # Senders

    def sender(rng, by):
        while is_running():
            kind = rng.choice(["send", "submit", "result", "callback", "wait", "cancel", "log", "garbage"])
            if kind == "send":
                send(kind, by)
            elif kind == "log":
                logging.getLogger("mine").warning("log %d", next(numbers))
            elif kind == "garbage":
                for _ in range(5):
                    Garbage(rng.randrange(3))
            else:
                future = submit(kind, by)
                if kind == "result":
                    future.result()
                elif kind == "callback":
                    future.add_done_callback(call_back)
                elif kind == "wait":
                    assert wait([future]).done == {future}
                elif kind == "cancel" and future.cancel():
                    pipelined.remove((pipelined_body(future), future))

    def pipelined_body(future):
        return next(body for body, one in list(pipelined) if one is future)

    @contained
    def call_back(future):
        number = counts["call_back"] = counts["call_back"] + 1
        send("by a callback") if number % 2 else submit("by a callback")

    # Finalizers

    class Garbage:
        def __init__(self, kind):
            self.me, self.kind = self, kind
            if kind == 2:
                watched.append(weakref.ref(self, finalize))

        def __del__(self):
            if self.kind < 2:
                finalize(self)

    watched = deque(maxlen=1000)

    @contained
    def finalize(garbage):
        future = submit("by a finalizer")
        if threading.current_thread().name == "rocketmq-py":
            counts["finalizer in the trio thread"] += 1
        elif isinstance(garbage, Garbage) and garbage.kind:
            future.result()
        elif time.monotonic() % 1 < 0.2:
            sending = threading.Thread(target=contained(send), args=["by a finalizer's thread"])
            sending.start()
            sending.join()

    # A signal handler, and forks

    @contained
    def handle(*_):
        number = counts["signal"] = counts["signal"] + 1
        if number % 100 == 0:
            fork()
        elif number % 10 == 0:
            producer.flush()
        elif number % 3 == 0:
            send("by a signal handler")
        else:
            submit("by a signal handler")
        if is_running():
            signal.setitimer(signal.ITIMER_REAL, rng.uniform(0.001, 0.01))

    def fork():
        future = submit("before a fork")
        child = os.fork()
        if not child:
            signal.setitimer(signal.ITIMER_REAL, 0)
            gc.disable()
            os._exit(in_child(future))
        counts["fork"] += 1
        _, status = os.waitpid(child, 0)
        if status:
            failures.append(f"a forked child has ended with {status}")

    def in_child(future):
        calls = [
            lambda: producer.send(Message("T", b"x")), lambda: producer.submit(Message("T", b"x")),
            lambda: batching.flush(), lambda: consumer.poll(), lambda: hash(future),
        ]
        if not future.done():
            calls += [future.result, future.cancel, lambda: future.add_done_callback(print)]
        for number, call in enumerate(calls):
            try:
                call()
            except ClosedError:
                continue
            return 10 + number
        client.close()
        return 0

    # A logging handler

    class Shipper(logging.Handler):
        @contained
        def emit(self, record):
            if record.levelno >= logging.WARNING and record.name.startswith(("rocketmq_py", "asyncio")):
                records.append(self.format(record))
            one = Message("Logs", record.getMessage().encode()[:100])
            shipping.submit(one) if counts["shipped"] % 2 else shipping.send(one)
            counts["shipped"] += 1

    logging.getLogger().addHandler(Shipper())

    # Consumers

    consumer = client.lite_pull_consumer("poller", consume_from="earliest")
    consumer.subscribe("T")

    def poller(_):
        while is_running():
            for one in consumer.poll(wait=0.05):
                polled.add((one.queue, one.queue_offset, one.body))

    push = client.push_consumer("pusher", consume_from="earliest", concurrency=4)
    push.subscribe("T")

    @contained
    def handle_message(one):
        pushed.add((one.queue, one.queue_offset, one.body))
        if one.queue_offset % 50 == 0:
            send("by a message handler")

    # The asyncio API

    async def use_asyncio(rng):
        async with aio.Client(address) as client_:
            producer_ = client_.producer("aio", max_in_flight=32)
            batching_ = client_.producer("aio-batching", linger=0.005, max_in_flight_bytes=20_000)
            consumer_ = client_.push_consumer("aio-pusher", consume_from="earliest", concurrency=4)
            async with producer_, batching_, consumer_:
                consumer_.subscribe("T")
                running = asyncio.create_task(consumer_.run(aio_handle_message))
                async with asyncio.TaskGroup() as tasks:
                    for by in (producer_, producer_, batching_):
                        tasks.create_task(aio_sender(random.Random(rng.random()), by))
                consumer_.stop()
                await running

    async def aio_handle_message(one):
        aio_pushed.add((one.queue, one.queue_offset, one.body))
        await asyncio.sleep(0)

    async def aio_sender(rng, by):
        futures = deque()
        while is_running():
            one = message("asyncio")
            kind = rng.randrange(4)
            if kind == 0:
                results.append((one.body, await by.send(one)))
            elif kind == 1:  # a blocking call on the loop
                send("on the loop")
            else:
                futures.append((one.body, await by.submit(one)))
                if kind == 2 and futures[-1][1].cancel():
                    futures.pop()
            while len(futures) > 50:
                body, future = futures.popleft()
                results.append((body, await future))
        for body, future in futures:
            results.append((body, await future))

    # The run

    rng = random.Random(seed)
    gc.set_threshold(200, 5, 5)
    running = push.start(handle_message)
    jobs = [(sender, producer)] * 3 + [(sender, batching)] * 2 + [(poller, None)]
    jobs.append((lambda rng, _: asyncio.run(use_asyncio(rng)), None))
    threads = []
    for function, by in jobs:
        work = (lambda f, r, b: f(r, b)) if function is not poller else (lambda f, r, b: f(r))
        threads.append(
            threading.Thread(target=contained(work), args=[function, random.Random(rng.random()), by])
        )
    signal.signal(signal.SIGALRM, handle)
    for thread in threads:
        thread.start()
    signal.setitimer(signal.ITIMER_REAL, 0.002)
    while is_running():
        contained(send)("main")
        contained(lambda: submit("main").add_done_callback(call_back))()
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    for thread in threads:
        thread.join()
    gc.set_threshold(0)
    gc.collect()
    producer.flush()
    batching.flush()
    push.stop()
    running.result()
    assert not failures, failures[0]

    # Stored messages

    # Those until now: the collector may run a finalizer in a thread of callbacks for a while.
    acknowledged = list(results)
    acknowledged += [(body, future.result()) for body, future in list(pipelined) if not future.cancelled()]
    stored = {}
    with client.reader() as reader, reader.open("T", start="earliest", stop_at_end=True) as all_:
        for one in all_:
            stored[one.queue, one.queue_offset] = one.body
    wrong = [body for body, result in acknowledged if stored.get((result.queue, result.queue_offset)) != body]
    assert not wrong, (len(wrong), wrong[:5])
    twice = [body for body, times in Counter(stored.values()).items() if times > 1]
    assert not twice, twice[:5]
    for seen in (polled, pushed, aio_pushed):
        other = [one for one in seen if stored.get(one[:2]) != one[2]]
        assert seen and not other, other[:5]
    for one in (producer, batching, shipping):
        assert one.statistics.retried == one.statistics.failed == 0, one.statistics
    assert not records, records[0]
    client.close()
    print(len(acknowledged), len(stored), dict(counts))
    kinds = ["signal", "fork", "shipped", "asyncio"]
    kinds += ["by a finalizer", "by a callback", "by a message handler"]
    assert all(counts[kind] for kind in kinds), counts
"""


def test_all_callers_concurrently(address: str) -> None:
    seed = str(random.randrange(2**32))
    print(f"seed: {seed}")  # shown if it fails
    print(run_watched(PROGRAM, address, str(SECONDS), seed, limit=SECONDS + TIME_LIMIT)[0])
