"""Reading texts from CSV, TSV, JSONL and TXT files, row by row, however large the file is; long texts in chunks.

A row that cannot be read (no UTF-8, no JSON, no text) is left out and named; it does not end the reading.
"""

from __future__ import annotations

import csv
import gzip
import re
import sys
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

from hamtarget._reading import parse_json, reason_of
from hamtarget.errors import CorruptFileError, FileError, InputError

STDIN = "-"
TEXT_SUFFIXES = (".csv", ".tsv", ".jsonl", ".ndjson", ".txt")
"""Suffixes of files of texts; each may be followed by .gz."""

_DELIMITERS = {".csv": ",", ".tsv": "\t"}
_DEFAULT_COLUMN, _DEFAULT_ID = "text", "id"
# Bytes of a line; a longer one is no text that somebody wrote.
_MAX_LINE = 1 << 26
# Columns that an error names.
_NAMED_COLUMNS = 20
_WORD = re.compile(r"\S+")
# Of a chunk, that the next one repeats: a sentence at its end is whole in one of them.
_OVERLAP = 0.2
_FEWEST_WORDS = 5


@dataclass(frozen=True, slots=True)
class TextRow:
    """A text of a file.

    Attributes:
        id: value of the id column, or the number of the line on which the text begins, from 1 on.
        text: the text.
        others: the other columns.
        line: number of the line on which the row begins, from 1 on.
    """

    id: str | int
    text: str
    others: dict[str, Any] = field(default_factory=dict)
    line: int = 0


def is_text_file(source: str) -> bool:
    """Return True if the name of a file ends as one of texts does."""
    return _suffix(source) in TEXT_SUFFIXES


def read_texts(
    source: str | Path,
    *,
    text_column: str | None = None,
    id_column: str | None = None,
    on_broken: Callable[[str], None] | None = None,
) -> Iterator[TextRow]:
    """Yield the texts of a file.

    Args:
        source: a .csv, .tsv, .jsonl, .ndjson or .txt, perhaps with .gz at the end; or "-": lines on the standard input,
            each an object of JSON or a text.
        text_column: column, or field of JSON, with the text; by default `text`, or the only column.
        id_column: column with the id; by default `id` if there is such a column, else the line's number.
        on_broken: called with what is wrong with a row that is left out.

    Raises:
        FileError: there is no such file, or it cannot be read.
        InputError: there is no such column in a CSV or TSV; the error names the columns there are.
        CorruptFileError: a gzip file is damaged.
    """
    name = str(source)
    suffix = _suffix(name)
    if name != STDIN and suffix not in TEXT_SUFFIXES:
        raise FileError(f"{name} is no file of texts; expected {', '.join(TEXT_SUFFIXES)}, perhaps with .gz")
    tell = on_broken or (lambda reason: None)
    with closing(_bounded_lines(name, tell)) as lines:
        if suffix in _DELIMITERS:
            yield from _from_table(lines, name, _DELIMITERS[suffix], text_column, id_column, tell)
        else:
            takes_objects = suffix != ".txt" or text_column is not None
            yield from _from_lines(lines, name, text_column, id_column, tell, takes_objects, suffix != ".txt")


def column_names(source: str | Path) -> list[str] | None:
    """Return the columns of a CSV or TSV; None for other files.

    Raises:
        FileError: there is no such file, or it cannot be read.
    """
    delimiter = _DELIMITERS.get(_suffix(str(source)))
    if delimiter is None:
        return None
    with closing(_bounded_lines(str(source), lambda reason: None)) as lines:
        return next(csv.reader((_decoded(line) for _, line in lines), delimiter=delimiter), [])


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


def _suffix(name: str) -> str:
    path = Path(name)
    return (Path(path.stem) if path.suffix.lower() == ".gz" else path).suffix.lower()


def _bounded_lines(name: str, tell: Callable[[str], None]) -> Generator[tuple[int, bytes]]:
    """Yield the lines of a file with their numbers, from 1 on; longer ones than text has are left out."""
    try:
        with _opened(name) as stream:
            number = 0
            while line := stream.readline(_MAX_LINE + 1):
                number += 1
                if number == 1:
                    line = line.removeprefix(b"\xef\xbb\xbf")
                if len(line) > _MAX_LINE:
                    tell(f"{name}, line {number:,}: longer than {_MAX_LINE:,} bytes")
                    while line and not line.endswith(b"\n"):
                        line = stream.readline(_MAX_LINE)
                    continue
                yield number, line
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise CorruptFileError(f"{name}: the gzip file is damaged ({error}); rows before this were read") from error
    except OSError as error:
        raise FileError(f"{name}: {reason_of(error)}; expected a file of texts") from error


def _opened(name: str) -> AbstractContextManager[BinaryIO | gzip.GzipFile]:
    if name == STDIN:
        # It stays open.
        return nullcontext(sys.stdin.buffer)
    return gzip.open(name, "rb") if name.lower().endswith(".gz") else open(name, "rb")


def _decoded(line: bytes) -> str:
    return line.decode("utf-8", "surrogateescape")


def _is_broken(text: str) -> bool:
    return any("\udc80" <= character <= "\udcff" for character in text) if not text.isascii() else False


