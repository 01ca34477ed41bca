"""Message channels between a rank and the supervisor: pickles in length-prefixed frames over a stream socket.

The frames are those of ``multiprocessing.connection.Connection``, so that a connection which was authenticated
by its ``Listener`` and ``Client`` can be carried on with here. The supervisor's end never blocks, neither in
reading nor in writing: a rank may be stopped in the middle of a frame, or not read at all.
"""

from __future__ import annotations

import contextlib
import pickle
import socket
import struct
import threading
from collections import deque
from collections.abc import Iterator
from typing import Any

_SHORT = struct.Struct("!i")
_LONG = struct.Struct("!Q")
_SHORT_LIMIT = 0x7FFFFFFF
_READ = 1 << 18


def frame(payload: bytes) -> bytes:
    """The bytes that carry ``payload`` over the stream."""
    if len(payload) > _SHORT_LIMIT:
        return _SHORT.pack(-1) + _LONG.pack(len(payload)) + payload
    return _SHORT.pack(len(payload)) + payload


class FrameReader:
    """Cuts a stream of bytes into frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Take the next bytes; yield the payloads that are complete now."""
        buffer = self._buffer
        buffer += data
        start = 0
        while len(buffer) - start >= _SHORT.size:
            (size,) = _SHORT.unpack_from(buffer, start)
            head = start + _SHORT.size
            if size == -1:
                if len(buffer) - head < _LONG.size:
                    break
                (size,) = _LONG.unpack_from(buffer, head)
                head += _LONG.size
            if len(buffer) - head < size:
                break
            yield bytes(buffer[head : head + size])
            start = head + size
        if start:
            del buffer[:start]


class Channel:
    """The supervisor's end: reads and writes whole messages and never blocks.

    ``closed`` says that the other end is gone. Messages that arrived before the end are still handed out.
    """

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._frames = FrameReader()
        self._out: deque[memoryview] = deque()
        self.closed = False

    def fileno(self) -> int:
        return self._sock.fileno()

    def send(self, message: Any) -> None:
        """Send, or keep what does not go out at once for :meth:`flush`. To an end that is gone: dropped."""
        if self.closed:
            return
        self._out.append(memoryview(frame(pickle.dumps(message, protocol=5))))
        self.flush()

    @property
    def backlog(self) -> bool:
        """Whether something waits to be written."""
        return bool(self._out)

    def flush(self) -> None:
        """Write what can be written now."""
        try:
            while self._out:
                sent = self._sock.send(self._out[0], socket.MSG_NOSIGNAL)
                if sent < len(self._out[0]):
                    self._out[0] = self._out[0][sent:]
                    return
                self._out.popleft()
        except BlockingIOError:
            return
        except OSError:
            self._out.clear()

    def receive(self) -> list[Any]:
        """All messages that are here now; sets :attr:`closed` at the end of the stream.

        A frame that is no pickle ends the channel, as if the rank had closed it.
        """
        messages: list[Any] = []
        try:
            while True:
                data = self._sock.recv(_READ)
                if not data:
                    self.closed = True
                    break
                messages += (pickle.loads(payload) for payload in self._frames.feed(data))
                if len(data) < _READ:
                    break
        except BlockingIOError:
            pass
        except (OSError, pickle.UnpicklingError, EOFError, AttributeError, ImportError, IndexError, ValueError):
            self.closed = True
        return messages

    def close(self) -> None:
        self.closed = True
        self._sock.close()


class RankEnd:
    """A rank's end: blocking, and safe to send on from several threads."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(True)
        self._sock = sock
        self._frames = FrameReader()
        self._ready: deque[bytes] = deque()
        self._lock = threading.Lock()

    def send(self, message: Any) -> None:
        """Send a whole message; raises OSError when the supervisor is gone."""
        data = frame(pickle.dumps(message, protocol=5))
        with self._lock:
            self._sock.sendall(data)

    def receive(self) -> Any:
        """The next message; raises EOFError when the supervisor is gone."""
        while not self._ready:
            try:
                data = self._sock.recv(_READ)
            except OSError as error:
                raise EOFError(str(error)) from error
            if not data:
                raise EOFError("the supervisor closed the channel")
            self._ready.extend(self._frames.feed(data))
        return pickle.loads(self._ready.popleft())

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()
