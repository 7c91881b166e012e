"""Index files, whichever kind of index is in them."""

from __future__ import annotations

from pathlib import Path

from hamtarget.errors import UnsupportedFileError
from hamtarget.search import FlatIndex, MultiIndex


def open_index(path: Path, *, mmap: bool = True) -> MultiIndex | FlatIndex:
    """Open the index in a file.

    Raises:
        CorruptFileError: it is damaged.
        UnsupportedFileError: another version wrote it.
    """
    try:
        return MultiIndex.open(path, mmap=mmap)
    except UnsupportedFileError as error:
        if "FlatIndex" not in str(error):
            raise
    return FlatIndex.open(path, mmap=mmap)
