"""`hamtarget sync`: lets a store follow a folder of pictures that changes."""

from __future__ import annotations

import os
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hamtarget.cli.inputs.new_stores import WantedStore, check_same, chosen_encoder, create_store, open_existing
from hamtarget.cli.inputs.stores import shown_place
from hamtarget.cli.terminal.arguments import AsJson, StorePlace
from hamtarget.cli.terminal.bars import named_progress_on_stderr
from hamtarget.cli.terminal.failures import FOUND
from hamtarget.cli.terminal.output import note, printable, write_json
from hamtarget.errors import FileError

if TYPE_CHECKING:
    from hamtarget.folders.syncing import SyncReport
    from hamtarget.store import Store

# Skipped files that are named one by one.
_NAMED = 10


def sync(
    store: StorePlace,
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder of pictures; in it and below.")],
    model: Annotated[Path | None, typer.Option(metavar="DIR", help="Model of a new store.")] = None,
    encoder: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Encoder of a new store: copies64 (default), copies256, phash, dhash or pdq.",
        ),
    ] = None,
    radius: Annotated[
        int | None,
        typer.Option(min=0, metavar="R", help="Default search radius of a new store; by default the encoder's."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Change nothing; list what would be done.")] = False,
    delete: Annotated[
        bool,
        typer.Option("--delete/--keep-missing", help="Remove the items of pictures that are gone, or keep them."),
    ] = True,
    allow_empty: Annotated[
        bool, typer.Option("--allow-empty", help="Remove all items if the folder holds no picture.")
    ] = False,
    prefix: Annotated[str, typer.Option(metavar="TEXT", help="Put this before every id.")] = "",
    name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Name of the folder in the store; by default the last part of its path."),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(min=0, metavar="N", help="Processes that read pictures; by default one for each core."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make a store hold the pictures of a folder as they are now; it is made if it is not there.

    New pictures are added, changed ones replaced, those that are gone removed. A picture whose size and time are as
    they were is not opened; one that was moved or renamed keeps its code. After Ctrl-C, the same command goes on. A
    picture that cannot be read is named and left out; the exit code is then 1.

    A folder without any picture is taken for a disk that is not there: nothing is removed unless --allow-empty says so.
    """
    from hamtarget.folders import sync_folder

    with ExitStack() as stack:
        opened = _opened(store, model, encoder, radius, dry_run=dry_run, stack=stack)
        try:
            with named_progress_on_stderr() as tell:
                report = sync_folder(
                    opened,
                    folder,
                    prefix=prefix,
                    name=name,
                    removes_missing=delete,
                    allow_empty=allow_empty,
                    dry_run=dry_run,
                    workers=workers,
                    progress=tell,
                )
        except KeyboardInterrupt as interrupt:
            raise KeyboardInterrupt("interrupted; the same command goes on") from interrupt
    if as_json:
        write_json({"store": shown_place(store), **report.as_dict()})
    else:
        _write(report, shown_place(store))
    if report.skipped:
        raise typer.Exit(FOUND)


def _opened(
    place: str, model: Path | None, encoder: str | None, radius: int | None, *, dry_run: bool, stack: ExitStack
) -> Store:
    """Open the store, or make it; of a dry run, it is made in a folder that is gone at the end."""
    from hamtarget.copies.finding import DEFAULT_ENCODER

    found = open_existing(place)
    if found is not None:
        stack.enter_context(found)
    else:
        _check_not_pictures(place)
        if model is None and encoder is None:
            encoder = DEFAULT_ENCODER
    wanted = WantedStore(chosen_encoder(model, encoder), None, radius, None)
    if found is not None:
        check_same(found, wanted)
        return found
    if dry_run:
        place = str(Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hamtarget-"))) / "store")
    return stack.enter_context(create_store(place, wanted))


def _check_not_pictures(place: str) -> None:
    """Check that the place of a new store is no folder of pictures.

    Raises:
        FileError: it has a picture; store and folder may have been exchanged.
    """
    from hamtarget.datasets.pictures.picture_formats import IMAGE_SUFFIXES

    if os.path.isdir(place) and any(name.lower().endswith(IMAGE_SUFFIXES) for name in os.listdir(place)):
        raise FileError(f"{place} holds pictures, and is no store; the store comes first: hamtarget sync STORE FOLDER")


def _write(report: SyncReport, place: str) -> None:
    if report.dry_run:
        for what, names in (("add", report.added), ("replace", report.replaced), ("remove", report.removed)):
            for name in names:
                typer.echo(f"{what}\t{printable(name)}")
        for before, after in report.moved:
            typer.echo(f"move\t{printable(before)}\t{printable(after)}")
    for name, reason in list(report.skipped.items())[:_NAMED]:
        note(f"hamtarget: left out {printable(name)}: {printable(reason)}")
    if len(report.skipped) > _NAMED:
        note(f"hamtarget: left out {len(report.skipped) - _NAMED:,} more; --json names them all")
    typer.echo(f"{place}: {report}")
