"""A rank's output, kept within bounds: the first bytes and the last ones, and how many were dropped between."""

from __future__ import annotations

from collections import deque

#: How faulthandler begins its report and, in it, the stack of the thread that failed; and how many lines before the
#: report are of interest (what C++ said as it gave up).
_FATAL, _THREAD, _BEFORE = "Fatal Python error: ", "Current thread ", 3


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

    def last_words(self, count: int) -> str:
        """The last ``count`` lines that hold anything.

        Where Python reports a fatal error: what came right before the report, and of that the thread which failed. The
        innermost frames come first there, and the last lines would be those of the harness.
        """
        lines = [line for line in self.text().splitlines() if line.strip()]
        fatal = max((at for at, line in enumerate(lines) if line.startswith(_FATAL)), default=None)
        if fatal is None:
            return "\n".join(lines[-count:])
        report = lines[fatal + 1 :]
        failed = next((at for at, line in enumerate(report) if line.startswith(_THREAD)), 0)
        return "\n".join((lines[max(fatal - _BEFORE, 0) : fatal + 1] + report[failed:])[:count])
