"""Records: the images, vectors, texts or codes that a command is given to encode, add or search with.

A source is a folder of images, an image, a CSV of images and labels, a file of vectors, or lines, from a file or the
standard input ("-"). A line is an object of JSON with an `id`, one of `vector`, `image` and `code`, and a `payload`;
or only a vector (a list of numbers), a code (hexadecimal digits), or the path of an image.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

from hamtarget._reading import lines_of, parse_json
from hamtarget.errors import CorruptFileError, FileError, InputError

STDIN = "-"

_LINE_SUFFIXES = (".jsonl", ".ndjson", ".txt")
_FIELDS = ("id", "vector", "image", "code", "payload")
# Linux takes no longer ones.
_MAX_PATH = 4096
# Characters of a text, and of another column, that a payload keeps.
_EXCERPT = 200
_MAX_PAYLOAD_TEXT = 1000
_HEX = frozenset("0123456789abcdefABCDEF")


@dataclass(frozen=True, slots=True, eq=False)
class Record:
    """An input with its id and payload: exactly one of vector, image, text and code.

    An item of a store is known by its code and, where the store keeps embeddings, by its embedding.
    """

    id: str | int
    vector: Any = None
    image: Path | None = None
    text: str | None = None
    code: bytes | None = None
    payload: dict[str, Any] | None = None
    embedding: Any = None


@dataclass(frozen=True, eq=False)
class Records:
    """All records of a source, in order, to be read once.

    Attributes:
        total: number of records; None if it is not known before the end.
        records: the records themselves.
        vectors: all vectors as one array, (rows, columns), if the source is a file of them.
    """

    total: int | None
    records: Iterable[Record]
    vectors: Any = None

    def batches(self, size: int) -> Iterator[list[Record]]:
        """Yield the records, `size` at a time."""
        records = iter(self.records)
        while batch := list(islice(records, size)):
            yield batch


def open_records(
    source: str,
    *,
    codes: bool | None = False,
    key: str | None = None,
    on_broken: Callable[[str], None] | None = None,
    on_found: Callable[[int], None] | None = None,
) -> Records:
    """Return the records of a source.

    The payload of an image has its path within the folder of the source: that folder itself, or that of the CSV. Images
    that are named one by one are in the current folder; others have absolute paths.

    Args:
        source: a path, or "-" for lines on the standard input.
        codes: True if the rows of a file of vectors are packed codes; None: if they are uint8.
        key: name of the array in an npz or HDF5 file.
        on_broken: called with what is wrong with an image that no store can name; without it, all are given.
        on_found: told how many images were found, while a folder is listed.

    Raises:
        FileError: there is no such file, or it cannot be used.
        InputError: a file of codes does not hold packed uint8.
    """
    path = Path(source)
    if source == STDIN or path.suffix.lower() in _LINE_SUFFIXES:
        return Records(None, _lines(source))
    if path.is_dir():
        return _folder(path, on_broken, on_found)
    if not path.exists():
        raise FileError(
            f"{path} is not there; expected a folder of images, an image, a CSV, a file of vectors, or - for lines"
        )
    if path.suffix.lower() == ".csv":
        return _csv(path)
    from hamtarget.datasets.pictures.picture_formats import IMAGE_SUFFIXES

    if path.suffix.lower() in IMAGE_SUFFIXES:
        return Records(1, [_image(path, id=source)])
    return _vectors(path, codes=codes, key=key)


def open_text_records(
    source: str,
    *,
    text_column: str | None = None,
    id_column: str | None = None,
    chunk_words: int | None = None,
    needs_words: bool = False,
    on_broken: Callable[[str], None] | None = None,
) -> Records:
    """Return the texts of a source as records; the payload has the other columns and the beginning of the text.

    Args:
        source: a CSV, TSV, JSONL or TXT, perhaps with .gz; or "-" for lines on the standard input.
        text_column: column with the text; by default `text`, or the only one.
        id_column: column with the id; by default `id`, or the number of the line.
        chunk_words: texts with more words become chunks of so many; None: all stay whole.
        needs_words: True to leave out texts without words, which all have one code by a hash of words.
        on_broken: called with what is wrong with a row that is left out.

    Raises:
        FileError: there is no such file, or none of texts.
        InputError: there is no such column.
    """
    from hamtarget.datasets.texts.text_files import chunks_of, read_texts

    def records() -> Iterator[Record]:
        rows = read_texts(source, text_column=text_column, id_column=id_column, on_broken=on_broken)
        for row in rows:
            if needs_words and not any(map(str.isalnum, row.text)):
                if on_broken is not None:
                    on_broken(f"{source}, line {row.line:,}: the text has no words")
                continue
            for part in [row] if chunk_words is None else chunks_of(row, chunk_words):
                payload = {text_column or "text": excerpt(part.text), **_small(part.others)}
                yield Record(part.id, text=part.text, payload=payload)

    return Records(None, records())


def is_readable_text_file(name: str) -> bool:
    """Return True if there is such a file, and it ends as files of texts do."""
    from hamtarget.datasets.texts.text_files import is_text_file

    return is_text_file(name[-_MAX_PATH:]) and _is_file(name)


def excerpt(text: str) -> str:
    """Return the beginning of a text, in one line, for people to recognise it by."""
    line = " ".join(text[: 4 * _EXCERPT].split())
    return line if len(line) <= _EXCERPT else line[:_EXCERPT].rstrip() + "…"


def _small(others: dict[str, Any]) -> dict[str, Any]:
    """Return the columns that are short enough for a payload."""
    return {
        name: value for name, value in others.items() if not isinstance(value, str) or len(value) <= _MAX_PAYLOAD_TEXT
    }


def parse_line(line: str, *, number: int, where: str) -> Record:
    """Return the record in a line; `number` counts from 0 and is its id where it has none.

    Raises:
        CorruptFileError: the line holds no record.
    """
    if line.startswith(("{", "[")):
        value = parse_json(line, where=f"{where}, line {number + 1}")
        if isinstance(value, dict):
            return _from_object(value, number, where)
        return Record(number, vector=_checked_vector(value, f"{where}, line {number + 1}"))
    code = _code(line)
    # The name of a file may consist of hexadecimal digits, too; then the file is meant.
    if code is not None and not _is_file(line):
        return Record(number, code=code)
    return _named_image(line, id=line, place=f"{where}, line {number + 1}")


def _lines(source: str) -> Iterator[Record]:
    where = "standard input" if source == STDIN else source
    try:
        stream: Any = nullcontext(as_utf8(sys.stdin)) if source == STDIN else open(source, encoding="utf-8")
        with stream as lines:
            for number, line in enumerate(lines_of(lines, where=where)):
                if text := line.strip():
                    yield parse_line(text, number=number, where=where)
    except UnicodeDecodeError as error:
        raise CorruptFileError(f"{where}: not UTF-8 ({error}); expected lines of text") from error


def as_utf8(stream: TextIO) -> TextIO:
    """Return a stream that reads UTF-8, whatever the locale."""
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(encoding="utf-8")
    return stream


def _from_object(value: dict[str, Any], number: int, where: str) -> Record:
    place = f"{where}, line {number + 1}"
    unknown = sorted(set(value) - set(_FIELDS))
    if unknown:
        raise CorruptFileError(f"{place}: unknown field {unknown[0]!r}; expected {', '.join(_FIELDS)}")
    given = [name for name in ("vector", "image", "code") if value.get(name) is not None]
    if len(given) != 1:
        raise CorruptFileError(
            f"{place}: has {' and '.join(given) or 'none'} of vector, image and code; expected exactly one"
        )
    id = value.get("id", value["image"] if given == ["image"] else number)
    if isinstance(id, bool) or not isinstance(id, str | int):
        raise CorruptFileError(f"{place}: id is {json.dumps(id)[:40]}; expected text or an integer")
    payload = value.get("payload")
    if payload is not None and not isinstance(payload, dict):
        raise CorruptFileError(f"{place}: payload is a {type(payload).__name__}; expected an object")
    if given == ["vector"]:
        return Record(id, vector=_checked_vector(value["vector"], place), payload=payload)
    text = value[given[0]]
    if not isinstance(text, str):
        raise CorruptFileError(f"{place}: {given[0]} is a {type(text).__name__}; expected text")
    if given == ["code"]:
        code = _code(text)
        if code is None:
            raise CorruptFileError(f"{place}: code is {text[:40]!r}; expected two hexadecimal digits a byte")
        return Record(id, code=code, payload=payload)
    record = _named_image(text, id=id, place=place)
    return replace(record, payload={**(record.payload or {}), **(payload or {})})


def _checked_vector(vector: Any, place: str) -> Any:
    """Return a vector, or an image in numbers, of which every element is a finite number."""
    import numpy as np

    try:
        array = np.asarray(vector)
    except ValueError as error:
        raise CorruptFileError(f"{place}: the vector has parts of different lengths; expected numbers") from error
    if array.ndim == 0 or not array.size:
        raise CorruptFileError(f"{place}: the vector is {json.dumps(vector)[:40]}; expected a list of numbers")
    if array.dtype.kind not in "fiu":
        raise CorruptFileError(f"{place}: the vector holds other things than numbers; expected numbers alone")
    if not np.isfinite(array).all():
        raise CorruptFileError(f"{place}: the vector holds NaN or infinity; expected finite numbers")
    return vector


def _code(text: str) -> bytes | None:
    """Return the bytes of hexadecimal digits; None if the text is something else."""
    return bytes.fromhex(text) if text and len(text) % 2 == 0 and _HEX.issuperset(text) else None


def _named_image(text: str, *, id: str | int, place: str) -> Record:
    if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
        raise CorruptFileError(f"{place}: the path holds a NUL character or half of one; expected the path of an image")
    if len(text) > _MAX_PATH:
        raise CorruptFileError(f"{place}: begins with {text[:40]!r} and is too long for the path of an image")
    return _image(Path(text), id=id)


def _is_file(name: str) -> bool:
    try:
        return Path(name).is_file()
    except OSError:
        # Too long for a name.
        return False


def _image(path: Path, *, id: str | int) -> Record:
    return Record(id, image=path, payload={"image": _within(path, os.curdir) or os.path.abspath(path)})


def _within(path: Path, folder: str | os.PathLike[str]) -> str | None:
    """Return the path within a folder, with "/" between its parts; None if it leads out of it."""
    try:
        name = Path(os.path.relpath(path, folder))
    except ValueError:
        # On another drive.
        return None
    return None if os.pardir in name.parts else name.as_posix()


def _folder(folder: Path, on_broken: Callable[[str], None] | None, on_found: Callable[[int], None] | None) -> Records:
    from hamtarget.datasets.pictures.picture_folders import list_pictures
    from hamtarget.datasets.pictures.picture_payloads import name_of_folder, picture_payload
    from hamtarget.folders.file_changes import ids_of

    listing = list_pictures(folder, on_found=on_found)
    if not listing.names:
        raise FileError(f"{folder} holds no image; expected files that end in .jpg, .png and the like")
    names, called = listing.names, name_of_folder(folder)
    if on_broken is not None:
        ids, skipped = ids_of(listing, "")
        names = list(ids)
        for name, reason in (skipped | listing.unread).items():
            on_broken(f"{folder / name}: {reason}")
    records = (Record(name, image=folder / name, payload=picture_payload(name, called)) for name in names)
    return Records(len(names), records)


def _csv(path: Path) -> Records:
    from hamtarget.datasets.pictures.image_sets import ImageSet
    from hamtarget.datasets.pictures.picture_payloads import name_of_folder

    images = ImageSet.from_csv(path)

    def records() -> Iterator[Record]:
        for row, source in enumerate(images.sources):
            file = Path(str(source))
            name = _within(file, path.parent)
            place = {"image": os.path.abspath(file)} if name is None else {"image": name, "folder": called}
            id = (file.relative_to(path.parent) if file.is_relative_to(path.parent) else file).as_posix()
            yield Record(id, image=file, payload={**place, **_label(images, row)})

    called = name_of_folder(path.parent)
    return Records(len(images), records())


def _label(images: Any, row: int) -> dict[str, Any]:
    label = images.labels[row]
    if label.ndim == 0:
        return {"label": images.class_names[label]}
    return {"labels": [name for name, has in zip(images.class_names, label, strict=True) if has]}


def _vectors(path: Path, *, codes: bool | None, key: str | None) -> Records:
    from hamtarget.datasets.vector_files import open_vectors

    vectors = open_vectors(path, key=key)
    if codes is None:
        codes = vectors.dtype == "uint8"
    if not codes:
        return Records(len(vectors), (Record(row, vector=vector) for row, vector in enumerate(vectors)), vectors)
    if vectors.dtype != "uint8":
        raise InputError(f"{path} holds {vectors.dtype}; expected packed codes, uint8: pass --model to encode vectors")
    return Records(len(vectors), (Record(row, code=code.tobytes()) for row, code in enumerate(vectors)))
