"""Capture golden frames: the Java clients talking to real brokers, recorded on the way.

``python -m integration.capture`` writes ``java-<client>-<json|rocketmq>.jsonl`` to ``tests/data/frames``, one
frame a line::

    {"from": "client" | "server", "peer": "namesrv" | "broker", "code": 105, "hex": "0000…"}

``endpoint/java-5.5.0.jsonl`` has those of a client with the endpoint of a managed service, a namespace in
its host, a second namespace, and credentials. ``cloud/java-5.5.0.jsonl`` has those of a client that writes
the traces of a cloud, and sends a message with the delay of Alibaba Cloud 4.x and Tencent Cloud.

``code`` is the request's code; for an answer, that of the request it answers. The frames are as they were on
the wire but for one thing: the client reaches the broker through a recording proxy, and where an answer names
the broker's port, the proxy's stands instead (it has as many digits).
"""

from __future__ import annotations

import argparse
import json
import struct
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs
import trio

from integration.clusters.cluster import Cluster
from integration.clusters.local import start_local_cluster
from integration.clusters.ports import free_ports
from integration.java.peer import CLIENT_OF_SERVER, QUICK, java_peer, run_java_async
from rocketmq_py import Client
from rocketmq_py.codes import RequestCode
from rocketmq_py.names import CLOUD_TRACE_PREFIX
from tests.behaviours.conftest import create_topic

FOLDER = Path(__file__).resolve().parents[1] / "tests" / "data" / "frames"

MAX_FRAME_SIZE = 65_536
KEEP_OF_A_KIND = 2

_SETTINGS = {
    # Transactions are checked within seconds instead of a minute.
    "transactionTimeOut": "2000",
    "transactionCheckInterval": "2000",
}


@attrs.frozen
class Header:
    """The fields of a frame's header that decide whether the frame is recorded."""

    code: int
    opaque: int
    flag: int
    fields: Mapping[str, str]

    @property
    def is_answer(self) -> bool:
        """Whether the frame answers a request."""
        return bool(self.flag & 1)


def parse_header(frame: bytes) -> Header:
    """Parse the header of a frame without its leading length. Shares no code with the library under test."""
    kind, length = frame[0], int.from_bytes(frame[1:4], "big")
    data = frame[4 : 4 + length]
    if kind == 0:
        parsed = json.loads(data)
        return Header(parsed["code"], parsed["opaque"], parsed["flag"], parsed.get("extFields") or {})
    code, _, _, opaque, flag, remark_length = struct.unpack_from(">hbhiii", data)
    position = 17 + remark_length
    (end,) = struct.unpack_from(">i", data, position)
    position += 4
    end += position
    fields: dict[str, str] = {}
    while position < end:
        (size,) = struct.unpack_from(">h", data, position)
        key = data[position + 2 : position + 2 + size].decode()
        position += 2 + size
        (size,) = struct.unpack_from(">i", data, position)
        fields[key] = data[position + 4 : position + 4 + size].decode()
        position += 4 + size
    return Header(code, opaque, flag, fields)


class Recorder:
    """Records frames, a few of each kind."""

    def __init__(self, keep: int = KEEP_OF_A_KIND) -> None:
        self.lines: list[str] = []
        self._keep = keep
        self._seen: Counter[object] = Counter()

    def record(self, sender: str, peer: str, request: Header, header: Header, frame: bytes) -> None:
        """Record a frame, given without its leading length. ``request`` is the header of the
        request that the frame answers, or the frame's own header.
        """
        kind = (sender, peer, request.code, header.code, header.flag, _shape(request), _shape(header))
        self._seen[kind] += 1
        if self._seen[kind] > self._keep or len(frame) > MAX_FRAME_SIZE:
            return
        whole = struct.pack(">i", len(frame)) + frame
        line = {"from": sender, "peer": peer, "code": request.code, "hex": whole.hex()}
        self.lines.append(json.dumps(line))


def _shape(header: Header) -> tuple[object, ...]:
    """Return the field and property names of a frame. Frames of one code with different names
    differ in kind.
    """
    properties = header.fields.get("i", header.fields.get("properties", ""))
    names = frozenset(text.partition("\x01")[0] for text in properties.split("\x02"))
    return (frozenset(header.fields), names, header.fields.get("f", header.fields.get("sysFlag")))


