"""Pictures of a folder that a store knows, and the ids that are taken."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hamtarget.datasets.pictures.picture_payloads import FileState, parse_state
from hamtarget.errors import InputError
from hamtarget.items import Id
from hamtarget.progress import Progress
from hamtarget.store import Store

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
