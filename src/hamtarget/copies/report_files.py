"""Groups of copies as files: JSON, CSV, or a page to look at."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable
from pathlib import Path

from hamtarget._files import write_atomically
from hamtarget.copies.results import FoundCopies
from hamtarget.errors import InputError

_COLUMNS = ("group", "path", "width", "height", "bytes", "distance", "identical")


def check_report_name(path: str | os.PathLike[str]) -> None:
    """Check that a file's name says which kind of report it is to be.

    Raises:
        InputError: it does not end in .json, .csv or .html.
    """
    if Path(path).suffix.lower() not in _WRITERS:
        raise InputError(f"{os.fspath(path)!r} is no kind of report; expected a name that ends in .json, .csv or .html")


def write_report(
    found: FoundCopies, path: str | os.PathLike[str], *, progress: Callable[[int, int], None] | None = None
) -> None:
    """Write groups to a file, by its suffix: .json, .csv or .html. An old file is replaced as a whole.

    Args:
        found: groups of copies.
        path: of the file.
        progress: called with pictures drawn on a page, and all that are drawn.

    Raises:
        InputError: the file has another suffix.
    """
    check_report_name(path)
    write_atomically(path, _WRITERS[Path(path).suffix.lower()](found, progress))


def _as_json(found: FoundCopies, progress: Callable[[int, int], None] | None) -> bytes:
    document = {
        "encoder": found.encoder,
        "radius": found.radius,
        "reason": found.reason,
        "pictures": found.n_pictures,
        "groups": [[copy.as_dict() for copy in group] for group in found],
        "unreadable": found.broken,
    }
    # In ASCII: a name that is no UTF-8 has halves of characters, which JSON can only escape.
    return (json.dumps(document, indent=1) + "\n").encode()


def _as_csv(found: FoundCopies, progress: Callable[[int, int], None] | None) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for number, group in enumerate(found, start=1):
        writer.writerows([number, *copy.as_dict().values()] for copy in group)
    # Names come out as the very bytes that they have on disk.
    return text.getvalue().encode("utf-8", "surrogateescape")


def _as_page(found: FoundCopies, progress: Callable[[int, int], None] | None) -> bytes:
    from hamtarget.copies.report_page import page_of

    return page_of(found, progress=progress).encode()


_WRITERS: dict[str, Callable[[FoundCopies, Callable[[int, int], None] | None], bytes]] = {
    ".json": _as_json,
    ".csv": _as_csv,
    ".html": _as_page,
}
