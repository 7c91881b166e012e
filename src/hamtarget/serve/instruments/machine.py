"""Facts of the machine that a service runs on: cores, memory, descriptors, disk."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from hamtarget.store.sqlite.tables.database import DATABASE_NAME


def n_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def resident_bytes() -> int | None:
    """Return the memory of this process; None where the system does not tell it."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return None


def open_descriptors() -> int | None:
    """Return the number of files and sockets that this process has open; None where the system does not tell it."""
    for folder in ("/proc/self/fd", "/dev/fd"):
        try:
            # Less the one that looks.
            return len(os.listdir(folder)) - 1
        except OSError:
            continue
    return None


def descriptor_limit() -> int | None:
    """Return the number of files and sockets that this process may have open; None where there is no such limit."""
    try:
        import resource
    except ImportError:
        return None
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def free_bytes(folder: Path) -> int | None:
    """Return the free bytes of the disk that a folder lies on; None if it has gone."""
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return None


def log_bytes(folder: Path) -> int:
    """Return the size of the log of changes (WAL) of a store in a folder; 0 where there is none."""
    try:
        return (folder / f"{DATABASE_NAME}-wal").stat().st_size
    except OSError:
        return 0
