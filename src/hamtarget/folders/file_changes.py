"""Changes of a folder: files that are new, changed or gone, by their sizes and times. No file is opened."""

from __future__ import annotations

import os
import stat
import time
from dataclasses import dataclass, field

from hamtarget._reading import reason_of
from hamtarget.datasets.pictures.picture_folders import PictureListing
from hamtarget.datasets.pictures.picture_payloads import FileState, state_of
from hamtarget.errors import InputError
from hamtarget.folders.known_pictures import KnownPictures
from hamtarget.items import Id
from hamtarget.store.items.ids import check_id


@dataclass(frozen=True, eq=False)
class PictureFile:
    """A picture of the folder: its name in it, its id, its path, its status, and when that was looked at."""

    name: str
    id: Id
    path: str
    status: os.stat_result
    looked_ns: int

    def state(self, digest: bytes) -> FileState:
        """Return the state of the file, whose content had this digest when it was read later."""
        return state_of(self.status, digest, self.looked_ns)


@dataclass(frozen=True, eq=False)
class FileChanges:
    """How a folder differs from what a store knows of it.

    Attributes:
        to_read: files that are new, or whose size or time is another.
        missing: ids whose files are gone.
        kept: ids whose files may only be hidden: a folder on the way to them cannot be read.
        unchanged: number of files that are as they were.
    """

    to_read: list[PictureFile] = field(default_factory=list)
    missing: list[Id] = field(default_factory=list)
    kept: list[Id] = field(default_factory=list)
    unchanged: int = 0


def ids_of(listing: PictureListing, prefix: str) -> tuple[dict[str, Id], dict[str, str]]:
    """Return the id of each picture by its name; and for names that can be no id, why not."""
    ids: dict[str, Id] = {}
    skipped: dict[str, str] = {}
    for name in listing.names:
        try:
            ids[name] = check_id(f"{prefix}{name}")
        except InputError as error:
            # Bytes that are no text come from the system as halves of characters.
            is_text = not any("\ud800" <= character <= "\udfff" for character in name)
            skipped[name] = str(error) if is_text else "the name is not UTF-8; rename the file"
    return ids, skipped


def changes_of(
    listing: PictureListing, ids: dict[str, Id], known: KnownPictures, skipped: dict[str, str]
) -> FileChanges:
    """Return how a folder differs from what a store knows of it.

    Args:
        listing: the pictures that are there.
        ids: id of each, by name.
        known: what the store knows.
        skipped: gets a reason for each file that cannot be looked at.
    """
    to_read: list[PictureFile] = []
    unchanged = 0
    for name, id in ids.items():
        path = os.path.join(listing.folder, *name.split("/"))
        looked_ns = time.time_ns()
        try:
            status = os.stat(path)
        except OSError as error:
            skipped[name] = reason_of(error)
            continue
        if not stat.S_ISREG(status.st_mode):
            skipped[name] = "is no ordinary file"
            continue
        state = known.states.get(id)
        if state is not None and state.is_that_of(status):
            unchanged += 1
        else:
            to_read.append(PictureFile(name, id, path, status, looked_ns))
    there = set(ids.values())
    gone = [id for id in known.states if id not in there]
    hidden = tuple(f"{folder}/" for folder in listing.unread)
    kept = [id for id in gone if hidden and known.names[id].startswith(hidden)]
    without = set(kept)
    return FileChanges(to_read, [id for id in gone if id not in without], kept, unchanged)
