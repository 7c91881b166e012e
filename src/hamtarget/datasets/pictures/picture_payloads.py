"""Payloads of pictures: where a picture is, its class, and the state of its file when it was read.

- `image`: path within the folder, with "/" between its parts. The folder may move; whoever shows pictures says where it
  is.
- `folder`: name of the folder.
- `label`: name of the first folder on the way to the picture, where there is one.
- `file`: size, time of change and digest of the file, as `FileState` writes them.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hamtarget.datasets.content_cache import DIGEST_BYTES, content_digest
from hamtarget.errors import FileError
from hamtarget.items import Payload

# A file may change twice within one tick of the clock that its time is taken from; FAT has ticks of two seconds.
_TICK_NS = 2 * 10**9
_PARTS = 3


@dataclass(frozen=True, slots=True)
class FileState:
    """State of a file when it was read.

    Attributes:
        n_bytes: its size.
        time_ns: time of its last change; 0 if it was changed so recently that another change might not be seen.
        digest: digest of its content.
    """

    n_bytes: int
    time_ns: int
    digest: bytes

    def __str__(self) -> str:
        """Return the state as a payload keeps it."""
        return f"{self.n_bytes} {self.time_ns} {self.digest.hex()}"

    def is_that_of(self, status: os.stat_result) -> bool:
        """Return True if a file with this status has not changed since."""
        return (self.n_bytes, self.time_ns) == (status.st_size, status.st_mtime_ns) and self.time_ns > 0


def state_of(status: os.stat_result, digest: bytes, looked_ns: int) -> FileState:
    """Return the state of a file.

    Args:
        status: its status, taken before its content was read.
        digest: digest of its content.
        looked_ns: the time when its status was taken, or shortly before.
    """
    is_settled = looked_ns - status.st_mtime_ns >= _TICK_NS
    return FileState(status.st_size, status.st_mtime_ns if is_settled else 0, digest)


def read_state(path: str | os.PathLike[str]) -> FileState | None:
    """Read a file, and return its state; None if it cannot be read."""
    looked_ns = time.time_ns()
    try:
        status = os.stat(path)
        # A pipe would be waited for.
        return state_of(status, content_digest(path), looked_ns) if stat.S_ISREG(status.st_mode) else None
    except (OSError, FileError):
        return None


def parse_state(text: object) -> FileState | None:
    """Return the state that a payload keeps; None where it keeps none, or something else."""
    parts = text.split() if isinstance(text, str) else []
    try:
        n_bytes, time_ns, digest = int(parts[0]), int(parts[1]), bytes.fromhex(parts[2])
    except (IndexError, ValueError):
        return None
    return FileState(n_bytes, time_ns, digest) if len(digest) == DIGEST_BYTES and len(parts) == _PARTS else None


def name_of_folder(folder: str | os.PathLike[str]) -> str:
    """Return the name that payloads have for a folder: the last part of its path."""
    return os.path.basename(os.path.abspath(folder))


def picture_payload(
    name: str, folder: str, state: FileState | None = None, *, others: Payload | None = None
) -> dict[str, Any]:
    """Return the payload of a picture.

    Args:
        name: path within the folder, with "/" between its parts.
        folder: name of the folder.
        state: of the file.
        others: the payload that was there before; what it says of other things stays.
    """
    before = others or {}
    kept = {key: value for key, value in before.items() if key not in ("image", "folder", "file")}
    # A label of the caller's own stays; one that was the name of a folder goes with the folder.
    if kept.get("label") in str(before.get("image")).split("/")[:-1]:
        del kept["label"]
    first, slash, _ = name.partition("/")
    label = {"label": first} if slash else {}
    return {"image": name, **label, "folder": folder, **({} if state is None else {"file": str(state)}), **kept}


def shown_payload(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Return a payload for people to read: without the state of the file."""
    return {key: value for key, value in payload.items() if key != "file" or parse_state(value) is None}
