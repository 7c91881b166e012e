"""Changes of a folder: files that are new, changed or gone, by their sizes and times. No file is opened."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hamtarget._reading import reason_of
from hamtarget.datasets.pictures.picture_folders import PictureListing
from hamtarget.datasets.pictures.picture_payloads import FileState, parse_state, state_of
from hamtarget.errors import InputError
from hamtarget.items import Id
from hamtarget.progress import Progress
from hamtarget.store import Store
from hamtarget.store.items.ids import check_id

# Ids that an error names.
_NAMED = 3
# Items between two reports.
_TOLD_EACH = 4096


@dataclass(frozen=True, eq=False)
class KnownPictures:
    """Pictures of a folder that are in a store.

    Attributes:
        states: by id, the state of the file when it was read; None where that is not known.
        names: by id, the path within the folder.
    """

    states: dict[Id, FileState | None] = field(default_factory=dict)
    names: dict[Id, str] = field(default_factory=dict)


def known_pictures(store: Store, name: str, wanted: set[Id], *, progress: Progress | None = None) -> KnownPictures:
    """Return the pictures of a folder that are in a store: those whose payload names the folder.

    Args:
        store: what is looked through.
        name: name of the folder in payloads.
        wanted: ids that pictures of the folder are going to have.
        progress: called with items looked at, and all items.

    Raises:
        InputError: some of the wanted ids belong to another folder.
    """
    known = KnownPictures()
    taken: dict[Id, str] = {}
    n_items = len(store)
    for row, item in enumerate(store.scan()):
        if progress is not None and row % _TOLD_EACH == 0:
            progress(row, n_items)
        payload: Mapping[str, Any] = item.payload or {}
        image, own = payload.get("image"), payload.get("folder")
        if own == name and isinstance(image, str):
            known.states[item.id], known.names[item.id] = parse_state(payload.get("file")), image
        elif item.id in wanted:
            if isinstance(own, str):
                taken[item.id] = own
            # What is known by the same id, and of no folder, is replaced.
            known.states[item.id], known.names[item.id] = None, str(item.id)
    if taken:
        some = ", ".join(map(repr, list(taken)[:_NAMED]))
        other = next(iter(taken.values()))
        raise InputError(
            f"{len(taken):,} ids, such as {some}, are those of pictures of the folder {other!r} in {store.path}; if it "
            f"was renamed, pass name={other!r} (--name), else a prefix for the ids of {name!r} (--prefix)"
        )
    return known


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
