"""A rank's output, kept within bounds: the first bytes and the last ones, and how many were dropped between."""

from __future__ import annotations

from collections import deque


class Capture:
    """Head and tail of one stream. ``head`` and ``tail`` are the bytes kept of each."""

    def __init__(self, head: int = 32_768, tail: int = 131_072) -> None:
        self._head_size = head
        self._tail_size = tail
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._kept = 0
        self.total = 0

    def feed(self, data: bytes) -> None:
        """Take the stream's next bytes."""
        self.total += len(data)
        room = self._head_size - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if not data:
            return
        self._tail.append(data)
        self._kept += len(data)
        while self._kept - len(self._tail[0]) >= self._tail_size:
            self._kept -= len(self._tail.popleft())

    @property
    def dropped(self) -> int:
        """How many bytes of the middle are gone."""
        return max(0, self.total - len(self._head) - self._tail_size)

    def text(self) -> str:
        """What was kept, with a line that says what was dropped."""
        tail = b"".join(self._tail)[-self._tail_size :]
        if not self.dropped:
            return (bytes(self._head) + tail).decode(errors="replace")
        gap = f"\n[... {self.dropped} bytes of output dropped ...]\n"
        return bytes(self._head).decode(errors="replace") + gap + tail.decode(errors="replace")

    def last_lines(self, count: int) -> str:
        """The last ``count`` lines that hold anything."""
        lines = [line for line in self.text().splitlines() if line.strip()]
        return "\n".join(lines[-count:])
