"""Folders of stores: made as a whole, and put in the place of another; there is never half of one under its name."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hamtarget._files import make_folders, sync_folder, umask
from hamtarget.encoders.protocol import Encoder
from hamtarget.errors import FileError, LockedError
from hamtarget.store.items.ids import FIRST_NAMED_ROW
from hamtarget.store.settings import Settings
from hamtarget.store.sqlite.lock import WriterLock
from hamtarget.store.sqlite.tables.database import DATABASE_NAME, create_database, translated

ENCODER_NAME = "encoder"
# Not that of a store, which the folder is to hold.
_LOCK_NAME = "in-progress"


@contextmanager
def folder_in_progress(target: Path) -> Iterator[Path]:
    """Lend an empty folder beside a target, to be filled and put in its place; it is removed if anything is raised.

    What an earlier call left when it was killed is removed first, or finished.

    Raises:
        LockedError: another process is making the same folder.
    """
    make_folders(target.absolute().parent)
    finish_interrupted(target)
    folder = _beside(target, "new")
    folder.mkdir(exist_ok=True)
    try:
        lock = WriterLock(folder / _LOCK_NAME)
    except LockedError as error:
        raise LockedError(f"{target} is being made by another process; wait for it") from error
    try:
        for left in folder.iterdir():
            if left.name != _LOCK_NAME:
                _remove(left)
        yield folder
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    finally:
        lock.release()


def put_in_place(folder: Path, target: Path) -> None:
    """Put a finished folder in the place of a target, which may be there.

    The target of before is moved aside, and removed when the new one is in place. Between the two there is, for a
    moment, nothing under the name; `finish_interrupted` mends that if the process was killed just then.
    """
    (folder / _LOCK_NAME).unlink(missing_ok=True)
    for each in sorted(folder.rglob("*")):
        _sync(each)
    _sync(folder)
    aside = _beside(target, "old")
    if target.exists():
        os.rename(target, aside)
    os.rename(folder, target)
    sync_folder(target.absolute().parent)
    if aside.exists():
        _remove(aside)


def finish_interrupted(target: Path) -> None:
    """Bring back what was moved aside by a replacement that was killed, or remove it if the new one is in place."""
    aside = _beside(target, "old")
    if not aside.exists():
        return
    if target.exists():
        _remove(aside)
    else:
        os.rename(aside, target)
        sync_folder(target.absolute().parent)


def moved_aside(target: Path) -> Path | None:
    """Return where the folder is that a killed replacement has moved aside; None where there is none."""
    aside = _beside(target, "old")
    return aside if aside.exists() and not target.exists() else None


def _beside(target: Path, what: str) -> Path:
    return target.absolute().with_name(f".{target.absolute().name}.{what}")


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def _sync(path: Path) -> None:
    """Force a file or a folder to disk."""
    if path.is_dir():
        sync_folder(path)
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def create_folder(target: Path, settings: Settings, encoder: Encoder | None) -> None:
    """Create the folder of an empty store, on disk.

    Raises:
        FileError: it is there already, and not an empty folder.
    """
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise FileError(f"{target} is there and is not an empty folder; choose another, or Store.open it")
    with translated(target):
        make_folders(target.parent)
    # Made beside its place and renamed as a whole: there is never half a store.
    folder = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}.", suffix=".tmp"))
    try:
        if encoder is not None:
            encoder.save(folder / ENCODER_NAME)
        with translated(folder / DATABASE_NAME):
            create_database(folder / DATABASE_NAME, settings.as_texts(), FIRST_NAMED_ROW)
        # mkdtemp gives the owner alone access.
        folder.chmod(0o777 & ~umask())
        sync_folder(folder)
        os.rename(folder, target)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    sync_folder(target.parent)
