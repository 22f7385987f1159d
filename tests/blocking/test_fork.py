"""A forked child never uses its parent's connections. Both processes keep working."""

from __future__ import annotations

import os

import pytest

from rocketmq_py.blocking import Client
from tests.blocking.conftest import count, run_program

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")

BOTH_SEND = """
    import gc, os, sys
    from rocketmq_py import Message
    from rocketmq_py.blocking import Client, Producer
    from rocketmq_py.client.client import core_of
    from rocketmq_py.errors import ClosedError

    address, how = sys.argv[1:]

    def refused(function):
        try:
            function()
        except ClosedError as error:
            return "opened in the parent process; open it again here" in str(error)

    client = Client(address)
    producer, batching, reader = client.producer("g"), client.producer("g", linger=0.005), client.reader()
    alone = Producer(address, group="alone")
    for number in range(20):
        producer.send(Message("T", b"before"))
        alone.send(Message("T", b"before"))
    connections = core_of(client._target).connections.open_connections()

    child = os.fork()
    if not child:
        assert refused(lambda: producer.send(Message("T", b"x")))
        assert refused(lambda: producer.submit(Message("T", b"x")))
        assert refused(lambda: alone.send(Message("T", b"x")))
        assert refused(lambda: batching.send_all([Message("T", b"x")]))
        assert refused(lambda: batching.flush())
        assert refused(lambda: reader.offsets("T"))
        assert refused(lambda: client.producer("g"))
        assert not client.is_open
        client.close()
        with Client(address) as own, own.producer("g") as sends:
            for _ in range(100):
                sends.send(Message("T", b"child"))
        del client, producer, batching, reader, alone
        gc.collect()
        sys.stdout.flush()
        if how == "_exit":
            os._exit(0)
        sys.exit(0)

    for _ in range(100):
        producer.send(Message("T", b"parent"))
        alone.send(Message("T", b"parent"))
    _, status = os.waitpid(child, 0)
    assert status == 0, status
    for _ in range(100):
        producer.send(Message("T", b"parent"))
        alone.send(Message("T", b"parent"))
    assert connections == core_of(client._target).connections.open_connections()
    assert producer.statistics.retried == alone.statistics.retried == 0
    client.close()
    print("good")
"""


@pytest.mark.parametrize("how", ["exit", "_exit"])
def test_parent_and_child_both_send(address: str, client: Client, how: str) -> None:
    assert run_program(BOTH_SEND, address, how) == "good\n"
    assert count(client, "T") == 40 + 100 + 400


MANY_CHILDREN = """
    import os, sys, threading
    from rocketmq_py import Message
    from rocketmq_py.blocking import Producer
    from rocketmq_py.errors import ClosedError

    address = sys.argv[1]
    producer = Producer(address, group="g")
    batching = Producer(address, group="g", linger=0.005)
    stop = threading.Event()
    sent = []

    def hammer():
        futures = []
        while not stop.is_set():
            futures += [producer.submit(Message("T", b"p")), batching.submit(Message("T", b"b"))]
            futures[-40:-39] and futures[-40].result()
        sent.extend(future.result() for future in futures)

    threads = [threading.Thread(target=hammer) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(10):
        future = producer.submit(Message("T", b"main"))
        child = os.fork()
        if not child:
            # Any thread may have held locks at the time of the fork.
            for call in (lambda: producer.submit(Message("T", b"x")), batching.flush, future.result):
                try:
                    call()
                except ClosedError:
                    pass
                else:
                    # A message sent before the fork may have its result.
                    assert call == future.result
            producer.close()
            with Producer(address, group="g") as own:
                own.send(Message("T", b"child"))
                os._exit(0 if own.submit(Message("T", b"child")).result() else 1)
        assert os.waitpid(child, 0) == (child, 0)
        sent.append(future.result())
    stop.set()
    for thread in threads:
        thread.join()
    producer.close()
    batching.close()
    print(len({one.message_id for one in sent}), producer.statistics.retried, batching.statistics.retried)
"""


