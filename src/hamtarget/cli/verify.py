"""`hamtarget verify`: checks a store, a model or a file for damage."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from hamtarget.cli.inputs.kinds import Kind, kind_of
from hamtarget.cli.inputs.stores import open_store, shown_place
from hamtarget.cli.terminal.arguments import AsJson
from hamtarget.cli.terminal.bars import progress_on_stderr
from hamtarget.cli.terminal.failures import FOUND
from hamtarget.cli.terminal.output import note, write_json
from hamtarget.errors import CorruptFileError, NotFiniteError


@dataclass(frozen=True)
class _Checked:
    """Rows that were read, and what is wrong with them."""

    rows: int = 0
    problems: Sequence[str] = ()


def verify(
    path: Annotated[
        str, typer.Argument(metavar="PATH", help="Store (folder or postgresql://...), model, index, vectors or images.")
    ],
    as_json: AsJson = False,
) -> None:
    """Check a store (every checksum, every row against the index), a model, an index file, vectors or images.

    The exit code is 0 where everything is whole, 1 where something is damaged, 2 where there is nothing to check.
    """
    kind = kind_of(path)
    try:
        checked = _CHECKS[kind](path)
    except (CorruptFileError, NotFiniteError) as error:
        checked = _Checked(problems=[str(error)])
    shown = shown_place(path)
    if as_json:
        problems = list(checked.problems)
        write_json({"path": shown, "kind": kind, "rows": checked.rows, "problems": problems, "whole": not problems})
    else:
        for problem in checked.problems:
            typer.echo(problem)
        rows = f", {checked.rows:,} rows" if checked.rows else ""
        typer.echo(f"{shown}: {'DAMAGED' if checked.problems else 'whole'} ({kind}{rows})")
    if checked.problems:
        raise typer.Exit(FOUND)


def _store(place: str) -> _Checked:
    with open_store(place) as store, progress_on_stderr("Verifying") as tell:
        report = store.verify(progress=tell)
        problems = list(report.problems)
        if report.n_problems > len(problems):
            problems.append(f"and {report.n_problems - len(problems):,} more")
    for line in report.unchecked:
        note(f"not checked: {line}")
    return _Checked(report.items, problems)


def _model(place: str) -> _Checked:
    from hamtarget.encoders import open_encoder
    from hamtarget.encoders.onnx_encoder import OnnxEncoder

    path = Path(place)
    export, weights = path / "model.onnx", path / "model.safetensors"
    if not weights.exists():
        open_encoder(place)
        return _Checked()
    if export.exists():
        OnnxEncoder(export)
    from hamtarget.learn.files.weights import read_tensors

    read_tensors(weights, kind="model")
    return _Checked()


def _index(place: str) -> _Checked:
    from hamtarget.cli.inputs.kinds import open_index

    # A copy instead of a map, so that every byte is read and checked now.
    return _Checked(len(open_index(Path(place), mmap=False)))


def _neighbors(place: str) -> _Checked:
    from hamtarget.search import NeighborIndex

    # Opening reads and checks all of it.
    return _Checked(len(NeighborIndex.open(place)))


def _images(place: str) -> _Checked:
    from hamtarget.datasets.pictures.image_sets import ImageSet, image_files
    from hamtarget.datasets.pictures.images import decode_images

    path = Path(place)
    sources = ImageSet.from_csv(path).sources if path.is_file() else image_files(path)
    with progress_on_stderr("Reading images") as tell:
        decoded = decode_images(sources, (8, 8), progress=tell)
    return _Checked(len(sources), list(decoded.broken.values()))


def _vectors(place: str) -> _Checked:
    from hamtarget.datasets import open_vectors

    # Opening reads every row once.
    return _Checked(len(open_vectors(Path(place))))


_CHECKS: dict[Kind, Callable[[str], _Checked]] = {
    "store": _store,
    "model": _model,
    "index": _index,
    "neighbors": _neighbors,
    "images": _images,
    "vectors": _vectors,
}
