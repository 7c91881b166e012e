"""`hamtarget dups`: copies in a folder of pictures, in a file of texts, or in a store."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hamtarget.cli.groups import listed_groups
from hamtarget.cli.inputs.records import STDIN
from hamtarget.cli.inputs.stores import open_store
from hamtarget.cli.terminal.arguments import AsJson, IdColumn, TextColumn, Threads
from hamtarget.cli.terminal.bars import named_progress_on_stderr, progress_on_stderr
from hamtarget.cli.terminal.failures import FOUND
from hamtarget.cli.terminal.output import note, printable, write_json
from hamtarget.errors import InputError

if TYPE_CHECKING:
    from hamtarget.copies.results import FoundCopies

# Unreadable pictures that are named one by one.
_NAMED = 10
# Characters of a text that a line shows.
_SHOWN = 100


def dups(
    place: Annotated[
        str,
        typer.Argument(
            metavar="PLACE",
            help="Folder of pictures, CSV or .txt of their paths, or - for lines; texts: JSONL, TSV, CSV with a column "
            "`text` or with --text-column (also .gz); or a store: folder or address.",
        ),
    ],
    encoder: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="For pictures: copies64 (default), copies256, phash, dhash, pdq, or the folder of a model. For texts: "
            "simhash64 (default), or the folder of a sentence model.",
        ),
    ] = None,
    radius: Annotated[
        int | None,
        typer.Option(min=0, metavar="R", help="Within R bits; by default the store's radius, or what suits the codes."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="For pictures and texts: write the groups to a .json, .csv or .html instead."
        ),
    ] = None,
    text_column: TextColumn = None,
    id_column: IdColumn = None,
    groups: Annotated[
        bool, typer.Option("--groups", help="In a store: list groups of connected items instead of pairs.")
    ] = False,
    workers: Annotated[
        int | None,
        typer.Option(min=0, metavar="N", help="Processes that read pictures; by default one for each core."),
    ] = None,
    threads: Threads = 1,
    as_json: AsJson = False,
) -> None:
    """Find copies among pictures, near copies among texts, or near duplicates in a store.

    Of a folder of pictures, each group has its best picture first, the one with the most pixels. The others are
    within the radius of it. Codes are kept by content: after Ctrl-C, or with new pictures, only what is new is read. A
    picture that cannot be read is named and left out; the exit code is then 1.

    Of a file of texts, each group has its longest text first. A line that cannot be read is named and left out; the
    exit code is then 1.

    Of a store, all pairs within the radius are listed, each once, as they are found: id, id and distance between tabs.
    No pair is missed. With --groups, each line is a group: items that a chain of such pairs connects, largest groups
    first. `hamtarget groups` gives them with their ids, sizes and distances.

    With --json, each line is an object (a group of pictures, or a pair) or a list of ids (a group of a store).
    """
    if _is_store(place):
        for option, given in {
            "--encoder": encoder,
            "--out": out,
            "--workers": workers,
            "--text-column": text_column,
            "--id-column": id_column,
        }.items():
            if given is not None:
                raise InputError(
                    f"{option} is given, but {place} is a store; the option is for a folder of pictures or for texts"
                )
        _of_store(place, radius, groups=groups, threads=threads, as_json=as_json)
    elif _holds_texts(place, encoder, text_column or id_column):
        _of_texts(place, text_column, id_column, encoder, radius, out, threads=threads, as_json=as_json)
    else:
        _of_pictures(place, encoder, radius, out, workers=workers, threads=threads, as_json=as_json)


def _is_store(place: str) -> bool:
    from hamtarget.store.postgres.address import is_address

    return is_address(place) or os.path.exists(os.path.join(place, "store.db"))


def _holds_texts(place: str, encoder: str | None, column: str | None) -> bool:
    """Return True if a file holds texts: by its suffix or its column `text`, or since an option says so.

    A CSV without that column names pictures.
    """
    from hamtarget.datasets.texts.text_files import column_names, is_text_file
    from hamtarget.encoders.hash_files import TEXT_HASHES
    from hamtarget.encoders.sentence.model_folder import TOKENIZER_NAME

    if column is not None or encoder in TEXT_HASHES:
        return True
    if encoder is not None and os.path.exists(os.path.join(encoder, TOKENIZER_NAME)):
        return True
    if encoder is not None or not is_text_file(place):
        return False
    plain = place.lower().removesuffix(".gz")
    if plain.endswith(".csv"):
        columns = column_names(place) if os.path.isfile(place) else None
        return columns is not None and "text" in columns and "path" not in columns
    return not plain.endswith(".txt")


def _of_texts(
    place: str,
    text_column: str | None,
    id_column: str | None,
    encoder: str | None,
    radius: int | None,
    out: Path | None,
    *,
    threads: int,
    as_json: bool,
) -> None:
    from hamtarget.copies.report_files import check_report_name
    from hamtarget.copies.results import counted
    from hamtarget.copies.text_finding import DEFAULT_TEXT_ENCODER, find_text_copies
    from hamtarget.copies.text_reports import write_text_report
    from hamtarget.query import Work

    if out is not None:
        check_report_name(out)
    with named_progress_on_stderr() as tell:
        found = find_text_copies(
            place,
            text_column=text_column,
            id_column=id_column,
            encoder=encoder or DEFAULT_TEXT_ENCODER,
            radius=radius,
            work=Work(threads=threads),
            stages=tell,
        )
    note(f"hamtarget: copies are within {found.radius} bits of the longest text ({found.encoder}){_choice(radius)}")
    note(f"hamtarget: {found.reason}")
    if out is not None:
        write_text_report(found, out)
    for number, group in enumerate(found if out is None else [], start=1):
        if as_json:
            write_json({"texts": [copy.as_dict() for copy in group]})
            continue
        typer.echo(f"Group {number:,}: {len(group):,} texts")
        ids = [printable(copy.id) for copy in group]
        relations = ["same text" if copy.is_identical else f"distance {copy.distance}" for copy in group]
        relations[0] = "longest"
        widths = [max(map(len, column)) for column in (ids, relations)]
        for copy, id, relation in zip(group, ids, relations, strict=True):
            typer.echo(f"  {id:<{widths[0]}}  {relation:<{widths[1]}}  {printable(copy.excerpt[:_SHOWN])}")
    for reason in found.broken[:_NAMED]:
        note(f"hamtarget: left out {printable(reason)}")
    if found.n_broken:
        note(f"hamtarget: {found.n_broken:,} could not be read")
    where = "" if out is None else f": {out}"
    groups = (
        f"{counted(len(found), 'group')} with {found.n_grouped:,} of them" if len(found) else "no copies among them"
    )
    note(f"hamtarget: {counted(found.n_texts, 'text')}, {groups}{where}")
    if found.n_broken:
        raise typer.Exit(FOUND)


def _of_store(place: str, radius: int | None, *, groups: bool, threads: int, as_json: bool) -> None:
    from hamtarget.copies.results import counted
    from hamtarget.query import Work

    found = 0
    if groups:
        for group in listed_groups(place, radius, threads=threads):
            found += 1
            ids = [member.id for member in group.members]
            write_json(ids) if as_json else typer.echo("\t".join(map(printable, ids)))
        note(f"hamtarget: {counted(found, 'group')}")
        return
    with open_store(place) as opened, progress_on_stderr("Comparing") as tell:
        for a, b, distance in opened.near_duplicates(radius, work=Work(threads=threads, progress=tell)):
            found += 1
            if as_json:
                write_json({"a": a, "b": b, "distance": distance})
            else:
                typer.echo(f"{printable(a)}\t{printable(b)}\t{distance}")
    note(f"hamtarget: {counted(found, 'pair')}")


def _of_pictures(
    place: str,
    encoder: str | None,
    radius: int | None,
    out: Path | None,
    *,
    workers: int | None,
    threads: int,
    as_json: bool,
) -> None:
    from hamtarget.copies import find_copies
    from hamtarget.copies.finding import DEFAULT_ENCODER
    from hamtarget.copies.report_files import check_report_name, write_report
    from hamtarget.query import Work

    if out is not None:
        check_report_name(out)
    try:
        with named_progress_on_stderr() as tell:
            found = find_copies(
                _lines() if place == STDIN else place,
                encoder=encoder or DEFAULT_ENCODER,
                radius=radius,
                workers=workers,
                work=Work(threads=threads),
                stages=tell,
            )
    except KeyboardInterrupt as interrupt:
        raise KeyboardInterrupt("interrupted; the same command goes on") from interrupt
    _check_names_pictures(place, found)
    note(f"hamtarget: copies are within {found.radius} bits of the best picture ({found.encoder}){_choice(radius)}")
    note(f"hamtarget: {found.reason}")
    if out is not None:
        with progress_on_stderr("Writing") as tell_drawn:
            write_report(found, out, progress=tell_drawn)
    elif as_json:
        for group in found:
            write_json({"pictures": [copy.as_dict() for copy in group]})
    else:
        _write_text(found)
    _write_sum(found, out)
    if found.broken:
        raise typer.Exit(FOUND)


def _check_names_pictures(place: str, found: FoundCopies) -> None:
    """Check that a file of paths is not one of texts.

    Raises:
        InputError: there is nothing at any of its paths.
    """
    if found.n_pictures or not os.path.isfile(place) or any(map(os.path.exists, found.broken)):
        return
    from hamtarget.datasets.texts.text_files import column_names

    columns = column_names(place)
    advice = (
        f"for texts pass --encoder simhash64; of codes make a store: hamtarget add STORE {printable(place)}"
        if columns is None
        else f"for texts pass --text-column NAME; the columns are {', '.join(map(printable, columns))}"
    )
    raise InputError(
        f"{place} was taken for a list of pictures, but none of its {len(found.broken):,} paths leads to a file; "
        f"{advice}"
    )


def _lines() -> list[str]:
    # Names need not be UTF-8.
    return [name for line in sys.stdin.buffer if (name := os.fsdecode(line.rstrip(b"\r\n")))]


def _write_text(found: FoundCopies) -> None:
    for number, group in enumerate(found, start=1):
        typer.echo(f"Group {number:,}: {len(group):,} pictures")
        sizes = [f"{copy.width} x {copy.height}" for copy in group]
        lengths = [f"{copy.n_bytes:,} bytes" for copy in group]
        relations = ["same bytes" if copy.is_identical else f"distance {copy.distance}" for copy in group]
        relations[0] = "best"
        widths = [max(map(len, column)) for column in (sizes, lengths, relations)]
        for copy, size, length, relation in zip(group, sizes, lengths, relations, strict=True):
            typer.echo(f"  {size:>{widths[0]}}  {length:>{widths[1]}}  {relation:<{widths[2]}}  {printable(copy.path)}")


def _write_sum(found: FoundCopies, out: Path | None) -> None:
    from hamtarget.answer import bytes_in_words
    from hamtarget.copies.results import counted

    for reason in list(found.broken.values())[:_NAMED]:
        note(f"hamtarget: left out {printable(reason)}")
    if found.broken:
        note(f"hamtarget: {len(found.broken):,} could not be read")
    where = "" if out is None else f": {out}"
    pictures = counted(found.n_pictures, "picture")
    if not len(found):
        note(f"hamtarget: {pictures}, no copies among them{where}")
        return
    groups = f"{counted(len(found), 'group')} with {found.n_grouped:,} of them"
    size = f"all but the best of each take {bytes_in_words(found.copied_bytes)}"
    note(f"hamtarget: {pictures}, {groups}; {size}{where}")


def _choice(radius: int | None) -> str:
    """Return how to choose a radius, for whoever has not chosen one."""
    return "; --radius R finds more or fewer" if radius is None else ""
