"""Long texts as chunks that overlap, so that an encoder sees all of each."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from hamtarget.datasets.texts.text_files import TextRow
from hamtarget.errors import InputError

_WORD = re.compile(r"\S+")
# Of a chunk, that the next one repeats: a sentence at its end is whole in one of them.
_OVERLAP = 0.2
_FEWEST_WORDS = 5


def chunks_of(row: TextRow, words: int) -> Iterator[TextRow]:
    """Yield a row as it is if it has at most `words` words, else chunks of so many words.

    A chunk has the id of its document with a number, `id#1`, `id#2`, ...; its other columns also have `document`, the
    id of the document, and `chunk`, the number. A fifth of a chunk's words are also in the next one.

    Raises:
        InputError: `words` is below 5.
    """
    if words < _FEWEST_WORDS:
        raise InputError(f"chunks of {words} words are too short; expected {_FEWEST_WORDS} or more")
    found = list(_WORD.finditer(row.text))
    if len(found) <= words:
        yield row
        return
    step = words - max(1, int(_OVERLAP * words))
    for number, start in enumerate(range(0, len(found) - words + step, step), start=1):
        last = min(start + words, len(found)) - 1
        text = row.text[found[start].start() : found[last].end()]
        others = {**row.others, "document": row.id, "chunk": number}
        yield replace(row, id=f"{row.id}#{number}", text=text, others=others)
