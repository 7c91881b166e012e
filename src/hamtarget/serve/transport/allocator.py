"""The C library's allocator in a process that runs for weeks: it gives memory back."""

from __future__ import annotations

import ctypes
import logging
import platform

# Names and numbers of glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_LARGE_BYTES = 1 << 20
_ARENAS = 2

_log = logging.getLogger("hamtarget.serve")


def give_memory_back() -> None:
    """Let glibc return large blocks to the system as soon as they are freed; do nothing with another C library.

    By default it raises its idea of a large block to whatever was freed, up to 32 MB, and keeps a pool for each of many
    threads. The tables of a merged index then stay behind in the pool of the thread that merged.
    """
    if platform.libc_ver()[0] != "glibc":
        return
    mallopt = ctypes.CDLL(None).mallopt
    for option, value in (
        (_M_MMAP_THRESHOLD, _LARGE_BYTES),
        (_M_TRIM_THRESHOLD, _LARGE_BYTES),
        (_M_ARENA_MAX, _ARENAS),
    ):
        if not mallopt(option, value):
            _log.warning("the allocator refuses option %d = %d", option, value)
