"""Memory of this process, as Linux counts it."""

from __future__ import annotations

import ctypes
import gc
from pathlib import Path


def resident_bytes() -> int:
    """Return the bytes that this process holds, after it has given unused memory back to the system."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return _field("VmRSS")


def forget_peak() -> None:
    """Let `peak_bytes` count from now on."""
    # Writing 5 resets the highest size to the present one.
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")


def peak_bytes() -> int:
    """Return the most bytes that this process has held since `forget_peak`."""
    return _field("VmHWM")


def _field(name: str) -> int:
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith(f"{name}:"):
            return 1024 * int(line.split()[1])
    raise RuntimeError(f"/proc/self/status has no {name}")
