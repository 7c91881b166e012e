"""`hamtarget add`: adds images, vectors, texts or codes to a store, which is made if it is not there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from hamtarget.cli.inputs.records import Record, Records, open_records, open_text_records
from hamtarget.cli.inputs.stores import open_store
from hamtarget.cli.terminal.arguments import AsJson, IdColumn, Key, Source, StorePlace, TextColumn, Workers
from hamtarget.cli.terminal.bars import progress_on_stderr
from hamtarget.cli.terminal.failures import FOUND
from hamtarget.cli.terminal.output import note, printable, write_json
from hamtarget.errors import FileError, InputError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from hamtarget.encoders.protocol import Encoder
    from hamtarget.search.embeddings import ElementName
    from hamtarget.store import Store

# An interruption undoes one batch at most: about a second's work.
_IMAGES_AT_ONCE = 1024
_ROWS_AT_ONCE = 16_384
# Unreadable images that are named one by one.
_NAMED = 10
# Two models are the same if their codes of so many random inputs differ by rounding at most: this share of the bits.
_PROBES = 64
_ROUNDING = 0.01


def add(
    store: StorePlace,
    source: Source = "-",
    model: Annotated[Path | None, typer.Option(metavar="DIR", help="Model of a new store; codes need none.")] = None,
    encoder: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="To find copies, in place of a model of a new store: copies64, copies256, phash, dhash or pdq for "
            "images, simhash64 for texts.",
        ),
    ] = None,
    bits: Annotated[
        int | None, typer.Option(metavar="N", help="Bits of a code of a new store; by default the model's.")
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
    read, and items that are in the store already are skipped: after Ctrl-C, the same command goes on. An image or a
    line that cannot be read is named and left out; the exit code is then 1.
    """
    from hamtarget.encoders.simhash import SimHash64

    with ExitStack() as stack:
        opened = _open_existing(store)
        if opened is not None:
            stack.enter_context(opened)
        chosen = _chosen_encoder(model, encoder)
        wanted = _Wanted(None if chosen is None else _open_encoder(chosen), bits, radius, embeddings)
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
            source_records = open_records(source, codes=used is None, key=key)
        # The first record shows how long codes are, where neither the store nor an option does.
        first, records = _peeked(source_records)
        if opened is None:
            opened = stack.enter_context(_create(store, wanted, first))
        else:
            _check_same(opened, wanted)
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
                opened.tune(progress=tell)
    if as_json:
        write_json({"store": shown, **vars(counts), "items": total})
    else:
        typer.echo(f"{shown}: {counts.stored:,} stored, {counts.skipped:,} skipped; {total:,} in all")
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


@dataclass(frozen=True)
class _Wanted:
    """Options of a new store; None where they are not given."""

    encoder: Encoder | None
    bits: int | None
    radius: int | None
    embeddings: str | None


def _put_all(
    store: Store, records: Records, counts: _Counts, *, replaces: bool, prefix: str, batch: int, workers: int
) -> None:
    from hamtarget.cli.inputs.record_codes import embeddings_of, encode_records
    from hamtarget.store.copy_defaults import is_made_for_copies

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
            named = [replace(record, id=id) if prefix else record for id, record in wanted.items()]
            encoded = encode_records(named, encoder, n_bits=store.n_bits, workers=workers, remembers_codes=remembers)
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
    from hamtarget.cli.inputs.several import groups_of, put_group_batches

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
    from hamtarget.encoders.text_inputs import takes_texts

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


def _peeked(records: Records) -> tuple[Record | None, Records]:
    source: Iterator[Record] = iter(records.records)
    first = next(source, None)
    return first, Records(records.total, source if first is None else chain([first], source))


def _chosen_encoder(model: Path | None, encoder: str | None) -> str | Path | None:
    """Return the name or the folder of the encoder of a new store; None if none is given.

    Raises:
        InputError: both are given.
    """
    if model is not None and encoder is not None:
        raise InputError(f"--model {model} and --encoder {encoder} are both given; a store has one of them")
    return encoder if model is None else model


def _open_encoder(chosen: str | Path) -> Encoder:
    from hamtarget.encoders import open_encoder

    return open_encoder(chosen)


def _open_existing(place: str) -> Store | None:
    try:
        return open_store(place, read_only=False)
    except FileError as error:
        # Its kinds mean that there is a store which cannot be used.
        if type(error) is not FileError:
            raise
        return None


def _create(place: str, wanted: _Wanted, first: Record | None) -> Store:
    from hamtarget.search import Embeddings
    from hamtarget.store import Store
    from hamtarget.store.text_defaults import default_embeddings

    encoder, bits = wanted.encoder, wanted.bits
    if encoder is None and bits is None:
        if first is None or first.code is None:
            raise FileError(
                f"{place} is no store yet; to make one of images, vectors or texts, pass --model or --encoder"
            )
        bits = 8 * len(first.code)
    kind = default_embeddings(encoder) if wanted.embeddings is None else None
    if wanted.embeddings not in (None, "none"):
        if encoder is None:
            raise InputError("--embeddings is given without --model or --encoder, which make them")
        kind = Embeddings(encoder.n_bits, cast("ElementName", wanted.embeddings), "cosine")
    return Store.create(place, encoder=encoder, n_bits=bits, radius=wanted.radius, embeddings=kind)


def _check_same(store: Store, wanted: _Wanted) -> None:
    """Check that options for a new store agree with this one.

    Raises:
        InputError: one of them does not.
    """
    kept = "none" if store.embeddings is None else store.embeddings.dtype
    for name, given, own in (
        ("bits", wanted.bits, store.n_bits),
        ("radius", wanted.radius, store.radius),
        ("embeddings", wanted.embeddings, kept),
    ):
        if given is not None and given != own:
            raise InputError(f"--{name} is {given}; {store.path} has {own}: leave the option out, or make a new store")
    if wanted.encoder is not None and not (store.has_encoder and _same_codes(wanted.encoder, store.encoder)):
        raise InputError(
            f"--model or --encoder is another model than that of {store.path}, whose codes mean something else: "
            "leave the option out, or make a new store"
        )


def _same_codes(left: Encoder, right: Encoder) -> bool:
    import numpy as np

    from hamtarget.encoders.text_inputs import takes_texts

    if (left.n_bits, left.input_shape) != (right.n_bits, right.input_shape):
        return False
    # Two encoders of one shape may see different parts of a picture.
    if getattr(left, "picture_form", None) != getattr(right, "picture_form", None):
        return False
    if takes_texts(left) or takes_texts(right):
        words = [f"{number} {number * number}" for number in range(_PROBES)]
        return takes_texts(left) == takes_texts(right) and _differ_by_rounding(left.encode(words), right.encode(words))
    probes = np.random.default_rng(0).integers(0, 256, (_PROBES, *left.input_shape)).astype(np.float32)
    return _differ_by_rounding(left.encode(probes), right.encode(probes))


def _differ_by_rounding(left: NDArray[np.uint8], right: NDArray[np.uint8]) -> bool:
    import numpy as np

    return bool(np.bitwise_count(left ^ right).sum() <= _ROUNDING * 8 * left.size)