def _from_table(
    lines: Iterable[tuple[int, bytes]],
    name: str,
    delimiter: str,
    text_column: str | None,
    id_column: str | None,
    tell: Callable[[str], None],
) -> Iterator[TextRow]:
    # A document may be a field of megabytes.
    csv.field_size_limit(max(csv.field_size_limit(), _MAX_LINE))
    last = 0

    def decoded() -> Iterator[str]:
        nonlocal last
        for number, line in lines:
            last = number
            yield _decoded(line)

    reader = csv.reader(decoded(), delimiter=delimiter)
    columns = next(reader, [])
    column = _chosen_column(columns, text_column, name)
    id_of = _DEFAULT_ID if id_column is None and _DEFAULT_ID in columns else id_column
    if id_of is not None and id_of not in columns:
        raise InputError(f"{name} has no column {id_of!r}; its columns are {_listed(columns)}")
    while True:
        line = last + 1
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            tell(f"{name}, line {line:,}: {error}")
            continue
        if not fields:
            continue
        if len(fields) != len(columns):
            tell(f"{name}, line {line:,}: has {len(fields)} fields; expected {len(columns)}")
            continue
        if any(map(_is_broken, fields)):
            tell(f"{name}, line {line:,}: not UTF-8")
            continue
        row = dict(zip(columns, fields, strict=True))
        text = row.pop(column)
        # The id is text, as everything is in such a file; a row may lack one.
        id: str | int = (row.pop(id_of, "") if id_of is not None and id_of != column else "") or line
        if not text.strip():
            tell(f"{name}, line {line:,}: the text is empty")
            continue
        yield TextRow(id, text, row, line)


def _from_lines(
    lines: Iterable[tuple[int, bytes]],
    name: str,
    text_column: str | None,
    id_column: str | None,
    tell: Callable[[str], None],
    takes_objects: bool,
    is_json: bool,
) -> Iterator[TextRow]:
    for number, raw in lines:
        place = f"{name}, line {number:,}"
        try:
            text = raw.decode("utf-8").strip()
        except UnicodeDecodeError as error:
            tell(f"{place}: not UTF-8 (byte {error.start + 1:,})")
            continue
        if not text:
            continue
        if takes_objects and (text.startswith("{") or (is_json and name != STDIN)):
            try:
                row = _row_of_json(text, place, number, text_column, id_column)
            except CorruptFileError as error:
                tell(str(error))
                continue
            yield row
        else:
            yield TextRow(number, text, {}, number)


def _row_of_json(text: str, place: str, number: int, text_column: str | None, id_column: str | None) -> TextRow:
    found: Any = parse_json(text, where=place)
    if isinstance(found, str):
        found = {text_column or _DEFAULT_COLUMN: found}
    if not isinstance(found, dict):
        raise CorruptFileError(f"{place}: {_kind_of(found)}; expected an object or a text")
    column = text_column or (_DEFAULT_COLUMN if _DEFAULT_COLUMN in found or len(found) != 1 else next(iter(found)))
    if column not in found:
        raise CorruptFileError(f"{place}: has no field {column!r}; its fields are {_listed(list(found))}")
    value = found.pop(column)
    if not isinstance(value, str) or not value.strip():
        raise CorruptFileError(
            f"{place}: the text is empty"
            if value is None or isinstance(value, str)
            else f"{place}: {column!r} is {_kind_of(value)}; expected text"
        )
    id: Any = found.pop(id_column or _DEFAULT_ID, None)
    if id is None:
        id = number
    if isinstance(id, bool) or not isinstance(id, str | int) or id == "":
        raise CorruptFileError(f"{place}: the id is {str(id)[:40]!r}; expected text or an integer")
    return TextRow(id, value, found, number)


def _kind_of(value: Any) -> str:
    """Return what a value of JSON is, in the words of JSON."""
    if value is None or isinstance(value, bool):
        return "null" if value is None else "true or false"
    return "a list" if isinstance(value, list) else "an object" if isinstance(value, dict) else "a number"


def _chosen_column(columns: list[str], wanted: str | None, name: str) -> str:
    if not columns:
        raise FileError(f"{name} is empty; expected a first line with the names of columns")
    if wanted is None:
        if _DEFAULT_COLUMN in columns:
            return _DEFAULT_COLUMN
        if len(columns) == 1:
            if advice := _other_delimiter(columns):
                raise InputError(f"{name} has the one column {_listed(columns)!r}{advice}")
            return columns[0]
        raise InputError(
            f"{name} has several columns, none called {_DEFAULT_COLUMN!r}: {_listed(columns)}; say which has the text "
            "(--text-column)"
        )
    if wanted not in columns:
        raise InputError(
            f"{name} has no column {wanted!r}; its columns are {_listed(columns)}{_other_delimiter(columns)}"
        )
    return wanted


def _other_delimiter(columns: list[str]) -> str:
    """Return advice for a table whose first line looks as if fields were separated by something else."""
    found = next((each for each in (";", "\t", "|") if len(columns) == 1 and each in columns[0]), None)
    if found is None:
        return ""
    return f"; its fields seem to be separated by {found!r}: save it with commas, or with tabs as .tsv"


def _listed(names: list[str]) -> str:
    shown = ", ".join(name.encode("utf-8", "replace").decode()[:60] for name in names[:_NAMED_COLUMNS])
    return shown + (f" and {len(names) - _NAMED_COLUMNS} more" if len(names) > _NAMED_COLUMNS else "")