def test_forks_while_other_threads_send(address: str, client: Client) -> None:
    sent, *retried = map(int, run_program(MANY_CHILDREN, address).split())
    assert retried == [0, 0]
    assert count(client, "T") == sent + 20


def test_a_connection_ends_with_the_parent_though_a_child_lives_on(address: str, client: Client) -> None:
    """A child that kept the descriptors would keep the parent's connections alive."""
    program = """
        import os, sys
        from rocketmq_py.blocking import Producer
        from rocketmq_py.client.client import core_of
        from rocketmq_py import Message

        producer = Producer(sys.argv[1], group="of-the-parent")
        producer.send(Message("T", b"x"))
        sockets = {os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if fd > "2"}
        connections = core_of(producer._target).connections.open_connections()
        wanted = {os.readlink(f"/proc/self/fd/{one._wire._socket.fileno()}") for one in connections}
        child = os.fork()
        if not child:
            left = set()
            for fd in os.listdir("/proc/self/fd"):
                try:
                    left.add(os.readlink(f"/proc/self/fd/{fd}"))
                except FileNotFoundError:
                    pass
            os._exit(len(left & wanted))
        assert len(wanted) == 2
        assert os.waitpid(child, 0) == (child, 0)
        producer.send(Message("T", b"x"))
        producer.close()
    """
    run_program(program, address)
    assert count(client, "T") == 2


FETCHED = """
    import os, sys
    from rocketmq_py import Message
    from rocketmq_py.blocking import Client
    from rocketmq_py.errors import ClosedError

    client = Client(sys.argv[1])
    with client.producer("g") as producer:
        for _ in range(20):
            producer.send(Message("T", b"x"), queue=producer.queues("T")[0])
    consumer = client.lite_pull_consumer("lite-pull", consume_from="earliest")
    consumer.subscribe("T")
    pop = client.pop_consumer("pop", consume_from="earliest")
    pop.subscribe("T")
    reader = client.reader()
    stream = reader.open("T", start="earliest")
    next(stream)
    # The same as interrupted calls.
    consumer._undelivered.items.extend(consumer._call(consumer._target.poll))
    pop._undelivered.items.extend(pop._call(pop._target.receive))

    child = os.fork()
    if not child:
        calls = [consumer.poll, lambda: next(consumer), pop.receive, lambda: next(stream)]
        for number, call in enumerate(calls):
            try:
                call()
            except ClosedError as error:
                assert "opened in the parent process" in str(error)
            else:
                os._exit(10 + number)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert consumer.poll() and pop.receive() and next(stream)
    stream.close()
    client.close()
    print(os.waitstatus_to_exitcode(status))
"""


def test_a_child_does_not_return_messages_that_the_parent_has_fetched(address: str) -> None:
    assert run_program(FETCHED, address) == "0\n"


LOCKED = """
    import os, sys, threading
    from rocketmq_py import Message
    from rocketmq_py.blocking import Producer
    from rocketmq_py.errors import ClosedError
    from rocketmq_py.handoff.trio_thread import trio_thread

    producer = Producer(sys.argv[1], group="g")
    done = producer.submit(Message("T", b"x"))
    result = done.result()
    busy, go_on = threading.Event(), threading.Event()
    trio_thread().post(lambda: (busy.set(), go_on.wait()))
    busy.wait()
    pending = producer.submit(Message("T", b"x"))

    def hold():  # add_done_callback() and wait() of a Future hold the lock for a moment
        with pending._condition, done._condition:
            held.set()
            go_on.wait()

    held = threading.Event()
    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()

    child = os.fork()
    if not child:
        calls = [
            pending.result, pending.exception, pending.cancel, lambda: pending.add_done_callback(print),
            lambda: hash(pending), lambda: hash(done),
        ]
        for number, call in enumerate(calls):
            try:
                call()
            except ClosedError as error:
                assert "sent in the parent process" in str(error)
            else:
                os._exit(10 + number)
        called = []
        done.add_done_callback(called.append)
        assert called[0] is done and done.result() == result and not done.cancel()
        assert "state=pending" in repr(pending) and "state=done" in repr(done)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    go_on.set()
    holder.join()
    pending.result()
    producer.close()
    print(os.waitstatus_to_exitcode(status))
"""


