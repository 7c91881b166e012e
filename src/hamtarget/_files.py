"""Writing files atomically: after a crash, a file is either the old one or the complete new one."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO


def write_atomically(path: str | os.PathLike[str], content: bytes, *, mode: int | None = None) -> None:
    """Write `content` to `path`, so that a reader finds the old file or the complete new one, even after a crash.

    The content is written to a temporary file in the same folder, forced to disk, and renamed last. Missing folders
    are created.

    Args:
        path: file to write.
        content: its new content.
        mode: permissions of the file; by default those of an ordinary file.
    """
    replace_atomically(path, lambda file: file.write(content), mode=mode)


def replace_atomically(
    path: str | os.PathLike[str], write: Callable[[BinaryIO], object], *, mode: int | None = None
) -> None:
    """Do as `write_atomically` does for content too large to have in memory.

    Args:
        path: file to write.
        write: writes the new content into the file that it is given.
        mode: permissions of the file; by default those of an ordinary file.
    """
    target = Path(path)
    make_folders(target.parent)
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            write(file)
            file.flush()
            # mkstemp gives access to the owner only; a result or a model is an ordinary file.
            os.chmod(temporary, 0o666 & ~umask() if mode is None else mode)
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    sync_folder(target.parent)


def make_folders(folder: Path) -> None:
    """Create a folder and those above it that are missing, and force their names to disk."""
    folder = folder.absolute()
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for made in missing:
        # The folder above holds the name.
        sync_folder(made.parent)


def umask() -> int:
    """Return the permissions that this process removes from new files."""
    # The umask can be read only by setting it.
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


def sync_folder(folder: Path) -> None:
    """Force new names in a folder to disk, where folders can be opened (not on Windows)."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