class Link:
    """One proxied connection: cuts both directions into frames and pairs answers with requests."""

    def __init__(self, recorder: Recorder, peer: str, ports: tuple[int, int]) -> None:
        self._recorder = recorder
        self._peer = peer
        self._replacements = _port_replacements(*ports)
        self._asked: dict[tuple[str, int], Header] = {}

    async def carry(self, source: trio.SocketStream, sink: trio.SocketStream, sender: str) -> None:
        """Forward frames until ``source`` ends."""
        data = b""
        try:
            async for chunk in source:
                data += chunk
                while len(data) >= 4 and len(data) >= (end := 4 + int.from_bytes(data[:4], "big")):
                    frame, data = data[4:end], data[end:]
                    await sink.send_all(struct.pack(">i", len(frame)) + self._see(sender, frame))
            await sink.send_eof()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass

    def _see(self, sender: str, frame: bytes) -> bytes:
        if sender == "server":
            for old, new in self._replacements:
                frame = frame.replace(old, new)
        header = parse_header(frame)
        other = "client" if sender == "server" else "server"
        if header.is_answer:
            request = self._asked.pop((other, header.opaque))
        else:
            request = self._asked[sender, header.opaque] = header
        self._recorder.record(sender, self._peer, request, header, frame)
        return frame


def _port_replacements(real: int, shown: int) -> list[tuple[bytes, bytes]]:
    """Return every form in which an answer may name the broker's port: text, host bytes, their hex."""

    def forms(port: int) -> list[bytes]:
        host = bytes((127, 0, 0, 1)) + struct.pack(">i", port)
        return [f"127.0.0.1:{port}".encode(), host, host.hex().upper().encode()]

    return list(zip(forms(real), forms(shown), strict=True))


async def _proxy(
    recorder: Recorder,
    peer: str,
    target: int,
    ports: tuple[int, int],
    port: int,
    *,
    task_status: trio.TaskStatus[list[trio.SocketListener]],
) -> None:
    async def handle(client: trio.SocketStream) -> None:
        server = await trio.open_tcp_stream("127.0.0.1", target)
        link = Link(recorder, peer, ports)
        async with client, server, trio.open_nursery() as nursery:
            nursery.start_soon(link.carry, client, server, "client")
            nursery.start_soon(link.carry, server, client, "server")

    await trio.serve_tcp(handle, port, host="127.0.0.1", task_status=task_status)


async def capture(cluster: Cluster, serialization: str) -> list[str]:
    """Run the Java programs against ``cluster`` through proxies; return the lines of the frames kept."""
    recorder = Recorder()
    (broker,) = (int(address.rpartition(":")[2]) for address in cluster.brokers.values())
    name_server = int(cluster.name_servers.rpartition(":")[2])
    shown_name_server, shown_broker = free_ports(2)
    ports = (broker, shown_broker)
    async with trio.open_nursery() as nursery:
        await nursery.start(_proxy, recorder, "namesrv", name_server, ports, shown_name_server)
        await nursery.start(_proxy, recorder, "broker", broker, ports, shown_broker)
        version = CLIENT_OF_SERVER[cluster.version]
        jvm = [*QUICK, f"-Drocketmq.serialize.type={serialization}"]
        address = f"127.0.0.1:{shown_name_server}"
        plain = "-Dorg.apache.rocketmq.client.sendSmartMsg=false"
        await run_java_async(version, "Capture", "--namesrv", address, "--plain", jvm=[*jvm, plain])
        for step in await run_java_async(version, "Capture", "--namesrv", address, jvm=jvm, timeout=120):
            print(step)
        nursery.cancel_scope.cancel()
    return recorder.lines


INSTANCE = "MQ_INST_1380_BbXb"
"""The namespace in the host of the endpoint."""
_HOST = f"{INSTANCE}.cn-hangzhou.example.com"


async def capture_endpoint(cluster: Cluster) -> list[str]:
    """Run a producer and a consumer of Java through proxies; return the lines of the frames kept."""
    there = [
        "--namespace-v2", "rmq-cn-1",
        "--access-key", "the-key", "--secret-key", "the-secret", "--security-token", "the-token",
        "--topic", "EndpointTopic", "--group", "endpoint-group",
    ]  # fmt: skip
    send = ["--body", "x", "--count", "2"]
    return await _capture_with_host(cluster, there, [send], ["--trace", "RMQ_SYS_TRACE_TOPIC"], count=2)


