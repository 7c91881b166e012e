"""Queries that a command is given: what they are, and the filter that hits must pass."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from hamtarget.cli.inputs.records import (
    STDIN,
    Record,
    is_readable_text_file,
    open_records,
    open_text_records,
    parse_line,
)
from hamtarget.cli.terminal.output import note, printable
from hamtarget.errors import InputError

if TYPE_CHECKING:
    from hamtarget.filters import Condition, Filter, Scalar
    from hamtarget.store import Store

_QUERIES_AT_ONCE = 256


class TextColumns(NamedTuple):
    """Columns of files of texts; None where they are not given."""

    text: str | None
    id: str | None


def query_batches(
    store: Store, queries: list[str], ids: list[str], key: str | None, columns: TextColumns
) -> Iterator[list[Record]]:
    """Yield the queries of a command as records, some at a time.

    Args:
        store: that is searched.
        queries: files, codes, texts, or - for lines.
        ids: items of the store, each of one code.
        key: name of the array in an npz or HDF5 file.
        columns: of files of texts.

    Raises:
        InputError: a query is nothing of these.
    """
    if ids:
        yield [_only(stored_records(store, id), id) for id in ids]
    from hamtarget.encoders.texts.text_inputs import takes_texts

    if queries and store.has_encoder and takes_texts(store.encoder):
        yield from _text_batches(queries, columns)
        return
    if any(columns):
        raise InputError(f"--text-column and --id-column are for files of texts; {store.path} keeps no texts")
    for query in queries:
        if query == STDIN or Path(query).exists():
            yield from open_records(query, codes=not store.has_encoder, key=key).batches(_QUERIES_AT_ONCE)
            continue
        record = parse_line(query, number=0, where=query)
        if record.code is None and record.vector is None:
            raise InputError(
                f"{query!r} is no file and no code; expected a path, {store.n_bits // 4} hexadecimal digits, or --id"
            )
        yield [Record(query, vector=record.vector, code=record.code)]


def _text_batches(queries: list[str], columns: TextColumns) -> Iterator[list[Record]]:
    """Yield texts in batches; whatever is no file of texts is a text itself."""
    for query in queries:
        if query == STDIN or is_readable_text_file(query):
            broken: list[str] = []
            records = open_text_records(query, text_column=columns.text, id_column=columns.id, on_broken=broken.append)
            yield from records.batches(_QUERIES_AT_ONCE)
            for reason in broken:
                note(f"hamtarget: left out {printable(reason)}")
        else:
            yield [Record(query, text=query)]


def stored_records(store: Store, text: str) -> list[Record]:
    """Return the codes of the item of an id; digits are taken for a string first, then for an integer."""
    import numpy as np

    for id in (text, int(text)) if text.removeprefix("-").isdecimal() else (text,):
        (item,) = store.get([id])
        if item is not None and item.codes is None:
            return [Record(id, code=np.asarray(item.code, dtype=np.uint8).tobytes(), embedding=item.embedding)]
        if item is not None:
            return [Record(id, code=code.tobytes()) for code in np.asarray(item.codes, dtype=np.uint8)]
    raise InputError(f"{store.path} has no item {text!r}")


def _only(records: list[Record], id: str) -> Record:
    if len(records) > 1:
        raise InputError(f"{id!r} has {len(records)} codes; search by one code, or use `hamtarget match --id`")
    return records[0]


def parse_filter(filters: list[str]) -> Filter | None:
    """Return the filter that options of the form FIELD=VALUE or FIELD=MIN..MAX say.

    Raises:
        InputError: one of them has another form.
    """
    from hamtarget.filters import Filter, Range

    wanted: dict[str, Scalar | Condition] = {}
    for text in filters:
        field, equals, value = text.partition("=")
        if not equals or not field:
            raise InputError(f"--filter is {text!r}; expected FIELD=VALUE or FIELD=MIN..MAX")
        low, dots, high = value.partition("..")
        wanted[field] = Range(_value(low), _value(high)) if dots else _value(value)
    return Filter.of(wanted)


def _value(text: str) -> Any:
    """Return a number, true, false or null of JSON as such, nothing as None, and everything else as text."""
    if not text:
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value if not isinstance(value, dict | list) else text
