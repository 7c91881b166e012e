"""Folders of pictures: the one listing that every verb uses."""

from __future__ import annotations

import contextlib
import heapq
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from hamtarget._reading import reason_of
from hamtarget.datasets.pictures.picture_formats import IMAGE_SUFFIXES
from hamtarget.errors import FileError

Found = Callable[[int], None]
"""A function that is told now and then how many pictures were found."""


@dataclass(frozen=True, eq=False)
class PictureListing:
    """Pictures in a folder and below.

    Attributes:
        folder: where they are.
        names: path of each within the folder, with "/" between its parts, in the order of the parts.
        unread: by its path within the folder, why a folder could not be listed.
    """

    folder: str
    names: list[str] = field(default_factory=list)
    unread: dict[str, str] = field(default_factory=dict)

    def paths(self) -> list[str]:
        """Return the path of each picture, beginning with the folder."""
        return [os.path.join(self.folder, *name.split("/")) for name in self.names]


def list_pictures(folder: str | os.PathLike[str], *, on_found: Found | None = None) -> PictureListing:
    """List the pictures in a folder and below it, by the endings of their names; hidden ones are left out.

    Linked folders are followed, each once. A link to a folder that is listed anyway is not followed, nor one to a
    folder that this one lies in.

    Raises:
        FileError: there is no such folder, or it cannot be listed.
    """
    listing = PictureListing(os.fspath(existing_folder(folder)))
    seen = _folders_above(listing.folder)
    folders, links = [""], list[str]()
    while folders or links:
        # Links come last, so that a folder is listed under its own name if it has one here.
        own = folders.pop() if folders else heapq.heappop(links)
        try:
            status = os.stat(os.path.join(listing.folder, own))
            if (status.st_dev, status.st_ino) in seen:
                continue
            seen.add((status.st_dev, status.st_ino))
            _list_one(listing, own, folders, links)
        except OSError as error:
            if not own:
                raise FileError(f"{listing.folder} cannot be listed: {reason_of(error)}") from error
            listing.unread[own] = reason_of(error)
        if on_found is not None:
            on_found(len(listing.names))
    listing.names.sort(key=lambda name: name.split("/"))
    return listing


def existing_folder(folder: str | os.PathLike[str]) -> Path:
    """Return a folder as a path.

    Raises:
        FileError: it is not there, or is a file.
    """
    folder = Path(folder)
    if not folder.is_dir():
        found = "is a file" if folder.exists() else "does not exist"
        raise FileError(f"{folder} {found}; expected a folder of images")
    return folder


def _folders_above(folder: str) -> set[tuple[int, int]]:
    """Return device and number of each folder that a folder lies in."""
    above: set[tuple[int, int]] = set()
    for parent in Path(os.path.realpath(folder)).parents:
        # One that cannot be looked at cannot be listed either.
        with contextlib.suppress(OSError):
            status = os.stat(parent)
            above.add((status.st_dev, status.st_ino))
    return above


def _list_one(listing: PictureListing, own: str, folders: list[str], links: list[str]) -> None:
    """List one folder, and note the folders and links in it."""
    # Nothing counts before the end of the folder: a disk may fail in the middle.
    pictures: list[str] = []
    inner: list[str] = []
    linked: list[str] = []
    with os.scandir(os.path.join(listing.folder, own)) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
            name = f"{own}/{entry.name}" if own else entry.name
            if entry.is_dir(follow_symlinks=False):
                inner.append(name)
            elif entry.is_symlink() and entry.is_dir():
                linked.append(name)
            elif entry.name.lower().endswith(IMAGE_SUFFIXES):
                pictures.append(name)
    listing.names.extend(pictures)
    folders.extend(inner)
    for name in linked:
        heapq.heappush(links, name)
