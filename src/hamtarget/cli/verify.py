"""`hamtarget verify`: is a store, a model or a file whole?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from hamtarget.cli.inputs.kinds import kind_of
from hamtarget.cli.terminal.errors import FOUND
from hamtarget.cli.terminal.options import AsJson
from hamtarget.cli.terminal.output import write_json
from hamtarget.cli.terminal.progress import progress_on_stderr
from hamtarget.errors import CorruptFileError, NotFiniteError


def verify(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="Store, model, index file, vectors, or images.")],
    as_json: AsJson = False,
) -> None:
    """Every checksum, and in a store every row against the index; for vectors and images, whether all can be read.

    The exit code is 0 where everything is whole, 1 where something is damaged, 2 where there is nothing to look at.
    """
    kind = kind_of(path)
    try:
        count, problems = _CHECKS[kind](path)
    except (CorruptFileError, NotFiniteError) as error:
        count, problems = 0, [str(error)]
    if as_json:
        write_json({"path": str(path), "kind": kind, "rows": count, "problems": list(problems), "whole": not problems})
    else:
        for problem in problems:
            typer.echo(problem)
        typer.echo(f"{path}: {'DAMAGED' if problems else 'whole'} ({kind}{f', {count:,} rows' if count else ''})")
    if problems:
        raise typer.Exit(FOUND)


def _store(path: Path) -> tuple[int, Sequence[str]]:
    from hamtarget.encoders import open_encoder
    from hamtarget.store import Store

    with progress_on_stderr("Building the index") as tell:
        opened = Store.open(path, read_only=True, progress=tell)
    with opened, progress_on_stderr("Verifying") as tell:
        report = opened.verify(progress=tell)
        problems = list(report.problems)
        if report.n_problems > len(problems):
            problems.append(f"and {report.n_problems - len(problems):,} more")
        if opened.has_encoder:
            try:
                open_encoder(path / "encoder")
            except CorruptFileError as error:
                problems.append(str(error))
    return report.items, problems


def _model(path: Path) -> tuple[int, Sequence[str]]:
    from hamtarget.encoders.onnx_encoder import OnnxEncoder

    export = path / "model.onnx" if path.is_dir() else path
    if export.exists():
        OnnxEncoder(export)
    if (path / "model.safetensors").exists():
        from hamtarget.learn.weights import read_tensors

        read_tensors(path / "model.safetensors", kind="model")
    return 0, ()


def _index(path: Path) -> tuple[int, Sequence[str]]:
    from hamtarget.cli.inputs.index_files import open_index

    # A copy instead of a map, so that every byte is read and checked now.
    return len(open_index(path, mmap=False)), ()


def _images(path: Path) -> tuple[int, Sequence[str]]:
    from hamtarget.datasets.image_sets import ImageSet, image_files
    from hamtarget.datasets.images import decode_images

    sources = ImageSet.from_csv(path).sources if path.is_file() else image_files(path)
    with progress_on_stderr("Reading images") as tell:
        decoded = decode_images(sources, (8, 8), progress=tell)
    return len(sources), list(decoded.broken.values())


def _vectors(path: Path) -> tuple[int, Sequence[str]]:
    from hamtarget.datasets import open_vectors

    # Opening reads every row once.
    return len(open_vectors(path)), ()


_CHECKS = {"store": _store, "model": _model, "index": _index, "images": _images, "vectors": _vectors}