def test_futures_in_a_child_with_locks_held_by_other_threads(address: str) -> None:
    assert run_program(LOCKED, address) == "0\n"


EVERY_MEMBER = """
    import asyncio, inspect, logging, os, signal, sys, traceback
    from rocketmq_py import Message, MessageQueue, TransactionState, aio, blocking
    from rocketmq_py.errors import ClosedError
    from rocketmq_py.hooks import ConsumerHook, ProducerHook, RpcHook

    address = sys.argv[1]
    logging.disable()
    NO_CALLS = {"settings", "is_open", "close", "aclose", "start", "stop"}
    ARGUMENTS = {
        "message": Message("T", b"x"), "messages": [Message("T", b"x")], "topic": "T", "group": "other",
        "queue": MessageQueue("T", "broker", 0), "parent": "P", "handle": lambda message: None,
        "check": print, "local_work": lambda *_: TransactionState.COMMIT,
    }
    HOOKS = {"Client": RpcHook(), "Producer": ProducerHook(), "TransactionProducer": ProducerHook()}

    class Hung(BaseException):
        pass

    def hung(*_):
        raise Hung

    def open_all(api, client):
        admin = client.admin()
        return [
            client, client.producer("g"), client.transaction_producer("t", check=print),
            client.push_consumer("push"), client.lite_pull_consumer("pull"), client.pop_consumer("pop"),
            client.lite_topic_consumer("lite", parent="P"), client.reader(), admin,
            # Not of the same client, which can have one subscriber to lite topics.
            api.LiteTopicPushConsumer(address, group="lite-push", parent="P"),
        ]

    def call(opened, method):
        parameters = inspect.signature(method).parameters.values()
        required = [one for one in parameters if one.default is one.empty and one.kind not in (2, 4)]
        hook = HOOKS.get(type(opened).__name__, ConsumerHook())
        values = {one.name: hook if one.name == "hook" else ARGUMENTS.get(one.name) for one in required}
        positional = [values[one.name] for one in required if one.kind < 2]
        return method(*positional, **{one.name: values[one.name] for one in required if one.kind == 3})

    async def outcome(opened, name):
        signal.setitimer(signal.ITIMER_REAL, 5)
        try:
            value = getattr(opened, name)
            if callable(value):
                value = call(opened, value)
            if hasattr(value, "__aenter__"):
                value = value.__aenter__()
            elif hasattr(value, "__enter__"):
                value = value.__enter__()
            if inspect.isawaitable(value):
                value = await value
            return f"returned {value}"
        except ClosedError as error:
            return "refused" if "opened in the parent process" in str(error) else str(error)
        except Hung:
            return "hung"
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    async def use(objects):
        signal.signal(signal.SIGALRM, hung)
        for opened in objects:
            for name in dir(opened):
                if name.startswith("_") or name in NO_CALLS or name in vars(opened):
                    continue
                if name == "health":
                    health = opened.health()
                    found = "refused" if "opened in the parent process" in health.reasons[0] else health
                else:
                    found = await outcome(opened, name)
                if found != "refused":
                    print(type(opened), name, found)

    def run_child(objects):
        admin = objects[-2]
        objects += [value for name, value in vars(admin).items() if not name.startswith("_")]
        pid = os.fork()
        if not pid:
            try:
                use(objects).send(None)  # without a loop, since nothing waits
            except StopIteration:
                sys.stdout.flush()
                os._exit(0)
            except BaseException:
                traceback.print_exc()
            os._exit(1)
        assert os.waitpid(pid, 0) == (pid, 0)

    async def main():
        async with aio.Client(address) as client:
            objects = open_all(aio, client)
            for one in objects[1:]:
                await one.start()
            run_child(objects)
            await objects[9].aclose()

    with blocking.Client(address) as client:
        run_child(open_all(blocking, client))
    asyncio.run(main())
"""


def test_every_member_refuses_in_a_child(address: str) -> None:
    assert run_program(EVERY_MEMBER, address) == ""
