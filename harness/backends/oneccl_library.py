"""oneCCL's v2 C API by ctypes: what is used of it, typed as in the header ``oneapi/ccl.h`` of the package oneccl-devel.

No compiler and no launcher: the wheel ``oneccl`` brings ``libccl.so.2``, which hands calls to a plugin. On machines
without an XPU the plugin is ``ONECCL_LEGACY_CPU`` and buffers are host memory; its calls return once they are done.
Read against the headers of 2022.1.2 and 2022.2.0, run with 2022.1.2.
"""

from __future__ import annotations

import ctypes
import os
import sys
from ctypes import POINTER, c_char, c_char_p, c_int, c_size_t, c_void_p
from functools import cache
from pathlib import Path
from typing import Any

#: ``onecclDataType_t``, by torch's names. A bool is moved as the byte it is.
DTYPES = {
    "int8": 0,
    "uint8": 1,
    "bool": 1,
    "int32": 2,
    "uint32": 3,
    "int64": 4,
    "uint64": 5,
    "float16": 6,
    "float32": 7,
    "float64": 8,
    "bfloat16": 9,
}
#: ``onecclRedOp_t``, by torch's names.
OPS = {"SUM": 0, "PRODUCT": 1, "MAX": 2, "MIN": 3, "AVG": 4}
#: ``onecclResult_t``.
RESULTS = (
    "onecclSuccess",
    "onecclError",
    "onecclSystemError",
    "onecclInternalError",
    "onecclInvalidArgument",
    "onecclInvalidUsage",
    "onecclInProgress",
    "onecclFailureGPU",
    "onecclFailureCPU",
    "onecclAllocFailureCPU",
    "onecclAllocFailureGPU",
    "onecclPluginException",
    "onecclNotImplemented",
)

#: What the library reads when it starts, unless the environment has it already.
ENVIRONMENT = {
    "CCL_PLUGIN": "ONECCL_LEGACY_CPU",
    "CCL_LOG_LEVEL": "error",
    # Its worker threads spin by default, pinned to one core: with several ranks on few cores that costs 30 times more.
    "CCL_YIELD": "sched_yield",
    "CCL_WORKER_WAIT": "1",
    "CCL_KVS_IFACE": "lo",
    "FI_TCP_IFACE": "lo",
}

#: Loaded from the library's own folder, in this order, so that `LD_LIBRARY_PATH` need not name it: the plugin and what
#: it needs are looked up by bare names.
_NEEDED = (
    "libintlc.so.5",
    "libirng.so",
    "libimf.so",
    "libsvml.so",
    "libur_loader.so.0",
    "libsycl.so.9",
    "libccl.so.1",
    "libfabric.so.1",
    "libccl_legacy_cpu.so",
)


class UniqueId(ctypes.Structure):
    """``onecclUniqueId``: made by one rank, handed to the others, passed by value."""

    _fields_ = (("data", c_char * 4096),)


class OneCCLError(RuntimeError):
    """A call of oneCCL returned an error; the message has the call, the code and the library's own words."""


_DATA, _COUNT, _COMM, _STREAM = c_void_p, c_size_t, c_void_p, c_void_p
_PROTOTYPES: dict[str, tuple[Any, ...]] = {
    "onecclGetVersion": (POINTER(c_int),),
    "onecclGetUniqueId": (POINTER(UniqueId),),
    "onecclCommInitRank": (POINTER(c_void_p), c_size_t, UniqueId, c_int),
    "onecclAllReduce": (_DATA, _DATA, _COUNT, c_int, c_int, _COMM, _STREAM),
    "onecclBroadcast": (_DATA, _DATA, _COUNT, c_int, c_int, _COMM, _STREAM),
    "onecclReduce": (_DATA, _DATA, _COUNT, c_int, c_int, c_int, _COMM, _STREAM),
    "onecclAllGather": (_DATA, _DATA, _COUNT, c_int, _COMM, _STREAM),
    "onecclReduceScatter": (_DATA, _DATA, _COUNT, c_int, c_int, _COMM, _STREAM),
    "onecclAllToAll": (_DATA, _DATA, _COUNT, c_int, _COMM, _STREAM),
}


def find() -> Path | None:
    """``libccl.so.2`` of this environment's wheel, or of a oneAPI installation that is set up (``CCL_ROOT``)."""
    places = [Path(sys.prefix, "lib"), Path(sys.base_prefix, "lib")]
    if "CCL_ROOT" in os.environ:
        places.insert(0, Path(os.environ["CCL_ROOT"], "lib"))
    return next((place / "libccl.so.2" for place in places if (place / "libccl.so.2").exists()), None)


class Library:
    """The loaded library. Loading it reads `ENVIRONMENT`; made once a process, by `library`."""

    def __init__(self, path: Path) -> None:
        for name, value in ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        self.path = path
        self._dll = ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
        for name in _NEEDED:
            if (path.parent / name).exists():
                ctypes.CDLL(str(path.parent / name), mode=ctypes.RTLD_GLOBAL)
        for name, types in _PROTOTYPES.items():
            function = getattr(self._dll, name)
            function.argtypes, function.restype = types, c_int
        self._dll.onecclGetLastError.argtypes = (c_void_p,)
        self._dll.onecclGetLastError.restype = c_char_p

    def call(self, name: str, *args: Any, comm: c_void_p | None = None) -> None:
        """Call a function. Raises OneCCLError for any result but success; the GIL is released meanwhile."""
        code = getattr(self._dll, name)(*args)
        if code != 0:
            word = RESULTS[code] if 0 <= code < len(RESULTS) else "an unknown code"
            told = self._dll.onecclGetLastError(comm)
            more = f": {told.decode(errors='replace')}" if told else ""
            raise OneCCLError(f"{name} returned {code} ({word}){more}")

    def version(self) -> str:
        """Such as ``2022.1.0``."""
        code = c_int()
        self.call("onecclGetVersion", code)
        return f"{code.value // 10000}.{code.value // 100 % 100}.{code.value % 100}"

    def unique_id(self) -> bytes:
        """What the members of a new communicator must share. The calling process must outlive its creation."""
        made = UniqueId()
        self.call("onecclGetUniqueId", made)
        return bytes(made)

    def communicator(self, size: int, unique_id: bytes, rank: int) -> c_void_p:
        """Join a communicator; returns once all ``size`` members have."""
        made = c_void_p()
        self.call("onecclCommInitRank", made, size, UniqueId.from_buffer_copy(unique_id), rank)
        return made


@cache
def library() -> Library:
    """The library of this process. Raises OneCCLError if there is none, OSError if it can't be loaded."""
    path = find()
    if path is None:
        raise OneCCLError("libccl.so.2 is not here: `pip install oneccl`, or set up oneAPI (CCL_ROOT)")
    return Library(path)
