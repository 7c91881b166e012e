"""`hamtarget calibrate`: which radius separates copies from coincidences."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hamtarget.cli.inputs.kinds import kind_of
from hamtarget.cli.inputs.records import STDIN, Record, open_records
from hamtarget.cli.inputs.stores import open_store, shown_place
from hamtarget.cli.terminal.arguments import AsJson, Key, Seed, Threads
from hamtarget.cli.terminal.bars import progress_on_stderr
from hamtarget.cli.terminal.output import Column, note, write_json, write_table
from hamtarget.errors import InputError, LimitError, MissingExtraError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hamtarget.codes import Codes
    from hamtarget.encoders import Encoder
    from hamtarget.evaluation.radius_advice import RadiusAdvice, RadiusRow
    from hamtarget.store import Store

# Codes that are taken of a larger store, at random.
_MOST_CODES = 2_000_000
# Pairs of many codes are counted as far as that takes seconds: an estimate is there. In nanoseconds, as expected.
_COUNTING_COST = 2e9
_COUNTING_SECONDS = 15.0
# Lines of the table, and those below the recommended radius where not all fit.
_LINES = 20
_LINES_BELOW = 12
_LINE_SUFFIXES = (".jsonl", ".ndjson", ".txt")


def calibrate(
    place: Annotated[
        str,
        typer.Argument(
            metavar="STORE",
            help="Store (folder or postgresql://...), index file, npy or npz of packed codes, or lines (- or a file).",
        ),
    ],
    rows: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Rows that are planned; by default as many as there are.")
    ] = None,
    false_pairs: Annotated[
        float | None,
        typer.Option(
            metavar="X", help="False pairs to allow; by default 1 for 1,000 rows. To delete without a look: 0.01."
        ),
    ] = None,
    label: Annotated[
        str | None,
        typer.Option(metavar="FIELD", help="Items whose payloads have the same FIELD are copies: measure recall."),
    ] = None,
    alter: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Alter N pictures of the store in 8 usual ways: measure recall."),
    ] = None,
    images: Annotated[
        list[Path] | None,
        typer.Option(metavar="DIR", help="With --alter: folder that the pictures are in; repeatable."),
    ] = None,
    key: Key = None,
    seed: Seed = 0,
    threads: Threads = 1,
    as_json: AsJson = False,
) -> None:
    """Recommend a radius for these codes: the largest at which few pairs of different things are found.

    The table shows for each radius how many false pairs to expect among the rows, and how many pairs of all kinds the
    codes at hand have. Pairs that are too rare to be counted are extrapolated. "about" marks an estimate by a sample.

    With --label or --alter, it also shows recall: the share of known copies within the radius.
    """
    from hamtarget.evaluation.radius_advice import advise_radius, label_distances

    if label is not None and alter is not None:
        raise InputError("--label and --alter are given; pass one of them: recall is measured on one kind of copies")
    given = _read(place, label=label, alter=alter, images=images or [], key=key, seed=seed)
    copies, by_alteration = None, None
    if label is not None:
        copies = label_distances(given.codes, given.labels, seed=seed)
        if len(copies) == 0:
            raise InputError(f"no two items of {shown_place(place)} have the same {label!r}; expected groups of copies")
    elif alter is not None:
        copies, by_alteration = _altered(given, place)
    with progress_on_stderr("Comparing") as tell:
        advice = advise_radius(
            given.codes,
            n_rows=rows or given.n_rows or None,
            encoder=given.encoder,
            copy_distances=copies,
            false_pairs=false_pairs,
            seed=seed,
            progress=tell,
        )
    advice, counted_to = _counted(advice, given.codes, threads)
    recall = {} if by_alteration is None else _recall_at(by_alteration, advice.radius)
    if as_json:
        told = {"path": shown_place(place), **asdict(advice)}
        write_json({**told, "recall_by_alteration": recall} if recall else told)
        return
    _write(advice, counted_to)
    typer.echo(f"\nRecommended radius: {advice.radius}. {advice.reason}")
    if recall:
        typer.echo(f"Found within it: {', '.join(f'{name} {share:.0%}' for name, share in recall.items())}.")
    if given.is_store:
        typer.echo(f"To list the pairs: hamtarget dups {shown_place(place)} --radius {advice.radius}")


@dataclass(frozen=True, eq=False)
class _Given:
    """Codes that were read, and what belongs to them."""

    codes: Codes
    n_rows: int
    labels: list[Any]
    encoder: Encoder | None = None
    pictures: tuple[Path, ...] = ()
    is_store: bool = False


def _read(
    place: str, *, label: str | None, alter: int | None, images: list[Path], key: str | None, seed: int
) -> _Given:
    """Read the codes at a place, and labels or paths of pictures if they are wanted."""
    import numpy as np

    is_lines = place == STDIN or Path(place).suffix.lower() in _LINE_SUFFIXES
    kind = "lines" if is_lines else kind_of(place)
    if alter is not None and kind != "store":
        raise InputError(f"--alter is given, and {place} is no store; pictures are found by the payloads of a store")
    if kind == "store":
        with open_store(place) as store:
            return _of_store(store, label=label, alter=alter, images=images, seed=seed)
    if label is not None and kind != "lines":
        raise InputError(f"--label is given, and {place} has no payloads; pass a store, or lines with payloads")
    if kind == "index":
        from hamtarget.cli.inputs.kinds import open_index

        index = open_index(Path(place))
        found = index.get(index.ids())
        codes = found[0] if isinstance(found, tuple) else found
        return _Given(codes, len(codes), [])
    if kind not in ("lines", "vectors"):
        raise InputError(f"{place} holds {kind}; expected a store, an index file, or a file of codes")
    labels: list[Any] = []
    codes = _stacked(_noted(open_records(place, codes=True, key=key).records, label, labels), place)
    return _Given(np.asarray(codes, dtype=np.uint8), len(codes), labels)


def _of_store(store: Store, *, label: str | None, alter: int | None, images: list[Path], seed: int) -> _Given:
    import numpy as np

    encoder = _encoder_of(store, needed=alter is not None)
    n_rows = store.stats().codes
    if label is not None:
        labels: list[Any] = []
        records = (
            Record(item.id, code=np.asarray(code, dtype=np.uint8).tobytes(), payload=dict(item.payload or {}))
            for item in store.scan()
            for code in ([item.code] if item.codes is None else np.asarray(item.codes))
        )
        with progress_on_stderr("Reading") as tell:
            codes = _stacked(_told(_noted(records, label, labels), tell, n_rows), str(store.path))
        return _Given(codes, n_rows, labels, encoder, is_store=True)
    pictures = () if alter is None else tuple(_pictures(store, alter, images, seed))
    codes = store.sample_codes(_MOST_CODES, seed=seed) if n_rows else _no_codes(store.n_bits)
    return _Given(codes, n_rows, [], encoder, pictures, is_store=True)


def _encoder_of(store: Store, *, needed: bool) -> Encoder | None:
    """Return the store's encoder; without the packages that it needs, do without, unless it is needed."""
    if not store.has_encoder:
        if needed:
            raise InputError(f"--alter is given, and {store.path} has no encoder; altered pictures must be encoded")
        return None
    try:
        return store.encoder
    except MissingExtraError:
        if needed:
            raise
        return None


