"""What goes wrong in a rank: one function for each fault, run in all ranks; ``victim`` is the one it happens to.

Each begins with an all-reduce that all take part in, so that the fault finds a world in use, and leaves the others
waiting in a second one.
"""

from __future__ import annotations

import ctypes
import os
import re
import resource
import signal
import socket
import stat
import sys
import tempfile
import time

import torch
import torch.distributed as dist

from harness import record


def sound() -> float:
    """Nothing goes wrong: the sum over all ranks."""
    value = torch.ones(8) * (dist.get_rank() + 1)
    dist.all_reduce(value)
    return float(value[0])


def meet(victim: int) -> bool:
    """Take part in a first all-reduce; whether this rank is the victim."""
    sound()
    return dist.get_rank() == victim


def killed(victim: int) -> float:
    if meet(victim):
        print("about to be killed", file=sys.stderr)
        os.kill(os.getpid(), signal.SIGKILL)
    return sound()


def stopped(victim: int) -> float:
    if meet(victim):
        os.kill(os.getpid(), signal.SIGSTOP)
    return sound()


def sys_exit(victim: int) -> float:
    if meet(victim):
        sys.exit(3)
    return sound()


def early_exit(victim: int) -> float:
    if meet(victim):
        print("leaving early", file=sys.stderr)
        os._exit(0)
    return sound()


def raises(victim: int) -> float:
    if meet(victim):
        raise ValueError("no such expert")
    return sound()


def all_raise(victim: int) -> float:
    meet(victim)
    raise ValueError(f"no such expert on rank {dist.get_rank()}")


def native_abort(victim: int) -> None:
    """Sizes that differ reach gloo unseen, which aborts the processes that receive too much."""
    n = 1 << 16 if meet(victim) else 8
    with record.unrecorded():
        dist.all_reduce(torch.ones(n))


def segfault(victim: int) -> float:
    if meet(victim):
        ctypes.string_at(0)
    return sound()


def memory_limit(victim: int) -> float:
    if meet(victim):
        pages = int(open("/proc/self/statm").read().split()[0])  # noqa: SIM115
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (64 << 20), hard))
        torch.ones(1 << 30)
    return sound()


def endless_loop(victim: int) -> float:
    if meet(victim):
        while True:
            pass
    return sound()


def endless_loop_with_lock(victim: int) -> float:
    """A regular expression that takes for ever holds the interpreter's lock all the while."""
    if meet(victim):
        re.match(r"(a+)+$", "a" * 64 + "b")
    return sound()


def uninterruptible(victim: int) -> float:
    """Starting a process suspends the caller, uninterruptibly, until the child has begun; this child never does."""
    if meet(victim):
        with tempfile.TemporaryDirectory() as folder:
            pipe = os.path.join(folder, "nobody-writes")
            os.mkfifo(pipe)
            os.posix_spawn("/bin/true", ["true"], {}, file_actions=[(os.POSIX_SPAWN_OPEN, 9, pipe, os.O_RDONLY, 0)])
    return sound()


def slow(victim: int) -> float:
    if meet(victim):
        time.sleep(0.9)  # longer than others are given once a rank has failed
    return sound()


def floods(victim: int) -> float:
    if meet(victim):
        print("first line")
        block = "x" * 99 + "\n"
        for _ in range(1000):
            sys.stdout.write(block * 1000)
        print("last line")
    return sound()


def closes_channel(victim: int) -> float:
    if meet(victim):
        for fd in map(int, os.listdir("/proc/self/fd")):
            try:
                if stat.S_ISSOCK(os.fstat(fd).st_mode):
                    found = socket.socket(fileno=os.dup(fd))
                    if found.family == socket.AF_UNIX:
                        found.shutdown(socket.SHUT_RDWR)
                    found.close()
            except OSError:
                continue  # the descriptor of the listing itself
        time.sleep(60)
    return sound()


def leaves_children(victim: int) -> int:
    """Every rank starts a process in its session and one out of it, and the victim dies."""
    for new_session in (False, True):
        if os.fork() == 0:
            if new_session:
                os.setsid()
            os.execvp("sleep", ["sleep", "61.7"])
    if meet(victim):
        os.kill(os.getpid(), signal.SIGKILL)
    sound()
    return 0
