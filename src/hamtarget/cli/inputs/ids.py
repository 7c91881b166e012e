"""Ids that people type, and the items that they name."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import TYPE_CHECKING

from hamtarget._reading import lines_of
from hamtarget.cli.inputs.records import STDIN, as_utf8
from hamtarget.errors import CorruptFileError

if TYPE_CHECKING:
    from hamtarget.items import Id, Item
    from hamtarget.store import Store

# An id has at most 1,024 bytes.
_MAX_LINE = 1 << 12
# Integers have at most 19 digits and a sign.
_MAX_DIGITS = 20


def typed_ids(store: Store, texts: Iterable[str], *, at_once: int) -> Iterator[tuple[str, Item | None]]:
    """Yield each id as it was typed, and its item; None where there is none.

    Digits are taken for a string first, then for an integer.

    Args:
        store: where they are looked up.
        texts: the ids; "-" stands for those on the standard input, one a line.
        at_once: how many are looked up at a time.

    Raises:
        CorruptFileError: the standard input is not text.
        InputError: a text can be no id.
    """
    source = chain.from_iterable(_lines() if text == STDIN else [text] for text in texts)
    while some := list(islice(source, at_once)):
        items = dict(zip(some, store.get(some), strict=True))
        numbers = {text: number for text in some if items[text] is None and (number := _integer(text)) is not None}
        found = dict(zip(numbers, store.get(list(numbers.values())), strict=True)) if numbers else {}
        for text in some:
            yield text, items[text] or found.get(text)


def _integer(text: str) -> Id | None:
    digits = text.removeprefix("-")
    if not digits.isdecimal() or len(text) > _MAX_DIGITS:
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None


def _lines() -> Iterator[str]:
    try:
        for line in lines_of(as_utf8(sys.stdin), where="standard input", max_line=_MAX_LINE):
            if text := line.rstrip("\r\n"):
                yield text
    except UnicodeDecodeError as error:
        raise CorruptFileError(f"standard input: not UTF-8 ({error}); expected an id in each line") from error