def _pictures(store: Store, wanted: int, images: list[Path], seed: int) -> Iterator[Path]:
    """Yield the paths of pictures that payloads of the store name and that are there."""
    from hamtarget.datasets.pictures.picture_roots import PictureRoots

    roots = PictureRoots([*images, Path.cwd()])
    found = 0
    ids = store.sample_ids(max(1, len(store)), seed=seed) if len(store) else []
    for start in range(0, len(ids), 1024):
        for payload in store.payloads(ids[start : start + 1024]):
            name, folder = (payload or {}).get("image"), (payload or {}).get("folder")
            path = roots.find(name, folder)
            if path is None and isinstance(name, str) and os.path.isabs(name) and os.path.isfile(name):
                path = name
            if path is not None:
                yield Path(path)
                found += 1
                if found == wanted:
                    return
    if not found:
        raise InputError(
            f"no payload of {store.path} has the path of a picture that is there in its field 'image'; paths are "
            "within the folder that was added: pass it as --images"
        )
    note(f"hamtarget: {found:,} of {wanted:,} pictures are there")


def _altered(given: _Given, place: str) -> tuple[NDArray[Any], dict[str, NDArray[Any]]]:
    import numpy as np

    from hamtarget.evaluation.altered_pictures import altered_distances

    if given.encoder is None:
        raise InputError(f"{shown_place(place)} has no encoder; altered pictures must be encoded")
    with progress_on_stderr("Altering") as tell:
        by_alteration = altered_distances(given.encoder, given.pictures, progress=tell)
    return np.concatenate(list(by_alteration.values())), by_alteration


def _recall_at(by_alteration: dict[str, NDArray[Any]], radius: int) -> dict[str, float]:
    return {name: float((distances <= radius).mean()) for name, distances in by_alteration.items()}