REGION = "cn-test"
DUE_MS = 4_102_444_800_000
"""The delivery time of the delayed message, which this broker does not delay."""


async def capture_cloud(cluster: Cluster) -> list[str]:
    """Do the same with traces as clouds keep them, and with a delayed message. Return only the sends."""
    there = ["--topic", "CloudTopic", "--group", "cloud-group", "--access-channel", "CLOUD"]
    trace = ["--trace", "ignored"]
    plain = ["--body", "12345", "--tags", "TagA", "--keys", "order-1 order-2", *trace]
    delayed = ["--body", "later", "--property.__STARTDELIVERTIME", str(DUE_MS), *trace]
    # Without it, Java's client ends before its first records are sent.
    async with Client(cluster.name_servers) as client:
        await create_topic(client, f"{CLOUD_TRACE_PREFIX}{REGION}", queues=1)
    # Two messages with the records of sends, and then those of consumptions.
    lines = await _capture_with_host(cluster, there, [plain, delayed], trace, count=2, keep=8)
    return [line for line in lines if json.loads(line)["code"] == RequestCode.SEND_MESSAGE_V2]


async def _capture_with_host(
    cluster: Cluster,
    there: Sequence[str],
    sends: Sequence[Sequence[str]],
    consumer: Sequence[str],
    *,
    count: int,
    keep: int = KEEP_OF_A_KIND,
) -> list[str]:
    """Send messages, and consume ``count``, each of them twice. The endpoint's host has a namespace."""
    recorder = Recorder(keep)
    (broker,) = (int(address.rpartition(":")[2]) for address in cluster.brokers.values())
    name_server = int(cluster.name_servers.rpartition(":")[2])
    shown_name_server, shown_broker = free_ports(2)
    ports = (broker, shown_broker)
    version = CLIENT_OF_SERVER[cluster.version]
    with tempfile.TemporaryDirectory() as folder:
        hosts = Path(folder) / "hosts"
        hosts.write_text(f"127.0.0.1 {_HOST}\n")
        jvm = [*QUICK, f"-Djdk.net.hosts.file={hosts}"]
        access = ["--namesrv", f"http://{_HOST}:{shown_name_server}", *there]
        async with trio.open_nursery() as nursery:
            await nursery.start(_proxy, recorder, "namesrv", name_server, ports, shown_name_server)
            await nursery.start(_proxy, recorder, "broker", broker, ports, shown_broker)
            for send in sends:
                await run_java_async(version, "Send", *access, *send, jvm=jvm)
            async with java_peer(version, "Consume", *access, "--fail-first", *consumer, jvm=jvm) as peer:
                for _ in range(1 + 2 * count):  # that it is ready, and each message twice
                    print(await peer.next_line())
                await peer.leave()
            nursery.cancel_scope.cancel()
    return recorder.lines


def _write(path: Path, lines: Sequence[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{path}: {len(lines)} frames, {path.stat().st_size:,} bytes")


def _capture_all(folder: Path) -> None:
    """Capture all four combinations of client and serialization."""
    for server, client in CLIENT_OF_SERVER.items():
        for serialization in ("JSON", "ROCKETMQ"):
            with start_local_cluster(server, settings=_SETTINGS) as cluster:
                lines = trio.run(capture, cluster, serialization)
            _write(folder / f"java-{client}-{serialization.lower()}.jsonl", lines)


def main() -> None:
    """Capture the kinds of frames in the arguments: ``all``, ``endpoint``, ``cloud``. Default: every kind."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("parts", nargs="*", choices=("all", "endpoint", "cloud"), metavar="PART")
    options = parser.parse_args()
    parts = options.parts or ("all", "endpoint", "cloud")
    if "all" in parts:
        _capture_all(options.folder)
    for name, work, settings in (
        ("endpoint", capture_endpoint, {}),
        ("cloud", capture_cloud, {"regionId": REGION, "validateSystemTopicWhenUpdateTopic": "false"}),
    ):
        if name in parts:
            with start_local_cluster("5.5.0", settings={**_SETTINGS, **settings}) as cluster:
                _write(options.folder / name / "java-5.5.0.jsonl", trio.run(work, cluster))


if __name__ == "__main__":
    main()
