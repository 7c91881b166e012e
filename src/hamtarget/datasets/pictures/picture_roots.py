"""Folders that pictures are shown from: from the name in an item's payload to a file, and to nothing outside."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence


class PictureRoots:
    """Named folders, and the pictures in them.

    Args:
        folders: the folders. A picture that lies in none of them, after links are followed, is not found.
    """

    def __init__(self, folders: Sequence[str | os.PathLike[str]]) -> None:
        # Resolved once: a link that changes later does not move the folder.
        self._roots = tuple(os.path.realpath(folder) for folder in folders)
        self._names = tuple(os.path.basename(os.path.abspath(folder)) for folder in folders)
        given = tuple(os.path.abspath(folder) for folder in folders)
        # The longest first: of nested folders, the inner one gives the shorter name.
        self._prefixes = sorted({os.path.join(root, "") for root in (*self._roots, *given)}, key=len, reverse=True)

    def __bool__(self) -> bool:
        """Return True if there are folders."""
        return bool(self._roots)

    def find(self, name: object, folder: object = None) -> str | None:
        """Return the file that a payload names; None where there is none in the folders.

        Args:
            name: the payload's `image`: a path within one of the folders, or an absolute one.
            folder: the payload's `folder`. If the name is found in several folders, that of this name counts, or else
                the first.
        """
        if not isinstance(name, str) or not name or "\0" in name:
            return None
        order = sorted(range(len(self._roots)), key=lambda number: self._names[number] != folder)
        for number in order:
            try:
                real = os.path.realpath(os.path.join(self._roots[number], name))
                if self._holds(real) and stat.S_ISREG(os.stat(real).st_mode):
                    return real
            except (OSError, ValueError):
                continue
        return None

    def shown_name(self, name: str) -> str:
        """Return a payload's `image` as others may see it: within its folder, without the way to that folder."""
        if not os.path.isabs(name):
            return name
        for prefix in self._prefixes:
            if name.startswith(prefix):
                return name[len(prefix) :]
        return os.path.basename(name)

    def _holds(self, real: str) -> bool:
        return any(os.path.commonpath((real, root)) == root for root in self._roots)
