"""Groups of copies as files: JSON, CSV, or a page to look at."""

from __future__ import annotations

import base64
import csv
import io
import json
import os
from collections.abc import Callable, Iterator
from html import escape
from pathlib import Path
from urllib.parse import quote

from hamtarget._files import write_atomically
from hamtarget.copies.results import Copy, FoundCopies, counted
from hamtarget.errors import HamtargetError, InputError

_COLUMNS = ("group", "path", "width", "height", "bytes", "distance", "identical")
# Longer side of a small picture, in pixels.
_SIDE = 160
_JPEG_QUALITY = 70
# Characters of all small pictures together: a page that a browser opens at once, with about 3,000 of them.
_MAX_DRAWN = 24_000_000
# Pictures that a page lists.
_MAX_LISTED = 20_000

STYLE = """
:root { color-scheme: light dark; --back: #f6f6f4; --card: #fff; --ink: #1c1c1a; --faint: #6b6b66; --line: #dddcd7;
  --best: #1d6b3a; }
@media (prefers-color-scheme: dark) { :root { --back: #171816; --card: #222321; --ink: #ececea; --faint: #9d9d97;
  --line: #3a3b38; --best: #7fd69b; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem; max-width: 76rem; background: var(--back); color: var(--ink);
  font: 16px/1.45 system-ui, sans-serif; }
h1 { font-size: 1.4rem; margin: 0 0 .3rem; }
h2 { font-size: 1rem; margin: 0 0 .6rem; }
p { margin: 0 0 .5rem; color: var(--faint); max-width: 46rem; }
section { margin: 1rem 0; padding: .8rem; background: var(--card); border: 1px solid var(--line);
  border-radius: .5rem; }
ul { list-style: none; margin: 0; padding: 0; display: grid; gap: .8rem;
  grid-template-columns: repeat(auto-fill, minmax(9.5rem, 1fr)); }
li { min-width: 0; font-size: .85rem; color: var(--faint); }
.frame { display: flex; align-items: center; justify-content: center; height: 10rem; background: var(--back);
  border-radius: .3rem; overflow: hidden; }
.frame img { max-width: 100%; max-height: 100%; display: block; }
a { color: var(--ink); overflow-wrap: anywhere; }
.best { color: var(--best); font-weight: 600; }
"""
"""Style of pages of groups."""


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

    return page_of(found, progress=progress).encode()


_WRITERS: dict[str, Callable[[FoundCopies, Callable[[int, int], None] | None], bytes]] = {
    ".json": _as_json,
    ".csv": _as_csv,
    ".html": _as_page,
}


def page_of(
    found: FoundCopies, *, progress: Callable[[int, int], None] | None = None, max_drawn: int = _MAX_DRAWN
) -> str:
    """Return the page of groups, largest first. It needs no other file and no network.

    Args:
        found: the groups.
        progress: called with pictures done, and all that the page lists.
        max_drawn: characters that all small pictures may take together; pictures after that are listed without one.
    """
    listed, n_listed = _listed_groups(found)
    folder = _common_folder([copy.path for group in listed for copy in group])
    drawings = _Drawings(max_drawn)
    sections: list[str] = []
    done = 0
    for number, group in enumerate(listed, start=1):
        items = []
        for copy in group:
            items.append(_item(copy, folder, drawings.draw(copy), is_best=copy is group[0]))
            done += 1
            if progress is not None:
                progress(done, n_listed)
        sections.append(
            f"<section><h2>Group {number:,}: {len(group):,} pictures</h2><ul>{''.join(items)}</ul></section>"
        )
    notes = list(_notes(found, folder, n_groups=len(listed), is_full=drawings.is_full))
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        # Whatever a name might hold: the page loads nothing and runs nothing.
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; img-src data:; style-src 'unsafe-inline'\">"
        f"<title>Copies</title><style>{STYLE}</style></head><body><h1>{counted(len(found), 'group')} of copies</h1>"
        + "".join(f"<p>{_text(note)}</p>" for note in notes)
        + "\n".join(sections)
        + "</body></html>\n"
    )


