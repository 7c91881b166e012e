"""`hamtarget index`: a store, made or extended."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from hamtarget.cli.inputs.records import Record, Records, open_records
from hamtarget.cli.terminal.errors import FOUND
from hamtarget.cli.terminal.options import AsJson, Key, Source, StorePath, Workers
from hamtarget.cli.terminal.output import note, write_json
from hamtarget.cli.terminal.progress import Telling, progress_on_stderr
from hamtarget.errors import FileError, InputError

if TYPE_CHECKING:
    from hamtarget.encoders.protocol import TrainedEncoder
    from hamtarget.search.embeddings import ElementName
    from hamtarget.store import Store

# What an interruption makes undone: a second's work or so.
_IMAGES_AT_ONCE = 1024
_ROWS_AT_ONCE = 16_384
# Unreadable images that are named one by one.
_NAMED = 10
# Random inputs by whose codes two models are told apart, and how many bits may differ by rounding alone.
_PROBES = 64
_ROUNDING = 0.01


def index(
    store: StorePath,
    source: Source = "-",
    model: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Model for a new store; none is needed for codes.")
    ] = None,
    bits: Annotated[
        int | None, typer.Option(metavar="N", help="Bits of a code of a new store; by default the model's.")
    ] = None,
    radius: Annotated[
        int | None, typer.Option(min=0, metavar="R", help="Usual search radius of a new store; the model's or 2.")
    ] = None,
    embeddings: Annotated[
        str | None,
        typer.Option(
            metavar="TYPE", help="A new store keeps embeddings too, to rank hits by: float32, float16 or int8."
        ),
    ] = None,
    replace_there: Annotated[
        bool, typer.Option("--replace", help="Replace what is there already, instead of skipping it.")
    ] = False,
    prefix: Annotated[str, typer.Option(metavar="TEXT", help="Put this before every id.")] = "",
    key: Key = None,
    batch: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Rows put at a time; by default 1,024 images, else 16,384.")
    ] = None,
    workers: Workers = 0,
    as_json: AsJson = False,
) -> None:
    """Put inputs into a store, which is made if it is not there: each batch is on disk before the next is read.

    Ids are paths within the folder, row numbers, or what the lines say. What is there already is skipped: after
    Ctrl-C, the same command goes on. An image that cannot be read is left out and named; the exit code is then 1.
    """
    records = open_records(source, codes=model is None and not _has_encoder(store), key=key)
    with progress_on_stderr("Building the index") as tell:
        # The first record tells how long codes are, where neither the store nor an option does.
        first, records = _peeked(records)
        opened = _open_or_create(store, model, bits, radius, embeddings, first, tell)
    if batch is None:
        batch = _IMAGES_AT_ONCE if first is not None and first.image is not None else _ROWS_AT_ONCE
    with opened:
        counts = _Counts()
        try:
            _put_all(opened, records, counts, replaces=replace_there, prefix=prefix, batch=batch, workers=workers)
        except KeyboardInterrupt as interrupt:
            raise KeyboardInterrupt(
                f"interrupted; {counts.stored:,} are stored, {len(opened):,} in all: the same command goes on"
            ) from interrupt
        total = len(opened)
    if as_json:
        write_json({"store": str(store), **vars(counts), "items": total})
    else:
        typer.echo(f"{store}: {counts.stored:,} stored, {counts.skipped:,} skipped; {total:,} in all")
    if counts.broken:
        note(f"hamtarget: {counts.broken:,} could not be read")
        raise typer.Exit(FOUND)


@dataclass
class _Counts:
    """What became of the records."""

    stored: int = 0
    skipped: int = 0
    broken: int = 0


def _put_all(
    store: Store, records: Records, counts: _Counts, *, replaces: bool, prefix: str, batch: int, workers: int
) -> None:
    from hamtarget.cli.inputs.encoding import embeddings_of, encode_records

    encoder: TrainedEncoder | None = store.encoder if store.has_encoder else None
    done = 0
    with progress_on_stderr("Indexing") as tell:
        for some in records.batches(batch):
            ids = [f"{prefix}{record.id}" if prefix else record.id for record in some]
            # Before images are read: what is there already costs next to nothing.
            there = [False] * len(ids) if replaces else [item is not None for item in store.get(ids)]
            wanted = {id: record for id, record, known in zip(ids, some, there, strict=True) if not known}
            named = [replace(record, id=id) if prefix else record for id, record in wanted.items()]
            encoded = encode_records(named, encoder, n_bits=store.n_bits, workers=workers)
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


def _has_encoder(path: Path) -> bool:
    return (path / "encoder").is_dir()


def _peeked(records: Records) -> tuple[Record | None, Records]:
    source: Iterator[Record] = iter(records.records)
    first = next(source, None)
    return first, Records(records.total, source if first is None else chain([first], source))


def _open_or_create(
    path: Path,
    model: Path | None,
    bits: int | None,
    radius: int | None,
    embeddings: str | None,
    first: Record | None,
    tell: Telling,
) -> Store:
    from hamtarget.encoders import open_encoder
    from hamtarget.search import Embeddings
    from hamtarget.store import Store

    encoder = None if model is None else open_encoder(model)
    if (path / "store.db").exists():
        with ExitStack() as stack:
            store = stack.enter_context(Store.open(path, progress=tell))
            _check_same(store, encoder, bits, radius, embeddings)
            # Only a store that is not wanted is closed here.
            stack.pop_all()
        return store
    if encoder is None and bits is None:
        if first is None or first.code is None:
            raise FileError(f"{path} is no store yet; to make one of images or vectors, pass --model")
        bits = 8 * len(first.code)
    kind = None
    if embeddings is not None:
        if encoder is None:
            raise InputError("--embeddings is given without --model; they are made by a model")
        kind = Embeddings(encoder.n_bits, cast("ElementName", embeddings), "cosine")
    return Store.create(path, encoder=encoder, n_bits=bits, radius=radius, embeddings=kind)


def _check_same(
    store: Store, encoder: TrainedEncoder | None, bits: int | None, radius: int | None, embeddings: str | None
) -> None:
    """Nothing, if options for a new store say what this one has.

    Raises:
        InputError: one says something else.
    """
    kept = None if store.embeddings is None else store.embeddings.dtype
    for name, given, own in (
        ("bits", bits, store.n_bits),
        ("radius", radius, store.radius),
        ("embeddings", embeddings, kept),
    ):
        if given is not None and given != own:
            raise InputError(f"--{name} is {given}; {store.path} has {own}: leave the option out, or make a new store")
    if encoder is None:
        return
    if not store.has_encoder or not _same_codes(encoder, store.encoder):
        raise InputError(
            f"--model is another model than that of {store.path}, whose codes mean something else: "
            "leave the option out, or make a new store"
        )


def _same_codes(left: TrainedEncoder, right: TrainedEncoder) -> bool:
    import numpy as np

    if (left.n_bits, left.input_shape) != (right.n_bits, right.input_shape):
        return False
    probes = np.random.default_rng(0).integers(0, 256, (_PROBES, *left.input_shape)).astype(np.float32)
    different = np.bitwise_count(left.encode(probes) ^ right.encode(probes)).sum()
    return bool(different <= _ROUNDING * _PROBES * left.n_bits)
