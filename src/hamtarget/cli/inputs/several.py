"""Records that are codes of one item: pictures of one folder, or lines with one id."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from hamtarget.cli.inputs.records import Record
from hamtarget.items import MAX_CODES, Item

if TYPE_CHECKING:
    from hamtarget.store import Store

Group = tuple[str | int, list[Record]]
"""The id of an item, and its records."""


def groups_of(records: Iterable[Record]) -> Iterator[Group]:
    """Yield records that follow each other and belong to one item.

    A picture in a folder belongs to the item of that folder, whose path within the source is the item's id; a picture
    that lies in none, and everything else, to that of its own id.
    """
    for id, group in groupby(records, key=_item_id):
        yield id, list(group)


def put_group_batches(
    store: Store,
    groups: Iterable[Group],
    *,
    replaces: bool,
    prefix: str,
    batch: int,
    workers: int,
    leave_out: Callable[[str], None],
) -> Iterator[tuple[int, int, int]]:
    """Put items with several codes, a batch of about so many records at a time.

    Args:
        store: that they are put into.
        groups: as `groups_of` gives them.
        replaces: True to replace items that are there; False to skip them.
        prefix: of all ids.
        batch: records at a time.
        workers: processes that read images.
        leave_out: called with why a record or an item is left out.

    Yields:
        Records done, items stored and items skipped, of each batch.
    """
    block: list[Group] = []
    n_records = 0
    for id, records in groups:
        block.append((f"{prefix}{id}" if prefix else id, records))
        n_records += len(records)
        if n_records >= batch:
            yield n_records, *_put(store, block, replaces=replaces, workers=workers, leave_out=leave_out)
            block, n_records = [], 0
    if block:
        yield n_records, *_put(store, block, replaces=replaces, workers=workers, leave_out=leave_out)


def _put(
    store: Store, groups: list[Group], *, replaces: bool, workers: int, leave_out: Callable[[str], None]
) -> tuple[int, int]:
    from hamtarget.cli.inputs.record_codes import embeddings_of, encode_records

    present = [False] * len(groups) if replaces else [item is not None for item in store.get([id for id, _ in groups])]
    wanted = []
    for (id, records), known in zip(groups, present, strict=True):
        if len(records) > MAX_CODES:
            leave_out(f"{id}: there are {len(records):,} of it; an item has at most {MAX_CODES} codes")
        elif not known:
            wanted.append((id, records))
    records = [record for _, own in wanted for record in own]
    encoder = store.encoder if store.has_encoder else None
    encoded = encode_records(records, encoder, n_bits=store.n_bits, workers=workers)
    for reason in encoded.broken.values():
        leave_out(reason)
    kind = store.embeddings
    embeddings = None if kind is None else embeddings_of(encoded, kind, keeps_vectors=store.vectors is not None)
    places = {record: place for place, record in enumerate(encoded.records)}
    items = []
    for id, own in wanted:
        rows = [places[record] for record in own if record in places]
        if rows:
            vectors = None if embeddings is None else embeddings[rows]
            payload = encoded.records[rows[0]].payload
            items.append(Item(id, codes=encoded.codes[rows], embeddings=vectors, payload=payload))
    return store.put(items), sum(present)


def _item_id(record: Record) -> str | int:
    if record.image is None or not isinstance(record.id, str):
        return record.id
    folder = PurePosixPath(record.id).parent.as_posix()
    return record.id if folder == "." else folder
