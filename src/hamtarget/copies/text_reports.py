"""Groups of near copies of texts as files: JSON, CSV, or a page to look at."""

from __future__ import annotations

import csv
import io
import json
import os
from html import escape
from pathlib import Path

from hamtarget._files import write_atomically
from hamtarget.copies.report_files import STYLE, check_report_name
from hamtarget.copies.results import counted
from hamtarget.copies.text_results import FoundTextCopies

_COLUMNS = ("group", "id", "line", "characters", "distance", "identical", "excerpt")
# Texts that a page lists.
_MAX_LISTED = 20_000
_TEXT_STYLE = "ul { display: block; } li { margin: 0 0 .7rem; } q { color: var(--ink); quotes: none; }"


def write_text_report(found: FoundTextCopies, path: str | os.PathLike[str]) -> None:
    """Write groups to a file, by its suffix: .json, .csv or .html. An old file is replaced as a whole.

    Raises:
        InputError: the file has another suffix.
    """
    check_report_name(path)
    suffix = Path(path).suffix.lower()
    write_atomically(path, {".json": _as_json, ".csv": _as_csv, ".html": _as_page}[suffix](found))


def _as_json(found: FoundTextCopies) -> bytes:
    document = {
        "encoder": found.encoder,
        "radius": found.radius,
        "reason": found.reason,
        "texts": found.n_texts,
        "groups": [[copy.as_dict() for copy in group] for group in found],
        "unreadable": found.n_broken,
        "unreadable_first": list(found.broken),
    }
    return (json.dumps(document, indent=1) + "\n").encode()


def _as_csv(found: FoundTextCopies) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for number, group in enumerate(found, start=1):
        writer.writerows([number, *copy.as_dict().values()] for copy in group)
    return text.getvalue().encode("utf-8", "replace")


def _as_page(found: FoundTextCopies) -> bytes:
    sections: list[str] = []
    n_listed = 0
    for number, group in enumerate(found, start=1):
        if n_listed + 2 > _MAX_LISTED:
            break
        listed = group[: _MAX_LISTED - n_listed]
        n_listed += len(listed)
        items = []
        for place, copy in enumerate(listed):
            same = "the same text" if copy.is_identical else f"distance {copy.distance}"
            relation = '<span class="best">longest</span>' if place == 0 else same
            items.append(
                f"<li><q>{_text(copy.excerpt)}</q><br>{_text(str(copy.id))}, line {copy.line:,}, "
                f"{copy.n_characters:,} characters, {relation}</li>"
            )
        sections.append(f"<section><h2>Group {number:,}: {len(group):,} texts</h2><ul>{''.join(items)}</ul></section>")
    notes = [
        f"{found.n_grouped:,} of {found.n_texts:,} texts are in groups. In each group the longest text comes first. "
        f"The others have codes within {found.radius} bits of its code ({found.encoder}).",
        found.reason,
    ]
    if found.n_broken:
        notes.append(f"{counted(found.n_broken, 'row')} could not be read.")
    if n_listed < found.n_grouped:
        notes.append(f"The page lists the first {_MAX_LISTED:,} texts. A report in JSON or CSV has all of them.")
    page = (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        # Whatever a text might hold: the page loads nothing and runs nothing.
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>Near copies</title><style>{STYLE}{_TEXT_STYLE}</style></head><body>"
        f"<h1>{counted(len(found), 'group')} of near copies</h1>"
        + "".join(f"<p>{_text(note)}</p>" for note in notes)
        + "\n".join(sections)
        + "</body></html>\n"
    )
    return page.encode()


def _text(text: str) -> str:
    """Return text for HTML; halves of characters become question marks."""
    return escape(text.encode("utf-8", "replace").decode())
