"""`hamtarget add`: adds images, vectors or codes to a store, which is made if it is not there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from hamtarget.cli.inputs.records import Record, Records, open_records
from hamtarget.cli.inputs.stores import open_store
from hamtarget.cli.terminal.arguments import AsJson, Key, Source, StorePlace, Workers
from hamtarget.cli.terminal.bars import progress_on_stderr
from hamtarget.cli.terminal.failures import FOUND
from hamtarget.cli.terminal.output import note, write_json
from hamtarget.errors import FileError, InputError

if TYPE_CHECKING:
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
            help="To find copies: copies64, copies256, phash, dhash or pdq in place of a model of a new store.",
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
            metavar="TYPE", help="A new store also keeps embeddings, to rank hits by: float32, float16 or int8."
        ),
    ] = None,
    replace_existing: Annotated[
        bool, typer.Option("--replace", help="Replace items that are in the store already, instead of skipping them.")
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
    """Add images, vectors or codes to a store, which is made if it is not there.

    Ids are paths within the folder, row numbers, or what the lines say. Each batch is on disk before the next is
    read, and items that are in the store already are skipped: after Ctrl-C, the same command goes on. An image that
    cannot be read is named and left out; the exit code is then 1.
    """
    with ExitStack() as stack:
        opened = _open_existing(store)
        if opened is not None:
            stack.enter_context(opened)
        chosen = _chosen_encoder(model, encoder)
        codes = chosen is None and (opened is None or not opened.has_encoder)
        # The first record shows how long codes are, where neither the store nor an option does.
        first, records = _peeked(open_records(source, codes=codes, key=key))
        wanted = _Wanted(None if chosen is None else _open_encoder(chosen), bits, radius, embeddings)
        if opened is None:
            opened = stack.enter_context(_create(store, wanted, first))
        else:
            _check_same(opened, wanted)
        if batch is None:
            batch = _IMAGES_AT_ONCE if first is not None and first.image is not None else _ROWS_AT_ONCE
        counts = _Counts()
        try:
            _put_all(opened, records, counts, replaces=replace_existing, prefix=prefix, batch=batch, workers=workers)
        except KeyboardInterrupt as interrupt:
            raise KeyboardInterrupt(
                f"interrupted; {counts.stored:,} are stored, {len(opened):,} in all: the same command goes on"
            ) from interrupt
        total, shown = len(opened), str(opened.path)
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
                    embeddings=None if store.embeddings is None else embeddings_of(encoded, store.embeddings),
                    payloads=[record.payload for record in encoded.records],
                )
            for reason in encoded.broken.values():
                counts.broken += 1
                if counts.broken <= _NAMED:
                    note(f"hamtarget: left out {reason}")
            counts.stored += len(encoded.records)
            counts.skipped += len(some) - len(named)
            done += len(some)
            tell(done, records.total)


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

    encoder, bits = wanted.encoder, wanted.bits
    if encoder is None and bits is None:
        if first is None or first.code is None:
            raise FileError(f"{place} is no store yet; to make one of images or vectors, pass --model or --encoder")
        bits = 8 * len(first.code)
    kind = None
    if wanted.embeddings is not None:
        if encoder is None:
            raise InputError("--embeddings is given without --model or --encoder, which make them")
        kind = Embeddings(encoder.n_bits, cast("ElementName", wanted.embeddings), "cosine")
    return Store.create(place, encoder=encoder, n_bits=bits, radius=wanted.radius, embeddings=kind)


def _check_same(store: Store, wanted: _Wanted) -> None:
    """Check that options for a new store agree with this one.

    Raises:
        InputError: one of them does not.
    """
    kept = None if store.embeddings is None else store.embeddings.dtype
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

    if (left.n_bits, left.input_shape) != (right.n_bits, right.input_shape):
        return False
    # Two encoders of one shape may see different parts of a picture.
    if getattr(left, "picture_form", None) != getattr(right, "picture_form", None):
        return False
    probes = np.random.default_rng(0).integers(0, 256, (_PROBES, *left.input_shape)).astype(np.float32)
    different = np.bitwise_count(left.encode(probes) ^ right.encode(probes)).sum()
    return bool(different <= _ROUNDING * _PROBES * left.n_bits)
