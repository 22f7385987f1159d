"""Writing frames: all that has piled up goes in one system call."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TypeAlias

import trio

from rocketmq_py.remoting.wire import Wire

DEFAULT_MAX_BUFFERED = 4 * 1024 * 1024
"""Bytes that may pile up for one connection before senders wait."""

Oneway: TypeAlias = tuple[int, Mapping[str, str], bytes]
"""What a oneway request is made of: code, fields, body."""


class WriteTogether:
    """A block of plain calls in the trio thread. At its end every frame that they put is written.

    Without it, the writers' own tasks write them a turn of trio's loop later.
    """

    def __enter__(self) -> None:
        _thread.writers = []

    def __exit__(self, *_: object) -> None:
        writers, _thread.writers = _thread.writers, None
        for writer in writers:
            writer.write_now()


_thread = threading.local()
_thread.writers = None


class Writer:
    """Frames that wait for the wire. Whoever sends leaves its frame here; :meth:`run` writes them.

    Args:
        wire: what they are written to.
        max_buffered: bytes that may wait before senders should.

    Attributes:
        turn: how many times waiting frames have been taken to be written. A frame that was put in the
            present turn has not left this process.
        has_space: whether another frame may wait without growing past the bound.
        is_idle: whether nothing waits, and :meth:`run` does.
    """

    def __init__(self, wire: Wire, max_buffered: int) -> None:
        self._wire = wire
        self._max_buffered = max_buffered
        self._frames: list[bytes] = []
        self._oneways: dict[int, Oneway] = {}
        self._buffered = 0
        self.is_idle: bool = False
        self._is_writing = False
        self._is_closed = False
        self._parked = trio.lowlevel.ParkingLot()
        self._waiting_for_space = trio.lowlevel.ParkingLot()
        self._flushed = trio.lowlevel.ParkingLot()
        self.turn: int = 0
        self.has_space: bool = True

    @property
    def has_space_for_answers(self) -> bool:
        """Whether an answer to the peer may wait, too: as many bytes again, whatever senders have left."""
        return self._buffered < 2 * self._max_buffered

    @property
    def is_flushed(self) -> bool:
        """Whether nothing waits, and nothing is being written."""
        return not self._frames and not self._is_writing

    def put(self, frame: bytes) -> int:
        """Have a frame written, with those that wait already. Return its place in the present turn."""
        if self.is_idle:
            self.is_idle = False
            writers: list[Writer] | None = getattr(_thread, "writers", None)
            if writers is None or not self._wire.is_direct:
                self._parked.unpark()
            else:
                writers.append(self)
        frames = self._frames
        place = len(frames)
        frames.append(frame)
        self._buffered += len(frame)
        if self._buffered >= self._max_buffered:
            self.has_space = False
        return place

    def put_alone(self, frame: bytes) -> int:
        """As :meth:`put`, but write it at once where nothing waits: nothing is expected to join it."""
        is_alone = self.is_idle and self._wire.is_direct
        written = self._wire.send_nowait(frame) if is_alone else 0
        if written:
            self.turn += 1
        if written < len(frame):
            return self.put(frame[written:] if written else frame)
        return 0

    def write_now(self) -> None:
        """Write what waits. What the socket does not take is left to :meth:`run`."""
        if self._is_closed:
            return
        data = self._take()
        written = self._wire.send_nowait(data)
        if written < len(data):
            self._frames = [data[written:]]
            self._buffered = len(data) - written
            self._parked.unpark()
        else:
            self.is_idle = True

    def _take(self) -> bytes:
        """Return all frames that wait: they are about to be written."""
        frames = self._frames
        self._frames = []
        self.turn += 1
        self._oneways.clear()
        self._buffered = 0
        if not self.has_space:  # else nobody waits for it
            self.has_space = True
            self._waiting_for_space.unpark_all()
        return frames[0] if len(frames) == 1 else b"".join(frames)

    def put_oneway(self, frame: bytes, request: Oneway) -> None:
        """As :meth:`put`, keeping what the frame was made from until it is written."""
        self._oneways[len(self._frames)] = request
        self.put(frame)

    def take_back_oneways(self) -> list[Oneway]:
        """Do not write the oneway requests that wait; return them."""
        oneways, self._oneways = self._oneways, {}
        for place in oneways:
            self.take_back(self.turn, place)
        return list(oneways.values())

    def take_back(self, turn: int, place: int) -> None:
        """Do not write the frame that was put at ``place`` in ``turn``, unless it has been taken."""
        if turn == self.turn and not self._is_closed:
            self._buffered -= len(self._frames[place])
            self._frames[place] = b""
            self.has_space = self._buffered < self._max_buffered
            if self.has_space:
                self._waiting_for_space.unpark_all()

    async def wait_for_space(self) -> None:
        """Wait until there is space, or it is closed. Does not yield to others if that is so already."""
        while not self.has_space and not self._is_closed:
            await self._waiting_for_space.park()

    async def flush(self) -> None:
        """Wait until everything has been written, or it is closed."""
        while not self.is_flushed and not self._is_closed:
            await self._flushed.park()

    def close(self) -> None:
        """Drop what waits, and take nothing more."""
        self._is_closed = True
        self._waiting_for_space.unpark_all()
        self._flushed.unpark_all()
        self._frames.clear()
        self._oneways.clear()
        self._buffered = 0
        self.has_space = True

    async def run(self) -> None:
        """Write until cancelled. Raises what the wire raises."""
        while True:
            if not self._frames:
                self.is_idle = True
                await self._parked.park()
                continue
            data = self._take()
            self._is_writing = True
            # Where all goes at once, nothing is left here: the next round waits, and others have their turn.
            written = self._wire.send_nowait(data) if self._wire.is_direct else 0
            if written < len(data):
                await self._wire.send(memoryview(data)[written:] if written else data)
            self._is_writing = False
            if self._flushed and not self._frames:
                self._flushed.unpark_all()