def _noted(records: Iterable[Record], label: str | None, labels: list[Any]) -> Iterator[Record]:
    """Yield records, and keep their labels."""
    for record in records:
        if label is not None:
            value = record.payload.get(label) if isinstance(record.payload, dict) else None
            # Lists and objects cannot be keys; equal ones have equal texts.
            labels.append(value if value is None or isinstance(value, str | int | float) else repr(value))
        yield record


def _told(records: Iterator[Record], tell: Any, total: int) -> Iterator[Record]:
    for done, record in enumerate(records, start=1):
        yield record
        if done % 4096 == 0:
            tell(done, total)


def _stacked(records: Iterable[Record], place: str) -> Codes:
    """Return the codes of records as one array.

    Raises:
        InputError: a record is no code, or has another length than the first.
    """
    import numpy as np

    parts: list[bytes] = []
    for record in records:
        if record.code is None:
            raise InputError(f"{record.id!r} of {place} is no code; expected hexadecimal digits, or packed uint8 rows")
        if parts and len(record.code) != len(parts[0]):
            raise InputError(
                f"code of {record.id!r} has {8 * len(record.code)} bits, the first {8 * len(parts[0])}; "
                "expected codes of one length"
            )
        parts.append(bytes(record.code))
    if not parts:
        raise InputError(f"{place} holds no codes; expected at least one")
    return np.frombuffer(b"".join(parts), dtype=np.uint8).reshape(len(parts), -1)


def _no_codes(n_bits: int) -> Codes:
    import numpy as np

    return np.zeros((0, n_bits // 8), dtype=np.uint8)


def _counted(advice: RadiusAdvice, codes: Codes, threads: int) -> tuple[RadiusAdvice, int]:
    """Return the advice with pairs counted up to some radius, by a join if only a sample was compared."""
    import numpy as np

    from hamtarget.query import Bounds, Work
    from hamtarget.search import MultiIndex, pairs_within
    from hamtarget.search.tables import choose_substrings

    if advice.compared == advice.n_codes:
        return advice, len(advice.table)
    radius = advice.radius
    while radius > 0 and len(codes) * choose_substrings(len(codes), advice.n_bits, radius).cost > _COUNTING_COST:
        radius -= 1
    counts = np.zeros(advice.n_bits + 1, dtype=np.int64)
    index = MultiIndex(advice.n_bits, radius)
    index.add(np.arange(len(codes)), codes)
    try:
        with progress_on_stderr("Counting pairs") as tell:
            work = Work(Bounds(seconds=_COUNTING_SECONDS), threads, tell)
            for pairs in pairs_within(index, radius, work=work):
                counts += np.bincount(pairs.distances, minlength=advice.n_bits + 1)
    except LimitError:
        # More rows lie close together than the plan expected.
        return advice, -1
    within = np.cumsum(counts)
    # Beyond, a sample that happened to meet few pairs must not say fewer.
    table = tuple(
        replace(
            row,
            pairs_found=float(within[row.radius] if row.radius <= radius else max(within[radius], row.pairs_found)),
        )
        for row in advice.table
    )
    return replace(advice, table=table), radius


def _write(advice: RadiusAdvice, counted_to: int) -> None:
    from hamtarget.evaluation.radius_advice import figure

    has_recall = advice.table[0].recall is not None
    columns = [Column(name, number=True) for name in ("radius", "expected false pairs", "pairs found")]
    # Some codes have even distances only: an odd radius finds nothing more, and is left out.
    table = [
        row
        for row, before in zip(advice.table, (None, *advice.table), strict=False)
        if before is None or row.radius == advice.radius or _figures(row) != _figures(before)
    ]
    here = [row.radius for row in table].index(advice.radius)
    first = 0 if len(table) <= _LINES else max(0, here - _LINES_BELOW)
    lines = []
    for row in table[first : first + _LINES]:
        about = "" if row.radius <= counted_to else "about "
        line = [str(row.radius), figure(row.expected_false_pairs), f"{about}{row.pairs_found:,.0f}"]
        lines.append([*line, f"{row.recall:.1%}"] if has_recall and row.recall is not None else line)
    title = f"{advice.n_codes:,} codes of {advice.n_bits} bits; false pairs expected among {advice.n_rows:,} rows"
    write_table([*columns, Column("recall", number=True)] if has_recall else columns, lines, title=title)


def _figures(row: RadiusRow) -> tuple[float | None, ...]:
    return row.expected_false_pairs, row.pairs_found, row.recall
