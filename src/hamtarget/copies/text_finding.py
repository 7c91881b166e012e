"""From a file of texts to groups of near copies: every default of that way.

The file is read twice: once for codes, of which each text takes about 200 bytes of memory, and once for the texts that
are shown. So files of any size can be searched.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hamtarget.copies.finding import chosen_radius, opened_encoder
from hamtarget.copies.text_results import FoundTextCopies, TextCopy
from hamtarget.datasets.texts.text_files import STDIN, TextRow, read_texts
from hamtarget.encoders.texts.simhash import SimHash64
from hamtarget.errors import FileError, InputError
from hamtarget.progress import Stages
from hamtarget.query import PLAIN_WORK, Work

if TYPE_CHECKING:
    from hamtarget.encoders.protocol import Encoder

DEFAULT_TEXT_ENCODER = "simhash64"
"""Name of the encoder that finds near copies of texts without training."""

_TEXTS_AT_ONCE = 4096
_CHARACTERS_AT_ONCE = 4_000_000
_DIGEST_BYTES = 8
# Rows that cannot be read, whose reasons are kept.
_NAMED = 1000
_EXCERPT = 300


def find_text_copies(
    source: str | Path,
    *,
    text_column: str | None = None,
    id_column: str | None = None,
    encoder: str | Path | Encoder = DEFAULT_TEXT_ENCODER,
    radius: int | None = None,
    work: Work = PLAIN_WORK,
    stages: Stages | None = None,
) -> FoundTextCopies:
    """Find groups of near copies among texts: the same text with other case, punctuation, or some other words.

    Each text of a group is within `radius` bits of the group's best text, the longest one.

    Args:
        source: a CSV, TSV, JSONL or TXT file, perhaps with .gz.
        text_column: column with the texts; by default `text`, or the only column.
        id_column: column with the ids; by default `id`, or the number of the line.
        encoder: simhash64, the folder of a sentence model, or an encoder of texts.
        radius: bits in which a copy may differ from the best text; by default what `advise_radius` recommends.
        work: threads that compare codes.
        stages: called with what is being done, how much of it is done, and of how much.

    Raises:
        FileError: the source is not there, is the standard input, or has no text.
        InputError: there is no such column, the radius is out of range, or the encoder takes no texts.
    """
    from hamtarget.codes import check_radius
    from hamtarget.copies.grouping import group_around_best
    from hamtarget.encoders.texts.text_inputs import takes_texts

    if str(source) == STDIN:
        raise FileError("the standard input cannot be read twice; expected a file of texts")
    opened, name = opened_encoder(encoder)
    if not takes_texts(opened):
        raise InputError(f"{name} takes no texts; expected simhash64 or the folder of a sentence model")
    if radius is not None:
        check_radius(radius, opened.n_bits)
    size = Path(source).stat().st_size if Path(source).exists() else 0
    read = _Reading(source, opened)
    for row in read_texts(source, text_column=text_column, id_column=id_column, on_broken=read.leave_out):
        read.add(row)
        if stages is not None and len(read.lines) % _TEXTS_AT_ONCE == 0:
            stages("Reading texts", min(read.n_bytes, size), size)
    read.end()
    if not read.lines:
        raise FileError(f"{source} has no text that can be read" + (f": {read.broken[0]}" if read.broken else ""))
    codes = np.concatenate(read.codes)
    within, reason = chosen_radius(codes, opened, radius, noun="texts")
    lengths = np.array(read.lengths)
    order = np.argsort(-lengths, kind="stable")
    ranks = np.empty(len(order), dtype=np.int64)
    ranks[order] = np.arange(len(order))
    groups = group_around_best(
        codes,
        ranks,
        within,
        replace(work, progress=None if stages is None else lambda done, total: stages("Comparing", done, total)),
    )
    shown = _shown(source, text_column, id_column, {read.lines[row] for group in groups for row in group.rows.tolist()})
    return FoundTextCopies(
        groups=tuple(
            tuple(
                TextCopy(
                    id=shown[read.lines[row]][0],
                    line=read.lines[row],
                    n_characters=read.lengths[row],
                    distance=int(distance),
                    is_identical=read.digests[row] == read.digests[int(group.rows[0])],
                    excerpt=shown[read.lines[row]][1],
                )
                for row, distance in zip(group.rows.tolist(), group.distances.tolist(), strict=True)
            )
            for group in groups
        ),
        n_texts=len(read.lines),
        encoder=name,
        radius=within,
        reason=reason,
        n_broken=read.n_broken,
        broken=tuple(read.broken),
    )


class _Reading:
    """Codes and lengths of the texts read so far; the texts themselves are forgotten."""

    def __init__(self, source: str | Path, encoder: Encoder) -> None:
        self.codes: list[NDArray[np.uint8]] = []
        self.lines: list[int] = []
        self.lengths: list[int] = []
        self.digests: list[bytes] = []
        self.n_bytes = 0
        self.n_broken = 0
        self.broken: list[str] = []
        self._source = source
        self._encoder = encoder
        self._texts: list[str] = []
        self._characters = 0

    def leave_out(self, reason: str) -> None:
        """Count a row that cannot be read."""
        self.n_broken += 1
        if len(self.broken) < _NAMED:
            self.broken.append(reason)

    def add(self, row: TextRow) -> None:
        """Take a text; encode those that wait if they are enough."""
        if isinstance(self._encoder, SimHash64) and not any(map(str.isalnum, row.text)):
            # All such texts have the code 0.
            self.leave_out(f"{self._source}, line {row.line:,}: the text has no words")
            return
        content = row.text.encode("utf-8", "surrogatepass")
        self.n_bytes += len(content)
        self.lines.append(row.line)
        self.lengths.append(len(row.text))
        self.digests.append(hashlib.blake2b(content, digest_size=_DIGEST_BYTES).digest())
        self._texts.append(row.text)
        self._characters += len(row.text)
        if len(self._texts) >= _TEXTS_AT_ONCE or self._characters >= _CHARACTERS_AT_ONCE:
            self.end()

    def end(self) -> None:
        """Encode the texts that wait."""
        if self._texts:
            self.codes.append(self._encoder.encode(np.array(self._texts, dtype=object)))
            self._texts, self._characters = [], 0


def _shown(
    source: str | Path, text_column: str | None, id_column: str | None, lines: set[int]
) -> dict[int, tuple[str | int, str]]:
    """Return, by its line, the id and the beginning of each wanted text.

    Raises:
        FileError: the file has changed since it was read.
    """
    found: dict[int, tuple[str | int, str]] = {}
    left = set(lines)
    for row in read_texts(source, text_column=text_column, id_column=id_column):
        if not left:
            break
        if row.line in left:
            left.remove(row.line)
            line = " ".join(row.text[: 4 * _EXCERPT].split())
            found[row.line] = (row.id, line if len(line) <= _EXCERPT else line[:_EXCERPT].rstrip() + "…")
    if left:
        raise FileError(f"{source} has changed while it was read; run it again")
    return found
