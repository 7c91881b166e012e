"""Paths of the pictures in a folder, a CSV, or a list."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Iterable
from pathlib import Path

from hamtarget._reading import lines_of, reason_of
from hamtarget.datasets.pictures.picture_folders import Found, list_pictures
from hamtarget.datasets.pictures.picture_formats import IMAGE_SUFFIXES
from hamtarget.errors import CorruptFileError, FileError

_LIST_SUFFIX = ".txt"
_CSV_SUFFIX = ".csv"
# A path and other fields.
_MAX_LINE = 1 << 20


def picture_paths(
    source: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    *,
    on_found: Found | None = None,
    on_unread: Callable[[str, str], None] | None = None,
) -> list[str]:
    """Return the paths of the pictures that a source names, each once.

    Args:
        source: a folder, with all pictures in it and below; a CSV whose first column has paths, relative to the CSV's
            own folder; a text file with a path in each line; or the paths themselves.
        on_found: told how many pictures were found, while a folder is listed.
        on_unread: called with each folder in it that cannot be listed, and why.

    Raises:
        FileError: there is no such source, or no picture in it.
        CorruptFileError: a file is not text, or a path holds a NUL character.
    """
    if not isinstance(source, str | os.PathLike):
        paths = [os.fsdecode(path) for path in source]
        _check(paths, "the list")
        return list(dict.fromkeys(paths))
    where = os.fsdecode(source)
    if os.path.isdir(where):
        listing = list_pictures(where, on_found=on_found)
        paths = listing.paths()
        if on_unread is not None:
            for name, reason in listing.unread.items():
                on_unread(os.path.join(where, name), reason)
        if not paths:
            raise FileError(f"{where} holds no image; expected files that end in .jpg, .png and the like")
        return paths
    suffix = os.path.splitext(where)[1].lower()
    if suffix not in (_CSV_SUFFIX, _LIST_SUFFIX):
        is_image = suffix in IMAGE_SUFFIXES
        found = "is not there" if not os.path.exists(where) else "is an image" if is_image else "is another file"
        raise FileError(
            f"{where} {found}; expected a folder of images, a CSV whose first column has paths, or a .txt of paths"
        )
    paths = _of_csv(where) if suffix == _CSV_SUFFIX else _of_lines(where)
    _check(paths, where)
    if not paths:
        raise FileError(f"{where} names no image; expected a path in each line")
    return list(dict.fromkeys(paths))


def _of_csv(where: str) -> list[str]:
    folder = Path(where).parent
    paths: list[str] = []
    try:
        # Spreadsheets begin a file with a byte order mark. Names need not be UTF-8, and come back as they were written.
        with open(where, encoding="utf-8-sig", errors="surrogateescape", newline="") as stream:
            for row, fields in enumerate(csv.reader(lines_of(stream, where=where, max_line=_MAX_LINE))):
                name = fields[0].strip() if fields else ""
                if name and not (row == 0 and name.lower() == "path"):
                    paths.append(str(folder / name))
    except OSError as error:
        raise FileError(f"{where} cannot be read: {reason_of(error)}") from error
    except csv.Error as error:
        raise CorruptFileError(
            f"{where} was taken for a list of pictures, but cannot be read as one: {error}; expected paths in the "
            "first column; for texts pass --text-column NAME (find_text_copies in Python)"
        ) from error
    return paths


def _of_lines(where: str) -> list[str]:
    try:
        with open(where, encoding="utf-8", errors="surrogateescape") as stream:
            return [line for each in lines_of(stream, where=where, max_line=_MAX_LINE) if (line := each.strip("\r\n"))]
    except CorruptFileError as error:
        raise CorruptFileError(
            f"{error}: it was taken for a list of pictures; for texts pass --encoder simhash64 (find_text_copies in "
            "Python)"
        ) from error
    except OSError as error:
        raise FileError(f"{where} cannot be read: {reason_of(error)}") from error


def _check(paths: list[str], where: str) -> None:
    for path in paths:
        if "\0" in path:
            raise CorruptFileError(f"{where}: {path[:40]!r} holds a NUL character; expected the path of an image")