def _listed_groups(found: FoundCopies) -> tuple[list[tuple[Copy, ...]], int]:
    """Return the groups that a page lists, and the pictures in them."""
    listed: list[tuple[Copy, ...]] = []
    n_pictures = 0
    for group in found:
        room = _MAX_LISTED - n_pictures
        if room < 2:
            break
        listed.append(group[:room])
        n_pictures += len(listed[-1])
    return listed, n_pictures


def _common_folder(paths: list[str]) -> str:
    """Return the folder that all paths lie below; nothing where there is none."""
    try:
        return os.path.commonpath([os.path.dirname(path) for path in paths])
    except ValueError:
        # No paths, or some from the root and some not.
        return ""


def _notes(found: FoundCopies, folder: str, *, n_groups: int, is_full: bool) -> Iterator[str]:
    """Yield the sentences at the top of the page."""
    yield (
        f"{found.n_grouped:,} of {found.n_pictures:,} pictures are in groups. In each group the picture with the most "
        f"pixels comes first. The others have codes within {found.radius} bits of its code ({found.encoder})."
    )
    yield found.reason
    if folder:
        yield f"Names are those below {folder}."
    if found.broken:
        yield f"{counted(len(found.broken), 'picture')} could not be read."
    if n_groups < len(found) or sum(map(len, found.groups[:n_groups])) > _MAX_LISTED:
        yield f"The page lists the first {_MAX_LISTED:,} pictures. A report in JSON or CSV has all of them."
    if is_full:
        yield "The page has reached its size. Later pictures are listed without a small picture."


def _item(copy: Copy, folder: str, drawing: str | None, *, is_best: bool) -> str:
    if is_best:
        relation = '<span class="best">best</span>'
    else:
        relation = "the same bytes" if copy.is_identical else f"distance {copy.distance}"
    frame = "" if drawing is None else f'<div class="frame"><img alt="" loading="lazy" src="{drawing}"></div>'
    # A name may be no UTF-8; an address has its very bytes.
    address = "file://" + quote(os.fsencode(os.path.abspath(copy.path)))
    return (
        f'<li>{frame}<a href="{escape(address)}">{_text(copy.path[len(folder) :].lstrip(os.sep))}</a><br>'
        f"{copy.width:,} x {copy.height:,}, {copy.n_bytes:,} bytes<br>{relation}</li>"
    )


def _text(text: str) -> str:
    """Return text for HTML; bytes of a name that are no UTF-8 become question marks."""
    return escape(text.encode("utf-8", "surrogateescape").decode("utf-8", "replace"))


class _Drawings:
    """Small pictures as addresses that hold their data, up to a number of characters."""

    def __init__(self, max_characters: int) -> None:
        self.is_full = False
        self._left = max_characters

    def draw(self, copy: Copy) -> str | None:
        """Return the small picture; None if there is no room for it, or the file is gone."""
        if self.is_full:
            return None
        try:
            drawing = _drawing(copy)
        except (HamtargetError, OSError):
            # It was there a moment ago. The page says what was found.
            return None
        if len(drawing) > self._left:
            self.is_full = True
            return None
        self._left -= len(drawing)
        return drawing


def _drawing(copy: Copy) -> str:
    from PIL import Image

    from hamtarget._picture_form import PictureForm
    from hamtarget.datasets.pictures.images import read_image

    scale = min(1.0, _SIDE / max(copy.width, copy.height, 1))
    height, width = max(1, round(copy.height * scale)), max(1, round(copy.width * scale))
    pixels = read_image(Path(copy.path), PictureForm((3, height, width), "squeeze"))
    file = io.BytesIO()
    Image.fromarray(pixels.transpose(1, 2, 0)).save(file, "JPEG", quality=_JPEG_QUALITY, optimize=True)
    return "data:image/jpeg;base64," + base64.b64encode(file.getvalue()).decode()
