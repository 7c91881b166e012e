"""`hamtarget add`: adds images, vectors, texts or codes to a store, which is made if it is not there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, groupby, islice
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from hamtarget.cli.inputs.new_stores import WantedStore, check_same, chosen_encoder, create_store, open_existing
from hamtarget.cli.inputs.records import Record, Records, open_records, open_text_records
from hamtarget.cli.terminal.arguments import AsJson, IdColumn, Key, Source, StorePlace, TextColumn, Workers
from hamtarget.cli.terminal.bars import Telling, progress_on_stderr
from hamtarget.cli.terminal.failures import FOUND
from hamtarget.cli.terminal.output import note, printable, write_json
from hamtarget.errors import CorruptFileError, DtypeError, InputError, ShapeError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hamtarget.encoders.protocol import Encoder
    from hamtarget.store import Store

# An interruption undoes one batch at most: about a second's work.
_IMAGES_AT_ONCE = 1024
_ROWS_AT_ONCE = 16_384
# Unreadable images that are named one by one.
_NAMED = 10

Group = tuple[str | int, list[Record]]
"""The id of an item, and its records."""


def add(
    store: StorePlace,
    source: Source = "-",
    model: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Model of a new store; vectors and codes need none.")
    ] = None,
    encoder: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="To find copies, in place of a model of a new store: copies64, copies256, phash, dhash or pdq for "
            "images, simhash64 for texts.",
        ),
    ] = None,
    metric: Annotated[
        Literal["l2", "cosine", "dot"] | None,
        typer.Option(
            help="By what vectors of a new store are near; by default the model's, or l2. Rows of uint8 are codes, "
            "unless it is given."
        ),
    ] = None,
    bits: Annotated[
        int | None, typer.Option(metavar="N", help="Bits of a code of a new store; by default the model's, or 64.")
    ] = None,
    radius: Annotated[
        int | None,
        typer.Option(min=0, metavar="R", help="Default search radius of a new store; the model's, or 2."),
    ] = None,
    embeddings: Annotated[
        str | None,
        typer.Option(
            metavar="TYPE",
            help="A new store also keeps embeddings, to rank hits by: float32, float16 or int8; or none. Default: int8 "
            "for texts by a sentence model, else none.",
        ),
    ] = None,
    replace_existing: Annotated[
        bool, typer.Option("--replace", help="Replace items that are in the store already, instead of skipping them.")
    ] = False,
    text_column: TextColumn = None,
    id_column: IdColumn = None,
    chunk_words: Annotated[
        int | None,
        typer.Option(
            min=5, metavar="N", help="Add texts of more than N words in chunks of N words, as ID#1, ID#2, and so on."
        ),
    ] = None,
    several: Annotated[
        bool,
        typer.Option(
            "--several",
            help="Pictures of one folder, or lines with one id that follow each other, are one item with up to 64 "
            "codes, which `hamtarget match` finds.",
        ),
    ] = False,
    prefix: Annotated[str, typer.Option(metavar="TEXT", help="Put this before every id.")] = "",
    key: Key = None,
    batch: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Rows of a transaction; by default 1,024 images, or 16,384 others."),
    ] = None,
    workers: Workers = 0,
    as_json: AsJson = False,
) -> None:
    """Add images, vectors, texts or codes to a store, which is made if it is not there.

    Ids are paths within the folder, row numbers, or what the lines say. Each batch is on disk before the next is
    read, and items that are in the store already are skipped: after Ctrl-C, the same command goes on. An image or
    a text that cannot be read is named and left out; the exit code is then 1. A wrong line of a vector or a code is
    named, and ends the command.
    """
    from hamtarget.encoders.texts.simhash import SimHash64
    from hamtarget.query import Work

    with ExitStack() as stack:
        opened = open_existing(store)
        if opened is not None:
            stack.enter_context(opened)
        wanted = WantedStore(chosen_encoder(model, encoder), bits, radius, embeddings, metric)
        used = opened.encoder if opened is not None and opened.has_encoder else wanted.encoder
        counts = _Counts()
        if _takes_texts(used, source, text_column=text_column, id_column=id_column, chunk_words=chunk_words):
            source_records = open_text_records(
                source,
                text_column=text_column,
                id_column=id_column,
                chunk_words=chunk_words,
                needs_words=isinstance(used, SimHash64),
                on_broken=counts.leave_out,
            )
        else:
            with progress_on_stderr("Listing") as listed:
                try:
                    source_records = open_records(
                        source,
                        codes=_are_codes(opened, used, metric),
                        key=key,
                        on_broken=counts.leave_out,
                        on_found=lambda found: listed(found, None),
                    )
                except CorruptFileError as error:
                    if source.lower().endswith((".csv", ".tsv")):
                        raise CorruptFileError(
                            f"{error}; for texts pass --text-column NAME and --encoder simhash64"
                        ) from error
                    raise
        # The first record shows how long codes are, where neither the store nor an option does.
        first, records = _peeked(source_records)
        if opened is None and wanted.encoder is None and first is not None and first.vector is not None:
            wanted, records = with_learned_codes(store, wanted, records)
        if opened is None:
            opened = stack.enter_context(create_store(store, wanted, code_bytes=_code_bytes(first)))
        else:
            check_same(opened, wanted)
            _check_columns(source, records, used)
        if batch is None:
            batch = _IMAGES_AT_ONCE if first is not None and first.image is not None else _ROWS_AT_ONCE
            # A sentence model reads some hundred texts a second.
            batch = _IMAGES_AT_ONCE if hasattr(used, "max_tokens") else batch
        put = _put_several if several else _put_all
        try:
            put(opened, records, counts, replaces=replace_existing, prefix=prefix, batch=batch, workers=workers)
        except KeyboardInterrupt as interrupt:
            raise KeyboardInterrupt(
                f"interrupted; {counts.stored:,} are stored, {len(opened):,} in all: the same command goes on"
            ) from interrupt
        total, shown = len(opened), str(opened.path)
        if opened.needs_tuning:
            with progress_on_stderr("Tuning the search") as tell:
                opened.tune(work=Work(progress=tell))
    if as_json:
        write_json({"store": shown, **vars(counts), "items": total})
    else:
        typer.echo(f"{shown}: {counts.stored:,} stored, {counts.skipped:,} skipped; {total:,} in all")
    if counts.skipped and first is not None and isinstance(first.id, int):
        # Numbers of rows: those of another file are other rows, as nobody would guess from a number of skipped ones.
        note(
            f"hamtarget: {counts.skipped:,} skipped, because their ids are in the store already; --prefix TEXT adds "
            "them under other ids, --replace replaces what is there"
        )
    if counts.broken:
        note(f"hamtarget: {counts.broken:,} could not be read")
        raise typer.Exit(FOUND)


@dataclass
class _Counts:
    """Records that were stored, skipped, or could not be read."""

    stored: int = 0
    skipped: int = 0
    broken: int = 0

    def leave_out(self, reason: str) -> None:
        """Count what cannot be read, and name the first ones."""
        self.broken += 1
        if self.broken <= _NAMED:
            note(f"hamtarget: left out {printable(reason)}")


def _put_all(
    store: Store, records: Records, counts: _Counts, *, replaces: bool, prefix: str, batch: int, workers: int
) -> None:
    from hamtarget.cli.inputs.record_codes import embeddings_of, encode_records
    from hamtarget.store.defaults import is_made_for_copies

    encoder: Encoder | None = store.encoder if store.has_encoder else None
    # Codes of copies are shared with `dups`; embeddings are not kept there.
    remembers = is_made_for_copies(store) and store.embeddings is None
    done = 0
    with progress_on_stderr("Adding") as tell:
        for some in records.batches(batch):
            ids = [f"{prefix}{record.id}" if prefix else record.id for record in some]
            # Looked up before images are read: skipping costs next to nothing.
            present = [False] * len(ids) if replaces else [item is not None for item in store.get(ids)]
            wanted = {id: record for id, record, known in zip(ids, some, present, strict=True) if not known}
            named = [_with_state(replace(record, id=id)) for id, record in wanted.items()]
            encoded = encode_records(
                named,
                encoder,
                n_bits=store.n_bits,
                workers=workers,
                remembers_codes=remembers,
                progress=partial(_tell_of_batch, tell, done, records.total),
            )
            if encoded.records:
                store.put_rows(
                    [record.id for record in encoded.records],
                    codes=encoded.codes,
                    embeddings=None
                    if store.embeddings is None
                    else embeddings_of(encoded, store.embeddings, keeps_vectors=store.vectors is not None),
                    payloads=[record.payload for record in encoded.records],
                )
            for reason in encoded.broken.values():
                counts.leave_out(reason)
            counts.stored += len(encoded.records)
            counts.skipped += len(some) - len(named)
            done += len(some)
            tell(done, records.total)


def _put_several(
    store: Store, records: Records, counts: _Counts, *, replaces: bool, prefix: str, batch: int, workers: int
) -> None:

    groups = groups_of(records.records)
    done = 0
    with progress_on_stderr("Adding") as tell:
        for n_records, stored, skipped in put_group_batches(
            store,
            groups,
            replaces=replaces,
            prefix=prefix,
            batch=batch,
            workers=workers,
            leave_out=counts.leave_out,
        ):
            counts.stored += stored
            counts.skipped += skipped
            done += n_records
            tell(done, records.total)


def _tell_of_batch(tell: Telling, before: int, total: int | None, done: int, _: int) -> None:
    tell(before + done, total)


def _with_state(record: Record) -> Record:
    """Return a picture of a folder with the state of its file, by which `sync` sees later that it has changed."""
    if record.image is None or "folder" not in (record.payload or {}):
        return record
    from hamtarget.datasets.pictures.picture_payloads import read_state

    state = read_state(record.image)
    return record if state is None else replace(record, payload={**(record.payload or {}), "file": str(state)})


def _takes_texts(
    encoder: Encoder | None,
    source: str,
    *,
    text_column: str | None,
    id_column: str | None,
    chunk_words: int | None,
) -> bool:
    """Return True if the encoder takes texts.

    Raises:
        InputError: it does not, and an option for texts is given.
    """
    from hamtarget.encoders.texts.text_inputs import takes_texts

    if takes_texts(encoder):
        return True
    given = {"--text-column": text_column, "--id-column": id_column, "--chunk-words": chunk_words}
    for option, value in given.items():
        if value is not None:
            kind = "no encoder" if encoder is None else "an encoder of other inputs"
            raise InputError(
                f"{option} is given for {source}, but there is {kind}; for texts pass --encoder simhash64 or --model "
                "with the folder of a sentence model"
            )
    return False


def _are_codes(store: Store | None, encoder: Encoder | None, metric: str | None) -> bool | None:
    """Return True if rows of a file must be codes, False if they are vectors, None if their type shows it."""
    if encoder is not None:
        return False
    if store is not None:
        return True
    return None if metric is None else False


def _check_columns(source: str, records: Records, encoder: Encoder | None) -> None:
    """Check that the rows of a file are as long as the vectors of the store: those of known ids are not read later.

    Raises:
        ShapeError: they are not.
    """
    if records.vectors is None or encoder is None:
        return
    found, expected = records.vectors.shape[1:], tuple(encoder.input_shape)
    if found != expected:
        raise ShapeError(f"vectors of {source} have shape {found}; the store takes {expected}: add them to another one")


def _code_bytes(first: Record | None) -> int | None:
    return None if first is None or first.code is None else len(first.code)


def _peeked(records: Records) -> tuple[Record | None, Records]:
    source: Iterator[Record] = iter(records.records)
    first = next(source, None)
    return first, replace(records, records=source if first is None else chain([first], source))


def with_learned_codes(place: str, wanted: WantedStore, records: Records) -> tuple[WantedStore, Records]:
    """Return a new store's options with an encoder, which is learned from the vectors of a source, and its records.

    Of lines, the first are learned from; of a file of vectors, a sample of all.

    Args:
        place: folder or address of the store.
        wanted: what the options say; they name no encoder.
        records: the source, of which nothing was read that it does not still give.

    Raises:
        InputError: the vectors are not at least 2 rows of finite numbers, as many in each row, or one has no cosine.
    """
    from hamtarget.encoders.itq import MOST_LEARNED_FROM, learn_vector_codes
    from hamtarget.store.postgres.address import is_address

    vectors = records.vectors
    if vectors is None:
        first = [_compact(record) for record in islice(records.records, MOST_LEARNED_FROM)]
        vectors = _stacked([record for record in first if record.vector is not None])
        records = replace(records, records=chain(first, records.records))
    encoder = learn_vector_codes(vectors, wanted.metric or "l2", n_bits=wanted.bits)
    n_learned = min(len(vectors), MOST_LEARNED_FROM)
    of_all = "" if records.total in (None, n_learned) else f" of {records.total:,}"
    if wanted.embeddings not in (None, "none"):
        use = "searches go by them"
    elif is_address(place):
        use = "in PostgreSQL they choose which vectors are compared: see hamtarget train for better ones"
    else:
        use = f"the nearest by {encoder.neighbor_metric} are found by the vectors themselves"
    note(f"hamtarget: no --model: codes by {type(encoder).__name__}, learned from {n_learned:,}{of_all} vectors; {use}")
    return replace(wanted, encoder=encoder), records


def _compact(record: Record) -> Record:
    """Return a record whose vector is an array: a list of numbers takes eight times its memory."""
    import numpy as np

    if record.vector is None:
        return record
    try:
        vector = np.asarray(record.vector)
    except ValueError as error:
        raise ShapeError(f"vector of {record.id!r} is ragged: {error}") from error
    if vector.dtype.kind not in "fiu":
        raise DtypeError(f"vector of {record.id!r} has elements of type {vector.dtype}; expected numbers")
    # What is too large becomes infinity, and is refused as such.
    with np.errstate(over="ignore"):
        return replace(record, vector=vector.astype(np.float32))


def _stacked(records: list[Record]) -> NDArray[Any]:
    import numpy as np

    shape = records[0].vector.shape
    for record in records:
        if record.vector.shape != shape:
            raise ShapeError(f"vector of {record.id!r} has shape {record.vector.shape}; the first has {shape}")
    return np.stack([record.vector for record in records])


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
            yield n_records, *_put_groups(store, block, replaces=replaces, workers=workers, leave_out=leave_out)
            block, n_records = [], 0
    if block:
        yield n_records, *_put_groups(store, block, replaces=replaces, workers=workers, leave_out=leave_out)


def _put_groups(
    store: Store, groups: list[Group], *, replaces: bool, workers: int, leave_out: Callable[[str], None]
) -> tuple[int, int]:
    from hamtarget.cli.inputs.record_codes import embeddings_of, encode_records
    from hamtarget.items import MAX_CODES, Item

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
