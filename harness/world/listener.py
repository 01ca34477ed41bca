"""The thread of every rank that hears what its supervisor says, while the rank's own code runs."""

from __future__ import annotations

import queue
import threading
import traceback
from collections.abc import Callable

from harness.record import Recorder
from harness.world.channel import RankEnd
from harness.world.messages import Exit, Task


def listen(
    end: RankEnd,
    recorder: Recorder,
    tasks: queue.SimpleQueue[Task],
    *,
    on_exit: Callable[[], None],
    on_end: Callable[[], None],
) -> None:
    """From here on, tasks go to ``tasks``, an Exit to ``on_exit``, and all else to the recorder.

    ``on_end`` is called once nothing more can be heard: a rank that can't be told to stop must not live on.
    """

    def hear() -> None:
        recorder.own_thread()
        try:
            while True:
                message = end.receive()
                if isinstance(message, Task):
                    tasks.put(message)
                elif isinstance(message, Exit):
                    on_exit()
                else:
                    recorder.on_message(message)
        except (EOFError, OSError):
            pass
        except BaseException:  # noqa: BLE001 - a fault of ours, which ends the rank as well
            traceback.print_exc()
        on_end()

    threading.Thread(target=hear, name="harness-listener", daemon=True).start()
